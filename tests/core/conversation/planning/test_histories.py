"""Histories of new conversations: what a staged conversation takes, and what forks and imports consist of."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from wonder_server.core.conversation.context.transcript import exchanges_of
from wonder_server.core.conversation.model.decisions import Refuse, StartConversation
from wonder_server.core.conversation.model.event_payloads import ResultExcerpt
from wonder_server.core.conversation.model.exchange import Summary
from wonder_server.core.conversation.model.histories.origin import ConversationOrigin
from wonder_server.core.conversation.model.histories.staging import (
    AddHistory,
    Discard,
    HistoryTurn,
    KeepHistory,
    PublishConversation,
)
from wonder_server.core.conversation.model.inputs import Create, Input, Post, Publish
from wonder_server.core.conversation.model.lifecycle_decisions import EraseRecord
from wonder_server.core.conversation.model.lifecycle_inputs import BeginArchiving, BeginDeletion, Join, Update
from wonder_server.core.conversation.model.state import RECENT_TURNS, ConversationState
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
    TurnStatus,
)
from wonder_server.core.conversation.output.decision_table import apply
from wonder_server.core.conversation.output.history_changes import put_copied_move
from wonder_server.core.conversation.plan import plan
from wonder_server.core.conversation.planner import needs_moves
from wonder_server.core.conversation.planning.histories.forks import Fork, with_context
from wonder_server.core.conversation.planning.histories.imports import (
    HistoryCall,
    HistoryMessage,
    imported_turns,
)
from wonder_server.core.errors import Reason
from wonder_server.core.frozen import replace
from wonder_server.core.ids import Minter
from wonder_server.core.model import ToolCall, Usage

NOW = 2_000_000
CONV = "conv_01M80B4FQSR67S4TVYMV1BGX37"
IDS = Minter("test", NOW)


def conversation(**fields: object) -> Conversation:
    return Conversation(id=CONV, project_id="proj_1", created_ms=NOW, **fields)  # type: ignore[arg-type]


STAGED = conversation(origin=ConversationOrigin(staged_ms=NOW))


def played(*events: Input) -> ConversationState:
    """Return the state after these inputs, none of which is refused."""
    state = ConversationState()
    for event in events:
        for decision in plan(state, event, NOW):
            assert not isinstance(decision, Refuse), event
            apply(state, decision)
    return state


def user(text: str, at_ms: int = 0) -> HistoryMessage:
    return HistoryMessage(role=Role.USER, author="mia", content=text, at_ms=at_ms)


def agent(text: str, *calls: HistoryCall, author: str = "agt_1", at_ms: int = 0) -> HistoryMessage:
    return HistoryMessage(role=Role.AGENT, author=author, content=text, calls=calls, at_ms=at_ms)


def turns_of(*messages: HistoryMessage) -> list[HistoryTurn]:
    return list(imported_turns(CONV, messages, "seed", "token:ann"))


# --- staging ----------------------------------------------------------------------------------------


POST = Post(seed="seed_1", caller=Caller(user_id="mia"), content="x")


@pytest.mark.parametrize(
    "event",
    [
        POST,
        Update(title="x"),
        Join(participant=Participant(type="user", id="bob")),
        BeginDeletion(),
        BeginArchiving(forced=True),
    ],
)
def test_a_staged_conversation_does_not_exist_for_others(event: Input) -> None:
    state = played(Create(conversation=STAGED))
    [refused] = plan(state, event, NOW)
    assert isinstance(refused, Refuse) and refused.fault.reason is Reason.CONVERSATION_NOT_FOUND


def test_a_history_in_parts_is_published_with_its_counts() -> None:
    turns = turns_of(*[user(f"q{n}") if n % 2 == 0 else agent(f"a{n}") for n in range(1_000)])
    parts = [AddHistory(turns=tuple(turns[start : start + 50])) for start in range(0, 500, 50)]
    final = conversation(title="T", external_ref="r")
    state = played(Create(conversation=STAGED), *parts, Publish(conversation=final))
    made = state.conversation
    assert made is not None and (made.turn_count, made.message_count) == (500, 1_000)
    assert made.external_ref == "r" and made.origin is None and made.expire_ms == 0
    assert list(state.turns) == [each.turn.id for each in turns[-RECENT_TURNS:]]
    assert state.message_count == 2 * RECENT_TURNS
    [posted] = [each for each in plan(state, POST, NOW) if hasattr(each, "message")]
    assert (posted.message.ordinal, posted.turn.ordinal) == (1_001, 501)  # type: ignore[union-attr]


@pytest.mark.parametrize("event", [AddHistory(turns=()), Publish(conversation=conversation())])
def test_a_history_is_added_only_before_the_publication(event: Input) -> None:
    for state in (
        ConversationState(),
        played(Create(conversation=conversation())),
        played(Create(conversation=STAGED), Publish(conversation=conversation())),
    ):
        [refused] = plan(state, event, NOW)
        assert isinstance(refused, Refuse) and refused.fault.reason is Reason.CONVERSATION_NOT_FOUND


def test_only_a_staged_conversation_is_discarded() -> None:
    assert plan(played(Create(conversation=STAGED)), Discard(), NOW) == (EraseRecord(),)
    assert plan(played(Create(conversation=conversation())), Discard(), NOW) == ()
    assert plan(ConversationState(), Discard(), NOW) == ()


def test_the_kinds_of_decisions() -> None:
    state = ConversationState()
    [created] = plan(state, Create(conversation=STAGED), NOW)
    apply(state, created)
    [kept] = plan(state, AddHistory(turns=tuple(turns_of(user("x")))), NOW)
    apply(state, kept)
    [published] = plan(state, Publish(conversation=conversation()), NOW)
    assert isinstance(created, StartConversation)
    assert isinstance(kept, KeepHistory) and isinstance(published, PublishConversation)


# --- imports ----------------------------------------------------------------------------------------


CALL = HistoryCall(id="c1", name="look", arguments={"a": 1}, result=42, answered=True)


def shape(turns: Sequence[HistoryTurn]) -> list[tuple[str, str, list[str], int]]:
    """Return caller, agent, texts and number of moves of each turn."""
    return [
        (each.turn.caller.user_id, each.turn.agent_id, [m.content for m in each.messages], len(each.moves))
        for each in turns
    ]


@pytest.mark.parametrize(
    ("messages", "wanted"),
    [
        ([user("a")], [("mia", "", ["a"], 0)]),
        ([user("a"), agent("b"), agent("c")], [("mia", "agt_1", ["a", "b", "c"], 0)]),
        ([user("a"), user("b"), agent("c")], [("mia", "", ["a"], 0), ("mia", "agt_1", ["b", "c"], 0)]),
        ([agent("a"), user("b")], [("", "agt_1", ["a"], 0), ("mia", "", ["b"], 0)]),
        (
            [user("a"), agent("b"), agent("c", author="gpt")],
            [("mia", "agt_1", ["a", "b"], 0), ("", "gpt", ["c"], 0)],
        ),
        ([user("a"), agent("", CALL), agent("b")], [("mia", "agt_1", ["a", "b"], 1)]),
        ([user("a"), agent("b"), agent("", CALL)], [("mia", "agt_1", ["a", "b"], 1)]),
        ([user("a"), agent("b", CALL), agent("", CALL)], [("mia", "agt_1", ["a", "b"], 2)]),
    ],
)
def test_messages_become_turns(
    messages: list[HistoryMessage], wanted: list[tuple[str, str, list[str], int]]
) -> None:
    turns = turns_of(*messages)
    assert shape(turns) == wanted
    said = [message for each in turns for message in each.messages]
    assert [message.ordinal for message in said] == list(range(1, len(said) + 1))
    assert [each.turn.ordinal for each in turns] == list(range(1, len(turns) + 1))
    ids = [each.turn.id for each in turns] + [m.id for m in said] + [m.id for t in turns for m in t.moves]
    assert len(set(ids)) == len(ids)
    assert turns == turns_of(*messages)
    assert all(each.turn.moves == len(each.moves) for each in turns)
    assert all(needs_moves(each.turn) == bool(each.moves) for each in turns)


def test_a_text_and_the_calls_after_it_are_one_move() -> None:
    [turn] = turns_of(user("a"), agent("b"), agent("", CALL))
    [move] = turn.moves
    assert move.message_id == turn.messages[1].id and move.reasoning == "b"
    [exchange] = exchanges_of(turn.moves)
    assert exchange.message_id == turn.messages[1].id


# --- forks ------------------------------------------------------------------------------------------


FORK = "conv_01M80B4FQSR67S4TVYMV1BGX3Z"


def source(status: TurnStatus = TurnStatus.COMPLETED) -> tuple[Turn, list[Message], list[Move]]:
    """Return a turn with the messages 5 to 8: of the user, with a call, after a silent call, at the end."""
    turn = Turn(
        id=IDS.new("turn"),
        conversation_id=CONV,
        ordinal=3,
        caller=Caller(user_id="mia"),
        agent_id="agt_1",
        agent_name="ada",
        persona="a/b@1",
        input="5",
        status=status,
        moves=4,
        model_calls=4,
        input_tokens=10,
        output="8",
        context_assembly_run_id="run_1",
    )
    messages = [
        Message(
            id=IDS.new("msg"),
            conversation_id=CONV,
            turn_id=turn.id,
            ordinal=ordinal,
            role=Role.USER if ordinal == 5 else Role.AGENT,
            author="mia" if ordinal == 5 else "agt_1",
            content=str(ordinal),
            created_ms=NOW + ordinal,
        )
        for ordinal in range(5, 9)
    ]
    said = [messages[1].id, IDS.new("msg"), messages[2].id, messages[3].id]
    moves = [
        Move(
            id=IDS.new("move"),
            conversation_id=CONV,
            turn_id=turn.id,
            sequence=number + 1,
            message_id=message_id,
            invocations=(Invocation(call=ToolCall(id=f"c{number}", name="look", arguments={}), gate_id="g"),)
            if number < 3
            else (),
            raw={"a": 1},
            usage=Usage(input_tokens=5),
        )
        for number, message_id in enumerate(said)
    ]
    return turn, messages, moves


@pytest.mark.parametrize(
    ("through", "texts", "moves", "agent_id"),
    [
        (4, None, 0, ""),
        (5, ["5"], 0, ""),
        (6, ["5", "6"], 1, "agt_1"),
        (7, ["5", "6", "7"], 3, "agt_1"),
        (8, ["5", "6", "7", "8"], 4, "agt_1"),
        (99, ["5", "6", "7", "8"], 4, "agt_1"),
    ],
)
@pytest.mark.parametrize("status", list(TurnStatus))
def test_a_fork_ends_with_its_last_message(
    status: TurnStatus, through: int, texts: list[str] | None, moves: int, agent_id: str
) -> None:
    turn, messages, all_moves = source(status)
    copy = Fork(FORK, through, "seed").copy(turn, messages, all_moves)
    if texts is None:
        assert copy is None
        return
    assert copy is not None
    assert [m.content for m in copy.messages] == texts and len(copy.moves) == moves == copy.turn.moves
    assert copy.turn.agent_id == agent_id and (copy.turn.ordinal, copy.turn.model_calls) == (3, 0)
    assert copy.turn.input_tokens == 0 and copy.turn.context_assembly_run_id == ""
    has_ended = status in (TurnStatus.COMPLETED, TurnStatus.FAILED, TurnStatus.CANCELLED)
    assert copy.turn.status is (status if has_ended and through >= 8 else TurnStatus.COMPLETED)
    assert [(m.ordinal, m.created_ms) for m in copy.messages] == [
        (m.ordinal, m.created_ms) for m in messages[: len(texts)]
    ]
    by_id = dict(zip([m.id for m in messages], [m.id for m in copy.messages], strict=False))
    for before, move in zip(all_moves, copy.moves, strict=False):
        assert move.message_id == by_id.get(before.message_id, move.message_id)
        assert not move.raw and not any(entry.gate_id for entry in move.invocations)
    for each in (*copy.messages, *copy.moves):
        assert (each.conversation_id, each.turn_id) == (FORK, copy.turn.id)
    if moves:
        assert needs_moves(copy.turn)


def test_ids_of_copies_keep_their_time_and_never_meet() -> None:
    turn, *_ = source()
    first, second = Fork(FORK, 9, "one").copied_id(turn.id), Fork(FORK, 9, "two").copied_id(turn.id)
    assert len({turn.id, first, second}) == 3
    assert first[:15] == second[:15] == turn.id[:15]
    assert Fork(FORK, 9, "one").copied_id("") == ""


def test_a_move_is_found_by_the_id_that_its_cut_result_names() -> None:
    _, _, [move, *_] = source()
    assert put_copied_move(move).alias == ""
    excerpt = ResultExcerpt(max_bytes=9, result_id=f"{move.id}.0")
    result = ToolResult(tool_call_id="c0", success=True, result="long", excerpt=excerpt)
    cut = replace(move, invocations=(replace(move.invocations[0], result=result),))
    assert put_copied_move(cut).alias == ""
    again = cut
    for number in range(3):
        again = replace(again, id=Fork(FORK, 9, f"seed{number}").copied_id(again.id))
        assert put_copied_move(again).alias == move.id


SUMMARY = Summary(text="s", last_ordinal=6, messages=6)


@pytest.mark.parametrize(
    ("through", "last_turn", "reset", "summary"),
    [(10, 5, 2, True), (6, 3, 2, True), (5, 3, 2, False), (3, 2, 0, False), (3, 1, 0, False)],
)
def test_a_fork_has_the_reset_and_the_summary_that_belong_to_its_messages(
    through: int, last_turn: int, reset: int, summary: bool
) -> None:
    whole = conversation(reset_ordinal=2, reset_messages=3, summary=SUMMARY, message_count=10)
    fork = with_context(conversation(), whole, through, last_turn)
    assert (fork.reset_ordinal, fork.summary) == (reset, SUMMARY if summary else None)
    just_reset = replace(whole, message_count=3)
    assert with_context(conversation(), just_reset, 3, 2).reset_ordinal == 2
