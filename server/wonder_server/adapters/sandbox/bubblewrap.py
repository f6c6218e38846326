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
from wonder_server.adapters.sandbox.mounts import Host, Limits
from wonder_server.adapters.sandbox.process import SandboxProcess
from wonder_server.core.errors import Reason, WonderError, error
from wonder_server.core.task.effects import NotStartedError
from wonder_server.logs import logger
from wonder_server.ports.sandbox import Command, Finished, OutputCallback, SandboxSpec

ADVICE: Final = (
    "Install bubblewrap 0.8 or newer (the package 'bubblewrap' of Debian, Ubuntu and Fedora), and let users"
    " make namespaces; docs/shell.md says how, in containers too."
)
PROBE_INTERVAL_S: Final = 60
"""Somebody may have installed what was missing, or the machine was too busy."""
BUSY: Final = "Other commands took so long that this one could not begin in time."
PROBE: Final = Command(argv=("/bin/sh", "-c", "echo ready"), timeout_ms=10_000)

_log = logger("sandbox")


class _Slot:
    """The place of one key: who runs a command is in ``lock``; ``users`` counts those who wait as well."""

    def __init__(self) -> None:
        self.lock = asyncio.Lock()
        self.users = 0
        self.process: SandboxProcess | None = None
        self.idle_timer: asyncio.TimerHandle | None = None


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
        idle_timeout_s: float = 300,
        max_instances: int = 32,
        program: str = "bwrap",
        egress: Egress | None = None,
    ) -> None:
        self._limits = limits or Limits()
        self._host = host or Host()
        self._idle_timeout_s = idle_timeout_s
        self._max_instances = max_instances
        self._program = program
        self._egress = egress
        self._run_slots = asyncio.Semaphore(max_instances)
        self._slots: dict[str, _Slot] = {}  # the least recently used first
        self._probing: asyncio.Task[WonderError | None] | None = None
        self._next_probe_at = 0.0
        self._ending: set[asyncio.Task[None]] = set()
        self._closed = False

    def probe(self) -> asyncio.Task[WonderError | None]:
        """Find out whether there can be sandboxes; the answer is why not. Done once; after a failure again,
        when somebody asks later than `PROBE_AGAIN_S`. `run` waits for it."""
        now = asyncio.get_running_loop().time()
        known = self._probing
        over = known is not None and known.done() and not known.cancelled()
        if known is None or (over and known.result() is not None and now >= self._next_probe_at):
            self._next_probe_at = now + PROBE_INTERVAL_S
            self._probing = known = asyncio.create_task(self._probe())
        return known

    @property
    def instance_count(self) -> int:
        """How many sandboxes there are."""
        return sum(slot.process is not None and not slot.process.ended for slot in self._slots.values())

    async def run(
        self, key: str, spec: SandboxSpec, command: Command, on_output: OutputCallback | None = None
    ) -> Finished:
        """See the port."""
        self._refuse_if_closed()
        problem = await asyncio.shield(self.probe())
        if problem is not None:
            raise problem
        slot = self._slots.setdefault(key, _Slot())
        slot.users += 1
        try:
            async with contextlib.AsyncExitStack() as turn:
                try:
                    async with asyncio.timeout(command.timeout_ms / 1000):
                        await turn.enter_async_context(slot.lock)
                        await turn.enter_async_context(self._run_slots)
                except TimeoutError:
                    raise NotStartedError(Reason.TIMEOUT, BUSY) from None
                return await (await self._acquire_process(key, slot, spec)).run(command, on_output)
        finally:
            slot.users -= 1
            if not slot.users:
                self._start_idle_timer(key, slot)

    async def release(self, key: str) -> None:
        """See the port."""
        slot = self._slots.get(key)
        if slot is not None and slot.process is not None:
            await slot.process.end()

    async def close(self) -> None:
        """See the port."""
        self._closed = True
        if self._probing is not None:
            await asyncio.gather(self._probing, return_exceptions=True)
        for slot in self._slots.values():
            if slot.idle_timer is not None:
                slot.idle_timer.cancel()
        await asyncio.gather(
            *(seat.process.end() for seat in self._slots.values() if seat.process), *self._ending
        )

    # --- pieces ---------------------------------------------------------------------------------

    async def _acquire_process(self, key: str, slot: _Slot, spec: SandboxSpec) -> SandboxProcess:
        """The warm sandbox of a seat, or a new one. The caller holds the seat."""
        if slot.idle_timer is not None:
            slot.idle_timer.cancel()
        self._slots[key] = self._slots.pop(key, slot)
        if slot.process is not None:
            if await slot.process.matches(spec):
                return slot.process
            await slot.process.end()
        self._refuse_if_closed()
        starting = asyncio.create_task(self._start_process(key, spec))
        try:
            slot.process = await asyncio.shield(starting)
        except asyncio.CancelledError:
            self._run_in_background(_end_unwanted(starting))  # what is half-made cannot be stopped
            raise
        self._evict_idle()
        self._refuse_if_closed()
        return slot.process

    async def _start_process(self, key: str, spec: SandboxSpec) -> SandboxProcess:
        if spec.network is None:
            return await SandboxProcess.start(self._program, spec, self._limits, self._host)
        if self._egress is None:
            raise _unavailable("It was made without a way out, so it has no network to give.")
        try:
            egress_socket = await EgressSocket.open(self._egress, spec.network, key)
        except OSError as problem:
            raise NotStartedError(
                Reason.SANDBOX_UNAVAILABLE,
                f"The sandbox's way out could not be opened: {problem.strerror or problem}.",
            ) from None
        return await SandboxProcess.start(self._program, spec, self._limits, self._host, egress_socket)

    def _refuse_if_closed(self) -> None:
        if self._closed:
            raise NotStartedError(Reason.SERVER_DRAINING, "The server is stopping; no command can be run.")

    def _evict_idle(self) -> None:
        """End idle sandboxes that are too many. Of those in use there are at most as many as there may be."""
        for key, slot in list(self._slots.items()):
            if self.instance_count <= self._max_instances:
                return
            if not slot.users:
                self._end(key, slot)

    def _start_idle_timer(self, key: str, slot: _Slot) -> None:
        """Nobody needs the seat for now."""
        if slot.process is None or slot.process.ended or self._closed:
            self._end(key, slot)
            return
        slot.idle_timer = asyncio.get_running_loop().call_later(self._idle_timeout_s, self._end, key, slot)

    def _end(self, key: str, slot: _Slot) -> None:
        if self._slots.get(key) is slot:
            del self._slots[key]
        if slot.idle_timer is not None:
            slot.idle_timer.cancel()
        if slot.process is not None:
            slot.process.kill()
            self._run_in_background(slot.process.end())

    def _run_in_background(self, work: Coroutine[None, None, None]) -> None:
        """Do it, and see it done before all is closed."""
        task = asyncio.create_task(work)
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)

    async def _probe(self) -> WonderError | None:
        spec = SandboxSpec(
            folder=Path(tempfile.gettempdir())
        )  # a folder that is there; nothing is left in it
        try:
            if sys.platform != "linux":
                raise _unavailable("Sandboxes are made of what only Linux has.")
            await asyncio.to_thread(cgroups.remove_stale)
            sandbox = await SandboxProcess.start(self._program, spec, self._limits, self._host)
            try:
                finished = await sandbox.run(PROBE, None)
            finally:
                await sandbox.end()
            if finished.exit_code == 0 and finished.stdout.head == b"ready\n":
                return None
            why = f"A first command ended with {finished.exit_code}."
        except WonderError as problem:
            why = problem.fault.message
        _log.warning("sandbox_unavailable", why=why, do=ADVICE)
        return _unavailable(f"{why} {ADVICE}")


async def _end_unwanted(starting: asyncio.Task[SandboxProcess]) -> None:
    with contextlib.suppress(WonderError):
        await (await starting).end()


def _unavailable(why: str) -> WonderError:
    return error(Reason.SANDBOX_UNAVAILABLE, f"This server has no sandbox to run commands in. {why}")
