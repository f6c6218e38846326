"""Tests of the reduction of a conversation to the model's context window (feature B12)."""

from __future__ import annotations

from typing import Any

import pytest

from tests.core.conversation.conversation_kit import (
    ASSEMBLED,
    BUSINESS,
    TRANSIENT,
    Driven,
    agent,
    call,
    kinds,
    send,
    text_answer,
    workflow,
)
from tests.replacing import replace
from wonder_server.core.actor.commands import RunWorkflow
from wonder_server.core.conversation.context.window import context_limit, trim_request
from wonder_server.core.conversation.model import inputs
from wonder_server.core.conversation.model.decisions import (
    Decision,
    DispatchModel,
    DispatchWorkflow,
    ReduceContext,
)
from wonder_server.core.conversation.model.event_payloads import ContextReduction
from wonder_server.core.conversation.model.values import OperationKind, TurnStatus
from wonder_server.core.conversation.planner import CONVERSATION
from wonder_server.core.conversation.planning.summarization import RULES_OF_RESTING_SUMMARIES
from wonder_server.core.definitions.specs import ContextWindow, PinnedAgent, WindowStrategy
from wonder_server.core.errors import Fault, Reason
from wonder_server.core.json_types import JsonDict, JsonValue
from wonder_server.core.token_estimates import json_tokens, text_tokens

ASSEMBLY, MODEL, SUMMARY = OperationKind.ASSEMBLY, OperationKind.MODEL, OperationKind.SUMMARY
TASK = OperationKind.TASK


def small(
    tokens: int = 1000, *, keep: int = 2, summarize: bool = False, share: float = 0.8, **parameters: JsonValue
) -> PinnedAgent:
    """Return an agent with a small model."""
    made = agent(tools=(), extraction=False)
    strategy = WindowStrategy.SUMMARIZE if summarize else WindowStrategy.SLIDING_WINDOW
    window = ContextWindow(strategy=strategy, threshold=share, keep_recent_messages=keep)
    profile = replace(made.profile.spec, context_window_tokens=tokens, parameters=parameters)
    return replace(
        made,
        persona=replace(made.persona, context_window=window),
        profile=replace(made.profile, spec=profile),
        summary=workflow("summary") if summarize else None,
    )


def text(number: int, tokens: int = 100) -> str:
    return f"{number:03}" + "x" * (4 * tokens - 3)


def run_turns(driven: Driven, turns: int, who: PinnedAgent, first: int = 1) -> None:
    """Complete turns, each with an input and an answer of 100 tokens."""
    for number in range(first, first + turns):
        driven.step(eager(f"turn {number}", text(number), who))
        while driven.turn.status is TurnStatus.ACTIVE:
            (operation,) = driven.state.pending(driven.turn.id)
            if operation.kind is MODEL:
                driven.step(inputs.ModelAnswered(operation_id=operation.id, result=text_answer(text(number))))
            else:
                driven.step(inputs.Succeeded(operation_id=operation.id, output=ASSEMBLED))


def hook_input(driven: Driven, decided: tuple[Decision, ...], *, restarted: bool = False) -> JsonDict:
    """Return the input of the run that the decisions start."""
    for decision in decided:
        if isinstance(decision, DispatchWorkflow):
            (command,) = CONVERSATION.commands(driven.state, decision)
            assert isinstance(command, RunWorkflow)
            return command.input
    raise AssertionError("no run was started")


def history_texts(given: JsonDict) -> list[str]:
    return [message["content"][:3] for message in given["history"]]


def reductions(decided: tuple[Decision, ...]) -> list[ContextReduction]:
    return [each.reduction for each in decided if isinstance(each, ReduceContext)]


def conversation(turns: int, who: PinnedAgent) -> tuple[Driven, tuple[Decision, ...]]:
    driven = Driven(begin=False)
    run_turns(driven, turns, who)
    return driven, driven.step(eager("now", "and now?", who))


def eager(seed: str, content: str, who: PinnedAgent) -> inputs.Send:
    """Return a message whose turn tries a summary, even if that of the turn before has failed."""
    event = send(seed, content, agent=who)
    return event if who.summary is None else replace(event, rules=RULES_OF_RESTING_SUMMARIES - 1)


def test_a_history_that_fits_is_complete() -> None:
    driven, decided = conversation(3, small())
    given = hook_input(driven, decided)
    assert history_texts(given) == ["001", "001", "002", "002", "003", "003"]
    assert given["left_out"] == 0 and given["summary"] is None
    assert reductions(driven.succeed(ASSEMBLY, ASSEMBLED)) == []


def test_a_history_that_does_not_fit_keeps_the_newest_and_counts_the_omitted() -> None:
    driven, decided = conversation(6, small())
    given = hook_input(driven, decided)
    # 800 tokens, minus the overhead of the request: whole turns.
    assert history_texts(given) == ["004", "004", "005", "005", "006", "006"]
    assert given["left_out"] == 6
    (reduction,) = reductions(driven.succeed(ASSEMBLY, ASSEMBLED))
    assert reduction.messages_left_out == 6 and not reduction.summarized
    assert reduction.tokens_before - reduction.tokens_after == 3 * 208


def test_a_turn_of_an_earlier_build_is_planned_as_that_build_did() -> None:
    driven, _ = conversation(6, small())
    driven.step(inputs.CancelTurn(turn_id=driven.turn.id))
    decided = driven.step(replace(send("earlier", "and now?", agent=small()), rules=0))
    given = hook_input(driven, decided)
    assert history_texts(given) == ["003", "004", "004", "005", "005", "006", "006", "and"]
    assert given["left_out"] == 5
    assert "thread" not in given["recent_turns"][0]


def test_a_restart_omits_the_same_messages() -> None:
    driven, decided = conversation(6, small())
    before = hook_input(driven, decided)
    operation = driven.pending(ASSEMBLY)
    (again,) = driven.step(inputs.Restarted(operation_id=operation.id))
    (command,) = CONVERSATION.commands(driven.state, again)
    assert isinstance(command, RunWorkflow) and command.input == before


def test_the_newest_messages_always_stay_and_are_cut_if_they_are_too_long() -> None:
    for keep, number in ((8, 8), (7, 8), (40, 12), (0, 2)):
        driven, decided = conversation(6, small(keep=keep, share=0.3))
        given = hook_input(driven, decided)
        assert len(history_texts(given)) == number
        cut = [message for message in given["history"] if "bytes are left out here" in message["content"]]
        assert len(cut) == (number if keep else 0)


def test_without_a_limit_nothing_is_omitted() -> None:
    driven, decided = conversation(9, small(0))
    assert len(history_texts(hook_input(driven, decided))) == 18


def test_the_limit_leaves_tokens_for_the_answer() -> None:
    assert context_limit(small(1000)) == 800
    assert context_limit(small(1000, max_tokens=500)) == 500
    assert context_limit(small(1000, max_tokens=5000)) == 250
    assert context_limit(small(1000, max_tokens=True)) == 800


@pytest.mark.parametrize(
    "parameters",
    [
        {"max_completion_tokens": 500},
        {"max_output_tokens": 500},
        {"generationConfig": {"maxOutputTokens": 500}},
        {"generation_config": {"max_output_tokens": 500}},
        {"max_tokens": 100, "max_completion_tokens": 500},
    ],
)
def test_the_answer_limit_is_read_in_every_format(parameters: JsonDict) -> None:
    assert context_limit(small(1000, **parameters)) == 500


# --- requests ---------------------------------------------------------------------------------------


def openai(*messages: JsonDict) -> JsonDict:
    return {"model": "m", "messages": [{"role": "system", "content": "Be brief."}, *messages]}


LONG = "y" * 400
USER, AGENT = {"role": "user", "content": LONG}, {"role": "assistant", "content": LONG}
CALL = {"role": "assistant", "tool_calls": [{"id": "c"}]}
RESULT = {"role": "tool", "tool_call_id": "c", "content": LONG}


def test_a_request_loses_its_oldest_messages_and_gets_a_notice() -> None:
    body = openai(USER, AGENT, USER, AGENT, USER)
    smaller = trim_request(body, "openai_chat", json_tokens(body) - 50)
    assert smaller is not None and smaller.omitted_messages == 2
    notice = smaller.body["messages"][1]
    assert notice["role"] == "system" and "2 older messages" in notice["content"]
    assert smaller.body["messages"][2:] == [USER, AGENT, USER]
    assert smaller.tokens_after < smaller.tokens_before == json_tokens(body)
    assert body == openai(USER, AGENT, USER, AGENT, USER)


def test_the_messages_of_the_turn_stay_at_any_length() -> None:
    body = openai(USER, CALL, RESULT, USER, CALL, RESULT)
    smaller = trim_request(body, "openai_chat", 1)
    assert smaller is not None
    assert smaller.body["messages"][2:] == [USER, CALL, RESULT]
    assert trim_request(smaller.body, "openai_chat", 1) is None


@pytest.mark.parametrize(
    ("form", "where", "result", "system"),
    [
        (
            "anthropic_messages", "messages",
            {"role": "user", "content": [{"type": "tool_result", "content": LONG}]},
            lambda body: body["system"],
        ),
        (
            "gemini", "contents",
            {"role": "user", "parts": [{"functionResponse": {"response": {"r": LONG}}}]},
            lambda body: body["systemInstruction"]["parts"][-1]["text"],
        ),
        (
            "openai_responses", "input",
            {"type": "function_call_output", "output": LONG},
            lambda body: body["input"][0]["content"],
        ),
    ],
)  # fmt: skip
def test_every_format_is_cut_before_a_plain_message(
    form: str, where: str, result: JsonDict, system: Any
) -> None:
    user = {"role": "user", "parts": [{"text": LONG}]} if form == "gemini" else USER
    body: JsonDict = {where: [user, AGENT, result, AGENT, user, AGENT, result]}
    smaller = trim_request(body, form, 10)
    assert smaller is not None and smaller.omitted_messages == 4
    assert smaller.body[where][-3:] == [user, AGENT, result]
    assert "4 older messages" in system(smaller.body)


@pytest.mark.parametrize(
    "body", [{}, {"messages": "none"}, {"messages": [USER]}, {"messages": [3, None, []]}]
)
def test_a_request_that_cannot_be_cut_stays_as_it_is(body: JsonDict) -> None:
    assert trim_request({**body, "long": LONG * 9}, "openai_chat", 10) is None


def test_tool_results_that_fill_the_window_push_old_messages_out() -> None:
    tooled = replace(small(), tools=agent().tools)
    driven, _ = conversation(2, tooled)
    request = {"messages": [USER, AGENT, USER, AGENT, {"role": "user", "content": "now"}]}
    assert reductions(driven.succeed(ASSEMBLY, {"request": request})) == []
    driven.answer(text_answer("", call("find")))
    decided = driven.succeed(TASK, {"found": "z" * 2000})
    (reduction,) = reductions(decided)
    assert reduction.messages_left_out == 2 and reduction.tokens_after <= 800


TOO_LONG = Fault(reason=Reason.MODEL_FAILED, message="Too long.", metadata={"kind": "context_length"})


def refused(driven: Driven) -> tuple[Decision, ...]:
    return driven.fail(MODEL, TOO_LONG)


def test_a_request_that_the_provider_rejects_as_too_long_is_retried_once_with_less() -> None:
    driven = Driven()
    driven.succeed(ASSEMBLY, {"request": openai(USER, AGENT, USER, AGENT, USER)})
    asked = driven.pending(MODEL)
    decided = refused(driven)
    assert kinds(decided) == ["CancelOperation", "ChargeTurn", "ReduceContext", "DispatchModel"]
    assert driven.pending(MODEL).id != asked.id and driven.pending(MODEL).message_id != asked.message_id
    assert [message["role"] for message in driven.request()["messages"]] == [
        "system", "system", "user", "assistant", "user",
    ]  # fmt: skip
    assert kinds(refused(driven)) == ["CancelOperation", "FailTurn", "ReleaseTurn"]


def test_a_request_that_cannot_be_shortened_is_not_retried() -> None:
    driven = Driven()
    driven.succeed(ASSEMBLY, ASSEMBLED)
    assert kinds(refused(driven)) == ["CancelOperation", "FailTurn", "ReleaseTurn"]


# --- summaries --------------------------------------------------------------------------------------

SUMMARY_OUTPUT = {
    "summary": " It was about x. ",
    "usage": {"input_tokens": 9, "output_tokens": 1, "cost_micros": 5},
}


def test_a_summary_replaces_older_messages() -> None:
    driven, decided = conversation(5, small(summarize=True))
    given = hook_input(driven, decided)
    assert [m["content"][:3] for m in given["messages"]] == [f"00{n}" for n in range(1, 5) for _ in "qa"]
    assert given["summary"] == ""
    spent = driven.turn.input_tokens
    decided = driven.succeed(SUMMARY, SUMMARY_OUTPUT)
    assert kinds(decided) == ["ChargeTurn", "HistorySummarized", "DispatchWorkflow", "MarkWaiting"]
    assert driven.turn.input_tokens == spent + 9 and driven.turn.cost_micros == 5
    given = hook_input(driven, decided)
    assert history_texts(given) == ["005", "005"]
    assert given["summary"] == "It was about x." and given["left_out"] == 0
    (reduction,) = reductions(driven.succeed(ASSEMBLY, ASSEMBLED))
    assert reduction.summarized and reduction.messages_left_out == 8


def test_a_summary_is_replaced_by_one_of_itself_and_later_messages() -> None:
    who = small(summarize=True)
    driven, _ = conversation(6, who)
    driven.succeed(SUMMARY, SUMMARY_OUTPUT)
    driven.succeed(ASSEMBLY, ASSEMBLED)
    driven.answer(text_answer("Now this."))
    decided = driven.step(send("next", "and next?", agent=who))
    given = hook_input(driven, decided)
    assert given["summary"] == "It was about x." and history_texts(given) == ["006", "006", "and", "Now"]
    driven.succeed(ASSEMBLY, ASSEMBLED)
    driven.answer(text_answer("Next this."))
    run_turns(driven, 3, who, first=7)
    given = hook_input(driven, driven.step(eager("more", "more?", who)))
    assert given["summary"] == "It was about x."
    since = ["006", "006", "and", "Now", "and", "Nex", "007", "007", "008", "008"]
    assert [message["content"][:3] for message in given["messages"]] == since
    driven.succeed(SUMMARY, {"summary": "It was about x and y."})
    stored_conversation = driven.state.conversation
    assert stored_conversation is not None and stored_conversation.summary is not None
    assert (stored_conversation.summary.text, stored_conversation.summary.messages) == (
        "It was about x and y.",
        18,  # Of 20 messages, 18 fitted into the requests for the summaries.
    )


def test_a_message_during_summarization_is_not_summarized() -> None:
    who = small(summarize=True)
    driven = Driven(begin=False)
    driven.step(send("slow", text(0), agent=who))
    run_turns(driven, 5, who)
    driven.step(eager("now", "and now?", who))
    (summary,) = [op for op in driven.state.operations.values() if op.kind is SUMMARY]
    (slow,) = [op for op in driven.state.operations.values() if op.kind is ASSEMBLY]
    driven.step(inputs.Succeeded(operation_id=slow.id, output=ASSEMBLED))
    (slow,) = [op for op in driven.state.operations.values() if op.kind is MODEL]
    driven.step(inputs.ModelAnswered(operation_id=slow.id, result=text_answer("late" + text(9))))
    decided = driven.step(inputs.Succeeded(operation_id=summary.id, output=SUMMARY_OUTPUT))
    assert history_texts(hook_input(driven, decided)) == ["005", "005"]
    driven.succeed(ASSEMBLY, ASSEMBLED)
    assert "[agent helper] (you, in another turn) late" in driven.request()["messages"][-1]["content"]


@pytest.mark.parametrize("output", [None, {}, {"summary": ""}, {"summary": 3}, "text"])
def test_an_invalid_summary_leaves_a_sliding_window(output: object) -> None:
    driven, _ = conversation(6, small(summarize=True))
    decided = driven.succeed(SUMMARY, output)
    assert kinds(decided) == ["CancelOperation", "DispatchWorkflow", "MarkWaiting"]
    given = hook_input(driven, decided)
    assert given["left_out"] == 6 and given["summary"] is None


def test_a_failed_summary_is_retried_and_then_skipped() -> None:
    driven, _ = conversation(6, small(summarize=True))
    for _ in range(2):
        assert kinds(driven.fail(SUMMARY, TRANSIENT)) == ["RetryOperation"]
        driven.wait_for_timer(SUMMARY)
    decided = driven.fail(SUMMARY, TRANSIENT)
    assert kinds(decided)[-2:] == ["DispatchWorkflow", "MarkWaiting"]
    assert hook_input(driven, decided)["left_out"] == 6
    driven, _ = conversation(6, small(summarize=True))
    assert hook_input(driven, driven.fail(SUMMARY, BUSINESS))["left_out"] == 6


def test_a_cancel_stops_a_summary() -> None:
    driven, _ = conversation(6, small(summarize=True))
    operation = driven.pending(SUMMARY)
    driven.step(inputs.CancelTurn(turn_id=driven.turn.id))
    assert not driven.state.operations
    assert driven.step(inputs.Succeeded(operation_id=operation.id, output=SUMMARY_OUTPUT)) == ()


def test_after_a_reset_the_summary_is_invalid() -> None:
    who = small(summarize=True)
    driven, _ = conversation(6, who)
    driven.succeed(SUMMARY, SUMMARY_OUTPUT)
    driven.succeed(ASSEMBLY, ASSEMBLED)
    driven.answer(text_answer("Now this."))
    assert driven.state.conversation is not None
    reset = replace(driven.state.conversation, reset_ordinal=driven.turn.ordinal)
    driven.state.conversation = reset
    given = hook_input(driven, driven.step(send("next", "hello again", agent=who)))
    assert given["summary"] is None and given["history"] == []


def test_an_agent_that_does_not_summarize_gets_the_messages() -> None:
    who = small(summarize=True)
    driven, _ = conversation(6, who)
    driven.succeed(SUMMARY, SUMMARY_OUTPUT)
    driven.succeed(ASSEMBLY, ASSEMBLED)
    driven.answer(text_answer("Now this."))
    given = hook_input(driven, driven.step(send("next", "and you?", agent=small(10_000))))
    assert given["summary"] is None and len(given["history"]) == 14


def test_turns_of_a_long_conversation_never_exceed_the_limit() -> None:
    who = replace(small(keep=4), tools=agent().tools)
    driven = Driven(begin=False)
    for number in range(30):
        decided = driven.step(send(f"turn {number}", text(number, 10 + 37 * number % 300), agent=who))
        history = hook_input(driven, decided)["history"]
        messages = [{"role": "user", "content": message["content"]} for message in history]
        request = {"messages": [*messages, {"role": "user", "content": driven.turn.input}]}
        (asked,) = [
            each for each in driven.succeed(ASSEMBLY, {"request": request}) if isinstance(each, DispatchModel)
        ]
        assert json_tokens(asked.request.body) <= 950
        driven.answer(text_answer(text(number, 10 + 53 * number % 300)))


# --- tokens -----------------------------------------------------------------------------------------


def test_an_estimate_is_a_quarter_of_the_bytes() -> None:
    assert text_tokens("") == 0 and text_tokens("abcde") == 2
    assert text_tokens("ł" * 4) == 2 and text_tokens("日" * 4) == 3
    assert text_tokens("\ud800" * 4) > 0
    assert json_tokens({"a": ["x" * 400, 1, None, {"b": "y" * 400}]}) in range(200, 215)


def test_a_reduction_is_an_event() -> None:
    reduction = ContextReduction(messages_left_out=1, summarized=False, tokens_before=2, tokens_after=1)
    driven = Driven()
    decision = ReduceContext(turn_id=driven.turn.id, reduction=reduction)
    (change,) = CONVERSATION.record(driven.state, decision)
    assert (change.name, change.kind, change.value) == ("context.reduced", "context_reduced", reduction)  # type: ignore[union-attr]
