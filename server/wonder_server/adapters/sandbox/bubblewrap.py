"""`BubblewrapSandbox`: a sandbox for each key, started when first needed, ended when nobody has needed it for
a while (feature F4).

At its start the server runs a command in a sandbox of its own. Where that fails, all commands are refused
with SANDBOX_UNAVAILABLE, and the log says why and what to do: nothing is ever run with less around it.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
import tempfile
from collections.abc import Coroutine
from pathlib import Path
from typing import Final

from wonder_server.adapters.egress.proxy import Egress
from wonder_server.adapters.egress.sockets import EgressSocket
from wonder_server.adapters.sandbox import cgroups
from wonder_server.adapters.sandbox.box import Box
from wonder_server.adapters.sandbox.view import Host, Limits
from wonder_server.core.errors import Reason, WonderError, error
from wonder_server.core.task.effects import NotBegunError
from wonder_server.logs import logger
from wonder_server.ports.sandbox import Command, Finished, Place, ToldOutput

ADVICE: Final = (
    "Install bubblewrap 0.8 or newer (the package 'bubblewrap' of Debian, Ubuntu and Fedora), and let users"
    " make namespaces; docs/shell.md says how, in containers too."
)
PROBE_AGAIN_S: Final = 60
"""Somebody may have installed what was missing, or the machine was too busy."""
BUSY: Final = "Other commands took so long that this one could not begin in time."
PROBE: Final = Command(argv=("/bin/sh", "-c", "echo ready"), timeout_ms=10_000)

_log = logger("sandbox")


class _Seat:
    """The place of one key: who runs a command is in ``lock``; ``users`` counts those who wait as well."""

    def __init__(self) -> None:
        self.lock = asyncio.Lock()
        self.users = 0
        self.box: Box | None = None
        self.sleep: asyncio.TimerHandle | None = None


class BubblewrapSandbox:
    """Implements the port ``Sandbox``.

    ``most`` sandboxes are there at most, and as many commands run at once; others wait. ``sleep_after_s``:
    how long one is kept without a command. ``egress`` is the way out of those with a network.
    """

    def __init__(
        self,
        *,
        limits: Limits | None = None,
        host: Host | None = None,
        sleep_after_s: float = 300,
        most: int = 32,
        program: str = "bwrap",
        egress: Egress | None = None,
    ) -> None:
        self._limits = limits or Limits()
        self._host = host or Host()
        self._sleep_after_s = sleep_after_s
        self._most = most
        self._program = program
        self._egress = egress
        self._running = asyncio.Semaphore(most)
        self._seats: dict[str, _Seat] = {}  # the least recently used first
        self._probing: asyncio.Task[WonderError | None] | None = None
        self._probe_again = 0.0
        self._ends: set[asyncio.Task[None]] = set()
        self._closed = False

    def probe(self) -> asyncio.Task[WonderError | None]:
        """Find out whether there can be sandboxes; the answer is why not. Done once; after a failure again,
        when somebody asks later than `PROBE_AGAIN_S`. `run` waits for it."""
        now = asyncio.get_running_loop().time()
        known = self._probing
        over = known is not None and known.done() and not known.cancelled()
        if known is None or (over and known.result() is not None and now >= self._probe_again):
            self._probe_again = now + PROBE_AGAIN_S
            self._probing = known = asyncio.create_task(self._probe())
        return known

    @property
    def warm(self) -> int:
        """How many sandboxes there are."""
        return sum(seat.box is not None and not seat.box.ended for seat in self._seats.values())

    async def run(self, key: str, place: Place, command: Command, told: ToldOutput | None = None) -> Finished:
        """See the port."""
        self._refuse_if_closed()
        problem = await asyncio.shield(self.probe())
        if problem is not None:
            raise problem
        seat = self._seats.setdefault(key, _Seat())
        seat.users += 1
        try:
            async with contextlib.AsyncExitStack() as turn:
                try:
                    async with asyncio.timeout(command.timeout_ms / 1000):
                        await turn.enter_async_context(seat.lock)
                        await turn.enter_async_context(self._running)
                except TimeoutError:
                    raise NotBegunError(Reason.TIMEOUT, BUSY) from None
                return await (await self._box(key, seat, place)).run(command, told)
        finally:
            seat.users -= 1
            if not seat.users:
                self._rest(key, seat)

    async def release(self, key: str) -> None:
        """See the port."""
        seat = self._seats.get(key)
        if seat is not None and seat.box is not None:
            await seat.box.end()

    async def close(self) -> None:
        """See the port."""
        self._closed = True
        if self._probing is not None:
            await asyncio.gather(self._probing, return_exceptions=True)
        for seat in self._seats.values():
            if seat.sleep is not None:
                seat.sleep.cancel()
        await asyncio.gather(*(seat.box.end() for seat in self._seats.values() if seat.box), *self._ends)

    # --- pieces ---------------------------------------------------------------------------------

    async def _box(self, key: str, seat: _Seat, place: Place) -> Box:
        """The warm sandbox of a seat, or a new one. The caller holds the seat."""
        if seat.sleep is not None:
            seat.sleep.cancel()
        self._seats[key] = self._seats.pop(key, seat)
        if seat.box is not None:
            if await seat.box.is_for(place):
                return seat.box
            await seat.box.end()
        self._refuse_if_closed()
        starting = asyncio.create_task(self._started(key, place))
        try:
            seat.box = await asyncio.shield(starting)
        except asyncio.CancelledError:
            self._tidy(_end_unwanted(starting))  # what is half-made cannot be stopped
            raise
        self._make_room()
        self._refuse_if_closed()
        return seat.box

    async def _started(self, key: str, place: Place) -> Box:
        if place.network is None:
            return await Box.start(self._program, place, self._limits, self._host)
        if self._egress is None:
            raise _unavailable("It was made without a way out, so it has no network to give.")
        try:
            way_out = await EgressSocket.open(self._egress, place.network, key)
        except OSError as problem:
            raise NotBegunError(
                Reason.SANDBOX_UNAVAILABLE,
                f"The sandbox's way out could not be opened: {problem.strerror or problem}.",
            ) from None
        return await Box.start(self._program, place, self._limits, self._host, way_out)

    def _refuse_if_closed(self) -> None:
        if self._closed:
            raise NotBegunError(Reason.SERVER_DRAINING, "The server is stopping; no command can be run.")

    def _make_room(self) -> None:
        """End idle sandboxes that are too many. Of those in use there are at most as many as there may be."""
        for key, seat in list(self._seats.items()):
            if self.warm <= self._most:
                return
            if not seat.users:
                self._end(key, seat)

    def _rest(self, key: str, seat: _Seat) -> None:
        """Nobody needs the seat for now."""
        if seat.box is None or seat.box.ended or self._closed:
            self._end(key, seat)
            return
        seat.sleep = asyncio.get_running_loop().call_later(self._sleep_after_s, self._end, key, seat)

    def _end(self, key: str, seat: _Seat) -> None:
        if self._seats.get(key) is seat:
            del self._seats[key]
        if seat.sleep is not None:
            seat.sleep.cancel()
        if seat.box is not None:
            seat.box.kill()
            self._tidy(seat.box.end())

    def _tidy(self, work: Coroutine[None, None, None]) -> None:
        """Do it, and see it done before all is closed."""
        task = asyncio.create_task(work)
        self._ends.add(task)
        task.add_done_callback(self._ends.discard)

    async def _probe(self) -> WonderError | None:
        place = Place(folder=Path(tempfile.gettempdir()))  # a folder that is there; nothing is left in it
        try:
            if sys.platform != "linux":
                raise _unavailable("Sandboxes are made of what only Linux has.")
            await asyncio.to_thread(cgroups.sweep)
            box = await Box.start(self._program, place, self._limits, self._host)
            try:
                finished = await box.run(PROBE, None)
            finally:
                await box.end()
            if finished.exit_code == 0 and finished.stdout.head == b"ready\n":
                return None
            why = f"A first command ended with {finished.exit_code}."
        except WonderError as problem:
            why = problem.fault.message
        _log.warning("sandbox_unavailable", why=why, do=ADVICE)
        return _unavailable(f"{why} {ADVICE}")


async def _end_unwanted(starting: asyncio.Task[Box]) -> None:
    with contextlib.suppress(WonderError):
        await (await starting).end()


def _unavailable(why: str) -> WonderError:
    return error(Reason.SANDBOX_UNAVAILABLE, f"This server has no sandbox to run commands in. {why}")
