"""The network of a sandbox: HTTP and CONNECT through the server's egress proxy, and nothing else."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest

from tests.sandboxes import bubblewrap
from wonder_server.adapters.egress.dialing import Dialer
from wonder_server.adapters.egress.proxy import MAX_CONNECTIONS, Egress
from wonder_server.adapters.sandbox.bubblewrap import BubblewrapSandbox
from wonder_server.core.definitions.resources import NetworkPolicy
from wonder_server.ports.sandbox import Command, SandboxSpec

FETCH = """
import sys, urllib.request, urllib.error
try:
    print(urllib.request.urlopen(sys.argv[1], timeout=20).read().decode())
except urllib.error.HTTPError as refused:
    print(refused.code, refused.read().decode())
"""

TUNNEL = """
import socket, sys
there = socket.create_connection(('127.0.0.1', 3128))
there.sendall(f'CONNECT {sys.argv[1]} HTTP/1.1\\r\\n\\r\\n'.encode())
said = there.recv(4096)
assert b' 200 ' in said, said
there.sendall(b'x' * 5_000_000)
there.shutdown(socket.SHUT_WR)
size = 0
while chunk := there.recv(65536):
    size += len(chunk)
print(size)
"""

FLOOD = """
import socket, sys
held = []
for _ in range(int(sys.argv[2])):
    there = socket.socket(socket.AF_UNIX)
    there.connect('/run/egress')
    there.settimeout(20)
    held.append(there)
shut = 0
for there in held:
    try:
        there.sendall(f'CONNECT {sys.argv[1]} HTTP/1.1\\r\\n\\r\\n'.encode())
        shut += not there.recv(1)
    except OSError:
        shut += 1
print(shut)
"""

CONNECT = """
import socket, sys
socket.create_connection((sys.argv[1], int(sys.argv[2])), 5)
print('in')
"""


async def resolve(host: str, port: int) -> Sequence[str]:
    """Every name is this machine."""
    return ["127.0.0.1"]


@pytest.fixture
async def egress() -> AsyncIterator[Egress]:
    made = Egress(Dialer(resolve))
    yield made
    await made.close()


@pytest.fixture
async def sandbox(egress: Egress, tmp_path: Path) -> AsyncIterator[BubblewrapSandbox]:
    made = await bubblewrap(egress=egress)
    for name, program in (("fetch", FETCH), ("tunnel", TUNNEL), ("flood", FLOOD), ("connect", CONNECT)):
        (tmp_path / f"{name}.py").write_text(program)
    yield made
    await made.close()


@pytest.fixture
async def far() -> AsyncIterator[int]:
    """A server on this machine: answers a GET, and sends anything else back once it has all of it."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        first = await reader.read(4)
        if first == b"GET ":
            await reader.readuntil(b"\r\n\r\n")
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello")
        else:
            writer.write(first + await reader.read())
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        yield server.sockets[0].getsockname()[1]


def place(folder: Path, *allowed: str) -> SandboxSpec:
    return SandboxSpec(folder=folder, network=NetworkPolicy(shell_network=True, http_allow=allowed))


async def says(sandbox: BubblewrapSandbox, where: SandboxSpec, line: str) -> str:
    command = Command(argv=("sh", "-c", line), timeout_ms=60_000, merge_stderr=True)
    return (await sandbox.run("conv_1", where, command)).stdout.head.decode("utf-8", "replace")


async def test_a_command_reaches_what_its_project_allows(
    sandbox: BubblewrapSandbox, tmp_path: Path, far: int
) -> None:
    where = place(tmp_path, f"code.example:{far}")
    for _ in range(3):
        assert await says(sandbox, where, f"python3 fetch.py http://code.example:{far}/") == "hello\n"
    refused = await says(sandbox, where, f"python3 fetch.py http://other.example:{far}/")
    assert refused.startswith("403") and "wonder project allow" in refused
    for host in ("169.254.169.254", "metadata.google.internal", f"[fd00:ec2::254]:{far}"):
        assert (await says(sandbox, where, f"python3 fetch.py http://{host}/")).startswith("403"), host


async def test_a_command_has_no_other_way_out(sandbox: BubblewrapSandbox, tmp_path: Path, far: int) -> None:
    where = place(tmp_path, f"127.0.0.1:{far}")
    assert "refused" in await says(sandbox, where, f"python3 connect.py 127.0.0.1 {far}")
    assert "unreachable" in await says(sandbox, where, "python3 connect.py 192.0.2.1 80")
    name = f"wonder-{os.getpid()}"
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(f"\0{name}")
        server.listen()
        line = f"python3 -c \"import socket; socket.socket(socket.AF_UNIX).connect(chr(0) + '{name}')\""
        assert "refused" in await says(sandbox, where, line)


async def test_a_tunnel_carries_all_bytes_both_ways(
    sandbox: BubblewrapSandbox, tmp_path: Path, far: int
) -> None:
    where = place(tmp_path, f"code.example:{far}")
    line = " & ".join([f"python3 tunnel.py code.example:{far}"] * 4) + "; wait"
    assert await says(sandbox, where, line) == "5000000\n" * 4


async def test_what_a_command_does_to_its_way_out_is_over_with_it(
    sandbox: BubblewrapSandbox, tmp_path: Path, far: int
) -> None:
    where = place(tmp_path, f"code.example:{far}")
    fetch = f"python3 fetch.py http://code.example:{far}/"
    assert "hello" not in await says(sandbox, where, f"(kill -9 -1); {fetch}")
    assert await says(sandbox, where, fetch) == "hello\n"


async def test_a_changed_policy_holds_from_the_next_command_on(
    sandbox: BubblewrapSandbox, tmp_path: Path, far: int
) -> None:
    fetch = f"python3 fetch.py http://code.example:{far}/"
    assert await says(sandbox, place(tmp_path, f"code.example:{far}"), fetch) == "hello\n"
    assert (await says(sandbox, place(tmp_path), fetch)).startswith("403")


async def test_a_flood_of_connections_is_bounded(
    sandbox: BubblewrapSandbox, tmp_path: Path, far: int
) -> None:
    where = place(tmp_path, f"code.example:{far}")
    flood = f"python3 flood.py code.example:{far} {MAX_CONNECTIONS + 100}"
    assert int(await says(sandbox, where, flood)) >= 100
    assert await says(sandbox, where, f"python3 fetch.py http://code.example:{far}/") == "hello\n"


async def test_a_sandbox_that_ends_closes_its_way_out(
    sandbox: BubblewrapSandbox, egress: Egress, tmp_path: Path
) -> None:
    seen = await says(sandbox, place(tmp_path), "env; ls -l /run")
    assert "HTTPS_PROXY=http://127.0.0.1:3128" in seen and "egress" in seen
    await sandbox.release("conv_1")
    assert not egress.leases
