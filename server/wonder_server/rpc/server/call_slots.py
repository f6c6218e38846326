"""Slots for unary calls, shared fairly between callers.

Without slots, hundreds of calls of one token would be on the event loop at once, and a call of another token
would wait behind each of them. Each kind of call has its own slots:

======== ==================================================== ====================================
kind     calls                                                slots, and maximum for one token
======== ==================================================== ====================================
lists    calls with a ``page_token``                          ``max_concurrent_pages``, half
previews PreviewContext                                       8, 1
memory   other calls of the MemoryService                     64, 16
others   all other unary calls                                64, 8
======== ==================================================== ====================================

Calls that wait for models or tools (CallAgent, ExecuteTask, StartRun with ``wait_ms``) or for their client
(UploadFile) take no slot. A free
slot goes to the next token in turn. Without tokens all calls have the same caller, which may take every slot.

A call that needs an object of an external store releases its slot and takes one of `FETCH_SLOTS` (see
`ExternalBlobs`). A store that does not answer thus delays only the calls that need it.
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
from wonder_server.rpc.shared.principal import current_principal

S = TypeVar("S")
T = TypeVar("T")

FETCH_SLOTS: Final = (16, 8)
"""Slots for fetching from the external store, and the maximum for one token."""
PREVIEW_SLOTS: Final = (8, 1)
MEMORY_SLOTS: Final = (64, 16)
OTHER_SLOTS: Final = (64, 8)
FETCH_WAIT_S: Final = 30.0
"""Seconds that a call waits for one of `FETCH_SLOTS`: the deadline of one request to the store."""

_UNLIMITED_METHODS: Final = frozenset(
    {"CallAgent", "ExecuteTask", "MergeBranch", "DiffBranch", "CreateProject", "UpdateProject", "UploadFile"}
)
"""Methods that can wait long for an agent, a task, the server of a repository, or their client."""


class FairSlots:
    """``limit`` slots, of which one token holds at most ``share``. Waiting tokens take turns."""

    def __init__(self, limit: int, share: int = 0) -> None:
        """Create the slots. A ``share`` of 0 is half of them."""
        self._limit = limit
        self._share = share or max(1, limit // 2)
        self._in_use: Counter[str] = Counter()
        self._waiters = RoundRobin[asyncio.Future[None]]()

    async def acquire(self, name: str) -> None:
        """Take a slot for the caller, in turn."""
        if self._may_acquire(name):
            # No waiting caller may take this slot: a free slot is handed over in `release`.
            self._in_use[name] += 1
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters.append(turn, name)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.cancelled():
                with suppress(ValueError):
                    self._waiters.remove(turn, name)
            else:
                self.release(name)
            raise

    def release(self, name: str) -> None:
        """Release one of the caller's slots to the next waiting caller below its share."""
        self._in_use[name] -= 1
        if not self._in_use[name]:
            del self._in_use[name]
        while (found := self._waiters.pop_for(self._may_acquire)) is not None:
            name, turn = found
            if turn.cancelled():  # Its task has not yet removed it.
                continue
            self._in_use[name] += 1
            turn.set_result(None)

    def _may_acquire(self, name: str) -> bool:
        share = self._limit if not name else self._share
        return self._in_use.total() < self._limit and self._in_use[name] < share


class CallSlot:
    """The slot that a call holds, of its own kind or for fetching, until the call ends."""

    def __init__(self, kind: FairSlots, fetching: FairSlots, name: str) -> None:
        self._name = name
        self._held: FairSlots | None = kind
        self._fetching = fetching
        self._fetch_task: asyncio.Task[None] | None = None
        self.is_released = False
        self.failure: WonderError | None = None
        """The external store's error in this call."""

    async def move_to_fetching(self) -> None:
        """Exchange the call's slot for a fetch slot. Raises STORAGE_UNAVAILABLE after `FETCH_WAIT_S`."""
        if self._fetch_task is None:
            self._release_held()
            self._fetch_task = asyncio.create_task(self._acquire_fetch_slot())
            self._fetch_task.add_done_callback(asyncio.Task.exception)
        await asyncio.shield(self._fetch_task)

    def release(self) -> None:
        """End the call and release its slot. Tasks that the call started may continue without one."""
        self.is_released = True
        self._release_held()

    async def _acquire_fetch_slot(self) -> None:
        try:
            async with asyncio.timeout(FETCH_WAIT_S):
                await self._fetching.acquire(self._name)
        except TimeoutError:
            raise error(
                Reason.STORAGE_UNAVAILABLE,
                f"The object store was busy with other calls for {FETCH_WAIT_S:g} s. Try again.",
                transient=True,
            ) from None
        if self.is_released:
            self._fetching.release(self._name)
        else:
            self._held = self._fetching

    def _release_held(self) -> None:
        held, self._held = self._held, None
        if held is not None:
            held.release(self._name)


class CallSlots:
    """The slots of every kind of unary call."""

    def __init__(self, max_concurrent_pages: int) -> None:
        self._lists = FairSlots(max_concurrent_pages)
        self._previews = FairSlots(*PREVIEW_SLOTS)
        self._memory = FairSlots(*MEMORY_SLOTS)
        self._others = FairSlots(*OTHER_SLOTS)
        self._fetching = FairSlots(*FETCH_SLOTS)

    def slots_for(self, method: MethodDescriptor) -> FairSlots | None:
        """Return the slots for a method's calls; None if its calls take none."""
        if method.name in _UNLIMITED_METHODS:
            return None
        if "page_token" in method.input_type.fields_by_name:
            return self._lists
        if method.name == "PreviewContext":
            return self._previews
        return self._memory if method.containing_service.name == "MemoryService" else self._others

    @asynccontextmanager
    async def hold(self, kind: FairSlots | None, request: Message) -> AsyncIterator[None]:
        """Hold a slot for the current call while the context lasts."""
        if kind is None or getattr(request, "wait_ms", None):
            yield
            return
        name = current_principal.get().caller
        await kind.acquire(name)
        slot = CallSlot(kind, self._fetching, name)
        token = _current_slot.set(slot)
        try:
            yield
        finally:
            _current_slot.reset(token)
            slot.release()


_current_slot: ContextVar[CallSlot | None] = ContextVar("call_slot", default=None)


class ExternalBlobs:
    """Blobs of an external store. A call that needs one does not delay calls that need none.

    Implements the port ``Blobs``. After a transient failure of the store, all further requests of the same
    call fail at once with the same error: a page of a hundred objects waits for one deadline.
    """

    def __init__(self, blobs: Blobs) -> None:
        self._blobs = blobs

    async def put(self, content: bytes) -> str:
        return await _call_store(self._blobs.put, content)

    async def get(self, key: str) -> bytes | None:
        return await _call_store(self._blobs.get, key)

    async def exists(self, key: str) -> bool:
        return await _call_store(self._blobs.exists, key)

    async def delete(self, key: str) -> None:
        await _call_store(self._blobs.delete, key)


async def _call_store(operation: Callable[[S], Awaitable[T]], subject: S) -> T:
    slot = _current_slot.get()
    if slot is None or slot.is_released:
        return await operation(subject)
    await slot.move_to_fetching()
    if slot.failure is not None:
        raise slot.failure
    try:
        return await operation(subject)
    except WonderError as problem:
        if problem.fault.transient:
            slot.failure = problem
        raise
