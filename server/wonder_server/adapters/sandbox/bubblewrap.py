"""`BubblewrapSandbox`: one sandbox per key, started at its first command and ended after idle time (feature
F4).

At startup the server runs a probe command in a sandbox. If that fails, the server rejects all commands with
SANDBOX_UNAVAILABLE and logs the reason and the remedy. It never runs a command with less isolation.
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
from wonder_server.core.task.outcome_errors import NotStartedError
from wonder_server.logs import logger
from wonder_server.ports.sandbox import Command, Finished, OutputCallback, SandboxSpec

ADVICE: Final = (
    "Install bubblewrap 0.8 or newer (package 'bubblewrap' on Debian, Ubuntu and Fedora) and allow users to"
    " create namespaces. See docs/shell.md, also for containers."
)
PROBE_INTERVAL_S: Final = 60
"""Seconds after a failed probe before the next one: the cause may have been a missing package or a busy
machine."""
BUSY: Final = "Other commands took so long that this one could not start in time. Try again later."
PROBE: Final = Command(argv=("/bin/sh", "-c", "echo ready"), timeout_ms=10_000)

_log = logger("sandbox")


class _Slot:
    """The sandbox of one key. A command holds ``lock`` while it runs; ``users`` also counts waiting
    commands."""

    def __init__(self) -> None:
        self.lock = asyncio.Lock()
        self.users = 0
        self.process: SandboxProcess | None = None
        self.idle_timer: asyncio.TimerHandle | None = None


class BubblewrapSandbox:
    """Implements the port ``Sandbox``.

    At most ``max_instances`` sandboxes exist, and at most as many commands run at once; others wait. A
    sandbox ends after ``idle_timeout_s`` without a command. Sandboxes with a network connect through
    ``egress``.
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
        self._slots: dict[str, _Slot] = {}  # Ordered by use, the least recent first.
        self._probing: asyncio.Task[WonderError | None] | None = None
        self._next_probe_at = 0.0
        self._ending: set[asyncio.Task[None]] = set()
        self._closed = False

    def probe(self) -> asyncio.Task[WonderError | None]:
        """Start to find out whether sandboxes work. The task returns the error, or None.

        The probe runs once. After a failure, a call later than `PROBE_INTERVAL_S` runs it again. `run` waits
        for it.
        """
        now = asyncio.get_running_loop().time()
        known = self._probing
        is_over = known is not None and known.done() and not known.cancelled()
        if known is None or (is_over and known.result() is not None and now >= self._next_probe_at):
            self._next_probe_at = now + PROBE_INTERVAL_S
            self._probing = known = asyncio.create_task(self._probe())
        return known

    @property
    def instance_count(self) -> int:
        """Return the number of running sandboxes."""
        return sum(slot.process is not None and not slot.process.ended for slot in self._slots.values())

    async def run(
        self, key: str, spec: SandboxSpec, command: Command, on_output: OutputCallback | None = None
    ) -> Finished:
        """Run a command; see the port."""
        self._check_not_closed()
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
        """End the sandbox of a key; see the port."""
        slot = self._slots.get(key)
        if slot is not None and slot.process is not None:
            await slot.process.end()

    async def close(self) -> None:
        """End all sandboxes; see the port."""
        self._closed = True
        if self._probing is not None:
            await asyncio.gather(self._probing, return_exceptions=True)
        for slot in self._slots.values():
            if slot.idle_timer is not None:
                slot.idle_timer.cancel()
        await asyncio.gather(
            *(slot.process.end() for slot in self._slots.values() if slot.process), *self._ending
        )

    # --- helpers --------------------------------------------------------------------------------

    async def _acquire_process(self, key: str, slot: _Slot, spec: SandboxSpec) -> SandboxProcess:
        """Return the warm sandbox of a slot, or start one. The caller holds the slot's lock."""
        if slot.idle_timer is not None:
            slot.idle_timer.cancel()
        self._slots[key] = self._slots.pop(key, slot)
        if slot.process is not None:
            if await slot.process.matches(spec):
                return slot.process
            await slot.process.end()
        self._check_not_closed()
        starting = asyncio.create_task(self._start_process(key, spec))
        try:
            slot.process = await asyncio.shield(starting)
        except asyncio.CancelledError:
            self._run_in_background(_end_unwanted(starting))  # A starting sandbox cannot be stopped.
            raise
        self._evict_idle()
        self._check_not_closed()
        return slot.process

    async def _start_process(self, key: str, spec: SandboxSpec) -> SandboxProcess:
        if spec.network is None:
            return await SandboxProcess.start(self._program, spec, self._limits, self._host)
        if self._egress is None:
            raise _unavailable("It has no egress proxy, so a sandbox cannot have a network.")
        try:
            egress_socket = await EgressSocket.open(self._egress, spec.network, key)
        except OSError as problem:
            raise NotStartedError(
                Reason.SANDBOX_UNAVAILABLE,
                f"The socket of the egress proxy could not be opened: {problem.strerror or problem}.",
            ) from None
        return await SandboxProcess.start(self._program, spec, self._limits, self._host, egress_socket)

    def _check_not_closed(self) -> None:
        if self._closed:
            raise NotStartedError(Reason.SERVER_DRAINING, "The server is stopping and runs no more commands.")

    def _evict_idle(self) -> None:
        """End idle sandboxes above `max_instances`. At most that many are in use."""
        for key, slot in list(self._slots.items()):
            if self.instance_count <= self._max_instances:
                return
            if not slot.users:
                self._end(key, slot)

    def _start_idle_timer(self, key: str, slot: _Slot) -> None:
        """Start the idle timer of a slot that no command uses."""
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
        """Run ``work`` as a task that `close` awaits."""
        task = asyncio.create_task(work)
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)

    async def _probe(self) -> WonderError | None:
        # The folder must exist; the probe writes nothing into it.
        spec = SandboxSpec(folder=Path(tempfile.gettempdir()))
        try:
            if sys.platform != "linux":
                raise _unavailable("Sandboxes require Linux.")
            await asyncio.to_thread(cgroups.remove_stale)
            sandbox = await SandboxProcess.start(self._program, spec, self._limits, self._host)
            try:
                finished = await sandbox.run(PROBE, None)
            finally:
                await sandbox.end()
            if finished.exit_code == 0 and finished.stdout.head == b"ready\n":
                return None
            reason = f"The probe command exited with {finished.exit_code}."
        except WonderError as problem:
            reason = problem.fault.message
        _log.warning("sandbox_unavailable", problem=reason, remedy=ADVICE)
        return _unavailable(f"{reason} {ADVICE}")


async def _end_unwanted(starting: asyncio.Task[SandboxProcess]) -> None:
    with contextlib.suppress(WonderError):
        await (await starting).end()


def _unavailable(reason: str) -> WonderError:
    return error(Reason.SANDBOX_UNAVAILABLE, f"This server has no sandbox to run commands in. {reason}")
