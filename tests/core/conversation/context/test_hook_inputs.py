"""Tests of the inputs of hooks, and of partial messages."""

from __future__ import annotations

from typing import Any

from tests.core.conversation.conversation_kit import (
    ASSEMBLED,
    BUSINESS,
    NOW,
    TOOLS,
    Driven,
    agent,
    call,
    kinds,
    send,
    text_answer,
    tool,
    workflow,
)
from tests.replacing import replace
from wonder_server.core.actor.commands import RunWorkflow
from wonder_server.core.conversation.context.active_turns import INPUT_CHARS
from wonder_server.core.conversation.context.history import HISTORY_BYTES
from wonder_server.core.conversation.context.hook_inputs import assembly_input
from wonder_server.core.conversation.context.resolved_agent import resolve_agent
from wonder_server.core.conversation.model import inputs
from wonder_server.core.conversation.model.decisions import AppendMessage, Decision, DispatchWorkflow
from wonder_server.core.conversation.model.exchange import Quote
from wonder_server.core.conversation.model.lifecycle_inputs import Join, Leave, Reset
from wonder_server.core.conversation.model.values import Caller, OperationKind, Participant, TurnStatus
from wonder_server.core.conversation.planner import CONVERSATION
from wonder_server.core.conversation.planning.summarization import history_truncation
from wonder_server.core.definitions.specs import ContextWindow, PinnedAgent, WindowStrategy
from wonder_server.core.json_types import JsonDict, JsonValue
from wonder_server.core.schema import payloads

ASSEMBLY, MODEL, EXTRACTION = OperationKind.ASSEMBLY, OperationKind.MODEL, OperationKind.EXTRACTION
SUMMARY, TASK = OperationKind.SUMMARY, OperationKind.TASK


def finish(driven: Driven, text: str) -> None:
    driven.succeed(ASSEMBLY, ASSEMBLED)
    driven.answer(text_answer(text))


def given(driven: Driven) -> dict[str, object]:
    turn = list(driven.state.turns.values())[-1]
    agent = driven.state.turn_work[turn.id].agent
    (operation,) = [op for op in driven.state.pending(turn.id) if op.kind is OperationKind.ASSEMBLY] or [None]
    cut = None if operation is None else history_truncation(operation)
    return assembly_input(driven.state, turn, agent, NOW, cut)


def test_history_reaches_back_to_its_maximum_size() -> None:
    driven = Driven(content="short")
    finish(driven, "first")
    driven.step(send("two", "x" * (HISTORY_BYTES - 10)))
    finish(driven, "second")
    driven.step(send("three", "now"))
    found = given(driven)
    assert isinstance(found["history"], list)
    assert [message["content"][:6] for message in found["history"]] == ["xxxxxx", "second"]
    assert found["left_out"] == 2


def test_a_history_entry_stays_the_same_object_until_its_content_changes() -> None:
    driven = Driven(content="one")
    driven.step(send("two", "two"))
    first, second = driven.state.turns.values()
    before = given(driven)["recent_turns"]
    assert isinstance(before, list)
    assert given(driven)["recent_turns"] == before
    assert given(driven)["recent_turns"][0] is before[0]  # type: ignore[index]
    driven.step(inputs.CancelTurn(turn_id=first.id, partial_text="half"))
    driven.step(send("three", "three"))
    after = given(driven)["recent_turns"]
    assert isinstance(after, list)
    assert [turn["status"] for turn in after] == ["cancelled", "active"]
    assert after[1]["turn_id"] == second.id
    driven.step(send("four", "four"))
    assert all(any(turn is other for other in given(driven)["recent_turns"]) for turn in after)  # type: ignore[attr-defined]


def test_equal_agents_have_resolved_values_of_their_own() -> None:
    """The cache uses identity: a changed agent is another object."""
    plain, shaped = agent(), agent(tools=())
    assert resolve_agent(plain) is resolve_agent(plain)
    assert resolve_agent(agent()) == resolve_agent(plain)
    assert resolve_agent(shaped).tools == [] != resolve_agent(plain).tools


def test_the_input_of_another_active_turn_is_an_excerpt() -> None:
    driven = Driven(content="y" * (INPUT_CHARS + 1))
    driven.step(send("two", "and this?"))
    active = given(driven)["active_turns"]
    assert isinstance(active, list)
    assert [len(turn["input"]) for turn in active] == [INPUT_CHARS]


def test_the_indices_of_an_agent_follow_from_its_tools() -> None:
    tools = (
        tool("keep", action="memory.write"),
        tool("recall", action="memory.search"),
        tool("open", action="artifact.read"),
        tool("look", action="artifact.list"),
        tool("cat", action="repo.read"),
    )
    every = {"memory": ["recall"], "artifact": ["open", "look"], "repository": ["cat"]}
    assert given(Driven(agent=agent(tools=tools)))["indices"] == every
    allowed = agent(tools=tools, allowed_actions=("artifact.read",))
    assert given(Driven(agent=allowed))["indices"] == {"artifact": ["open"]}
    assert given(Driven())["indices"] == {}


def test_the_text_of_a_failed_model_call_becomes_a_partial_message() -> None:
    driven = Driven()
    driven.succeed(ASSEMBLY, ASSEMBLED)
    (operation,) = [op for op in driven.state.operations.values() if op.kind is MODEL]
    decisions = driven.step(
        inputs.Failed(operation_id=operation.id, fault=BUSINESS, partial_text="Once upon")
    )
    assert kinds(decisions) == ["CancelOperation", "AppendMessage", "FailTurn", "ReleaseTurn"]
    (message,) = [each.message for each in decisions if isinstance(each, AppendMessage)]
    assert (message.content, message.partial, message.id) == ("Once upon", True, operation.message_id)


def other_types(value: JsonValue, at: str = "") -> list[str]:
    """Return the paths of values that are not plain JSON; a subclass, such as an enum's member, is not."""
    if type(value) is dict:
        keys = [f"{at}.{key!r}" for key in value if type(key) is not str]
        return keys + [each for key, member in value.items() for each in other_types(member, f"{at}.{key}")]
    if type(value) is list:
        return [each for i, item in enumerate(value) for each in other_types(item, f"{at}[{i}]")]
    return [] if value is None or type(value) in (str, int, float, bool) else [f"{at}: {type(value)}"]


def summarizing_agent() -> PinnedAgent:
    """Return an agent with tools and a model so small that it summarizes soon."""
    made = agent(tools=(*TOOLS, tool("recall", action="memory.search")))
    window = ContextWindow(strategy=WindowStrategy.SUMMARIZE, keep_recent_messages=0)
    spec = replace(made.profile.spec, context_window_tokens=2000, parameters={"temperature": 0.5})
    return replace(
        made,
        persona=replace(made.persona, context_window=window, instructions=("Be kind.",)),
        profile=replace(made.profile, spec=spec),
        summary=workflow("summary"),
    )


def test_hook_inputs_are_plain_json_for_every_tool_outcome() -> None:
    """Inputs of hooks are payloads, which contain no enums and no tuples."""
    who = summarizing_agent()
    driven, hooks = Driven(begin=False), dict[OperationKind, list[JsonDict]]()

    def step(event: inputs.Input) -> tuple[Decision, ...]:
        decided = driven.step(event)
        for decision in decided:
            if isinstance(decision, DispatchWorkflow):
                (command,) = CONVERSATION.commands(driven.state, decision)
                assert isinstance(command, RunWorkflow)
                hooks.setdefault(decision.operation.kind, []).append(command.input)
        return decided

    def on(kind: OperationKind, output: JsonValue = ASSEMBLED) -> None:
        step(inputs.Succeeded(operation_id=driven.pending(kind).id, output=output))

    def answers(text: str, *called: str) -> None:
        calls = [call(name, f"call_{name}") for name in called]
        step(inputs.ModelAnswered(operation_id=driven.pending(MODEL).id, result=text_answer(text, *calls)))

    step(send("one", "x" * 2000, agent=who))
    on(ASSEMBLY)
    answers("I look.", "find", "mapped", "once", "nothing", "gone", "broken")
    succeeding, *failing = [op for op in driven.state.operations.values() if op.kind is TASK]
    step(inputs.Succeeded(operation_id=succeeding.id, output={"found": [1, 2.5, None, True]}))
    for operation in failing:
        step(inputs.Failed(operation_id=operation.id, fault=BUSINESS))
    answers("y" * 2000)
    on(EXTRACTION, {})
    step(send("two", "z" * 2000, agent=who))
    on(SUMMARY, {"summary": "Letters."})
    on(ASSEMBLY)
    answers("It is slow.", "slow")
    step(send("three", "and that?", agent=who))

    (extraction,) = hooks[EXTRACTION]
    results = [result for move in extraction["transcript"] for result in move["tool_results"]]
    outcomes = [result["success"] or result["error"]["code"] for result in results]
    failed = ["EXECUTION_FAILED"] * 2
    assert outcomes == [True, *failed, "NOT_FOUND", "NOT_FOUND", "INVALID_INPUT"]
    last = hooks[ASSEMBLY][-1]
    assert last["summary"] == "Letters." and last["recent_turns"] and last["history"]
    assert [op["kind"] for each in last["active_turns"] for op in each["pending"]] == ["task", "model"]
    assert driven.turn.status is TurnStatus.ACTIVE and set(hooks) == {ASSEMBLY, EXTRACTION, SUMMARY}
    for kind, given in hooks.items():
        for each in given:
            assert (kind, other_types(each)) == (kind, []) and payloads.check(each) is None


# --- speakers ---------------------------------------------------------------------------------------


def joined_by(*participants: Participant, content: str = "Hello.", sender: str = "mia") -> Driven:
    """Return a conversation of these participants in which a user has sent a message to the helper."""
    driven = Driven(begin=False)
    assert driven.state.conversation is not None
    for each in participants:
        driven.step(Join(participant=each))
    driven.step(from_user("one", content, sender))
    return driven


def from_user(seed: str, content: str, user_id: str, **fields: Any) -> inputs.Send:
    return replace(send(seed, content), caller=Caller(user_id=user_id), **fields)


MIA = {"id": "mia", "kind": "user", "name": "Mia", "label": "user Mia"}
BOB = {"id": "bob", "kind": "user", "name": "", "label": "user bob"}
USER_MIA = Participant(type="user", id="mia", name="Mia")


def test_an_assembly_gets_the_participants_the_caller_the_speakers_and_the_time() -> None:
    driven = joined_by(USER_MIA)
    finish(driven, "Hello, Mia.")
    driven.step(from_user("two", "I am here too.", "bob"))
    helper = agent()
    own = {
        "id": helper.agent_id,
        "kind": "agent",
        "name": helper.name,
        "label": f"agent {helper.name}",
    }
    received = given(driven)
    assert received["participants"] == [own, MIA, BOB]
    assert received["caller"] == BOB
    assert received["multi_party"] is True
    assert received["now"] == "2023-11-14T22:13:20.000Z"
    assert (received["title"], received["metadata"]) == ("", {})
    history = received["history"]
    assert isinstance(history, list)
    assert [(each["content"], each["speaker"]) for each in history] == [("Hello.", MIA), ("Hello, Mia.", own)]


def test_a_conversation_of_one_user_and_one_agent_is_not_multi_party() -> None:
    driven = joined_by(USER_MIA)
    assert given(driven)["multi_party"] is False
    finish(driven, "Hello, Mia.")
    driven.step(from_user("two", "Go on.", "mia"))
    assert given(driven)["multi_party"] is False
    # A silent participant listens, and may speak.
    driven.step(Join(participant=Participant(type="user", id="zoe")))
    assert given(driven)["multi_party"] is True


def test_a_user_that_has_left_is_still_a_speaker() -> None:
    driven = joined_by(USER_MIA)
    finish(driven, "Hello, Mia.")
    driven.step(Leave(type="user", id="mia"))
    driven.step(from_user("two", "And me?", "bob"))
    received = given(driven)
    assert received["multi_party"] is True
    assert received["history"][0]["speaker"] == {"id": "mia", "kind": "user", "name": "", "label": "user mia"}  # type: ignore[index]


def test_a_user_with_the_id_of_an_agent_is_no_agent() -> None:
    helper = agent()
    driven = joined_by(sender=helper.agent_id)
    finish(driven, "Hello.")
    driven.step(from_user("two", "And me?", "bob"))
    first, answer = given(driven)["history"]  # type: ignore[misc, attr-defined]
    assert (first["speaker"]["kind"], answer["speaker"]["kind"]) == ("user", "agent")
    assert first["speaker"]["label"] != answer["speaker"]["label"]


def test_the_answers_of_another_agent_make_it_multi_party() -> None:
    """Its words must not appear as the agent's own, even if it is the only other speaker."""
    other = replace(agent(), agent_id="agt_2", name="poet")
    driven = joined_by(Participant(type="agent", id="agt_2", name="poet"), sender="")
    driven.step(
        replace(send("two", "Sing."), agent=other, caller=Caller(type="agent", agent_id=agent().agent_id))
    )
    received = given(driven)
    assert received["agent"] == {"id": "agt_2", "name": "poet"}
    assert received["multi_party"] is True


def test_a_reply_has_the_quote_that_its_turn_recorded() -> None:
    quote = Quote(kind="user", author="mia", text="Friday?", turn_ordinal=1)
    driven = joined_by(USER_MIA)
    finish(driven, "Hello.")
    driven.step(from_user("two", "Yes.", "bob", reply_to_message_id="msg_1", quote=quote))
    received = given(driven)
    assert (received["reply_to"], received["reply_to_speaker"]) == ("Friday?", MIA)
    assert driven.turn.quote == quote
    finish(driven, "Good.")
    driven.step(Reset())
    driven.step(from_user("three", "Yes.", "bob", reply_to_message_id="msg_1", quote=quote))
    received = given(driven)
    assert (received["reply_to"], received["reply_to_speaker"]) == (None, None)
    assert driven.turn.quote is None
