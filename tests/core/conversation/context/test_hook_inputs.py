"""Tests of the inputs of hooks, and of partial messages."""

from __future__ import annotations

from tests.core.conversation.conversation_kit import (
    ASSEMBLED,
    BUSINESS,
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
from wonder_server.core.conversation.context.hook_inputs import EXCERPT, HISTORY_BYTES, assembly_input
from wonder_server.core.conversation.context.resolved_agent import resolve_agent
from wonder_server.core.conversation.model import inputs
from wonder_server.core.conversation.model.decisions import AppendMessage, Decision, DispatchWorkflow
from wonder_server.core.conversation.model.values import OperationKind, TurnStatus
from wonder_server.core.conversation.planner import CONVERSATION
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
    return assembly_input(driven.state, turn, driven.state.turn_work[turn.id].agent)


def test_history_reaches_back_to_its_maximum_size() -> None:
    driven = Driven(content="short")
    finish(driven, "first")
    driven.step(send("two", "x" * (HISTORY_BYTES - 10)))
    finish(driven, "second")
    driven.step(send("three", "now"))
    history = given(driven)["history"]
    assert isinstance(history, list)
    assert [message["content"][:6] for message in history] == ["xxxxxx", "second"]


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
    driven = Driven(content="y" * (EXCERPT + 1))
    driven.step(send("two", "and this?"))
    active = given(driven)["active_turns"]
    assert isinstance(active, list)
    assert [len(turn["input"]) for turn in active] == [EXCERPT]


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
    window = ContextWindow(strategy=WindowStrategy.SUMMARIZE, keep_recent_messages=1)
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
