"""Remote repositories: reached only where the project's network policy allows, with every protocol."""

from __future__ import annotations

import asyncio
import http.server
import os
import random
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.services.content.repositories_kit import UsersRepository, need_git
from wonder_server.adapters.egress.dialing import Dialer
from wonder_server.adapters.egress.proxy import Egress
from wonder_server.adapters.git.hosts.host_folders import HostAccess
from wonder_server.adapters.git.origins import DEFAULT_FETCH_BYTES, GitOrigins
from wonder_server.adapters.git.repositories import GitRepositories
from wonder_server.adapters.git.storage.command import Git, ThreadPool
from wonder_server.core.definitions.resources import NetworkPolicy
from wonder_server.core.errors import Fault, Reason, WonderError
from wonder_server.core.paths import check_repository_url, repository_host
from wonder_server.ports.workspaces import Remote

need_git()

HERE = "127.0.0.1"
ALLOWED = NetworkPolicy(http_allow=("code.example",))


class Names:
    def __init__(self, *answers: str) -> None:
        self._answers = list(answers)
        self.asked: list[str] = []

    async def __call__(self, host: str, port: int) -> Sequence[str]:
        self.asked.append(host)
        return [self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]]


@asynccontextmanager
async def reaching(
    folder: Path,
    *addresses: str,
    environment: dict[str, str] | None = None,
    max_fetch_bytes: int = DEFAULT_FETCH_BYTES,
) -> AsyncIterator[tuple[GitOrigins, Names]]:
    names, pool = Names(*(addresses or (HERE,))), ThreadPool(4, "git")
    egress = Egress(Dialer(names))
    git = Git({"PATH": os.environ["PATH"], **(environment or {})})
    origins = GitOrigins(
        GitRepositories(git, pool, folder / "repositories"),
        pool,
        egress,
        HostAccess(folder),
        max_fetch_bytes=max_fetch_bytes,
    )
    try:
        yield origins, names
    finally:
        await origins.close()
        await pool.close()
        await egress.close()


class Site:
    """A web server with a repository as plain files. ``asked`` has the requested paths."""

    def __init__(self, folder: Path) -> None:
        self.asked: list[str] = []
        self.redirect = ""
        site = self

        class Handler(http.server.SimpleHTTPRequestHandler):
            def __init__(self, *arguments: Any, **named: Any) -> None:
                super().__init__(*arguments, directory=str(folder), **named)

            def do_GET(self) -> None:
                site.asked.append(self.path)
                if site.redirect:
                    self.send_response(301)
                    self.send_header("Location", site.redirect + self.path)
                    self.end_headers()
                else:
                    super().do_GET()

            def log_message(self, *_: object) -> None: ...

        self.server = http.server.ThreadingHTTPServer((HERE, 0), Handler)
        self.port = self.server.server_address[1]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    origin = UsersRepository(tmp_path / "work")
    bare = tmp_path / "site" / "code.git"
    origin.git("clone", "--quiet", "--bare", str(origin.folder), str(bare))
    subprocess.run(["git", "update-server-info"], cwd=bare, check=True)
    (bare / "git-daemon-export-ok").touch()
    return tmp_path / "site"


@pytest.fixture
def site(folder: Path) -> Iterator[Site]:
    found = Site(folder)
    thread = threading.Thread(target=found.server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield found
    found.server.shutdown()
    found.server.server_close()
    thread.join()


def origin(url: str, network: NetworkPolicy = ALLOWED) -> Remote:
    return Remote(name="proj_1.code", url=url, network=network)


async def fault(origins: GitOrigins, found: Remote) -> Fault:
    with pytest.raises(WonderError) as caught:
        await origins.fetch(found)
    return caught.value.fault


async def test_http_resolves_once_and_connects_to_that_address(tmp_path: Path, site: Site) -> None:
    async with reaching(tmp_path / "data") as (origins, names):
        assert await origins.fetch(origin(f"http://code.example:{site.port}/code.git")) == "main"
        assert site.asked and set(names.asked) == {"code.example"}


@pytest.mark.parametrize("scheme", ["http", "https", "git", "ssh"])
@pytest.mark.parametrize(
    "host", ["near.example", HERE, "[::1]", "169.254.169.254", "metadata.google.internal"]
)
async def test_no_protocol_reaches_what_the_policy_refuses(
    tmp_path: Path, site: Site, scheme: str, host: str
) -> None:
    async with reaching(tmp_path / "data") as (origins, _):
        found = await fault(origins, origin(f"{scheme}://{host}:{site.port}/code.git", NetworkPolicy()))
        assert found.reason is Reason.PERMISSION_DENIED, found
        assert site.asked == []


async def test_a_name_that_is_public_when_it_is_checked_is_not_asked_again(
    tmp_path: Path, site: Site
) -> None:
    async with reaching(tmp_path / "data", "10.0.0.1", HERE) as (origins, names):
        found = await fault(origins, origin(f"http://a.example:{site.port}/code.git", NetworkPolicy()))
        assert found.reason is Reason.PERMISSION_DENIED
        assert names.asked == ["a.example"] and site.asked == []


async def test_a_redirect_is_not_followed(tmp_path: Path, folder: Path, site: Site) -> None:
    inner = Site(folder)
    thread = threading.Thread(target=inner.server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    site.redirect = f"http://{HERE}:{inner.port}"
    try:
        async with reaching(tmp_path / "data") as (origins, _):
            found = await fault(origins, origin(f"http://code.example:{site.port}/code.git"))
        assert found.reason is Reason.STORAGE_UNAVAILABLE
        assert inner.asked == []
    finally:
        inner.server.shutdown()
        inner.server.server_close()
        thread.join()


async def test_the_operators_variables_do_not_lead_past_the_proxy(tmp_path: Path, site: Site) -> None:
    environment = {
        name: value
        for plain in ("no_proxy", "http_proxy")
        for name, value in (
            (plain, "*" if plain == "no_proxy" else f"http://{HERE}:{site.port}"),
            (plain.upper(), "*" if plain == "no_proxy" else f"http://{HERE}:{site.port}"),
        )
    }
    async with reaching(tmp_path / "data", environment=environment) as (origins, _):
        found = await fault(origins, origin(f"http://{HERE}:{site.port}/code.git", NetworkPolicy()))
        assert found.reason is Reason.PERMISSION_DENIED and site.asked == []


@contextmanager
def daemon(folder: Path) -> Iterator[int]:
    with socket.socket() as probe:
        probe.bind((HERE, 0))
        port = probe.getsockname()[1]
    command = [
        "git", "daemon", f"--base-path={folder}", "--reuseaddr", f"--listen={HERE}", f"--port={port}",
        str(folder),
    ]  # fmt: skip
    process = subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, start_new_session=True
    )
    try:
        while process.poll() is None:
            with socket.socket() as probe:
                if probe.connect_ex((HERE, port)) == 0:
                    break
        yield port
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


async def test_gits_own_protocol_goes_through_the_proxy(tmp_path: Path, folder: Path) -> None:
    with daemon(folder) as port:
        async with reaching(tmp_path / "data") as (origins, names):
            assert await origins.fetch(origin(f"git://code.example:{port}/code.git")) == "main"
            assert set(names.asked) == {"code.example"}


@pytest.mark.parametrize("files", [1, 200])
async def test_a_fetch_that_writes_too_much_fails_and_leaves_nothing(tmp_path: Path, files: int) -> None:
    user = UsersRepository(tmp_path / "work")
    for number in range(files):
        (user.folder / f"large{number}").write_bytes(random.Random(number).randbytes(3_000_000 // files))
    user.git("add", "--all")
    user.git("commit", "--quiet", "-m", "large")
    user.git("clone", "--quiet", "--bare", str(user.folder), str(tmp_path / "site" / "code.git"))
    (tmp_path / "site" / "code.git" / "git-daemon-export-ok").touch()
    copy = tmp_path / "data" / "repositories" / "proj_1.code.git"
    with daemon(tmp_path / "site") as port:
        found = origin(f"git://code.example:{port}/code.git")
        async with reaching(tmp_path / "data", max_fetch_bytes=1 << 20) as (origins, _):
            refused = await fault(origins, found)
            assert refused.reason is Reason.LIMIT_EXCEEDED and "repository_bytes" in refused.message
            written = sum(path.stat().st_size for path in copy.rglob("*") if path.is_file())
            assert written < 100_000
        async with reaching(tmp_path / "data") as (origins, _):
            assert await origins.fetch(found) == "main"


@pytest.mark.skipif(shutil.which("ssh") is None, reason="ssh is not installed")
@pytest.mark.parametrize(
    "form", ["ssh://git@code.example:{port}/code.git", "ssh://code.example:{port}/code.git"]
)
async def test_ssh_goes_through_the_proxy(tmp_path: Path, form: str) -> None:
    received: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"SSH-2.0-server\r\n")
        line = await reader.readline()
        if not received.done():
            received.set_result(line)
        writer.close()

    server = await asyncio.start_server(serve, HERE, 0)
    async with server, reaching(tmp_path / "data") as (origins, names):
        port = server.sockets[0].getsockname()[1]
        found = await fault(origins, origin(form.format(port=port)))
        assert found.reason is Reason.STORAGE_UNAVAILABLE
        assert (await received).startswith(b"SSH-2.0-") and names.asked == ["code.example"]


async def test_ssh_connects_only_through_our_program(tmp_path: Path) -> None:
    said = tmp_path / "said"
    ssh = tmp_path / "ssh"
    ssh.write_text(
        f"#!{sys.executable}\nimport sys\nopen({str(said)!r}, 'w').write(repr(sys.argv))\nsys.exit(1)\n"
    )
    ssh.chmod(0o700)
    environment = {"GIT_SSH_COMMAND": f"{shlex.quote(str(ssh))} -i key"}
    async with reaching(tmp_path / "data", environment=environment) as (origins, _):
        await fault(origins, origin("git@code.example:team/code.git"))
    arguments = said.read_text()
    assert "-oProxyCommand=" in arguments and "-oControlPath=none" in arguments and "'-i', 'key'" in arguments


@pytest.mark.parametrize(
    "url",
    [
        *(
            "ssh://-oProxyCommand=x@a/b",
            "-oProxyCommand=x@a:b",
            "ssh://a b/c",
            "ssh://a;id/b",
            "ssh://$(id)/b",
        ),
        *(
            "ssh://a`id`/b",
            "git://u@0x7f.1/a",
            "http://2130706433/a",
            "http://[fe80::1%25eth0]/a",
            "http://a%2eb/c",
        ),
        *(
            "http://a\\@b/c",
            "https://a:99999/b",
            "https://a:0/b",
            "ssh://u:p@w@a/b",
            "git@-a:b",
            "ssh://-a/b",
        ),
        *("http://[::1/a", "http://a?b", "ssh://u;id@a/b"),
    ],
)
def test_hosts_and_users_that_could_be_read_as_something_else_are_refused(url: str) -> None:
    with pytest.raises(WonderError) as caught:
        check_repository_url(url)
    assert caught.value.fault.reason is Reason.FIELD_INVALID


def test_the_host_of_a_repository_is_where_git_connects() -> None:
    assert repository_host("git@code.example:team/code.git") == ("code.example", 22)
    assert repository_host("https://user:word@code.example/a") == ("code.example", 443)
    assert repository_host("git://[::1]:99/a") == ("::1", 99)
    assert repository_host("/srv/code") is repository_host("file:///srv/code") is None
