"""Loading of actors and earlier requests from the journal."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from functools import partial

from wonder_server.actors.runtime.actor import TURN_LANE, Actor, Envelope
from wonder_server.actors.runtime.incidents import report_incident
from wonder_server.actors.runtime.recovery import Recovery
from wonder_server.actors.runtime.scheduler import Scheduler
from wonder_server.actors.runtime.timers import ActorClocks, Timers
from wonder_server.core.errors import WonderError
from wonder_server.ports.journal import Journal, Loaded


class Loader:
    """Reads actors from disk in tasks of their own. The scheduler runs an actor again after its read.

    ``claim(actor_id)`` returns True if the loaded actor must dispatch its outbox again.
    """

    def __init__(
        self,
        scheduler: Scheduler,
        recovery: Recovery,
        timers: Timers,
        *,
        journal: Journal,
        clocks: ActorClocks,
        claim: Callable[[str], bool],
    ) -> None:
        self._scheduler = scheduler
        self._recovery = recovery
        self._timers = timers
        self._journal = journal
        self._clocks = clocks
        self._claim = claim
        self._tasks: set[asyncio.Task[None]] = set()

    def start_loading(self, actor: Actor) -> None:
        """Start to load the actor's state."""
        self._start(actor, self._load(actor))

    def start_deduplication(self, actor: Actor, envelope: Envelope) -> None:
        """Start to look up the stored answer of the envelope's request, the first in the actor's mailbox."""
        self._start(actor, self._deduplicate(actor, envelope))

    def needs_deduplication(self, actor: Actor, envelope: Envelope) -> bool:
        """Return True if only the store can tell whether the request was executed before."""
        request = envelope.request
        return not (
            request is None
            or envelope.deduplicated
            or actor.has_all_requests
            or (request.scope, request.id) in actor.recent_requests
        )

    @property
    def is_idle(self) -> bool:
        """True if no read is in progress."""
        return not self._tasks

    def _start(self, actor: Actor, reading: Coroutine[object, None, None]) -> None:
        actor.loading = True
        task = asyncio.get_running_loop().create_task(reading)
        self._tasks.add(task)
        task.add_done_callback(partial(self._on_loaded, actor))

    def _on_loaded(self, actor: Actor, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        actor.loading = False
        if not task.cancelled():
            self._scheduler.schedule(actor)

    async def _load(self, actor: Actor) -> None:
        planner = actor.planner
        try:
            if self._claim(actor.id):
                self._recovery.restart_when_loaded(actor.id)
            loaded = await self._journal.load(actor.id)
            state = planner.new_state() if loaded is None else planner.restore(loaded.rows)
        except WonderError as problem:
            self._recovery.reset(actor, None, problem, None)
            return
        except Exception:
            incident = report_incident("actor_failed", actor=actor.id)
            self._recovery.reset(actor, None, WonderError(incident), None)
            return
        actor.state = state
        pending = self._recovery.take(actor.id)
        inputs, actor.write_through, actor.isolate_inputs = (
            pending.retry,
            pending.write_through,
            pending.isolate,
        )
        if loaded is None:
            actor.has_all_requests = True
        else:
            self._restore(actor, loaded)
            if pending.restart:
                # After the retried results: an operation that a result completes is not dispatched again.
                inputs += [Envelope(planner.restarted(each)) for each in planner.pending(state)]
        actor.mailbox.extendleft(reversed(inputs))

    def _restore(self, actor: Actor, loaded: Loaded) -> None:
        """Set the actor's fields from its record, and its timers."""
        actor.entry_head, actor.event_head = loaded.entry_head, loaded.event_head
        actor.submitted = actor.committed = True
        parent = actor.planner.parent(actor.state)
        actor.low_priority = bool(parent)
        if parent and self._scheduler.planner_of(parent).kind != "run":
            actor.lane = TURN_LANE._replace(caller=actor.lane.caller)
        actor.clock_offset_ms = self._clocks.offset_ms(actor.id, loaded.at_ms)
        for operation in loaded.rows["operations"]:
            self._timers.set(actor.id, operation.id, actor.server_time_ms(operation.wake_ms))

    async def _deduplicate(self, actor: Actor, envelope: Envelope) -> None:
        request = envelope.request
        assert request is not None
        try:
            earlier = await self._journal.completed_request(request.scope, request.id)
        except WonderError as problem:
            envelope.resolve(problem)
        except Exception:
            envelope.resolve(WonderError(report_incident("actor_failed", actor=actor.id)))
        else:
            envelope.deduplicated = self._scheduler.actors.get(actor.id) is actor
            if earlier is not None:
                actor.record_request(request, earlier)
            return
        if actor.mailbox and actor.mailbox[0] is envelope:
            actor.mailbox.popleft()
