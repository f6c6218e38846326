"""Tools in the background: the agent answers meanwhile, and tells what came of them on the same turn."""

from __future__ import annotations

import asyncio
import json

import pytest

from tests.e2e.background import asking, call, constrained, dispatched, found, prepared, using
from tests.e2e.client import Client
from tests.e2e.scripted import PROVIDERS, Scripted
from tests.fakes.provider import Provider, Script
from wonder.v1 import conversation_pb2 as conversation
from wonder.v1 import conversation_service_pb2 as pb
from wonder.v1 import coordinator_service_pb2 as runs
from wonder.v1 import errors_pb2

pytestmark = pytest.mark.asyncio(loop_scope="session")

COMPLETED = conversation.TURN_STATUS_COMPLETED
STARTED = Script(text="I'll research that for you...")


@pytest.fixture(params=PROVIDERS)
def scripted(client: Client, provider: Provider, request: pytest.FixtureRequest) -> Scripted:
    return Scripted(client, provider, request.param)


def seen(scripted: Scripted, number: int = -1) -> str:
    """Return a request of the newest agent's model as text."""
    return json.dumps(scripted.requests[number], ensure_ascii=False)


def in_order(text: str, *parts: str) -> bool:
    """Return True if ``text`` contains the parts one after the other."""
    at = 0
    for part in parts:
        at = text.find(part, at)
        if at < 0:
            return False
        at += len(part)
    return True


async def turn_of(client: Client, turn_id: str) -> conversation.Turn:
    return (await client.conversations.GetTurn(pb.GetTurnRequest(turn_id=turn_id))).turn


async def test_a_question_is_answered_while_research_goes_on_and_then_the_findings_are(
    scripted: Scripted,
) -> None:
    """The example that features C4 and C5 were designed for."""
    client = scripted.client
    await prepared(client)
    agent = await scripted.agent(
        Script(calls=(call("research", topic="authentication patterns"),)),
        STARTED,
        Script(text="Here's the config..."),
        Script(text="Here's what I found about auth patterns..."),
        tools=using("research"),
    )
    conv = await client.open(agent)
    async with client.listening(conv) as listener:
        a = (await client.say(conv, "Research authentication patterns for our API")).turn.id
        # Wait for the whole message, not its partial text: then the model's call is over.
        view = await listener.until(lambda v: STARTED.text in [m.content for m in v.messages.values()])
        operation = dispatched(view, "research").operation
        assert operation.is_async and operation.run_id.startswith("run_")
        waiting = await turn_of(client, a)
        assert waiting.status == conversation.TURN_STATUS_ACTIVE
        assert [op.id for op in waiting.operations] == [operation.id]
        assert "running" in seen(scripted) and operation.id in seen(scripted)

        b = (await client.say(conv, "Also, what's in the config file?")).turn.id
        await listener.until(lambda v: v.settled(b))
        # The agent knows what is going on.
        work = '- research({\\"topic\\": \\"authentication patterns\\"}) for [user'
        assert work in seen(scripted) and "Research authentication patterns for our API" in seen(scripted)
        assert (await turn_of(client, b)).status == COMPLETED
        assert (await turn_of(client, a)).status == conversation.TURN_STATUS_ACTIVE

        await found(client, operation.run_id, "Everybody uses OAuth.")
        view = await listener.until(lambda v: v.settled(a))
    assert "Everybody uses OAuth." in seen(scripted)
    said = [(m.turn_id, m.content) for m in await client.messages(conv)]
    assert said == [
        (a, "Research authentication patterns for our API"),
        (a, "I'll research that for you..."),
        (b, "Also, what's in the config file?"),
        (b, "Here's the config..."),
        (a, "Here's what I found about auth patterns..."),
    ]
    done = await turn_of(client, a)
    assert done.status == COMPLETED and done.move_count == 3 and not done.issues.tool_failures
    runs = [e for e in view.events if e.name.startswith("workflow_")]
    assert [e.name for e in runs] == ["workflow_started", "workflow_completed"]
    started, ended = runs[0].workflow_started, runs[1].workflow_completed
    assert started.run_id == ended.run_id == operation.run_id and ended.operation_id == operation.id
    assert started.workflow == "e2e/background/research_topic@1" and ended.duration_ms > 0
    ends = ["context_assembly.completed", "move.recorded", "message.appended", "turn.completed"]
    assert view.of_turn(a)[-5:] == ["tool.completed", *ends]
    # The last request was assembled again: the moves of the turn, what was said meanwhile, and the result.
    assert in_order(
        seen(scripted),
        "Research authentication patterns for our API",
        "running",
        "I'll research that for you...",
        "[user] Also, what's in the config file?",
        f"[agent {agent}] (you, in another turn) Here's the config...",
        "Everybody uses OAuth.",
    )
    assert seen(scripted).count("what's in the config file?") == 1
    first, second, third = await client.moves(a, conv)
    (called,) = first.tool_calls
    assert called.is_async and not first.tool_results and not second.tool_results
    # The result is in the move that it triggered.
    (result,) = third.tool_results
    assert result.success and result.tool_call_id == called.id and result.attempts == 1
    assert dict(result.result.struct_value) == {"found": "Everybody uses OAuth."}


async def test_the_model_receives_the_results_of_background_tasks_that_complete_or_fail(
    scripted: Scripted,
) -> None:
    client = scripted.client
    await prepared(client)
    agent = await scripted.agent(
        Script(calls=(call("slow_task", text="deep"), call("failing_task", text="x"))),
        Script(text="Both are running."),
        Script(text="Something came back."),
        tools=using("slow_task", "failing_task"),
    )
    conv = await client.open(agent)
    turn, view = await client.turn(conv, "Go.")
    assert turn.status == COMPLETED and turn.issues.tool_failures == 1
    assert view.names.count("tool.completed") == view.names.count("tool.failed") == 1
    (failed,) = (e.tool_failed for e in view.events if e.name == "tool.failed")
    # The event has more detail than the model receives.
    assert failed.error.reason == errors_pb2.ERROR_REASON_ASSERTION_FAILED
    assert failed.error.message == failed.tool_result.error.message == "The ice was thin."
    moves = await client.moves(turn.id, conv)
    results = [result for move in moves for result in move.tool_results]
    # Together or one after the other, as they came, but each once, and each by a move that says something.
    assert len(results) == 2 and sorted(result.success for result in results) == [False, True]
    (failure,) = (result.error for result in results if not result.success)
    assert failure.code == conversation.TOOL_ERROR_CODE_EXECUTION_FAILED
    assert "The ice was thin." in failure.message
    assert "The ice was thin." in seen(scripted) and "deep" in seen(scripted)
    assert view.text().startswith("Both are running.\nSomething came back.")


async def test_the_model_receives_the_failure_of_a_background_workflow(scripted: Scripted) -> None:
    client = scripted.client
    await prepared(client)
    failed = "The research I started earlier failed because nothing was found."
    agent = await scripted.agent(
        Script(calls=(call("research", topic="unicorns"),)), STARTED, Script(text=failed),
        tools=using("research"),
    )  # fmt: skip
    conv = await client.open(agent)
    async with client.listening(conv) as listener:
        turn_id = (await client.say(conv, "Find unicorns.")).turn.id
        view = await listener.until(lambda v: STARTED.text in v.text())
        await found(client, dispatched(view, "research").operation.run_id, "nothing")
        view = await listener.until(lambda v: v.settled(turn_id))
    assert view.text() == f"{STARTED.text}\n{failed}"
    assert "Nothing was found." in seen(scripted)
    turn = await turn_of(client, turn_id)
    assert turn.status == COMPLETED and turn.issues.tool_failures == 1
    (ended,) = (e.workflow_failed for e in view.events if e.name == "workflow_failed")
    assert "Nothing was found." in ended.error.message and ended.error.metadata["node"] == "judge"


@pytest.mark.parametrize("fails", [False, True])
async def test_an_agent_in_the_background_answers_later_or_fails(
    scripted: Scripted, provider: Provider, fails: bool
) -> None:
    client = scripted.client
    answer = Script(status=401) if fails else Script(text=" ".join(["slowly"] * 10), delay_ms=20)
    expert = await Scripted(client, provider, "anthropic").agent(answer)
    tool, name = await asking(client, expert, **{"async": True})
    agent = await scripted.agent(
        Script(calls=(call(name, message="Two or three?"),)),
        Script(text="I asked @architect, I'll let you know."),
        Script(text="There it is."),
        tools=(tool,),
    )
    conv = await client.open(agent)
    turn, view = await client.turn(conv, "Ask.")
    assert turn.status == COMPLETED
    assert view.text() == "I asked @architect, I'll let you know.\nThere it is."
    started, ended = (e for e in view.events if e.name.startswith("agent_call_"))
    assert (started.name, ended.name) == ("agent_call_started", "agent_call_completed")
    outcome = ended.agent_call_completed
    assert outcome.turn_id.startswith("turn_") and outcome.HasField("error") is fails
    assert ("EXECUTION_FAILED" if fails else "slowly slowly") in seen(scripted)
    assert turn.issues.tool_failures == int(fails)


async def test_fast_and_slow_tools_of_one_answer(scripted: Scripted) -> None:
    client = scripted.client
    await prepared(client)
    agent = await scripted.agent(
        Script(calls=(call("research", topic="t"), call("quick", text="at once"))),
        Script(text="The quick one is there."),
        Script(text="And now the other."),
        tools=using("research", "quick"),
    )
    conv = await client.open(agent)
    async with client.listening(conv) as listener:
        turn_id = (await client.say(conv, "Both.")).turn.id
        view = await listener.until(lambda v: "The quick one is there." in v.text())
        assert "at once" in seen(scripted) and "running" in seen(scripted)
        await found(client, dispatched(view, "research").operation.run_id, "late")
        view = await listener.until(lambda v: v.settled(turn_id))
    assert "late" in seen(scripted)
    first, _, third = await client.moves(turn_id, conv)
    assert [r.result.struct_value["text"] for r in first.tool_results] == ["at once"]
    assert [r.result.struct_value["found"] for r in third.tool_results] == ["late"]


async def test_the_last_move_is_kept_for_what_is_still_to_come(client: Client, provider: Provider) -> None:
    await prepared(client)
    scripted = Scripted(client, provider, "openai")
    calls = Script(calls=(call("research", topic="t"),))
    agent = await constrained(
        scripted, calls, Script(text="That is all."), tools=using("research"), max_moves_per_turn=2
    )
    conv = await client.open(agent)
    async with client.listening(conv) as listener:
        turn_id = (await client.say(conv, "Search.")).turn.id
        view = await listener.until(lambda v: "tool.dispatched" in v.names)
        await found(client, dispatched(view, "research").operation.run_id, "something")
        view = await listener.until(lambda v: v.settled(turn_id))
    assert (await turn_of(client, turn_id)).status == COMPLETED
    assert len(scripted.requests) == 2 and "something" in seen(scripted)
    assert view.names.count("limit.reached") == 1


async def test_a_cancel_stops_what_runs_in_the_background(client: Client, provider: Provider) -> None:
    await prepared(client)
    expert_script = Script(text=" ".join(["word"] * 2000), delay_ms=20)
    expert = Scripted(client, provider, "anthropic")
    tool, name = await asking(client, await expert.agent(expert_script), **{"async": True})
    calls = Script(calls=(call("research", topic="t"), call(name, message="Speak.")))
    agent = await Scripted(client, provider, "openai").agent(calls, STARTED, tools=(*using("research"), tool))
    conv = await client.open(agent)
    async with client.listening(conv) as listener:
        turn_id = (await client.say(conv, "Go.")).turn.id
        view = await listener.until(lambda v: STARTED.text in v.text())
        async with asyncio.timeout(60):
            await provider.wait_until(lambda: bool(expert.requests))
            await client.conversations.CancelTurn(pb.CancelTurnRequest(conversation_id=conv, turn_id=turn_id))
            await expert.until_closed_early()
        view = await listener.until(lambda v: "turn.cancelled" in v.names)
    request = runs.GetRunRequest(run_id=dispatched(view, "research").operation.run_id)
    run = await client.coordinator.GetRun(request)
    assert run.run.complete_time.seconds
    assert not (await turn_of(client, turn_id)).operations
