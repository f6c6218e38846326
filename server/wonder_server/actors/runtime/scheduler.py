"""A fair scheduler for the actors in memory."""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Mapping

from wonder_server.actors.runtime.actor import BULK_LANE, TURN_LANE, Actor, Home
from wonder_server.actors.runtime.fair_queue import FairQueue
from wonder_server.actors.runtime.incidents import report_incident
from wonder_server.actors.runtime.limits import LoopLimits
from wonder_server.actors.runtime.monotonic import monotonic_s
from wonder_server.core.actor.planner import Planner


class IdleCache:
    """An LRU cache of idle actors, limited by count and size: their ids, the longest idle first.

    ``limit`` is the maximum number of actors, ``limit_bytes`` their maximum total size.
    """

    def __init__(self, limit: int, limit_bytes: int) -> None:
        self._limit = limit
        self._limit_bytes = limit_bytes
        self._bytes = 0
        self._sizes: OrderedDict[str, int] = OrderedDict()

    def add(self, actor_id: str, size_bytes: int) -> list[str]:
        """Add an idle actor. Return the ids of the actors to evict, which may include it."""
        self._sizes[actor_id] = size_bytes
        self._bytes += size_bytes
        evicted = []
        while len(self._sizes) > self._limit or self._bytes > self._limit_bytes:
            oldest, freed = self._sizes.popitem(last=False)
            self._bytes -= freed
            evicted.append(oldest)
        return evicted

    def discard(self, actor_id: str) -> None:
        """Remove an actor that is no longer idle, if it is in the cache."""
        self._bytes -= self._sizes.pop(actor_id, 0)


class Scheduler:
    """The actors in memory, of all loops. Scheduled actors run in turn, in time slices of the event loop.

    ``home_of(actor_id)`` returns the loop of an actor's shard. Its ``work`` returns when the slice is over
    (`slice_end`) or nothing is left. ``is_throttled()`` returns True while no low-priority actor may start.
    Its owner calls `start_slice` after the value becomes False.
    """

    def __init__(
        self,
        planners: Iterable[Planner],
        limits: LoopLimits,
        *,
        home_of: Callable[[str], Home],
        is_throttled: Callable[[], bool],
    ) -> None:
        self.actors: dict[str, Actor] = {}
        """The actors in memory, by id."""
        self.slice_end = 0.0
        """The end of the current time slice, in the event loop's time."""
        self.stopping = False
        self._planners: Mapping[str, Planner] = {planner.prefix: planner for planner in planners}
        self._idle_cache = IdleCache(limits.idle_actors, limits.idle_bytes)
        self._time_slice_s = limits.time_slice_s
        self._home_of = home_of
        self._is_throttled = is_throttled
        self._busy: set[Actor] = set()
        """Actors that are scheduled, in a commit, or waiting for a read from disk."""
        self._ready = FairQueue[Actor]()
        """Scheduled actors."""
        self._low_priority: deque[Actor] = deque()
        """Scheduled actors that another actor started and that have not planned an input yet. They run
        between the others, so that the server finishes work before it starts more."""
        self._slice_scheduled = False
        """True while a slice is scheduled or running."""
        self._idle_event = asyncio.Event()
        self._unsettled: set[Actor] = set()
        """Busy actors that `wait_until_settled` waits for."""
        self._settled_event = asyncio.Event()

    # --- the actors in memory -------------------------------------------------------------------

    @property
    def planners(self) -> Iterable[Planner]:
        """The planners of all actors, in the order in which they were given."""
        return self._planners.values()

    def planner_of(self, actor_id: str) -> Planner:
        """Return the planner for actors with this id's prefix. Raises KeyError if there is none."""
        return self._planners[actor_id.partition("_")[0]]

    def get_or_create(self, actor_id: str) -> Actor:
        """Return the actor with this id. Create it, not yet loaded, if it is not in memory."""
        actor = self.actors.get(actor_id)
        if actor is None:
            planner = self.planner_of(actor_id)
            lane = BULK_LANE if planner.kind == "run" else TURN_LANE
            actor = self.actors[actor_id] = Actor(actor_id, planner, self._home_of(actor_id), lane=lane)
        return actor

    def peek(self, actor_id: str) -> object | None:
        """Return the state of an actor in memory, or None. The state may be ahead of the disk."""
        actor = self.actors.get(actor_id)
        return None if actor is None else actor.state

    def members_of(self, root: str) -> list[str]:
        """Return the ids of loaded actors whose root is ``root``, without ``root`` itself."""
        loaded = [actor for actor in self.actors.values() if actor.id != root and actor.state is not None]
        return [actor.id for actor in loaded if actor.planner.root(actor.id, actor.state) == root]

    def evict(self, actor_id: str) -> bool:
        """Remove an actor from memory because its data on disk changed. Return False if the actor is busy."""
        actor = self.actors.get(actor_id)
        if actor is not None and not actor.idle:
            return False
        self._idle_cache.discard(actor_id)
        self.actors.pop(actor_id, None)
        return True

    def remove(self, actor: Actor) -> None:
        """Remove an actor from memory with everything that is not on disk."""
        self.actors.pop(actor.id, None)
        self._idle_cache.discard(actor.id)
        actor.mailbox.clear()
        actor.ready_commands.clear()
        actor.batch = actor.failure = None

    def release_if_idle(self, actor: Actor) -> None:
        """Move an idle actor to the idle cache, or evict it.

        An actor with pending operations stays in memory unless its planner can unload it.
        """
        if not (actor.scheduled or actor.waits_for_commit or actor.loading or actor.inflight is not None):
            self.mark_idle(actor)
        if self.actors.get(actor.id) is not actor or self.stopping or not actor.idle:
            return
        if actor.planner.pending(actor.state):
            if not (actor.committed and actor.planner.can_unload(actor.state)):
                return
        elif actor.planner.kind == "run":
            del self.actors[actor.id]
            return
        for evicted in self._idle_cache.add(actor.id, actor.planner.size_bytes(actor.state)):
            del self.actors[evicted]

    def mark_busy(self, actor: Actor) -> None:
        """Make `wait_until_idle` wait for the actor."""
        self._busy.add(actor)

    def mark_idle(self, actor: Actor) -> None:
        """Stop `wait_until_idle` from waiting for the actor."""
        self._busy.discard(actor)
        if not self._busy:
            self._idle_event.set()
        if actor in self._unsettled:
            self._unsettled.discard(actor)
            if not self._unsettled:
                self._settled_event.set()

    @property
    def busy_count(self) -> int:
        """Number of actors that are scheduled, in a commit, or waiting for a read from disk."""
        return len(self._busy)

    @property
    def is_idle(self) -> bool:
        """True if no actor is busy."""
        return not self._busy

    async def wait_until_idle(self) -> None:
        """Wait until all inputs are planned and all due batches are committed."""
        while self._busy:
            self._idle_event.clear()
            await self._idle_event.wait()

    async def wait_until_settled(self, actor_ids: Iterable[str]) -> None:
        """Wait until each of these actors was idle once. One caller may wait at a time."""
        found = (self.actors.get(actor_id) for actor_id in actor_ids)
        self._unsettled = {actor for actor in found if actor is not None and actor in self._busy}
        while self._unsettled:
            self._settled_event.clear()
            await self._settled_event.wait()

    # --- time slices ----------------------------------------------------------------------------

    def schedule(self, actor: Actor, *, high_priority: bool = False) -> None:
        """Put the actor into the queue of its lane. ``high_priority``: a caller waits for it."""
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
        self.start_slice()

    def start_slice(self) -> None:
        """Schedule a slice if actors are scheduled and no slice is."""
        if not self._slice_scheduled and (self._ready or self._low_priority):
            self._slice_scheduled = True
            asyncio.get_running_loop().call_soon(self._run_slice)

    def notify_commit_waiters(self, actor: Actor) -> None:
        """Schedule the actors that wait for a commit of ``actor``."""
        waiters, actor.commit_waiters = actor.commit_waiters, []
        for waiter in waiters:
            self.schedule(waiter)

    def _run_slice(self) -> None:
        """Run scheduled actors until all have run or the slice is over."""
        self.slice_end = monotonic_s() + self._time_slice_s
        ready, low_priority = self._ready, self._low_priority
        while ready or (low_priority and not self._is_throttled()):
            for queue in (ready,) if self._is_throttled() else (ready, low_priority):
                actor = _next_scheduled(queue)
                if actor is None:
                    continue
                try:
                    actor.home.work(actor)
                except Exception:
                    report_incident("scheduler_failed", actor=actor.id)
            if monotonic_s() > self.slice_end and (ready or low_priority):
                asyncio.get_running_loop().call_soon(self._run_slice)
                return
        self._slice_scheduled = False


def _next_scheduled(queue: FairQueue[Actor] | deque[Actor]) -> Actor | None:
    """Remove and return the next scheduled actor, or None."""
    while queue:
        actor = queue.popleft()
        # Skip an actor that already ran with high priority or was evicted.
        if actor.scheduled:
            return actor
    return None
