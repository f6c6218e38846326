"""Only `adapters/egress` opens connections that leave the server. Read from the source."""

from __future__ import annotations

import ast
import re

from tests.architecture.sources import SERVER, calls, files, outline, text

CONNECTS = {
    "ClientSession", "TCPConnector", "PoolManager", "ProxyManager", "HTTPConnection", "HTTPSConnection",
    "open_connection", "create_connection", "create_datagram_endpoint", "sock_connect", "connect",
    "connect_ex", "getaddrinfo", "gethostbyname", "urlopen", "secure_channel", "insecure_channel",
    "sock_sendto", "sendto",
}  # fmt: skip
"""Names of functions and classes that connect, or resolve a name in order to."""

NAMES = re.compile(rf"\b({'|'.join(CONNECTS)})\b")

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
    ("rpc/server/server.py", "getaddrinfo"),
    ("health.py", "secure_channel"),
    ("health.py", "insecure_channel"),
    # Inside of a sandbox, to the socket of the proxy.
    ("adapters/sandbox/forwarder.py", "connect"),
    # In the helper process, which `egress.confine` keeps to the proxy.
    ("adapters/models/litellm/worker.py", "ClientSession"),
    ("adapters/models/litellm/worker.py", "TCPConnector"),
}

SOURCES = {
    where: path
    for path in files(SERVER)
    if not (where := path.relative_to(SERVER).as_posix()).startswith("adapters/egress/")
}


def has(call: ast.Call, name: str) -> bool:
    return any(keyword.arg == name for keyword in call.keywords)


def test_no_other_module_opens_a_connection() -> None:
    found = [
        f"{where}:{call.lineno} calls {name}"
        for where, path in SOURCES.items()
        if NAMES.search(text(path))
        for name, call in calls(path)
        if name in CONNECTS
        and not where.startswith("adapters/sqlite/")
        and (where, name) not in EXEMPT
        # A stream over a socket that is there already, such as a pair of sockets with a helper process.
        and not has(call, "sock")
    ]
    assert not found


def test_no_other_module_imports_an_http_client() -> None:
    for where, path in SOURCES.items():
        # S3's client is given a pool of `egress`, and looks at the errors of urllib3.
        refused = CLIENTS - ({"urllib3"} if where == "adapters/s3/blobs.py" else set())
        for name, line, _ in outline(path).imports:
            assert not refused & {name, name.rpartition(".")[0]}, f"{where}:{line} imports {name}"


def test_every_helper_process_is_confined() -> None:
    for worker in ("adapters/models/litellm/worker.py", "adapters/embedders/worker.py"):
        assert "confine" in [name for name, _ in calls(SERVER / worker)]
