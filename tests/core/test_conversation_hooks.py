"""What hooks are given, and what stands of an answer that was cut off."""

from __future__ import annotations

from tests.core.conversation_kit import ASSEMBLED, BUSINESS, Driven, agent, kinds, said, send, tool
from wonder_server.core.conversation import inputs
from wonder_server.core.conversation.decisions import AppendMessage
from wonder_server.core.conversation.facts import facts_of
from wonder_server.core.conversation.hooks import EXCERPT, HISTORY_BYTES, assembly_input
from wonder_server.core.conversation.values import OperationKind

ASSEMBLY, MODEL = OperationKind.ASSEMBLY, OperationKind.MODEL


def finish(driven: Driven, text: str) -> None:
    driven.succeed(ASSEMBLY, ASSEMBLED)
    driven.answer(said(text))


def given(driven: Driven) -> dict[str, object]:
    turn = list(driven.state.turns.values())[-1]
    return assembly_input(driven.state, turn, driven.state.works[turn.id].agent)


def test_history_reaches_as_far_back_as_it_may_be_long() -> None:
    driven = Driven(content="short")
    finish(driven, "first")
    driven.step(send("two", "x" * (HISTORY_BYTES - 10)))
    finish(driven, "second")
    driven.step(send("three", "now"))
    history = given(driven)["history"]
    assert isinstance(history, list)
    assert [message["content"][:6] for message in history] == ["xxxxxx", "second"]


def test_what_is_told_of_a_turn_stays_the_same_object_until_it_says_something_else() -> None:
    driven = Driven(content="one")
    driven.step(send("two", "two"))
    first, second = driven.state.turns.values()
    before = given(driven)["recent_turns"]
    assert isinstance(before, list)
    assert given(driven)["recent_turns"] == before
    assert given(driven)["recent_turns"][0] is before[0]  # type: ignore[index]
    driven.step(inputs.CancelTurn(turn_id=first.id, spoken="half"))
    driven.step(send("three", "three"))
    after = given(driven)["recent_turns"]
    assert isinstance(after, list)
    assert [turn["status"] for turn in after] == ["cancelled", "active"]
    assert after[1]["turn_id"] == second.id
    driven.step(send("four", "four"))
    assert all(any(turn is other for other in given(driven)["recent_turns"]) for turn in after)  # type: ignore[attr-defined]


def test_agents_that_are_equal_but_not_the_same_have_their_own_facts() -> None:
    """Facts are kept by identity: an agent that was changed meanwhile is another one."""
    plain, shaped = agent(), agent(tools=())
    assert facts_of(plain) is facts_of(plain)
    assert facts_of(agent()) == facts_of(plain)
    assert facts_of(shaped).tools == [] != facts_of(plain).tools


def test_another_active_turn_is_shown_by_an_excerpt() -> None:
    driven = Driven(content="y" * (EXCERPT + 1))
    driven.step(send("two", "and this?"))
    active = given(driven)["active_turns"]
    assert isinstance(active, list)
    assert [len(turn["input"]) for turn in active] == [EXCERPT]


def test_an_agent_is_pointed_to_what_its_tools_fetch() -> None:
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


def test_what_a_failing_model_had_said_stands_as_a_partial_message() -> None:
    driven = Driven()
    driven.succeed(ASSEMBLY, ASSEMBLED)
    (operation,) = [op for op in driven.state.operations.values() if op.kind is MODEL]
    decisions = driven.step(inputs.Failed(operation_id=operation.id, fault=BUSINESS, spoken="Once upon"))
    assert kinds(decisions) == ["CancelOperation", "AppendMessage", "FailTurn", "ReleaseWork"]
    (message,) = [each.message for each in decisions if isinstance(each, AppendMessage)]
    assert (message.content, message.partial, message.id) == ("Once upon", True, operation.message_id)
