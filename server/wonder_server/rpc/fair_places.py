"""Places for unary calls, shared fairly between callers.

Without them, one token's hundreds of calls would all be on the event loop at once, and another token's call
would take its turn behind each of them. Calls fall into kinds, and each kind has places of its own:

======== ==================================================== ====================================
kind     calls                                                places, and at most for one token
======== ==================================================== ====================================
lists    calls with a ``page_token``                          ``max_concurrent_pages``, half
previews PreviewContext                                       8, 1
memory   other calls of the MemoryService                     64, 16
others   all other unary calls                                64, 8
======== ==================================================== ====================================

Calls that wait for models or tools (CallAgent, ExecuteTask, StartRun with ``wait_ms``) take no place. A free
place goes to the next token in turn. Without tokens all calls have the same caller, who may take every place.

A call that needs an object of an external store gives up its place and takes one of `FETCHING` (see
`OutsideBlobs`), so that a store that does not answer holds up only the calls that need it.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from contextvars import ContextVar
from typing import Final, TypeVar

from google.protobuf.descriptor import MethodDescriptor
from google.protobuf.message import Message

from wonder_server.core.errors import Reason, WonderError, error
from wonder_server.core.round_robin import RoundRobin
from wonder_server.ports.blobs import Blobs
from wonder_server.rpc.principal import ANONYMOUS, caller

S = TypeVar("S")
T = TypeVar("T")

FETCHING: Final = (16, 8)
PREVIEWS: Final = (8, 1)
MEMORY: Final = (64, 16)
OTHERS: Final = (64, 8)
FETCH_WAIT_S: Final = 30.0
"""Seconds that a call waits for a place of `FETCHING`: the deadline of one request to the store."""

_WAITING: Final = frozenset(
    {"CallAgent", "ExecuteTask", "MergeBranch", "DiffBranch", "CreateProject", "UpdateProject"}
)
"""Methods that may wait long for what is not the server's: an agent, a task, the server of a repository."""


class FairPlaces:
    """``most`` places, of which one token holds at most ``share``. Waiting tokens take turns."""

    def __init__(self, most: int, share: int = 0) -> None:
        """A ``share`` of 0 is half of the places."""
        self._most = most
        self._share = share or max(1, most // 2)
        self._taken: Counter[str] = Counter()
        self._line = RoundRobin[asyncio.Future[None]]()

    async def take(self, name: str) -> None:
        """Take a place for the caller, as soon as it is the caller's turn."""
        if self._may_take(name):
            # A free place that this caller may take is one that no waiting caller may take.
            self._taken[name] += 1
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._line.append(turn, name)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.cancelled():
                with suppress(ValueError):
                    self._line.remove(turn, name)
            else:
                self.give_back(name)
            raise

    def give_back(self, name: str) -> None:
        """Give back one of the caller's places, to the next caller who waits and has not its share."""
        self._taken[name] -= 1
        if not self._taken[name]:
            del self._taken[name]
        while (found := self._line.pop_for(self._may_take)) is not None:
            name, turn = found
            if turn.cancelled():  # Its task has not run since, to remove it.
                continue
            self._taken[name] += 1
            turn.set_result(None)

    def _may_take(self, name: str) -> bool:
        share = self._most if name == ANONYMOUS else self._share
        return self._taken.total() < self._most and self._taken[name] < share


class Place:
    """The place that a call holds, in one kind or in another, until the call ends."""

    def __init__(self, kind: FairPlaces, fetching: FairPlaces, name: str) -> None:
        self._name = name
        self._held: FairPlaces | None = kind
        self._fetching = fetching
        self._moving: asyncio.Task[None] | None = None
        self.is_over = False
        self.failure: WonderError | None = None
        """The error of the external store that this call has met."""

    async def move(self) -> None:
        """Give up the call's place for one of those that fetch. STORAGE_UNAVAILABLE if none gets free."""
        if self._moving is None:
            self._give_back()
            self._moving = asyncio.create_task(self._take())
            self._moving.add_done_callback(asyncio.Task.exception)
        await asyncio.shield(self._moving)

    def leave(self) -> None:
        """End the call: it holds no place any more. Work that it began may go on after it."""
        self.is_over = True
        self._give_back()

    async def _take(self) -> None:
        try:
            async with asyncio.timeout(FETCH_WAIT_S):
                await self._fetching.take(self._name)
        except TimeoutError:
            raise error(
                Reason.STORAGE_UNAVAILABLE,
                f"Other calls have waited for the store of objects for {FETCH_WAIT_S:g} s; try again.",
                transient=True,
            ) from None
        if self.is_over:
            self._fetching.give_back(self._name)
        else:
            self._held = self._fetching

    def _give_back(self) -> None:
        held, self._held = self._held, None
        if held is not None:
            held.give_back(self._name)


class CallPlaces:
    """The places of every kind of unary call."""

    def __init__(self, max_concurrent_pages: int) -> None:
        self._lists = FairPlaces(max_concurrent_pages)
        self._previews = FairPlaces(*PREVIEWS)
        self._memory = FairPlaces(*MEMORY)
        self._others = FairPlaces(*OTHERS)
        self._fetching = FairPlaces(*FETCHING)

    def kind(self, method: MethodDescriptor) -> FairPlaces | None:
        """Return the places for a method's calls; None if they take none."""
        if method.name in _WAITING:
            return None
        if "page_token" in method.input_type.fields_by_name:
            return self._lists
        if method.name == "PreviewContext":
            return self._previews
        return self._memory if method.containing_service.name == "MemoryService" else self._others

    @asynccontextmanager
    async def taken(self, kind: FairPlaces | None, request: Message) -> AsyncIterator[None]:
        """Hold a place for the current call while the context lasts."""
        if kind is None or getattr(request, "wait_ms", None):
            yield
            return
        name = caller.get()
        await kind.take(name)
        place = Place(kind, self._fetching, name)
        token = _place.set(place)
        try:
            yield
        finally:
            _place.reset(token)
            place.leave()


_place: ContextVar[Place | None] = ContextVar("place", default=None)


class OutsideBlobs:
    """Blobs of an external store. A call that asks for one does not hold up calls that need none.

    Implements the port ``Blobs``. After the store has failed a call in passing, everything else that this
    call asks of it fails in the same way at once: a page of a hundred objects waits for one deadline.
    """

    def __init__(self, blobs: Blobs) -> None:
        self._blobs = blobs

    async def put(self, content: bytes) -> str:
        return await _outside(self._blobs.put, content)

    async def get(self, key: str) -> bytes | None:
        return await _outside(self._blobs.get, key)

    async def exists(self, key: str) -> bool:
        return await _outside(self._blobs.exists, key)

    async def delete(self, key: str) -> None:
        await _outside(self._blobs.delete, key)


async def _outside(ask: Callable[[S], Awaitable[T]], subject: S) -> T:
    place = _place.get()
    if place is None or place.is_over:
        return await ask(subject)
    await place.move()
    if place.failure is not None:
        raise place.failure
    try:
        return await ask(subject)
    except WonderError as problem:
        if problem.fault.transient:
            place.failure = problem
        raise
