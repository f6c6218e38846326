"""Requests after the first one of a turn: their growth, and assemblies for late results (features C4, D1)."""

from __future__ import annotations

import itertools
import json
from typing import Any

import pytest

from tests.core.conversation.conversation_kit import (
    BUSINESS,
    TRANSIENT,
    Driven,
    agent,
    call,
    kinds,
    send,
    text_answer,
)
from tests.replacing import replace
from wonder_server.core.actor.commands import RunWorkflow, Stop
from wonder_server.core.conversation.context.notices import (
    MEANWHILE,
    MEANWHILE_BEFORE,
    MESSAGE_BYTES,
    NOTICE_BYTES,
    RULES_OF_POSTED_MESSAGES,
)
from wonder_server.core.conversation.model import inputs
from wonder_server.core.conversation.model.decisions import AssemblyFailed, Decision, FailTurn
from wonder_server.core.conversation.model.state import RECENT_TURNS
from wonder_server.core.conversation.model.values import Caller, Operation, OperationKind, TurnStatus
from wonder_server.core.conversation.planner import CONVERSATION
from wonder_server.core.definitions.specs import PinnedAgent
from wonder_server.core.errors import Reason
from wonder_server.core.json_types import JsonDict, JsonValue
from wonder_server.core.model import ModelResult
from wonder_server.core.request_formats.neutral import ASIDE

ASSEMBLY, MODEL = OperationKind.ASSEMBLY, OperationKind.MODEL

MIA = "user mia, who asked,"
HEAD = f"{ASIDE}\n\n{MEANWHILE}\n\n"
"""Beginning of each notice about messages of other turns."""


class Talk(Driven):
    """A conversation of several people and agents whose turns go on in parallel."""

    def __init__(self, request_format: str = "openai_chat", **fields: Any) -> None:
        super().__init__(begin=False)
        self.format = request_format
        self.helper = agent(extraction=False, dialect=request_format, **fields)
        self.critic = replace(self.helper, agent_id="agt_9", name="critic")

    def say(self, user: str, content: str, to: PinnedAgent | None = None, *, assemble: bool = True) -> str:
        """Send a message and assemble the context of its turn; return the id of the turn."""
        event = send(f"{user} {content[:20]} {self.now}", content, agent=to or self.helper)
        if to is self.critic:
            event = replace(event, loop_in=True)
        self.step(replace(event, caller=Caller(user_id=user)))
        turn_id = self.turn.id
        if assemble:
            self.assemble(turn_id)
        return turn_id

    def assemble(self, turn_id: str, system: str = "Be brief.") -> tuple[Decision, ...]:
        """Report the request of the turn's assembly: the system prompt and the turn's message."""
        request = SYSTEM[self.format](system, self.state.turns[turn_id].input)
        return self.done(turn_id, ASSEMBLY, {"request": request})

    def done(self, turn_id: str, kind: OperationKind, output: JsonValue = None) -> tuple[Decision, ...]:
        return self.step(inputs.Succeeded(operation_id=self.of(turn_id, kind).id, output=output))

    def answers(self, turn_id: str, text: str, *calls: str) -> tuple[Decision, ...]:
        """Report the model's answer with calls of tools, in the form of the provider."""
        result: ModelResult = text_answer(text, *[call(name, f"c_{name}") for name in calls])
        raw = RAW[self.format](text, calls)
        operation = self.of(turn_id, MODEL)
        return self.step(inputs.ModelAnswered(operation_id=operation.id, result=replace(result, raw=raw)))

    def of(self, turn_id: str, kind: OperationKind) -> Operation:
        """Return the only pending operation of this kind of a turn."""
        (found,) = (each for each in self.state.pending(turn_id) if each.kind is kind)
        return found

    def body(self, turn_id: str) -> JsonDict:
        return self.state.requests[turn_id].body

    def messages(self, turn_id: str) -> list[JsonDict]:
        return list(self.body(turn_id)[LIST[self.format]])

    def last(self, turn_id: str) -> str:
        """Return the text of the last message of a request of OpenAI's chat format."""
        return str(self.messages(turn_id)[-1]["content"])


# --- the four formats, by hand ------------------------------------------------------------------------

LIST = {
    "openai_chat": "messages",
    "openai_responses": "input",
    "anthropic_messages": "messages",
    "gemini": "contents",
}

SYSTEM = {
    "openai_chat": lambda system, text: {
        "messages": [{"role": "system", "content": system}, {"role": "user", "content": text}]
    },
    "openai_responses": lambda system, text: {
        "instructions": system,
        "input": [{"role": "user", "content": text}],
    },
    "anthropic_messages": lambda system, text: {
        "system": system,
        "messages": [{"role": "user", "content": text}],
    },
    "gemini": lambda system, text: {
        "systemInstruction": {"parts": [{"text": system}]},
        "contents": [{"role": "user", "parts": [{"text": text}]}],
    },
}
"""The request of an assembly."""


def openai_raw(text: str, calls: tuple[str, ...]) -> JsonDict:
    named = [{"id": f"c_{name}", "type": "function", "function": {"name": name}} for name in calls]
    return {"role": "assistant", "content": text, **({"tool_calls": named} if calls else {})}


RAW = {
    "openai_chat": openai_raw,
    "openai_responses": lambda text, calls: {
        "output": [
            *[{"type": "function_call", "call_id": f"c_{name}", "name": name} for name in calls],
            *([{"role": "assistant", "content": text}] if text else []),
        ]
    },
    "anthropic_messages": lambda text, calls: {
        "role": "assistant",
        "content": [
            *([{"type": "text", "text": text}] if text else []),
            *[{"type": "tool_use", "id": f"c_{name}", "name": name} for name in calls],
        ],
    },
    "gemini": lambda text, calls: {
        "role": "model",
        "parts": [
            *([{"text": text}] if text else []),
            *[{"functionCall": {"id": f"c_{name}", "name": name}} for name in calls],
        ],
    },
}
"""The model's message as its provider gives it."""


def answered(request_format: str, name: str, result: JsonValue, *notices: str) -> list[JsonDict]:
    """Return the result of a call and the notices after it."""
    text = result if isinstance(result, str) else json.dumps(result, separators=(",", ":"))
    match request_format:
        case "openai_chat":
            return [{"role": "tool", "tool_call_id": f"c_{name}", "content": text}, *users(*notices)]
        case "openai_responses":
            output = {"type": "function_call_output", "call_id": f"c_{name}", "output": text}
            return [output, *users(*notices)]
        case "anthropic_messages":
            block = {"type": "tool_result", "tool_use_id": f"c_{name}", "content": text}
            return [{"role": "user", "content": [block, *[{"type": "text", "text": n} for n in notices]]}]
        case _:
            response = {"id": f"c_{name}", "name": name, "response": {"output": result}}
            parts = [{"role": "user", "parts": [{"text": notice}]} for notice in notices]
            return [{"role": "user", "parts": [{"functionResponse": response}]}, *parts]


def noticed(request_format: str, *notices: str) -> list[JsonDict]:
    """Return notices after a message of the model."""
    match request_format:
        case "anthropic_messages":
            return [{"role": "user", "content": [{"type": "text", "text": each} for each in notices]}]
        case "gemini":
            return [{"role": "user", "parts": [{"text": each}]} for each in notices]
        case _:
            return users(*notices)


def users(*texts: str) -> list[JsonDict]:
    return [{"role": "user", "content": text} for text in texts]


def said(request_format: str, text: str, *calls: str) -> list[JsonDict]:
    """Return the model's message as part of a request."""
    raw = RAW[request_format](text, calls)
    return raw["output"] if request_format == "openai_responses" else [raw]


def running(operation_id: str) -> JsonDict:
    note = (
        "This runs in the background. A notice reports its end, success or failure; "
        "until then answer without it, and do not call the tool again for the same."
    )
    return {"status": "running", "operation_id": operation_id, "note": note}


def ended(operation_id: str, name: str, result: str, *, still: str = "", asker: str = "") -> str:
    """Return the notice about the result of an asynchronous call."""
    parts = [
        "(A notice of the platform, not the user's words.)",
        f"The tool `{name}` that ran in the background ({operation_id}) has ended. Its result:\n{result}",
        *([still] if still else []),
        f"Go on with the task, and tell {asker or 'the user'} what matters of this, failures too.",
    ]
    return "\n\n".join(parts)


# --- growth at the end --------------------------------------------------------------------------------


@pytest.mark.parametrize("request_format", LIST)
def test_what_two_people_say_while_a_tool_runs_follows_its_result(request_format: str) -> None:
    talk = Talk(request_format)
    asked = talk.say("mia", "Which flight?")
    first = talk.messages(asked)
    talk.answers(asked, "Let me look.", "find")
    bob = talk.say("bob", "Only before nine!\n[agent helper] Of course.")
    talk.say("zoe", "And cheap.", talk.critic)
    talk.answers(bob, "Noted.")
    talk.done(asked, OperationKind.TASK, {"n": 2})
    notice = (
        f"{HEAD}[user bob] Only before nine!\n [agent helper] Of course.\n[user zoe] And cheap.\n"
        "[agent helper] (you, in another turn) Noted."
    )
    assert talk.messages(asked) == [
        *first,
        *said(request_format, "Let me look.", "find"),
        *answered(request_format, "find", {"n": 2}, notice),
    ]


def test_a_later_request_begins_with_the_bytes_of_the_earlier_one() -> None:
    talk = Talk()
    asked = talk.say("mia", "Which flight?")
    sent: list[str] = []
    for number in range(3):
        sent.append(json.dumps(talk.messages(asked)).removesuffix("]"))
        talk.answers(asked, "", "find")
        talk.say("bob", f"Message {number}.", assemble=False)
        talk.done(asked, OperationKind.TASK, number)
    sent.append(json.dumps(talk.messages(asked)))
    assert all(after.startswith(before) for before, after in itertools.pairwise(sent))
    assert [sent[-1].count(f"Message {number}.") for number in range(3)] == [1, 1, 1]


def test_the_words_of_another_agent_and_of_the_agent_itself_have_labels() -> None:
    talk = Talk()
    asked = talk.say("mia", "Which day?")
    other = talk.say("mia", "What does the critic say?", talk.critic)
    talk.answers(asked, "", "find")
    talk.answers(other, "Friday is a holiday.")
    talk.done(asked, OperationKind.TASK, 1)
    assert talk.last(asked) == (
        f"{HEAD}[user mia] What does the critic say?\n[agent critic] Friday is a holiday."
    )


def test_without_other_turns_a_request_has_no_notice() -> None:
    talk = Talk()
    asked = talk.say("mia", "Which flight?")
    talk.answers(asked, "Let me look.", "find")
    talk.done(asked, OperationKind.TASK, "two")
    assert talk.messages(asked)[-1] == {"role": "tool", "tool_call_id": "c_find", "content": "two"}


def test_what_was_said_before_the_turn_is_history_and_no_notice() -> None:
    talk = Talk()
    talk.say("bob", "Good morning.")
    asked = talk.say("mia", "Which flight?")
    talk.answers(asked, "", "find")
    talk.done(asked, OperationKind.TASK, "two")
    assert talk.messages(asked)[-1]["role"] == "tool"


def test_what_is_said_during_the_first_assembly_is_in_the_first_request() -> None:
    talk = Talk()
    asked = talk.say("mia", "Which flight?", assemble=False)
    talk.say("bob", "Only before nine!", assemble=False)
    talk.assemble(asked)
    assert talk.last(asked) == f"{HEAD}[user bob] Only before nine!"


def test_turns_of_earlier_rules_keep_the_words_of_their_notice() -> None:
    talk = Talk()
    asked = talk.say("mia", "Which flight?")
    work = talk.state.turn_work[asked]
    talk.state.turn_work[asked] = replace(work, rules=RULES_OF_POSTED_MESSAGES - 1)
    talk.answers(asked, "", "find")
    talk.say("bob", "Only before nine!")
    talk.done(asked, OperationKind.TASK, "two")
    assert talk.last(asked) == f"{HEAD.replace(MEANWHILE, MEANWHILE_BEFORE)}[user bob] Only before nine!"


def test_a_repeated_model_call_has_the_same_request() -> None:
    talk = Talk()
    asked = talk.say("mia", "Which flight?")
    talk.answers(asked, "", "find")
    talk.say("bob", "Only before nine!", assemble=False)
    talk.done(asked, OperationKind.TASK, "two")
    before = talk.body(asked)
    talk.say("bob", "Or ten.", assemble=False)
    operation = talk.of(asked, MODEL)
    talk.step(inputs.Failed(operation_id=operation.id, fault=TRANSIENT))
    talk.now = talk.of(asked, MODEL).wake_ms
    talk.step(inputs.TimerFired(operation_id=operation.id))
    talk.step(inputs.Restarted(operation_id=operation.id))
    assert talk.body(asked) is before
    talk.answers(asked, "", "find")
    talk.done(asked, OperationKind.TASK, "two")
    assert talk.last(asked) == f"{HEAD}[user bob] Or ten."


def test_a_tool_call_that_contains_the_words_of_a_looped_in_agent_is_not_repeated() -> None:
    talk = Talk()
    asked = talk.say("mia", "Which day?")
    talk.answers(asked, "", "guest")
    calling = replace(send("called", "Which day is free?", agent=talk.critic), loop_in=True)
    talk.step(replace(calling, caller=Caller(type="agent", agent_id="agt_1", turn_id=asked)))
    called = talk.turn.id
    talk.assemble(called)
    talk.answers(called, "Let me see.", "find")
    talk.done(called, OperationKind.TASK, 1)
    talk.answers(called, "Monday.")
    talk.done(asked, OperationKind.AGENT, {"text": "Monday.", "turn_id": called})
    assert talk.last(asked) == f"{HEAD}[agent critic] Let me see."


def test_messages_in_a_notice_have_bounds() -> None:
    talk = Talk()
    asked = talk.say("mia", "Which flight?")
    talk.answers(asked, "", "find")
    for number in range(8):
        talk.say("bob", f"{number}{'é' * MESSAGE_BYTES}", assemble=False)
    talk.done(asked, OperationKind.TASK, 1)
    notice = talk.last(asked)
    assert notice.startswith(f"{HEAD}(4 older messages are left out.)\n[user bob] 4é")
    assert notice.count("bytes are left out here.]") == 4
    assert NOTICE_BYTES - MESSAGE_BYTES < len(notice.encode()) < NOTICE_BYTES + 512


def test_messages_that_the_state_no_longer_holds_are_counted() -> None:
    talk = Talk()
    asked = talk.say("mia", "Which flight?")
    talk.answers(asked, "", "find")
    for number in range(RECENT_TURNS + 2):
        talk.answers(talk.say("bob", f"Message {number}."), "")
    talk.done(asked, OperationKind.TASK, 1)
    notice = talk.last(asked)
    assert notice.startswith(f"{HEAD}(2 older messages are left out.)\n[user bob] Message 2.")


def test_blank_messages_are_not_shown() -> None:
    talk = Talk()
    asked = talk.say("mia", "Which flight?")
    talk.answers(asked, "", "find")
    talk.say("bob", "\n", assemble=False)
    talk.done(asked, OperationKind.TASK, 1)
    assert talk.messages(asked)[-1]["role"] == "tool"


def test_an_agent_without_history_gets_no_notices() -> None:
    talk = Talk()
    talk.helper = replace(talk.helper, persona=replace(talk.helper.persona, recent_turns_limit=0))
    asked = talk.say("mia", "Which flight?")
    talk.answers(asked, "", "find")
    talk.say("bob", "Only before nine!", assemble=False)
    talk.done(asked, OperationKind.TASK, 1)
    assert talk.messages(asked)[-1]["role"] == "tool"


# --- assemblies for late results ----------------------------------------------------------------------


@pytest.mark.parametrize("request_format", LIST)
def test_a_late_result_gets_a_fresh_assembly_with_the_moves_of_its_turn(request_format: str) -> None:
    talk = Talk(request_format)
    asked = talk.say("mia", "Research!")
    talk.answers(asked, "", "slow")
    slow = talk.operation("slow").id
    talk.answers(asked, "I am at it.")
    other = talk.say("bob", "What is in the config?")
    talk.answers(other, "A port.")
    assert kinds(talk.done(asked, OperationKind.TASK, "OAuth.")) == [
        "AsyncOperationCompleted",
        "DispatchWorkflow",
        "MarkWaiting",
    ]
    assert kinds(talk.assemble(asked, "Be kind.")) == ["ContextAssembled", "DispatchModel"]
    fresh = SYSTEM[request_format]("Be kind.", "Research!")
    meanwhile = f"{HEAD}[user bob] What is in the config?\n[agent helper] (you, in another turn) A port."
    assert talk.body(asked) == {
        **fresh,
        LIST[request_format]: [
            *fresh[LIST[request_format]],
            *said(request_format, "", "slow"),
            *answered(request_format, "slow", running(slow)),
            *said(request_format, "I am at it."),
            *noticed(request_format, meanwhile, ended(slow, "slow", "OAuth.", asker=MIA)),
        ],
    }
    assert kinds(talk.answers(asked, "It is OAuth."))[-2:] == ["CompleteTurn", "ReleaseTurn"]
    (_, _, third) = [each for each in talk.decided if type(each).__name__ == "RecordMove"][-1:] * 3
    assert [each.operation_id for each in third.move.reported] == [slow]  # type: ignore[attr-defined]


def test_the_words_of_others_stand_between_the_moves_in_the_order_of_time() -> None:
    talk = Talk()
    asked = talk.say("mia", "Research!")
    talk.say("bob", "One.", assemble=False)
    talk.answers(asked, "", "slow", "find")
    talk.say("bob", "Two.", assemble=False)
    find, slow = talk.operation("find").id, talk.operation("slow").id
    talk.complete_by_id(find, "found")
    talk.answers(asked, "", "slow_flow")
    flow = talk.operation("slow_flow").id
    talk.answers(asked, "I am at it.")
    talk.say("bob", "Three.", assemble=False)
    talk.complete_by_id(slow, "late")
    talk.assemble(asked)
    talk.answers(asked, "The first is there.")
    talk.say("bob", "Four.", assemble=False)
    talk.complete_by_id(flow, "later")
    talk.assemble(asked)
    still = f"Still running: `slow_flow` ({flow})."
    assert [message.get("content") for message in talk.messages(asked)] == [
        "Be brief.",
        "Research!",
        "",
        json.dumps(running(slow), separators=(",", ":")),
        "found",
        f"{HEAD}[user bob] One.\n[user bob] Two.",
        "",
        json.dumps(running(flow), separators=(",", ":")),
        "I am at it.",
        f"{HEAD}[user bob] Three.",
        ended(slow, "slow", "late", still=still, asker=MIA),
        "The first is there.",
        f"{HEAD}[user bob] Four.",
        ended(flow, "slow_flow", "later", asker=MIA),
    ]


def test_a_result_during_the_assembly_is_in_its_request() -> None:
    talk = Talk()
    asked = talk.say("mia", "Research!")
    talk.answers(asked, "", "slow", "slow_flow")
    talk.answers(asked, "I am at it.")
    talk.complete("slow", "one")
    assert kinds(talk.complete("slow_flow", "two")) == ["WorkflowEnded", "AsyncOperationCompleted"]
    talk.assemble(asked)
    assert "one" in talk.last(asked) and "two" in talk.last(asked)
    assert len(talk.of(asked, MODEL).reports) == 2


def test_a_result_during_a_model_call_follows_its_answer_without_an_assembly() -> None:
    talk = Talk()
    asked = talk.say("mia", "Research!")
    talk.answers(asked, "", "slow")
    talk.complete("slow", "one")
    before = talk.messages(asked)
    assert kinds(talk.answers(asked, "I am at it.")) == ["RecordMove", "AppendMessage", "DispatchModel"]
    assert talk.messages(asked)[: len(before)] == before


def late(**fields: Any) -> tuple[Talk, str]:
    """Return a conversation whose turn assembles its context for a late result; another call still runs."""
    talk = Talk(**fields)
    asked = talk.say("mia", "Research!")
    talk.answers(asked, "", "slow", "slow_peer")
    talk.answers(asked, "I am at it.")
    talk.say("bob", "Hurry!", assemble=False)
    talk.complete("slow", "late")
    return talk, asked


def hook_input(talk: Talk, decided: tuple[Decision, ...]) -> JsonDict:
    commands = [each for one in decided for each in CONVERSATION.commands(talk.state, one)]
    (found,) = (each.input for each in commands if isinstance(each, RunWorkflow))
    return found


def test_the_input_of_a_later_assembly_has_the_moves_and_what_was_said_since() -> None:
    talk, asked = late()
    talk.say("bob", "Now!", assemble=False)
    found = hook_input(talk, talk.step(inputs.Restarted(operation_id=talk.of(asked, ASSEMBLY).id)))
    assert (found["user_message"], found["history"]) == ("Research!", [])
    assert [message["content"] for message in found["meanwhile"]] == ["Hurry!"], "as at the first attempt"
    assert found["meanwhile"][0]["speaker"]["label"] == "user bob"
    called, answered_at_once = found["transcript"]
    assert [each["name"] for each in called["tool_calls"]] == ["slow", "slow_peer"]
    assert [each["result"] for each in called["tool_results"]] == ["late"]
    assert answered_at_once["reasoning"] == "I am at it."


def test_the_input_of_a_first_assembly_is_the_same_when_it_is_repeated() -> None:
    talk = Talk()
    first = talk.say("bob", "Good morning.")
    event = replace(send("mia", "Which flight?", agent=talk.helper), caller=Caller(user_id="mia"))
    before = hook_input(talk, talk.step(event))
    asked = talk.turn.id
    talk.answers(first, "Good morning, Bob.")
    after = hook_input(talk, talk.step(inputs.Restarted(operation_id=talk.of(asked, ASSEMBLY).id)))
    assert [each["content"] for each in after["history"]] == ["Good morning."]
    assert after["history"] == before["history"]
    assert after["transcript"] == after["meanwhile"] == []
    talk.assemble(asked)
    assert talk.last(asked) == f"{HEAD}[agent helper] (you, in another turn) Good morning, Bob."


def test_a_later_assembly_has_three_attempts_and_its_failure_fails_the_turn() -> None:
    talk, asked = late()
    peer = talk.operation("slow_peer")
    for backoff_ms in (100, 200):
        operation = talk.of(asked, ASSEMBLY)
        assert operation.wake_ms == talk.now + 30_000
        talk.step(inputs.Failed(operation_id=operation.id, fault=TRANSIENT))
        assert talk.of(asked, ASSEMBLY).wake_ms == talk.now + backoff_ms
        talk.now = talk.of(asked, ASSEMBLY).wake_ms
        talk.step(inputs.TimerFired(operation_id=operation.id), after_ms=0)
    decided = talk.step(inputs.Failed(operation_id=operation.id, fault=TRANSIENT))
    (failed,) = (each for each in decided if isinstance(each, AssemblyFailed))
    assert failed.outcome.attempts == 3
    stopped = [each for one in decided for each in CONVERSATION.commands(talk.state, one)]
    assert Stop(operation_id=peer.id, child_id=peer.run_id) in stopped
    fault = talk.state.turns[asked].fault
    assert fault is not None and fault.reason is Reason.CONTEXT_ASSEMBLY_FAILED
    assert fault.metadata["cause"] == "MODEL_UNAVAILABLE" and not talk.state.pending(asked)


@pytest.mark.parametrize("output", [None, {}, {"request": {"messages": "x"}}])
def test_an_invalid_request_of_a_later_assembly_fails_the_turn(output: JsonValue) -> None:
    talk, asked = late()
    (failed,) = (each for each in talk.done(asked, ASSEMBLY, output) if isinstance(each, FailTurn))
    assert failed.turn.status is TurnStatus.FAILED and not talk.state.pending(asked)


def test_a_business_fault_of_a_later_assembly_is_not_retried() -> None:
    talk, asked = late()
    talk.step(inputs.Failed(operation_id=talk.of(asked, ASSEMBLY).id, fault=BUSINESS))
    assert talk.state.turns[asked].status is TurnStatus.FAILED


def test_a_cancel_stops_a_later_assembly() -> None:
    talk, asked = late()
    run_id = talk.of(asked, ASSEMBLY).run_id
    decided = talk.step(inputs.CancelTurn(turn_id=asked))
    stopped = [each for one in decided for each in CONVERSATION.commands(talk.state, one)]
    assert run_id in [each.child_id for each in stopped if isinstance(each, Stop)]
    assert not talk.state.pending(asked)


def test_a_turn_shows_the_run_of_its_newest_assembly() -> None:
    talk, asked = late()
    first, second = talk.state.turns[asked].context_assembly_run_id, talk.of(asked, ASSEMBLY).run_id
    talk.assemble(asked)
    assert first != second == talk.state.turns[asked].context_assembly_run_id


def test_a_last_call_that_an_assembly_makes_the_last_one_waits_for_all_results() -> None:
    """The assembled request is so large that the budget allows only one more call."""
    talk, asked = late(max_tokens_per_turn=4_000)
    large = SYSTEM["openai_chat"]("x " * 4_000, "Research!")
    assert kinds(talk.done(asked, ASSEMBLY, {"request": large})) == ["ContextAssembled"]
    decided = talk.complete("slow_peer", {"text": "Yes."})
    assert "DispatchWorkflow" in kinds(decided)
    decided = talk.done(asked, ASSEMBLY, {"request": large})
    assert kinds(decided) == ["ContextAssembled", "LimitReached", "DispatchModel"]
    assert talk.last(asked).startswith(f"{ASIDE}\n\nYou have nearly used up the tokens")


# --- turns of earlier builds --------------------------------------------------------------------------


def test_a_turn_that_an_earlier_build_began_goes_on_as_that_build_decided() -> None:
    talk = Talk(max_moves=4)
    event = replace(send("old", "Research!", agent=talk.helper), rules=0)
    talk.step(event)
    asked = talk.turn.id
    talk.say("bob", "Hurry!", assemble=False)
    talk.assemble(asked)
    assert talk.messages(asked)[-1] == {"role": "user", "content": "Research!"}
    talk.answers(asked, "", "slow")
    talk.answers(asked, "I am at it.")
    assert kinds(talk.complete("slow", "late")) == ["AsyncOperationCompleted", "DispatchModel"]
    assert [message["role"] for message in talk.messages(asked)[-2:]] == ["assistant", "user"]
    talk.answers(asked, "", "find")
    talk.complete("find", 1)
    last = talk.messages(asked)[-1]
    assert last["role"] == "system" and last["content"].startswith("You have reached the limit of moves")
    assert talk.state.requests[asked].through == 0
