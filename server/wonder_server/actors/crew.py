"""Who is in memory, whose turn it is to work, and who may rest."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable, Mapping
from time import monotonic
from typing import Any

from wonder_server.actors.actor import BULK, TURNS, Actor
from wonder_server.actors.idle import Idle
from wonder_server.actors.incidents import unexpected
from wonder_server.actors.lanes import FairLine
from wonder_server.core.planner import Planner

STRETCH_S = 0.005
"""How long actors work before whatever else waits has its turn."""


class Crew:
    """The actors in memory. Those that have something to do work in turn, in stretches between which the
    event loop sees to everything else."""

    def __init__(self, planners: Iterable[Planner], idle: Idle) -> None:
        self._planners: Mapping[str, Planner] = {planner.prefix: planner for planner in planners}
        self._actors: dict[str, Actor] = {}
        self._idle = idle
        self._busy: set[Actor] = set()
        """Those that have a stretch, a commit or a look at the disk before them."""
        self._ready = FairLine[Actor]()
        """Those that have a stretch before them."""
        self._crowd: deque[Actor] = deque()
        """The same, of those that others hand out by the thousand and that have not begun yet: whoever has
        comes between, so that what is at work ends before more is begun."""
        self._is_called = False
        """Whether a stretch is to come, or under way."""
        self._until = 0.0
        """When the stretch is over, by the monotonic clock."""
        self._quiet = asyncio.Event()
        self._stopping = False

    def planner_of(self, actor_id: str) -> Planner:
        return self._planners[actor_id.partition("_")[0]]

    def peek(self, actor_id: str) -> Any | None:
        """The actor's working set if it is in memory; for a look, it may be ahead of what is on disk."""
        actor = self._actors.get(actor_id)
        return None if actor is None else actor.state

    @property
    def live(self) -> int:
        """Actors in memory."""
        return len(self._actors)

    def rooted(self, root: str) -> list[str]:
        """Actors in memory that belong to ``root``, but for itself."""
        loaded = [actor for actor in self._actors.values() if actor.id != root and actor.state is not None]
        return [actor.id for actor in loaded if actor.planner.root(actor.id, actor.state) == root]

    def forget(self, actor_id: str) -> bool:
        """Let go of an actor's working set, since what is on disk was changed otherwise; False if it has
        something to do right now."""
        actor = self._actors.get(actor_id)
        if actor is not None and not actor.at_rest:
            return False
        self._idle.discard(actor_id)
        self._actors.pop(actor_id, None)
        return True

    async def settled(self) -> None:
        """Return when nothing is left to be planned, and everything that is due is on disk."""
        while self._busy:
            self._quiet.clear()
            await self._quiet.wait()

    def _work(self, actor: Actor) -> None:
        """What an actor does when it is its turn, until `_until` at the latest."""
        raise NotImplementedError

    def _actor(self, actor_id: str) -> Actor:
        actor = self._actors.get(actor_id)
        if actor is None:
            planner = self.planner_of(actor_id)
            lane = BULK if planner.kind == "run" else TURNS
            actor = self._actors[actor_id] = Actor(actor_id, planner, lane=lane)
        return actor

    def _schedule(self, actor: Actor, *, urgent: bool = False) -> None:
        urgent = urgent or not actor.crowd or actor.entry_head > 0
        if actor.scheduled and (actor.urgent or not urgent):
            return
        actor.scheduled, actor.urgent = True, urgent
        self._busy.add(actor)
        self._idle.discard(actor.id)
        if actor.urgent:
            self._ready.append(actor, actor.lane)
        else:
            self._crowd.append(actor)
        self._call()

    def _stretch(self) -> None:
        """Let actors work, one after the other, until all have or others must have their turn."""
        self._until = monotonic() + STRETCH_S
        ready, crowd = self._ready, self._crowd
        while ready or (crowd and not self._is_held()):
            for line in (ready,) if self._is_held() else (ready, crowd):
                actor = _next_scheduled(line)
                if actor is None:
                    continue
                try:
                    self._work(actor)
                except Exception:
                    unexpected("scheduler_failed", actor=actor.id)
            if monotonic() > self._until and (ready or crowd):
                asyncio.get_running_loop().call_soon(self._stretch)
                return
        self._is_called = False

    def _is_held(self) -> bool:
        """Whether nobody of the crowd may begin now; whoever makes that untrue calls `_call`."""
        return False

    def _call(self) -> None:
        """See to it that those who are ready have their turn."""
        if not self._is_called and (self._ready or self._crowd):
            self._is_called = True
            asyncio.get_running_loop().call_soon(self._stretch)

    def _poke_followers(self, actor: Actor) -> None:
        followers, actor.followers = actor.followers, []
        for follower in followers:
            self._schedule(follower)

    def _settle(self, actor: Actor) -> None:
        """When nothing is left to do: stay because work is pending, or leave memory, or become idle."""
        if not (actor.scheduled or actor.queued or actor.reading or actor.underway is not None):
            self._rest(actor)
        if self._actors.get(actor.id) is not actor or self._stopping or not actor.at_rest:
            return
        if actor.planner.pending(actor.state):
            if not (actor.on_disk and actor.planner.parked(actor.state)):
                return
        elif actor.planner.kind == "run":
            del self._actors[actor.id]
            return
        for leaving in self._idle.add(actor.id, actor.planner.weight(actor.state)):
            del self._actors[leaving]

    def _rest(self, actor: Actor) -> None:
        self._busy.discard(actor)
        if not self._busy:
            self._quiet.set()


def _next_scheduled(line: FairLine[Actor] | deque[Actor]) -> Actor | None:
    """Remove and return the next actor that has a stretch before it; None if there is none."""
    while line:
        actor = line.popleft()
        if actor.scheduled:  # Else it ran with high priority meanwhile, or it is gone.
            return actor
    return None
