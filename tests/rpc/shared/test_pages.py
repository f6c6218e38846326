"""Size limits of pages and messages, and the limit of pages built at the same time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from google.protobuf.struct_pb2 import Struct

from tests.rpc.rpc_kit import serving
from tests.sqlite_journals import SqliteJournals
from wonder.v1 import conversation_pb2, run_pb2
from wonder.v1 import conversation_service_pb2 as pb
from wonder.v1.conversation_service_pb2_grpc import ConversationServiceStub
from wonder_server.core.actor.changes import Emit, Put
from wonder_server.core.conversation.model.values import Conversation, Message, Role
from wonder_server.core.conversation.planner import CONVERSATION
from wonder_server.core.schema.truncation import truncate_text
from wonder_server.ports.journal import Commit
from wonder_server.ports.records import EventQuery, Query, QueryResult
from wonder_server.rpc.shared.message_trimming import trim_message
from wonder_server.rpc.shared.pages import PAGE_BYTES, page_from_rows
from wonder_server.rpc.shared.payload import MAX_OUTGOING_BYTES, dict_to_struct, json_to_value
from wonder_server.services.paging import PageRequest

SERVICE = "wonder.v1.ConversationService"
_TEXT = "漢ü🙂x" * 100_000


# --- texts ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("most", [*range(200, 216), 99_999])
def test_a_cut_text_has_whole_characters_and_states_the_missing_length(most: int) -> None:
    cut = truncate_text(_TEXT, most)
    begins, _, received = cut.rpartition("\n[Cut: ")
    assert len(cut.encode()) <= most
    assert _TEXT.startswith(begins)
    size = len(_TEXT.encode())
    assert received == f"{size - len(begins.encode())} of {size} bytes are left out here.]"


def test_a_text_that_fits_is_unchanged() -> None:
    assert truncate_text("漢" * 10, 30) == "漢" * 10


# --- messages ---------------------------------------------------------------------------------------


def test_the_longest_texts_are_cut_first_and_no_more_than_needed() -> None:
    message = conversation_pb2.Turn(id="turn_1")
    message.input.string_value = "i" * 100_000
    message.output.string_value = "o" * 1_000_000
    assert trim_message(message, 500_000)
    assert 490_000 < message.ByteSize() <= 500_000
    assert message.input.string_value == "i" * 100_000
    assert message.id == "turn_1"


def test_a_payload_without_long_texts_is_omitted() -> None:
    message = run_pb2.Run(id="run_1", input=dict_to_struct({"n": list(range(50_000))}))
    message.output.fields["kept"].string_value = "k"
    assert trim_message(message, 10_000)
    assert message.ByteSize() <= 10_000
    assert "bytes are left out here" in message.input.fields["cut"].string_value
    assert message.output.fields["kept"].string_value == "k"


def test_a_list_that_is_too_long_is_truncated() -> None:
    calls = [conversation_pb2.ToolCall(id=f"call_{n}", tool_name="t" * 100) for n in range(10_000)]
    message = conversation_pb2.Move(id="move_1", tool_calls=calls)
    assert trim_message(message, 100_000)
    assert message.ByteSize() <= 100_000
    assert [call.id for call in message.tool_calls][:2] == ["call_0", "call_1"]


def test_texts_before_many_numbers_are_cut_and_not_omitted() -> None:
    values = Struct()
    values.fields["numbers"].list_value.values.extend(json_to_value(n) for n in range(30_000))
    values.fields["text"].string_value = _TEXT
    message = run_pb2.Run(input=values)
    assert trim_message(message, 600_000)
    assert message.input.fields["text"].string_value.startswith("漢ü🙂x")


@pytest.mark.parametrize(
    "value",
    [
        list(range(500_000)),
        {"rows": [{"n": n, "text": "ü" * 40} for n in range(40_000)]},
        {"long": "漢" * 2_000_000, "after": "kept"},
        {"a" * 300 + str(n): None for n in range(10_000)},
    ],
)
def test_a_payload_is_limited_by_its_encoded_size(value: Any) -> None:
    encoded = json_to_value(value)
    assert encoded.ByteSize() <= MAX_OUTGOING_BYTES * 1.1
    assert "ut: " in str(encoded)
    if isinstance(value, dict) and "after" in value:
        assert encoded.struct_value.fields["after"].string_value == "kept"


# --- pages ------------------------------------------------------------------------------------------


async def test_a_page_ends_before_it_is_too_large_and_the_next_continues() -> None:
    messages = [conversation_pb2.Message(id=str(n), content="x" * (PAGE_BYTES // 4)) for n in range(10)]
    seen: list[str] = []
    token = ""
    while True:
        after = PageRequest(token=token).cursor(["s"], "")
        rest = messages[int(after) + 1 if after else 0 :]
        page, token = await page_from_rows(rest[:9], 8, ["s"], lambda m: m.id, lambda m: m)
        assert sum(message.ByteSize() for message in page) <= PAGE_BYTES
        seen += [message.id for message in page]
        if not token:
            break
    assert seen == [str(n) for n in range(10)]


async def test_a_page_that_was_cut_during_the_read_has_a_next_page() -> None:
    found = QueryResult([conversation_pb2.Message(id="1")], truncated=True)
    _, token = await page_from_rows(found, 50, ["s"], lambda m: m.id, lambda m: m)
    assert PageRequest(token=token).cursor(["s"], "") == "1"


@pytest.mark.parametrize("shards", [1, 3])
async def test_a_store_reads_only_the_requested_rows(tmp_path: Path, shards: int) -> None:
    """Check pages over several shards: after the end of a cut shard the page shows nothing."""
    opened = await SqliteJournals.open(tmp_path, shards)
    try:
        conversations = [f"conv_01HF7YAT00000000000000001{shard}" for shard in range(shards)]
        for number, actor in enumerate(conversations):
            await opened.of(actor).commit([_commit(actor, number, 2_000 if number else 20_000)])
        for query in (Query(table="messages"), Query(table="messages", newest_first=False)):
            assert await _read(opened, query) == await opened.find(_with(query, limit=1_000))
        assert await _read_events(opened) == 40 * shards
    finally:
        await opened.close()


def _commit(actor: str, number: int, size: int) -> Commit:
    commit = Commit(actor, entry_head=1, root=actor)
    changes: list[Put | Emit] = [
        Put("conversations", actor, Conversation(id=actor, project_id="p"), created_ms=1)
    ]
    for n in range(40):
        message = Message(
            id=f"msg_{number}_{n:02}", conversation_id=actor, turn_id="", ordinal=n, role=Role.USER,
            author="", content="x" * size, created_ms=n * 3 + number,
        )  # fmt: skip
        changes.append(Put("messages", message.id, message, ordinal=n, created_ms=message.created_ms))
    commit.add(changes, 1)
    for n in range(40):
        commit.add([Emit("message.appended", changes[n + 1].value, "", "")], n * 3 + number)  # type: ignore[union-attr]
    return commit


def _with(query: Query, **fields: Any) -> Query:
    return Query(table=query.table, newest_first=query.newest_first, **fields)


async def _read(shards: SqliteJournals, query: Query) -> list[Any]:
    seen: list[Any] = []
    after = None
    while True:
        found = await shards.find(_with(query, limit=50, after=after, max_bytes=50_000))
        assert isinstance(found, QueryResult)
        assert found, "the first row always fits"
        assert sum(len(each.content) for each in found) <= 50_000 * shards.file_count
        seen += found
        if not found.truncated:
            return seen
        after = (seen[-1].created_ms, seen[-1].id)


async def _read_events(shards: SqliteJournals) -> int:
    count = 0
    after = None
    while True:
        found = await shards.events(CONVERSATION.prefix, EventQuery(limit=50, after=after, max_bytes=50_000))
        places = [(event.at_ms, event.actor_id, event.sequence) for event in found]
        assert places == sorted(places, reverse=True)
        assert after is None or places[0] < after
        count += len(found)
        if len(found) < 50 and not (isinstance(found, QueryResult) and found.truncated):
            return count
        after = places[-1]


# --- turns ------------------------------------------------------------------------------------------


class Lists:
    """A service whose lists wait until the test releases them."""

    def __init__(self) -> None:
        self.begun: list[str] = []
        self.changed = asyncio.Condition()
        self.go = asyncio.Semaphore(0)

    async def list_messages(self, request: pb.ListMessagesRequest, _context: Any) -> Any:
        async with self.changed:
            self.begun.append(request.turn_id)
            self.changed.notify_all()
        await self.go.acquire()
        return pb.ListMessagesResponse()

    async def get_turn(self, _request: pb.GetTurnRequest, _context: Any) -> Any:
        return pb.GetTurnResponse()

    async def until(self, count: int) -> list[str]:
        async with asyncio.timeout(60), self.changed:
            await self.changed.wait_for(lambda: len(self.begun) >= count)
        return self.begun


@pytest.fixture
async def lists() -> AsyncIterator[Lists]:
    yield Lists()


async def test_concurrent_lists_are_limited_and_the_others_wait_in_order(lists: Lists) -> None:
    async with serving({SERVICE: lists}, max_concurrent_pages=2) as channel:
        stub = ConversationServiceStub(channel)
        calls = []
        for number in range(5):
            calls.append(asyncio.ensure_future(_list(stub, number)))
            await lists.until(min(number + 1, 2))
            # The call's way to the server is done when one behind it has been answered.
            await stub.GetTurn(pb.GetTurnRequest())
        assert lists.begun == ["0", "1"]
        calls[2].cancel()
        with pytest.raises(asyncio.CancelledError):
            await calls[2]
        await stub.GetTurn(pb.GetTurnRequest())
        lists.go.release()
        assert await lists.until(3) == ["0", "1", "3"], "one whose client has left takes no turn"
        for _ in range(3):
            lists.go.release()
        await asyncio.gather(*(call for call in calls if not call.cancelled()))
        assert lists.begun == ["0", "1", "3", "4"]


async def _list(stub: ConversationServiceStub, number: int) -> None:
    await stub.ListMessages(pb.ListMessagesRequest(turn_id=str(number)))
