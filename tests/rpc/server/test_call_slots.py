"""Slots for unary calls: neither a flood of one token nor its wait for a store delays other tokens."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.actors.kit import run_ready_tasks
from tests.rpc.rpc_kit import rejected, serving
from wonder.v1 import conversation_service_pb2 as pb
from wonder.v1.conversation_service_pb2_grpc import ConversationServiceStub
from wonder_server.adapters.in_memory.blobs import MemoryBlobs
from wonder_server.core.errors import Reason, WonderError, error
from wonder_server.ports.blobs import key_of
from wonder_server.rpc.server import call_slots
from wonder_server.rpc.server.call_slots import FETCH_SLOTS, PREVIEW_SLOTS, ExternalBlobs, FairSlots
from wonder_server.rpc.server.server import contract_services
from wonder_server.rpc.shared.principal import current_principal

SERVICE = "wonder.v1.ConversationService"


class Queue:
    """Calls that hold one slot each until the test ends them."""

    def __init__(self, places: FairSlots) -> None:
        self._places = places
        self.order: list[str] = []
        self._leaving: dict[str, asyncio.Event] = {}

    def come(self, call: str) -> asyncio.Task[None]:
        self._leaving[call] = asyncio.Event()
        return asyncio.create_task(self._visit(call))

    def leave(self, call: str) -> None:
        self._leaving[call].set()

    async def _visit(self, call: str) -> None:
        name = call.rstrip("0123456789")
        await self._places.acquire(name)
        try:
            self.order.append(call)
            await self._leaving[call].wait()
        finally:
            self._places.release(name)


async def test_one_token_holds_at_most_half_of_the_slots() -> None:
    queue = Queue(FairSlots(4))
    for number in range(100):
        queue.come(f"ann{number}")
    await run_ready_tasks()
    assert queue.order == ["ann0", "ann1"]
    queue.come("bob0")
    await run_ready_tasks()
    assert queue.order == ["ann0", "ann1", "bob0"]


async def test_one_of_two_slots_is_left_for_others() -> None:
    queue = Queue(FairSlots(2))
    for call in ("ann0", "ann1", "ann2", "bob0", "bob1"):
        queue.come(call)
    await run_ready_tasks()
    assert queue.order == ["ann0", "bob0"]
    queue.leave("ann0")
    await run_ready_tasks()
    assert queue.order == ["ann0", "bob0", "ann1"]


async def test_a_single_slot_is_taken_in_turn() -> None:
    queue = Queue(FairSlots(1))
    calls = ["ann0", "ann1", "ann2", "ann3", "bob0", "bob1"]
    for call in calls:
        queue.come(call)
    await run_ready_tasks()
    for call in ("ann0", "ann1", "bob0", "ann2", "bob1"):
        queue.leave(call)
        await run_ready_tasks()
    assert queue.order == ["ann0", "ann1", "bob0", "ann2", "bob1", "ann3"]


async def test_a_free_slot_goes_to_the_next_token_in_turn() -> None:
    queue = Queue(FairSlots(3, 3))
    for call in ("ann0", "ann1", "ann2", "ann3", "ann4", "bob0", "bob1", "carl0"):
        queue.come(call)
    await run_ready_tasks()
    for call in ("ann0", "ann1", "ann2", "ann3", "bob0"):
        queue.leave(call)
        await run_ready_tasks()
    assert queue.order == ["ann0", "ann1", "ann2", "ann3", "bob0", "carl0", "ann4", "bob1"]


async def test_without_tokens_every_slot_can_be_taken() -> None:
    queue = Queue(FairSlots(4))
    for number in range(5):
        queue.come(str(number))
    await run_ready_tasks()
    assert queue.order == ["0", "1", "2", "3"]


async def test_a_cancelled_call_takes_no_slot_and_releases_a_granted_slot() -> None:
    queue = Queue(FairSlots(1))
    calls = [queue.come(call) for call in ("ann0", "bob0", "carl0", "dora0")]
    await run_ready_tasks()
    calls[1].cancel()  # Waits.
    queue.leave("ann0")
    await run_ready_tasks()
    assert queue.order == ["ann0", "carl0"]
    queue.leave("carl0")
    await asyncio.sleep(0)
    await asyncio.sleep(0)  # It has left: the place is dora's, who does not know yet.
    calls[3].cancel()
    await run_ready_tasks()
    queue.come("eve0")
    await run_ready_tasks()
    assert queue.order[-1] == "eve0"
    assert all(call.done() for call in calls)


# --- a store that does not answer -------------------------------------------------------------------


class UnresponsiveBlobs(MemoryBlobs):
    """An object store that never answers and then fails."""

    def __init__(self) -> None:
        super().__init__()
        self.asked = 0
        self.fails = asyncio.Event()

    async def get(self, key: str) -> bytes | None:
        self.asked += 1
        await self.fails.wait()
        raise error(Reason.STORAGE_UNAVAILABLE, "The store of objects does not answer.", transient=True)


class Service:
    """A service whose lists read an object if they name a turn, and whose other calls can be held."""

    def __init__(self, blobs: object) -> None:
        self._blobs = ExternalBlobs(blobs)
        self.begun: list[str] = []
        self.go = asyncio.Event()

    async def list_messages(
        self, request: pb.ListMessagesRequest, _context: object
    ) -> pb.ListMessagesResponse:
        self.begun.append(f"list by {current_principal.get().caller}")
        for _ in range(len(request.turn_id)):
            results = await asyncio.gather(
                *(self._blobs.get(key_of(b"x")) for _ in range(2)), return_exceptions=True
            )
        if request.turn_id and isinstance(results[0], BaseException):
            raise results[0]
        return pb.ListMessagesResponse()

    async def preview_context(
        self, _request: pb.PreviewContextRequest, _context: object
    ) -> pb.PreviewContextResponse:
        self.begun.append(f"preview by {current_principal.get().caller}")
        await self.go.wait()
        return pb.PreviewContextResponse()

    async def get_turn(self, _request: pb.GetTurnRequest, _context: object) -> pb.GetTurnResponse:
        return pb.GetTurnResponse()


def _by(name: str) -> Any:
    return (("authorization", f"Bearer token-of-{name:_<16}"),)


@asynccontextmanager
async def _serving(
    service: Service, folder: Path, **settings: object
) -> AsyncIterator[ConversationServiceStub]:
    file = folder / "tokens"
    file.write_text("".join(f"token-of-{name:_<16} {name}\n" for name in ("ann", "bob")))
    async with serving({SERVICE: service}, auth_tokens_file=file, **settings) as channel:
        yield ConversationServiceStub(channel)


async def _until(is_so: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while True:
            if is_so():
                return
            await asyncio.sleep(0.001)


async def test_a_silent_store_fails_only_the_calls_that_need_it(tmp_path: Path) -> None:
    blobs = UnresponsiveBlobs()
    service = Service(blobs)
    async with _serving(service, tmp_path, max_concurrent_pages=2) as stub:
        # Each asks for two objects at once, three times.
        three_times = pb.ListMessagesRequest(turn_id="xxx")
        calls = [stub.ListMessages(three_times, metadata=_by("ann")) for _ in "123456"]
        await _until(lambda: blobs.asked == 12)
        for name in ("ann", "bob"):
            await stub.ListMessages(pb.ListMessagesRequest(), metadata=_by(name))
        blobs.fails.set()
        for call in calls:
            assert await rejected(call) == ("STORAGE_UNAVAILABLE", [])
        assert blobs.asked == 12, "what failed once is not waited for again by the same call"


async def test_calls_that_fetch_are_limited_and_others_wait_only_for_the_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(call_slots, "FETCH_WAIT_S", 0.01)
    blobs = UnresponsiveBlobs()
    service = Service(blobs)
    async with _serving(service, tmp_path) as stub:
        calls = [
            asyncio.ensure_future(
                rejected(stub.ListMessages(pb.ListMessagesRequest(turn_id="x"), metadata=_by("ann")))
            )
            for _ in range(FETCH_SLOTS[1] + 3)
        ]
        await _until(lambda: sum(call.done() for call in calls) == 3)
        assert blobs.asked == 2 * FETCH_SLOTS[1]
        blobs.fails.set()
        assert await asyncio.gather(*calls) == [("STORAGE_UNAVAILABLE", [])] * len(calls)


async def test_work_that_outlives_its_call_reads_the_store_without_a_call() -> None:
    places = call_slots.CallSlots(4)
    blobs = UnresponsiveBlobs()
    outside = ExternalBlobs(blobs)
    begin = asyncio.Event()

    async def later() -> Any:
        await begin.wait()
        return await outside.get(key_of(b"x"))

    async with places.hold(FairSlots(1), pb.ListMessagesRequest()):
        blobs.fails.set()
        with pytest.raises(WonderError):
            await outside.get(key_of(b"x"))
        task = asyncio.create_task(later())
    begin.set()
    with pytest.raises(WonderError):
        await task
    assert blobs.asked == 2


# --- expensive calls --------------------------------------------------------------------------------


async def test_a_flood_of_previews_is_limited_and_does_not_delay_other_calls(
    tmp_path: Path,
) -> None:
    service = Service(MemoryBlobs())
    async with _serving(service, tmp_path) as stub:
        flood = [stub.PreviewContext(pb.PreviewContextRequest(), metadata=_by("ann")) for _ in range(100)]
        await _until(lambda: len(service.begun) == PREVIEW_SLOTS[1])
        await stub.GetTurn(pb.GetTurnRequest(), metadata=_by("ann"))
        await stub.GetTurn(pb.GetTurnRequest(), metadata=_by("bob"))
        other = stub.PreviewContext(pb.PreviewContextRequest(), metadata=_by("bob"))
        await _until(lambda: "preview by bob" in service.begun)
        assert service.begun == ["preview by ann"] * PREVIEW_SLOTS[1] + ["preview by bob"]
        service.go.set()
        await asyncio.gather(other, *flood)
        assert len(service.begun) == 101


def test_a_call_that_waits_for_a_repository_server_holds_no_slot() -> None:
    methods = {method.name: method for service in contract_services() for method in service.methods}
    places = call_slots.CallSlots(4)
    for name in ("MergeBranch", "DiffBranch", "CreateProject", "UpdateProject", "CallAgent", "ExecuteTask"):
        assert places.slots_for(methods[name]) is None, name
    assert places.slots_for(methods["GetConversation"]) is not None
