"""Starts of runs: at most one for each request, with an optional wait for the end."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from wonder_server.actors.access import ActorAccess
from wonder_server.actors.runs.lookup import RunLookup, RunView
from wonder_server.actors.runtime.actor import Outcome
from wonder_server.actors.runtime.keyed_locks import KeyedLocks
from wonder_server.core import ids
from wonder_server.core.coordinator.decisions import DispatchNode, EndRun, SetRunStatus, StartRun
from wonder_server.core.coordinator.inputs import Start, StartFork
from wonder_server.core.coordinator.values import Run
from wonder_server.core.idempotency import Request, check_replay
from wonder_server.ports.journal import Event
from wonder_server.ports.records import Head

BuildStart = Callable[[str], Awaitable[Start | StartFork]]
"""Builds the input that starts the run with this id. Called only if the run starts."""


class RunStarter:
    """Starts runs for clients. A run is on disk when `start` returns."""

    def __init__(self, access: ActorAccess, lookup: RunLookup) -> None:
        self._directory = access.directory
        self._journals = access.journals
        self._streams = access.streams
        self._clock = access.clock
        self._lookup = lookup
        self._locks = KeyedLocks()

    async def start(self, key: str, build: BuildStart, asked: Request | None, *, wait_ms: int = 0) -> RunView:
        """Start a run. Return it as it started or, with ``wait_ms``, as it ended or stands after that time.

        ``key`` selects the shard of a run without a request id. Errors: those of ``build``, those of the
        planner, and REQUEST_ID_REUSED.
        """
        now = self._clock.now_ms()
        shard = ids.spread(f"{now}{key}" if asked is None else asked.id, self._journals.count)
        run_id = ids.actor_id("run", now, shard)
        if asked is None:
            return await self._wait_for_end(run_id, lambda: self._start(run_id, build, None), wait_ms)
        return await self._wait_for_end(run_id, lambda: self._start_once(run_id, build, asked), wait_ms)

    async def _start_once(self, run_id: str, build: BuildStart, asked: Request) -> RunView:
        async with self._locks.lock(asked.scope, asked.id):
            earlier = await self._journals.of(run_id).completed_request(asked.scope, asked.id)
            answer = check_replay(earlier, asked)
            if answer is None:
                return await self._start(run_id, build, asked)
        return await self._lookup.snapshot(answer["run_id"])

    async def _start(self, run_id: str, build: BuildStart, asked: Request | None) -> RunView:
        start_input = await build(run_id)
        self._directory.register_new(run_id)
        return _started_view(await self._directory.ask(run_id, start_input, asked))

    async def _wait_for_end(
        self, run_id: str, start: Callable[[], Awaitable[RunView]], wait_ms: int
    ) -> RunView:
        """Return the run from ``start``, or the ended run if it ends within ``wait_ms``."""
        if not wait_ms:
            return await start()
        # Wait before the run starts: a short run ends before its start is answered.
        end = self._streams.wait_for_end(run_id)
        timer: asyncio.TimerHandle | None = None
        try:
            view = await start()
            if view.has_ended:
                return view
            if view.run.id == run_id:
                if not end.done():
                    timer = asyncio.get_running_loop().call_later(wait_ms / 1000, _stop_waiting, end)
                event = await end
                if event is not None:
                    return _ended_view(event)
                return await self._lookup.snapshot(run_id)
        finally:
            if timer is not None:
                timer.cancel()
            self._streams.cancel_end_wait(run_id, end)
        # An earlier request started the run under another id.
        earlier_id = view.run.id
        return await self._wait_for_end(earlier_id, lambda: self._lookup.snapshot(earlier_id), wait_ms)


def _started_view(outcome: Outcome) -> RunView:
    """Build the view of a run from the decisions of its start."""
    decisions = outcome.decisions
    run = next(d.run for d in reversed(decisions) if isinstance(d, StartRun | SetRunStatus | EndRun))
    ordinals = [d.execution.ordinal for d in decisions if isinstance(d, DispatchNode)]
    head = Head(int(outcome.answer["last_sequence"]), run.created_ms, max(ordinals, default=0))
    return RunView(run, head)


def _ended_view(event: Event) -> RunView:
    run: Run = event.emit.value
    return RunView(run, Head(event.sequence, event.at_ms, run.executions))


def _stop_waiting(end: asyncio.Future[Event | None]) -> None:
    if not end.done():
        end.set_result(None)
