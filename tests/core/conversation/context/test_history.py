"""Tests of the history of a turn's requests: limits, steps, tool calls, and what is left out."""

from __future__ import annotations

import itertools

import pytest

from tests.core.conversation.conversation_kit import (
    ASSEMBLED,
    Driven,
    agent,
    call,
    send,
    text_answer,
    tool,
)
from tests.replacing import replace
from wonder_server.core.actor.commands import RunWorkflow
from wonder_server.core.conversation.context.history import HISTORY_BYTES
from wonder_server.core.conversation.model.decisions import DispatchWorkflow, ReduceContext
from wonder_server.core.conversation.model.exchange import Quote, exchanges_bytes
from wonder_server.core.conversation.model.lifecycle_inputs import Reset
from wonder_server.core.conversation.model.state import EXCHANGES_BYTES, RECENT_TURNS
from wonder_server.core.conversation.model.values import OperationKind, TurnStatus
from wonder_server.core.conversation.planner import CONVERSATION
from wonder_server.core.definitions.specs import ContextWindow, PinnedAgent
from wonder_server.core.json_types import JsonDict, JsonValue

FIND = (tool("find"),)


def limited(turns: int = 20, keep: int = 0, tokens: int = 0) -> PinnedAgent:
    made = agent(tools=FIND, extraction=False)
    window = ContextWindow(keep_recent_messages=keep)
    persona = replace(made.persona, recent_turns_limit=turns, context_window=window)
    profile = replace(made.profile, spec=replace(made.profile.spec, context_window_tokens=tokens))
    return replace(made, persona=persona, profile=profile)


def finish(driven: Driven, answer: str, *results: JsonValue) -> None:
    """Complete the newest turn: each result is that of one tool call of its own answer."""
    for number, result in enumerate(results):
        _assembled(driven)
        driven.answer(text_answer("", call("find", f"{driven.turn.ordinal}_{number}")))
        driven.succeed(OperationKind.TASK, result)
    _assembled(driven)
    driven.answer(text_answer(answer))
    assert driven.turn.status is TurnStatus.COMPLETED


def _assembled(driven: Driven) -> None:
    if any(op.kind is OperationKind.ASSEMBLY for op in driven.state.operations.values()):
        driven.succeed(OperationKind.ASSEMBLY, ASSEMBLED)


def begin(driven: Driven, content: str, who: PinnedAgent) -> JsonDict:
    """Start a turn, and return the input of its assembly."""
    for decision in driven.step(send(content, content, agent=who)):
        if isinstance(decision, DispatchWorkflow):
            (command,) = CONVERSATION.commands(driven.state, decision)
            assert isinstance(command, RunWorkflow)
            return command.input
    raise AssertionError("no assembly was started")


def talk(turns: int, who: PinnedAgent, *, size: int = 0) -> list[JsonDict]:
    """Return the inputs of the assemblies of a conversation of so many turns."""
    driven, given = Driven(begin=False), []
    for number in range(1, turns + 1):
        given.append(begin(driven, f"q{number}" + "x" * size, who))
        finish(driven, f"a{number}" + "y" * size)
    return given


def firsts(given: list[JsonDict]) -> list[int]:
    """Return the number of the oldest turn in each input; 0 for none."""
    return [int(each["history"][0]["content"].strip("x")[1:]) if each["history"] else 0 for each in given]


def transcript(given: JsonDict) -> list[JsonDict]:
    return [message for turn in given["recent_turns"] for message in turn["thread"]]


def test_a_file_that_a_tool_read_is_in_the_history_of_later_turns() -> None:
    who, driven = limited(), Driven(begin=False)
    begin(driven, "Read it.", who)
    finish(driven, "It is read.", "# Wonder")
    begin(driven, "Thanks.", who)
    finish(driven, "You are welcome.")
    first = driven.state.turns[next(iter(driven.state.turns))].id
    assert [
        {k: v for k, v in m.items() if k != "turn_id"} for m in transcript(begin(driven, "Its title?", who))
    ] == [
        {"role": "user", "content": "Read it."},
        {
            "role": "assistant",
            "content": "",
            "tool_calls": [{"id": "1_0", "name": "find", "arguments": {"q": "x"}}],
        },
        {"role": "tool", "tool_call_id": "1_0", "name": "find", "content": "# Wonder"},
        {"role": "assistant", "content": "It is read."},
        {"role": "user", "content": "Thanks."},
        {"role": "assistant", "content": "You are welcome."},
    ]
    assert list(driven.state.exchanges) == [first]


@pytest.mark.parametrize("limit", [1, 2, 3, 20, 50, 200])
def test_a_limit_of_turns_is_never_exceeded_and_moves_in_steps(limit: int) -> None:
    given = talk(limit + 60, limited(limit))
    numbers = [len(each["recent_turns"]) for each in given]
    assert max(numbers) == limit and min(numbers[limit:]) == max(1, int(limit * 0.75))
    starts = firsts(given)[1:]
    moves = sum(one != other for one, other in itertools.pairwise(starts))
    step = limit - max(1, int(limit * 0.75)) + 1
    assert moves <= 60 // step + 1 and starts == sorted(starts)


def test_what_a_limit_of_turns_leaves_out_is_counted_and_the_count_stays_between_steps() -> None:
    given = talk(45, limited(20))
    for number, each in enumerate(given, 1):
        assert each["left_out"] == 2 * (number - 1 - len(each["recent_turns"]))
    assert len({each["left_out"] for each in given}) == 5


def test_a_conversation_of_300_turns_shows_200_and_counts_the_others() -> None:
    given = talk(300, limited(200))[-1]
    shown = len(given["recent_turns"])
    assert 150 <= shown <= 200 and given["left_out"] == 2 * (299 - shown)
    assert given["history"][-1]["content"] == "a299"


def test_a_limit_of_no_turns_shows_none() -> None:
    given = talk(3, limited(0, keep=10))[-1]
    assert given["history"] == [] and given["left_out"] == 4


def test_turns_before_a_reset_are_not_counted() -> None:
    who, driven = limited(3), Driven(begin=False)
    for number in range(60):
        begin(driven, f"old {number}", who)
        finish(driven, "old")
    driven.step(Reset(rules=1))
    for number in range(1, 6):
        begin(driven, f"q{number}", who)
        finish(driven, f"a{number}")
    given = begin(driven, "now", who)
    assert given["left_out"] == 2 * (5 - len(given["recent_turns"])) > 0


def test_a_reset_of_an_earlier_version_counts_the_turns_in_the_state() -> None:
    who, driven = limited(1), Driven(begin=False)
    begin(driven, "old", who)
    finish(driven, "old")
    driven.step(Reset())
    for number in range(RECENT_TURNS + 9):
        begin(driven, f"q{number}", who)
        finish(driven, f"a{number}")
    assert driven.state.conversation is not None and not driven.state.conversation.reset_messages
    assert begin(driven, "now", who)["left_out"] == 2 * (RECENT_TURNS - 1)


def test_the_window_of_a_model_moves_in_steps_and_the_event_tells_it() -> None:
    who = limited(200, tokens=4000)
    given = talk(90, who, size=200)
    starts = firsts(given)[1:]
    moves = [one for one, other in itertools.pairwise(starts) if one != other]
    assert starts == sorted(starts) and 2 <= len(moves) <= 12
    assert all(each["left_out"] == 2 * (start - 1) for each, start in zip(given[1:], starts, strict=True))
    driven = Driven(begin=False)
    for number in range(40):
        begin(driven, f"q{number}" + "x" * 200, limited(200, tokens=2000))
        finish(driven, "y" * 200)
    reduced = [each.reduction for each in driven.decided if isinstance(each, ReduceContext)]
    assert reduced and reduced[-1].messages_left_out and reduced[-1].tokens_before > reduced[-1].tokens_after


def test_a_limit_of_turns_alone_reduces_no_request() -> None:
    driven = Driven(begin=False)
    for number in range(1, 15):
        begin(driven, f"q{number}", limited(4, tokens=100_000))
        decided = driven.succeed(OperationKind.ASSEMBLY, ASSEMBLED)
        assert not any(isinstance(each, ReduceContext) for each in decided)
        driven.answer(text_answer(f"a{number}"))


def test_a_window_that_was_raised_takes_older_turns_in_again() -> None:
    driven = Driven(begin=False)
    for number in range(1, 30):
        begin(driven, f"q{number}", limited(4))
        finish(driven, f"a{number}")
    assert len(begin(driven, "now", limited(40))["recent_turns"]) == 29


def test_the_newest_messages_stay_and_a_message_of_one_mebibyte_is_cut() -> None:
    who, driven = limited(20, keep=10, tokens=4000), Driven(begin=False)
    for content in ("one", "x" * (1 << 20), "three"):
        begin(driven, content, who)
        finish(driven, "ok")
    given = begin(driven, "now", who)
    assert [each["content"][:3] for each in given["history"]] == ["one", "ok", "xxx", "ok", "thr", "ok"]
    assert "bytes are left out here" in given["history"][2]["content"]
    assert sum(len(each["content"]) for each in given["history"]) < 4 * 3200
    assert [each["content"] for each in transcript(given)] == [each["content"] for each in given["history"]]


def test_results_of_tools_count_like_messages() -> None:
    who, driven = limited(20, keep=4, tokens=4000), Driven(begin=False)
    for number in range(6):
        begin(driven, f"q{number}", who)
        finish(driven, f"a{number}", "z" * 6000)
    given = begin(driven, "now", who)
    assert [each["content"] for each in given["history"]] == ["q4", "a4", "q5", "a5"]
    results = [each["content"] for each in transcript(given) if each["role"] == "tool"]
    assert len(results) == 2 and all(len(each) < 6000 and "left out here" in each for each in results)


def test_without_a_model_limit_a_history_has_at_most_a_mebibyte() -> None:
    who, driven = limited(200, keep=2), Driven(begin=False)
    for number in range(30):
        begin(driven, f"q{number}", who)
        finish(driven, "ok", "z" * 100_000)
    given = begin(driven, "now", who)
    size = sum(len(message["content"]) for message in transcript(given))
    assert HISTORY_BYTES // 2 <= size <= HISTORY_BYTES
    assert given["left_out"] == 2 * (30 - len(given["recent_turns"])) > 0


def test_the_state_keeps_the_newest_results_and_counts_their_size() -> None:
    who, driven = limited(200), Driven(begin=False)
    before = CONVERSATION.size_bytes(driven.state)
    for number in range(50):
        begin(driven, f"q{number}", who)
        finish(driven, "ok", "z" * 100_000)
    kept = list(driven.state.exchanges.values())
    size = sum(map(exchanges_bytes, kept))
    assert EXCHANGES_BYTES - 200_000 < size <= EXCHANGES_BYTES
    assert list(driven.state.exchanges) == list(driven.state.turns)[-len(kept) :]
    assert CONVERSATION.size_bytes(driven.state) - before >= 2 * size


def test_an_assembly_over_200_turns_with_400_results_reads_each_turn_once() -> None:
    """The second assembly shares every entry but the newest with the first, so the codec encodes one."""
    who, driven = limited(200), Driven(begin=False)
    for number in range(150):
        begin(driven, f"q{number}", who)
        finish(driven, "ok", "one", "two")
    first = begin(driven, "now", who)
    finish(driven, "ok")
    second = begin(driven, "again", who)
    assert len(transcript(first)) == 150 * 6
    assert all(
        one is other for one, other in zip(first["recent_turns"], second["recent_turns"], strict=False)
    )


def test_replies_of_the_history_name_their_message_only_to_turns_of_new_rules() -> None:
    driven, who = Driven(begin=False), limited()
    quote = Quote(kind="agent", author=who.agent_id, text="Monday.", turn_ordinal=1)
    driven.step(replace(send("q1", "q1", agent=who), reply_to_message_id="msg_1", quote=quote))
    finish(driven, "a1")
    for rules, expected in ((3, None), (4, '[in reply to your message: "Monday."]'), (3, None)):
        decided = driven.step(replace(send(f"r{rules}", "next", agent=who), rules=rules))
        (dispatch,) = [each for each in decided if isinstance(each, DispatchWorkflow)]
        (command,) = CONVERSATION.commands(driven.state, dispatch)
        assert isinstance(command, RunWorkflow)
        assert transcript(command.input)[0].get("reply") == expected
        finish(driven, "b")
