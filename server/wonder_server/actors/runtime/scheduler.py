"""Who is in memory, whose turn it is to work, and who may rest."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable, Mapping
from time import monotonic
from typing import Any

from wonder_server.actors.runtime.actor import BULK_LANE, TURN_LANE, Actor
from wonder_server.actors.runtime.fair_queue import FairQueue
from wonder_server.actors.runtime.idle_cache import IdleCache
from wonder_server.actors.runtime.incidents import report_incident
from wonder_server.core.actor.planner import Planner

TIME_SLICE_S = 0.005
"""How long actors work before whatever else waits has its turn."""


class Scheduler:
    """The actors in memory. Those that have something to do work in turn, in stretches between which the
    event loop sees to everything else."""

    def __init__(self, planners: Iterable[Planner], idle_cache: IdleCache) -> None:
        self._planners: Mapping[str, Planner] = {planner.prefix: planner for planner in planners}
        self._actors: dict[str, Actor] = {}
        self._idle_cache = idle_cache
        self._busy: set[Actor] = set()
        """Those that have a stretch, a commit or a look at the disk before them."""
        self._ready = FairQueue[Actor]()
        """Those that have a stretch before them."""
        self._low_priority: deque[Actor] = deque()
        """The same, of those that others hand out by the thousand and that have not begun yet: whoever has
        comes between, so that what is at work ends before more is begun."""
        self._slice_scheduled = False
        """Whether a stretch is to come, or under way."""
        self._slice_end = 0.0
        """When the stretch is over, by the monotonic clock."""
        self._idle_event = asyncio.Event()
        self._stopping = False

    def planner_of(self, actor_id: str) -> Planner:
        return self._planners[actor_id.partition("_")[0]]

    def peek(self, actor_id: str) -> Any | None:
        """The actor's working set if it is in memory; for a look, it may be ahead of what is on disk."""
        actor = self._actors.get(actor_id)
        return None if actor is None else actor.state

    @property
    def actor_count(self) -> int:
        """Actors in memory."""
        return len(self._actors)

    def members_of(self, root: str) -> list[str]:
        """Actors in memory that belong to ``root``, but for itself."""
        loaded = [actor for actor in self._actors.values() if actor.id != root and actor.state is not None]
        return [actor.id for actor in loaded if actor.planner.root(actor.id, actor.state) == root]

    def evict(self, actor_id: str) -> bool:
        """Let go of an actor's working set, since what is on disk was changed otherwise; False if it has
        something to do right now."""
        actor = self._actors.get(actor_id)
        if actor is not None and not actor.idle:
            return False
        self._idle_cache.discard(actor_id)
        self._actors.pop(actor_id, None)
        return True

    async def wait_until_idle(self) -> None:
        """Return when nothing is left to be planned, and everything that is due is on disk."""
        while self._busy:
            self._idle_event.clear()
            await self._idle_event.wait()

    def _run_actor(self, actor: Actor) -> None:
        """What an actor does when it is its turn, until `_until` at the latest."""
        raise NotImplementedError

    def _actor(self, actor_id: str) -> Actor:
        actor = self._actors.get(actor_id)
        if actor is None:
            planner = self.planner_of(actor_id)
            lane = BULK_LANE if planner.kind == "run" else TURN_LANE
            actor = self._actors[actor_id] = Actor(actor_id, planner, lane=lane)
        return actor

    def _schedule(self, actor: Actor, *, high_priority: bool = False) -> None:
        high_priority = high_priority or not actor.low_priority or actor.entry_head > 0
        if actor.scheduled and (actor.high_priority or not high_priority):
            return
        actor.scheduled, actor.high_priority = True, high_priority
        self._busy.add(actor)
        self._idle_cache.discard(actor.id)
        if actor.high_priority:
            self._ready.append(actor, actor.lane)
        else:
            self._low_priority.append(actor)
        self._schedule_slice()

    def _run_slice(self) -> None:
        """Let actors work, one after the other, until all have or others must have their turn."""
        self._slice_end = monotonic() + TIME_SLICE_S
        ready, low_priority = self._ready, self._low_priority
        while ready or (low_priority and not self._is_throttled()):
            for queue in (ready,) if self._is_throttled() else (ready, low_priority):
                actor = _next_scheduled(queue)
                if actor is None:
                    continue
                try:
                    self._run_actor(actor)
                except Exception:
                    report_incident("scheduler_failed", actor=actor.id)
            if monotonic() > self._slice_end and (ready or low_priority):
                asyncio.get_running_loop().call_soon(self._run_slice)
                return
        self._slice_scheduled = False

    def _is_throttled(self) -> bool:
        """Whether nobody of the crowd may begin now; whoever makes that untrue calls `_call`."""
        return False

    def _schedule_slice(self) -> None:
        """See to it that those who are ready have their turn."""
        if not self._slice_scheduled and (self._ready or self._low_priority):
            self._slice_scheduled = True
            asyncio.get_running_loop().call_soon(self._run_slice)

    def _notify_commit_waiters(self, actor: Actor) -> None:
        waiters, actor.commit_waiters = actor.commit_waiters, []
        for waiter in waiters:
            self._schedule(waiter)

    def _release_if_idle(self, actor: Actor) -> None:
        """When nothing is left to do: stay because work is pending, or leave memory, or become idle."""
        if not (actor.scheduled or actor.waits_for_commit or actor.loading or actor.inflight is not None):
            self._mark_idle(actor)
        if self._actors.get(actor.id) is not actor or self._stopping or not actor.idle:
            return
        if actor.planner.pending(actor.state):
            if not (actor.committed and actor.planner.can_unload(actor.state)):
                return
        elif actor.planner.kind == "run":
            del self._actors[actor.id]
            return
        for evicted in self._idle_cache.add(actor.id, actor.planner.size_bytes(actor.state)):
            del self._actors[evicted]

    def _mark_idle(self, actor: Actor) -> None:
        self._busy.discard(actor)
        if not self._busy:
            self._idle_event.set()


def _next_scheduled(queue: FairQueue[Actor] | deque[Actor]) -> Actor | None:
    """Remove and return the next actor that has a stretch before it; None if there is none."""
    while queue:
        actor = queue.popleft()
        if actor.scheduled:  # Else it ran with high priority meanwhile, or it is gone.
            return actor
    return None
