"""Only `adapters/egress` opens connections that leave the server. Read from the source."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

SERVER = Path(__file__).parents[2] / "server" / "wonder_server"

CONNECTS = {
    "ClientSession", "TCPConnector", "PoolManager", "ProxyManager", "HTTPConnection", "HTTPSConnection",
    "open_connection", "create_connection", "create_datagram_endpoint", "sock_connect", "connect",
    "connect_ex", "getaddrinfo", "gethostbyname", "urlopen", "secure_channel", "insecure_channel",
    "sock_sendto", "sendto",
}  # fmt: skip
"""Names of functions and classes that connect, or resolve a name in order to."""

CLIENTS = {
    "requests",
    "httpx",
    "urllib3",
    "http.client",
    "ftplib",
    "smtplib",
    "telnetlib",
    "websockets",
    "pycurl",
}

EXEMPT = {
    # Where the server itself listens, and its own health check of that address.
    ("rpc/server.py", "getaddrinfo"),
    ("health.py", "secure_channel"),
    ("health.py", "insecure_channel"),
    # Inside of a sandbox, to the socket of the proxy.
    ("adapters/sandbox/forwarder.py", "connect"),
    # In the helper process, which `egress.confine` keeps to the proxy.
    ("adapters/models/litellm_worker.py", "ClientSession"),
    ("adapters/models/litellm_worker.py", "TCPConnector"),
}

SOURCES = [
    path
    for path in sorted(SERVER.rglob("*.py"))
    if not path.relative_to(SERVER).as_posix().startswith("adapters/egress/")
]


def calls(path: Path) -> Iterator[tuple[str, ast.Call]]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Call):
            yield ast.unparse(node.func), node


def has(call: ast.Call, name: str) -> bool:
    return any(keyword.arg == name for keyword in call.keywords)


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.relative_to(SERVER).as_posix())
def test_no_other_module_opens_a_connection(path: Path) -> None:
    where = path.relative_to(SERVER).as_posix()
    for name, call in calls(path):
        last = name.rpartition(".")[2]
        if last not in CONNECTS or where.startswith("adapters/sqlite/") or (where, last) in EXEMPT:
            continue
        # A stream over a socket that is there already, such as a pair of sockets with a helper process.
        assert has(call, "sock"), f"{where}:{call.lineno} calls {name}"


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.relative_to(SERVER).as_posix())
def test_no_other_module_imports_an_http_client(path: Path) -> None:
    where = path.relative_to(SERVER).as_posix()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        else:
            names = [node.module or ""] if isinstance(node, ast.ImportFrom) else []
        # S3's client is given a pool of `egress`, and looks at the errors of urllib3.
        allowed = CLIENTS - ({"urllib3"} if where == "adapters/s3/blobs.py" else set())
        assert not allowed & set(names), f"{where}:{node.lineno} imports {names}"


def test_git_reaches_other_machines_with_a_lease_only() -> None:
    """Without one it speaks no protocol but ``file``; see `Git.reach`."""
    from wonder_server.adapters.git.run import Git

    folder, seen = Path("/nowhere"), []
    git = Git({"PATH": "/usr/bin"})
    git._run = lambda arguments, environment, **_: seen.append(environment)  # type: ignore[method-assign]
    git.reach(folder, "ls-remote", "https://example.com/a", seconds=1)
    assert seen[0]["GIT_ALLOW_PROTOCOL"] == "file"


def test_every_helper_process_is_confined() -> None:
    for worker in ("adapters/models/litellm_worker.py", "adapters/embedders/worker.py"):
        assert "confine" in [name for name, _ in calls(SERVER / worker)]
