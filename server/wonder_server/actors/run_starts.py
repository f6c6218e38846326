"""Beginning runs: each once, however often it is asked for, and waiting for their end if that is wanted."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from wonder_server.actors.actor import Outcome
from wonder_server.actors.keyed_locks import KeyedLocks
from wonder_server.actors.loop import Loop
from wonder_server.actors.run_lookup import RunLookup, RunView
from wonder_server.actors.streams import Streams
from wonder_server.core import ids
from wonder_server.core.coordinator.decisions import DispatchNode, EndRun, SetRun, StartRun
from wonder_server.core.coordinator.inputs import Start, StartFork
from wonder_server.core.coordinator.values import Run
from wonder_server.core.idempotency import Request, first_answer
from wonder_server.ports.clock import Clock
from wonder_server.ports.journal import Event, Shards
from wonder_server.ports.records import Head

Build = Callable[[str], Awaitable[Start | StartFork]]
"""Makes the input that begins the run of this id; asked only if the run is to be begun indeed."""


class Starts:
    """Begins runs of clients. They are on disk when `begin` returns."""

    def __init__(
        self, *, loop: Loop, shards: Shards, streams: Streams, lookup: RunLookup, clock: Clock
    ) -> None:
        self._loop = loop
        self._shards = shards
        self._streams = streams
        self._lookup = lookup
        self._clock = clock
        self._creations = KeyedLocks()

    async def begin(self, key: str, build: Build, asked: Request | None, *, wait_ms: int = 0) -> RunView:
        """The run, as it was when it began or, after up to ``wait_ms``, when it ended or as it stands.

        ``key`` spreads runs over the shards where there is no request. Errors: what ``build`` raises and the
        planner refuses with, REQUEST_ID_REUSED.
        """
        now = self._clock.now_ms()
        shard = ids.spread(f"{now}{key}" if asked is None else asked.id, self._shards.count)
        run_id = ids.actor_id("run", now, shard)
        if asked is None:
            return await self._until(run_id, lambda: self._begin(run_id, build, None), wait_ms)
        return await self._until(run_id, lambda: self._begin_once(run_id, build, asked), wait_ms)

    async def _begin_once(self, run_id: str, build: Build, asked: Request) -> RunView:
        async with self._creations.lock(asked.scope, asked.id):
            before = await self._shards.of(run_id).answered(asked.scope, asked.id)
            told = first_answer(before, asked)
            if told is None:
                return await self._begin(run_id, build, asked)
        return await self._lookup.now(told["run_id"])

    async def _begin(self, run_id: str, build: Build, asked: Request | None) -> RunView:
        start = await build(run_id)
        self._loop.new(run_id)
        return _begun(await self._loop.ask(run_id, start, asked))

    async def _until(self, run_id: str, begin: Callable[[], Awaitable[RunView]], wait_ms: int) -> RunView:
        """What ``begin`` gives, or the run's end if that comes within ``wait_ms``."""
        if not wait_ms:
            return await begin()
        # Asked for before the run begins: a short one has ended before its start is answered.
        end = self._streams.end_of(run_id)
        timer: asyncio.TimerHandle | None = None
        try:
            begun = await begin()
            if begun.has_ended:
                return begun
            if begun.run.id == run_id:
                if not end.done():
                    timer = asyncio.get_running_loop().call_later(wait_ms / 1000, _enough, end)
                event = await end
                if event is not None:
                    return _ended(event)
                return await self._lookup.now(run_id)
        finally:
            if timer is not None:
                timer.cancel()
            self._streams.forget_end(run_id, end)
        # It was begun by an earlier call, under another id.
        earlier = begun.run.id
        return await self._until(earlier, lambda: self._lookup.now(earlier), wait_ms)


def _begun(outcome: Outcome) -> RunView:
    """The run as the decisions of its start leave it."""
    decided = outcome.decisions
    run = next(d.run for d in reversed(decided) if type(d) in _SAY_THE_RUN)
    ordinals = [d.execution.ordinal for d in decided if type(d) is DispatchNode]
    head = Head(int(outcome.answer["last_sequence"]), run.created_ms, max(ordinals, default=0))
    return RunView(run, head)


_SAY_THE_RUN = frozenset({StartRun, SetRun, EndRun})


def _ended(event: Event) -> RunView:
    run: Run = event.emit.value
    return RunView(run, Head(event.sequence, event.at_ms, run.executions))


def _enough(end: asyncio.Future[Event | None]) -> None:
    if not end.done():
        end.set_result(None)
