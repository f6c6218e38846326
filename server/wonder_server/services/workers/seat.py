"""A connected worker, as the server sees it: what it has in hand, and what it is to be told."""

from __future__ import annotations

import asyncio
from collections import Counter, OrderedDict, deque
from typing import Final

from wonder_server.core.errors import Fault, Reason, WonderError
from wonder_server.services.workers.leases import Assignment, Ticket
from wonder_server.services.workers.words import Assigned, Registration, Word

MAX_BACKLOG: Final = 1_000
"""A worker that has so many words unread is not listened to until it has read some."""

REMEMBERED: Final = 256
"""Of so many leases that ended too early the reason is kept, for results that come late."""


class Seat:
    """One worker while its stream is open. Words go out in order; `take` is for who writes the stream."""

    def __init__(self, id: str, registration: Registration, heard: float) -> None:
        self.id = id
        self.name = registration.name
        self.kinds = {kind.name: kind for kind in registration.kinds}
        self.projects = registration.projects
        self.max_concurrency = registration.max_concurrency
        self.held: dict[str, Assignment] = {}
        self.heard = heard
        """When it last said something, on the event loop's clock."""
        self.turn = 0
        """The number of its last assignment: among workers with as much to do, who waited longest is next."""
        self.is_closed = False
        """Whether it is given nothing new."""
        self.gone = False
        self.timer: asyncio.TimerHandle | None = None
        self._held_of = Counter[str]()
        self._over: OrderedDict[str, Fault] = OrderedDict()
        self._words: deque[Word] = deque()
        self._changed = asyncio.Event()
        self._has_room = asyncio.Event()
        self._has_room.set()
        self._end: WonderError | None = None
        self._ended = False
        self._farewell: WonderError | None = None

    # --- what it has in hand ----------------------------------------------------------------------

    @property
    def load(self) -> float:
        """From 0 to 1."""
        return len(self.held) / self.max_concurrency

    def has_room_for(self, kind: str) -> bool:
        """Whether it takes one more of a kind that it registered."""
        most = self.kinds[kind].max_concurrency or self.max_concurrency
        return len(self.held) < self.max_concurrency and self._held_of[kind] < most

    def may_take(self, ticket: Ticket) -> bool:
        """Whether the work is for it, room aside."""
        return self.works_for(ticket.job.context.project_id) and self.id not in ticket.lost_by

    def works_for(self, project_id: str) -> bool:
        return not self.projects or project_id in self.projects

    def give(self, assignment: Assignment) -> None:
        self.held[assignment.lease_id] = assignment
        self._held_of[assignment.kind.name] += 1

    def release(self, assignment: Assignment, why: Fault | None = None) -> None:
        """It has this no more; ``why`` is what a result that comes late is answered."""
        del self.held[assignment.lease_id]
        self._held_of[assignment.kind.name] -= 1
        if why is not None:
            self._over[assignment.lease_id] = why
            if len(self._over) > REMEMBERED:
                self._over.popitem(last=False)

    def why_over(self, lease_id: str) -> Fault:
        """Why a lease that it names is not among those it holds."""
        return self._over.get(lease_id) or Fault(
            reason=Reason.FIELD_INVALID,
            message="This worker has no such lease, or it is settled already.",
            field="lease_id",
        )

    # --- what it is told --------------------------------------------------------------------------

    def say(self, word: Word) -> None:
        if self._ended:
            return
        self._words.append(word)
        self._changed.set()
        if len(self._words) >= MAX_BACKLOG:
            self._has_room.clear()

    def unsay(self, lease_id: str) -> bool:
        """Take back an assignment that has not gone out; whether there was one."""
        for index, word in enumerate(self._words):
            if isinstance(word, Assigned) and word.lease_id == lease_id:
                del self._words[index]
                return True
        return False

    def end(self, problem: WonderError | None = None) -> None:
        """Nothing is said after what has been. The stream ends well, or with ``problem``."""
        if not self._ended:
            self._ended, self._end = True, problem
            self._changed.set()
            self._has_room.set()

    def close(self, farewell: WonderError | None = None) -> None:
        """Give it nothing new; its stream ends with ``farewell`` when it has nothing in hand."""
        if not self.is_closed:
            self.is_closed, self._farewell = True, farewell

    def end_if_done(self) -> None:
        """After `close`, when nothing is in hand any more."""
        if self.is_closed and not self.held:
            self.end(self._farewell)

    async def take(self) -> Word | None:
        """The next word to write, None after the last. Raises what the stream ends with."""
        while not self._words:
            if self._end is not None:
                raise self._end
            if self._ended:
                return None
            self._changed.clear()
            await self._changed.wait()
        word = self._words.popleft()
        if len(self._words) < MAX_BACKLOG:
            self._has_room.set()
        return word

    async def wait_for_room(self) -> None:
        """Until the worker has read enough of what it was told."""
        await self._has_room.wait()
