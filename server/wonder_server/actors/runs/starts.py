"""Starts of runs: at most one for each request, with an optional wait for the end."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from wonder_server.actors.access import EntryAccess, ask_new
from wonder_server.actors.archive.archiver import Archive
from wonder_server.actors.runs.lookup import RunLookup, RunView
from wonder_server.actors.runtime.actor import Outcome
from wonder_server.core import ids
from wonder_server.core.coordinator.model.decisions import DispatchNode, EndRun, SetRunStatus, StartRun
from wonder_server.core.coordinator.model.inputs import Start, StartFork
from wonder_server.core.coordinator.model.progress import with_progress
from wonder_server.core.coordinator.model.values import Run
from wonder_server.core.idempotency import IdempotencyKey, Origin, check_replay, is_same_message, sent_key
from wonder_server.ports.journal import Event
from wonder_server.ports.records import Head

BuildStart = Callable[[str], Awaitable[Start | StartFork]]
"""Builds the input that starts the run with this id. Called only if the run starts."""


@dataclass(frozen=True, slots=True)
class StartedBy:
    """The request that starts a run: its key, the name of its caller's queue, and the id of a conversation or
    run that the run shares its shard with, "" for any shard."""

    identity: IdempotencyKey | None
    caller: str
    beside: str = ""


class RunStarter:
    """Starts runs for clients. A run is on disk when `start` returns."""

    def __init__(self, access: EntryAccess, lookup: RunLookup, archive: Archive) -> None:
        self._archive = archive
        self._directory = access.directory
        self._journals = access.journals
        self._clock = access.clock
        self._lookup = lookup
        self._locks = access.locks

    async def start(self, started: StartedBy, build: BuildStart, *, wait_ms: int = 0) -> RunView:
        """Start a run. Return it as it started or, with ``wait_ms``, as it ended or stands after that time.

        Errors: those of ``build``, those of the planner, and REQUEST_ID_REUSED.
        """
        now, identity, caller, beside = self._clock.now_ms(), started.identity, started.caller, started.beside
        key = ids.random_id("seed", now) if identity is None else identity.id
        run_id = ids.actor_id("run", now, ids.shard_of(beside) if beside else ids.spread(key))
        if identity is None:
            return await self._wait_for_end(run_id, lambda: self._start(run_id, build, None, caller), wait_ms)
        return await self._wait_for_end(
            run_id, lambda: self._start_once(run_id, build, identity, started), wait_ms
        )

    async def _start_once(
        self, run_id: str, build: BuildStart, identity: IdempotencyKey, started: StartedBy
    ) -> RunView:
        """Start a run, or return the one that an earlier request started. Restore it if it was archived."""
        async with self._locks.lock(identity.scope, identity.id):
            earlier = await self._journals.completed_request(identity.scope, identity.id)
            answer = check_replay(earlier, identity)
            if answer is None:
                return await self._start(run_id, build, identity, started.caller)
        # Earlier versions stored no conversation in the answer. That of a start is the one it names.
        async with self._archive.on_disk(answer.get("conversation_id", started.beside)):
            return await self._lookup.snapshot(answer["run_id"])

    async def repeated(self, scope: str, origin: Origin, *, wait_ms: int = 0) -> RunView | None:
        """Return the run that the same message started before, whatever became of what it names, or None."""
        key = sent_key(scope, origin)
        if key is None:
            return None
        async with self._locks.lock(key.scope, key.id):
            earlier = await self._journals.completed_request(key.scope, key.id)
        if earlier is None or not is_same_message(earlier, key):
            return None
        async with self._archive.on_disk(earlier.answer.get("conversation_id", "")):
            view = await self._lookup.snapshot(earlier.answer["run_id"])
        if not wait_ms or view.has_ended:
            return view
        return await self._wait_for_end(view.run.id, lambda: self._lookup.snapshot(view.run.id), wait_ms)

    async def _start(
        self, run_id: str, build: BuildStart, identity: IdempotencyKey | None, caller: str
    ) -> RunView:
        start_input = await build(run_id)
        return _started_view(await ask_new(self._directory, run_id, start_input, identity, caller=caller))

    async def _wait_for_end(
        self, run_id: str, start: Callable[[], Awaitable[RunView]], wait_ms: int
    ) -> RunView:
        """Return the run from ``start``, or the ended run if it ends within ``wait_ms``."""
        if not wait_ms:
            return await start()
        # Wait before the run starts: a short run ends before its start is answered.
        with self._directory.end_of(run_id) as end:
            view = await start()
            if view.has_ended:
                return view
            if view.run.id == run_id:
                event = await _within(wait_ms, end)
                return await self._lookup.snapshot(run_id) if event is None else _ended_view(event)
        # An earlier request started the run under another id.
        earlier_id = view.run.id
        return await self._wait_for_end(earlier_id, lambda: self._lookup.snapshot(earlier_id), wait_ms)


def _started_view(outcome: Outcome) -> RunView:
    """Build the view of a run from the decisions of its start."""
    decisions = outcome.decisions
    run: Run = next(decision.run for decision in decisions if isinstance(decision, StartRun))
    for decision in decisions:
        if isinstance(decision, SetRunStatus | EndRun):
            run = with_progress(run, decision.run)
    ordinals = [d.execution.ordinal for d in decisions if isinstance(d, DispatchNode)]
    head = Head(int(outcome.answer["last_sequence"]), run.created_ms, max(ordinals, default=0))
    return RunView(run, head)


def _ended_view(event: Event) -> RunView:
    run: Run = event.emit.value
    return RunView(run, Head(event.sequence, event.at_ms, run.executions))


async def _within(wait_ms: int, end: asyncio.Future[Event | None]) -> Event | None:
    """Return the event that ends the run, or None if it does not end within the time."""
    timer = asyncio.get_running_loop().call_later(wait_ms / 1000, _stop_waiting, end)
    try:
        return await end
    finally:
        timer.cancel()


def _stop_waiting(end: asyncio.Future[Event | None]) -> None:
    if not end.done():
        end.set_result(None)
