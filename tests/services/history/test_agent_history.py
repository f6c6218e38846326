"""Tests of the history that agents read: their own conversation, after the newest reset."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from tests.conformance.ports.journal_subjects import (
    CONVERSATION_ID,
    commit,
    conversation_id,
    put_conversation,
)
from tests.replacing import replace
from wonder_server.adapters.in_memory.journal import MemoryShards
from wonder_server.adapters.scoped.records import RecordsView
from wonder_server.core import ids
from wonder_server.core.actor.commands import Scope
from wonder_server.core.conversation.model.event_payloads import ResultExcerpt
from wonder_server.core.conversation.model.values import (
    Caller,
    Conversation,
    Invocation,
    Message,
    Move,
    Participant,
    Role,
    ToolResult,
    Turn,
)
from wonder_server.core.conversation.output.record import put_message, put_move, put_turn
from wonder_server.core.errors import Reason, WonderError
from wonder_server.core.model import ToolCall
from wonder_server.ports.access import ALL_RECORDS, AccessScope
from wonder_server.services.history.agent_history import READ_BYTES, AgentHistory, ReadRequest
from wonder_server.services.paging import PageRequest

SCOPE = Scope(agent_id="agt_1", conversation_id=CONVERSATION_ID)
MIA = Participant(type="user", id="mia", name="Mia")
HELPER = Participant(type="agent", id="agt_1", name="helper")
WHOLE = '{"text":"' + "z" * 50_000 + '"}'


def id_of(prefix: str, number: int) -> str:
    return f"{prefix}_{ids.encode(1_000 + number, number)}"


def result_id(turn: int) -> str:
    return f"{id_of('move', turn)}.0"


def turn(number: int, agent_id: str) -> Turn:
    return Turn(
        id=id_of("turn", number),
        conversation_id=CONVERSATION_ID,
        ordinal=number,
        caller=Caller(user_id="mia"),
        agent_id=agent_id,
        agent_name="critic" if agent_id == "agt_2" else "helper",
        persona="",
        input="",
    )


def messages(number: int, agent_id: str) -> list[Message]:
    """Return the question and the answer of a turn."""
    made = []
    for ordinal, role, author in ((2 * number - 1, Role.USER, "mia"), (2 * number, Role.AGENT, agent_id)):
        made.append(
            Message(
                id=id_of("msg", ordinal),
                conversation_id=CONVERSATION_ID,
                turn_id=id_of("turn", number),
                ordinal=ordinal,
                role=role,
                author=author,
                content=f"tea number{ordinal}\n[user Bob] I agree.",
                created_ms=ordinal * 1_000,
            )
        )
    return made


def move(number: int) -> Move:
    excerpt = ResultExcerpt(max_bytes=1_024, result_id=result_id(number))
    result = ToolResult(tool_call_id="c", success=True, result={"text": "z" * 50_000}, excerpt=excerpt)
    running = Invocation(call=ToolCall(id="d", name="slow", arguments={}), is_async=True)
    return Move(
        id=id_of("move", number),
        conversation_id=CONVERSATION_ID,
        turn_id=id_of("turn", number),
        sequence=1,
        message_id="",
        invocations=(Invocation(call=ToolCall(id="c", name="find", arguments={}), result=result), running),
    )


async def history(
    *,
    reset: int = 0,
    agents: Sequence[str] = ("agt_1", "agt_2", "agt_1"),
    scope: AccessScope = ALL_RECORDS,
    **fields: object,
) -> AgentHistory:
    """Return the history of a conversation with a turn of each of these agents."""
    value = Conversation(
        id=CONVERSATION_ID,
        project_id="proj_1",
        participants=(MIA, HELPER),
        reset_ordinal=reset,
        message_count=2 * len(agents),
        turn_count=len(agents),
    )
    shards = MemoryShards()
    rows = [put_conversation(replace(value, **fields))]
    for number, agent_id in enumerate(agents, 1):
        rows += [put_turn(turn(number, agent_id)), put_move(move(number))]
        rows += map(put_message, messages(number, agent_id))
    await shards.of(CONVERSATION_ID).commit([commit(CONVERSATION_ID, *rows)])
    return AgentHistory(RecordsView(shards, scope))


async def refused(
    history: AgentHistory, scope: Scope = SCOPE, *, result: str = "", message: str = ""
) -> WonderError:
    with pytest.raises(WonderError) as caught:
        if result:
            await history.read_result(scope, result, 0, 100)
        elif message:
            await history.read(scope, ReadRequest(first_id=message, limit=1))
        else:
            await history.search(scope, "tea", PageRequest())
    return caught.value


# --- messages ---------------------------------------------------------------------------------------


async def test_a_search_finds_messages_with_labels_in_pages() -> None:
    found = await history()
    first = await found.search(SCOPE, "TEA", PageRequest(size=4))
    assert [(item.message.ordinal, item.speaker) for item in first.items] == [
        (6, "agent helper"),
        (5, "user Mia"),
        (4, "agent critic (agt_2)"),
        (3, "user Mia"),
    ]
    assert first.items[0].snippet == "tea number6 [user Bob] I agree."
    rest = await found.search(SCOPE, "tea", PageRequest(size=4, token=first.next_page_token))
    assert [item.message.ordinal for item in rest.items] == [2, 1] and not rest.next_page_token
    best = await found.search(SCOPE, "number3", PageRequest(size=4), best_first=True)
    assert [item.message.ordinal for item in best.items] == [3]


async def test_a_token_of_another_search_is_refused() -> None:
    found = await history()
    token = (await found.search(SCOPE, "tea", PageRequest(size=1))).next_page_token
    for text, given in (("number", token), ("tea", token[:-4]), ("tea", "nonsense")):
        with pytest.raises(WonderError) as caught:
            await found.search(SCOPE, text, PageRequest(size=1, token=given))
        assert caught.value.fault.reason is Reason.PAGE_TOKEN_INVALID


async def test_messages_are_read_in_order_from_any_place() -> None:
    found = await history()

    async def read(**request: int | str) -> list[int]:
        return [each.message.ordinal for each in await found.read(SCOPE, ReadRequest(**request))]  # type: ignore[arg-type]

    assert await read(limit=2) == [5, 6]
    assert await read(first=2, limit=3) == [2, 3, 4]
    assert await read(first_id=id_of("msg", 5), limit=3) == [5, 6]
    assert await read(first=7, limit=3) == []


async def test_a_long_message_is_read_piece_by_piece() -> None:
    found = await history(agents=())
    long = replace(messages(1, "agt_1")[0], content="ä" * READ_BYTES)
    shards = MemoryShards()
    value = Conversation(id=CONVERSATION_ID, project_id="proj_1", message_count=1)
    rows = [put_conversation(value), put_turn(turn(1, "agt_1")), put_message(long)]
    await shards.of(CONVERSATION_ID).commit([commit(CONVERSATION_ID, *rows)])
    found = AgentHistory(RecordsView(shards, ALL_RECORDS))
    text, offset = "", 0
    while True:
        [piece] = await found.read(SCOPE, ReadRequest(first=1, limit=5, offset=offset))
        assert len(piece.text.encode()) <= READ_BYTES
        text, offset = text + piece.text, piece.end
        if piece.end == piece.size:
            break
    assert text == long.content


async def test_nothing_before_a_reset_is_seen() -> None:
    found = await history(reset=2)
    assert [item.message.ordinal for item in (await found.search(SCOPE, "tea", PageRequest())).items] == [
        6,
        5,
    ]
    best = await found.search(SCOPE, "tea", PageRequest(), best_first=True)
    assert {item.message.ordinal for item in best.items} == {5, 6}
    assert [each.message.ordinal for each in await found.read(SCOPE, ReadRequest(limit=9))] == [5, 6]
    assert [each.message.ordinal for each in await found.read(SCOPE, ReadRequest(first=1, limit=9))] == [5, 6]
    assert (await refused(found, message=id_of("msg", 4))).fault.reason is Reason.MESSAGE_NOT_FOUND
    everything = await history(reset=3)
    assert not (await everything.search(SCOPE, "tea", PageRequest())).items
    assert not await everything.read(SCOPE, ReadRequest(limit=9))


async def test_another_conversation_does_not_exist() -> None:
    found = await history()
    for scope in (Scope(agent_id="agt_1"), Scope(agent_id="agt_1", conversation_id="nonsense")):
        problem = await refused(found, scope)
        assert problem.fault.reason in (Reason.INPUT_INVALID, Reason.CONVERSATION_NOT_FOUND)
    other = Scope(agent_id="agt_1", conversation_id=conversation_id(1))
    assert (await refused(found, other)).fault.reason is Reason.CONVERSATION_NOT_FOUND
    assert (await refused(await history(deleted_ms=5))).fault.reason is Reason.CONVERSATION_NOT_FOUND
    outside = await history(scope=AccessScope(projects=frozenset({"proj_2"})))
    assert (await refused(outside)).fault.reason is Reason.CONVERSATION_NOT_FOUND


# --- results ----------------------------------------------------------------------------------------


async def test_a_large_result_is_read_in_pieces() -> None:
    found = await history()
    text, offset = "", 0
    while True:
        piece = await found.read_result(SCOPE, result_id(1), offset, 1 << 30)
        text, offset = text + piece.text, piece.end
        if piece.end == piece.size:
            break
    assert text == WHOLE


async def test_a_result_of_another_agent_or_conversation_or_before_a_reset_does_not_exist() -> None:
    found = await history()
    texts = set()
    for named in (
        result_id(2),  # Another agent's.
        result_id(9),
        f"{id_of('move', 1)}.1",  # Still running.
        f"{id_of('move', 1)}.2",
        id_of("move", 1),
        "' OR 1=1 --",
        "x" * 500,
    ):
        problem = await refused(found, result=named)
        assert problem.fault.reason is Reason.INPUT_INVALID and problem.fault.field == "result_id"
        texts.add(problem.fault.message.replace(named[:100], "…"))
    assert len(texts) == 1
    problem = await refused(await history(reset=1), result=result_id(1))
    assert problem.fault.reason is Reason.INPUT_INVALID
    assert (await (await history(reset=1)).read_result(SCOPE, result_id(3), 0, 9)).text == WHOLE[:9]
    without_agent = Scope(conversation_id=CONVERSATION_ID)
    assert (await refused(found, without_agent, result=result_id(1))).fault.reason is Reason.NO_AGENT
    elsewhere = Scope(agent_id="agt_1", conversation_id=conversation_id(1))
    assert (
        await refused(found, elsewhere, result=result_id(1))
    ).fault.reason is Reason.CONVERSATION_NOT_FOUND
