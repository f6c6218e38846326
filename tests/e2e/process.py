"""Server processes: started, killed, stopped, and looked into after their end."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import IO, Any

from grpc import aio

from tests.e2e.client import Client
from tests.e2e.launch import PATH, order

_ENVIRONMENT = {
    "PYTHONPATH": PATH,
    "WONDER_ALLOW_REMOTE_MODELS": "false",
    "WONDER_REPOSITORY_UPDATE_CHECKOUTS": "true",
}


class Server:
    """One server process on a data folder. `start`, then `client`, then `stop` or `kill`.

    ``doom`` are failpoints (see `tests.e2e.failpoints`), separated by spaces: with two and more of them a
    server follows on each that was killed, and `reborn` waits for it.
    """

    def __init__(
        self, data: Path, *flags: str, doom: str = "", environment: Mapping[str, str] | None = None
    ) -> None:
        self.data = data
        self.log: list[dict[str, Any]] = []
        self.address = ""
        self._flags = flags
        roots = {"WONDER_REPOSITORY_ROOTS": str(data.resolve().parent.parent)}
        self._environment = {**os.environ, **_ENVIRONMENT, **roots, **(environment or {})}
        self._doom = doom
        self._changed = asyncio.Condition()
        self._pid = 0
        self._code: int | None = None
        self._reading: asyncio.Task[None] | None = None

    async def start(self) -> Server:
        """Start the server and wait until it is ready."""
        await self.begin()
        assert await self.is_ready(), self.log[-3:]
        return self

    async def is_ready(self) -> bool:
        """Wait until the server is or has been ready; return False if it ends before."""
        async with self._changed:
            await self._changed.wait_for(lambda: self.lives or self._over())
        self.address = next((line["address"] for line in self.log if line["event"] == "ready"), "")
        return bool(self.lives)

    async def begin(self) -> None:
        """Start the process and do not wait for it."""
        listen = [] if "--listen" in self._flags else ["--listen", "127.0.0.1:0"]
        flags = [*listen, "--data-dir", str(self.data), "--log-format", "json", *self._flags]
        log, code = order(flags, self._environment, self._doom.split())
        self._reading = asyncio.create_task(self._read(log, code))
        await self.logged("born")

    async def logged(self, event: str, number: int = 1) -> dict[str, Any]:
        """Wait for the ``number``-th log line of this name and return it. Fail if the process ends first."""
        async with self._changed:
            await self._changed.wait_for(lambda: self.count(event) >= number or self._over())
        found = [line for line in self.log if line["event"] == event]
        assert len(found) >= number, f"ended before '{event}': {self.log[-3:]}"
        return found[number - 1]

    def count(self, event: str) -> int:
        """Return the number of log lines with this name."""
        return sum(line["event"] == event for line in self.log)

    @property
    def lives(self) -> int:
        """Number of its servers that have been ready."""
        return self.count("ready")

    @property
    def deaths(self) -> int:
        """Number of its servers that were killed and followed by another."""
        return self.count("killed")

    async def reborn(self, lives: int) -> None:
        """Wait for a server beyond the first ``lives`` of them."""
        await self.logged("ready", lives + 1)
        # That one may be dead already.
        self.address = [line for line in self.log if line["event"] == "ready"][-1]["address"]

    @asynccontextmanager
    async def client(self) -> AsyncIterator[Client]:
        """Connect a client with its own connection."""
        options = [("grpc.max_receive_message_length", 64 << 20), ("grpc.use_local_subchannel_pool", 1)]
        async with aio.insecure_channel(self.address, options) as channel:
            yield Client(channel)

    def terminate(self) -> None:
        """Send SIGTERM."""
        self._signal(signal.SIGTERM)

    async def stop(self) -> int:
        """Send SIGTERM; return the exit code."""
        await self.logged("born")
        self.terminate()
        return await self.ended()

    async def kill(self) -> None:
        """Send SIGKILL."""
        self._signal(signal.SIGKILL)
        assert await self.ended() == -signal.SIGKILL

    async def ended(self) -> int:
        """Wait for its end; return the exit code, negative for a signal."""
        assert self._reading is not None
        await self._reading
        assert self._code is not None
        return self._code

    def _signal(self, number: int) -> None:
        if self._code is None:
            os.kill(self._pid, number)

    async def _read(self, log: IO[bytes], code: IO[bytes]) -> None:
        async for line in _lines(log):
            try:
                entry = json.loads(line)
            except ValueError:
                entry = {"event": line.decode().rstrip()}
            if entry["event"] == "born":
                self._pid = entry["pid"]
            self.log.append(entry)
            async with self._changed:
                self._changed.notify_all()
        ended = [int(line) async for line in _lines(code)]
        self._code = ended[0] if ended else 1
        async with self._changed:
            self._changed.notify_all()

    def _over(self) -> bool:
        return self._code is not None


async def _lines(file: IO[bytes]) -> AsyncIterator[bytes]:
    reader = asyncio.StreamReader()
    protocol = asyncio.StreamReaderProtocol(reader)
    transport, _ = await asyncio.get_running_loop().connect_read_pipe(lambda: protocol, file)
    try:
        async for line in reader:
            yield line
    finally:
        transport.close()


@asynccontextmanager
async def serving(
    data: Path, *flags: str, doom: str = "", environment: Mapping[str, str] | None = None
) -> AsyncIterator[Server]:
    """Run a server for the length of the block; stop it afterwards if it is still running."""
    server = Server(data, *flags, doom=doom, environment=environment)
    await server.begin()
    try:
        assert await server.is_ready(), server.log[-3:]
        yield server
    finally:
        await server.stop()
