"""Agents as tools: asked alone or looped in, declining, out of reach, too deep, too slow, not allowed."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from tests.e2e.background import asking, call, constrained, prepared, using
from tests.e2e.client import Client, View
from tests.e2e.scripted import Scripted
from tests.fakes.provider import Provider, Script
from tests.rpc.rpc_kit import rejected
from wonder.v1 import common_pb2, errors_pb2, event_pb2
from wonder.v1 import conversation_pb2 as conversation
from wonder.v1 import conversation_service_pb2 as pb
from wonder.v1 import library_service_pb2 as library

pytestmark = pytest.mark.asyncio(loop_scope="session")

COMPLETED = conversation.TURN_STATUS_COMPLETED
DELEGATE, LOOP_IN = common_pb2.INVOCATION_MODE_DELEGATE, common_pb2.INVOCATION_MODE_LOOP_IN


class Pair:
    """Two scripted agents: the host has a tool that calls the guest."""

    def __init__(self, client: Client, provider: Provider) -> None:
        self.client = client
        self.host = Scripted(client, provider, "openai")
        self.guest = Scripted(client, provider, "anthropic")
        self.guest_name = self.tool = self.name = self.conv = ""

    async def begin(self, *answers: Script, **spec: Any) -> str:
        """The guest and the tool; the name by which the host's model calls it."""
        self.guest_name = await self.guest.agent(*answers)
        self.tool, self.name = await asking(self.client, self.guest_name, **spec)
        return self.name

    async def turn(self, text: str, *scripts: Script) -> tuple[conversation.Turn, View]:
        """Play a turn of the host."""
        self.conv = await self.client.open(await self.host.agent(*scripts, tools=(self.tool,)))
        return await self.client.turn(self.conv, text)

    async def called(self, view: View) -> tuple[event_pb2.AgentCallProgress, conversation.Turn]:
        """The one call of an agent that was seen, and the turn that it led to."""
        (ended,) = (e.agent_call_completed for e in view.events if e.name == "agent_call_completed")
        request = pb.GetTurnRequest(turn_id=ended.turn_id)
        return ended, (await self.client.conversations.GetTurn(request)).turn


@pytest.fixture
def pair(client: Client, provider: Provider) -> Pair:
    return Pair(client, provider)


def error_of(view: View) -> conversation.ToolError:
    (failed,) = (e.tool_failed.tool_result.error for e in view.events if e.name == "tool.failed")
    return failed


# --- delegate ---------------------------------------------------------------------------------------


async def test_a_delegate_sees_its_input_alone_and_its_answer_is_the_tools_result(pair: Pair) -> None:
    name = await pair.begin(Script(text="Yes, it violates them."))
    question = "Does this violate our API patterns?"
    turn, view = await pair.turn(
        "My secret is 42. Ask the architect.",
        Script(calls=(call(name, message=question),)),
        Script(text="The architect says yes."),
    )
    assert turn.status == COMPLETED and view.text() == "The architect says yes."
    (request,) = pair.guest.requests
    assert question in json.dumps(request) and "secret" not in json.dumps(request)
    assert "Yes, it violates them." in json.dumps(pair.host.requests[1])
    outcome, delegated = await pair.called(view)
    assert (outcome.mode, outcome.turn_id) == (DELEGATE, delegated.id)
    caller = delegated.caller.agent
    assert (caller.agent_id, caller.turn_id) == (turn.agent_id, turn.id)
    assert (
        delegated.conversation_id != pair.conv and delegated.output.string_value == "Yes, it violates them."
    )
    # The conversation of the caller does not hear of it, and what it cost is the caller's too.
    assert [m.content for m in await pair.client.messages(pair.conv)][1:] == ["The architect says yes."]
    assert turn.usage.model_calls == 3
    assert view.of_turn(turn.id).count("participant.joined") == 0


async def test_a_delegate_that_declines_says_why(pair: Pair) -> None:
    name = await pair.begin(Script(text="I don't have enough context to review this code", stop="refusal"))
    turn, view = await pair.turn(
        "Ask.", Script(calls=(call(name, message="Review."),)), Script(text="Sorry.")
    )
    assert turn.status == COMPLETED and turn.issues.tool_failures == 1
    error = error_of(view)
    assert error.code == conversation.TOOL_ERROR_CODE_AGENT_DECLINED and not error.retriable
    assert "enough context" in error.message
    assert "AGENT_DECLINED" in json.dumps(pair.host.requests[1])


async def test_a_delegate_declines_with_the_tool_that_only_delegates_have(pair: Pair) -> None:
    name = await pair.begin(
        Script(text="Let me see.", calls=(call("decline", reason="I have no access to it."), call("other")))
    )
    turn, view = await pair.turn(
        "Ask.",
        Script(calls=(call(name, message="Review."), call("decline", reason="me too"))),
        Script(text="Sorry."),
    )
    assert turn.status == COMPLETED and turn.issues.tool_failures == 2
    errors = {
        e.tool_failed.tool_call.tool_name: e.tool_failed.tool_result.error
        for e in view.events
        if e.name == "tool.failed"
    }
    declined = errors[name]
    assert declined.code == conversation.TOOL_ERROR_CODE_AGENT_DECLINED and not declined.retriable
    assert declined.message.endswith(" declined: I have no access to it.")
    assert "I have no access to it." in json.dumps(pair.host.requests[1])
    # The caller itself was not called, so that it cannot decline.
    assert errors["decline"].code == conversation.TOOL_ERROR_CODE_NOT_FOUND
    assert "decline" in json.dumps(pair.guest.requests[0]["tools"])
    assert '"name": "decline"' not in json.dumps(pair.host.requests[0]["tools"])
    _, delegated = await pair.called(view)
    assert delegated.status == conversation.TURN_STATUS_FAILED
    assert delegated.error.reason == errors_pb2.ERROR_REASON_AGENT_DECLINED
    (move,) = await pair.client.moves(delegated.id, delegated.conversation_id)
    assert [each.success for each in move.tool_results] == [True, False]


async def test_an_agent_calls_only_agents_with_which_it_shares_a_project(pair: Pair) -> None:
    name = await pair.begin(Script(text="Yes."))
    host_name = await pair.host.agent(tools=(pair.tool,))
    project = f"apart-{pair.guest_name}"
    library_stub = pair.client.library
    await library_stub.CreateProject(library.CreateProjectRequest(project={"name": project}))
    guest = (await library_stub.GetAgent(library.GetAgentRequest(agent_id=pair.guest_name))).agent
    change = library.UpdateAgentRequest(agent={"id": guest.id, "project_ids": [project]})
    change.update_mask.paths.append("project_ids")
    await library_stub.UpdateAgent(change)
    # An agent that is saved now is refused; the host was saved before, so that its calls are.
    late = Scripted(pair.client, pair.host.provider, "openai").agent(tools=(pair.tool,))
    assert await rejected(late) == ("FIELD_INVALID", ["agent.project_ids"])
    for mode in ({}, {"invocation_mode": "loop_in"}):
        scripts = (Script(calls=(call(name, message="?", **mode),)), Script(text="Sorry."))
        pair.host.provider.script(pair.host.model, *scripts)
        pair.conv = await pair.client.open(host_name)
        turn, view = await pair.client.turn(pair.conv, "Ask.")
        assert turn.status == COMPLETED
        refused = error_of(view)
        assert refused.code == conversation.TOOL_ERROR_CODE_PERMISSION_DENIED
        assert "shares a project" in refused.message and not refused.retriable
    assert pair.guest.requests == []
    # In both projects it may be called, but a conversation in a project that it lacks stays closed to it.
    host = (await library_stub.GetAgent(library.GetAgentRequest(agent_id=turn.agent_id))).agent
    change = library.UpdateAgentRequest(agent={"id": host.id, "project_ids": [*host.project_ids, project]})
    change.update_mask.paths.append("project_ids")
    await library_stub.UpdateAgent(change)
    pair.host.provider.script(pair.host.model, *scripts)
    turn, view = await pair.client.turn(pair.conv, "Again.")
    (refused,) = (
        e.tool_failed.tool_result.error
        for e in view.events
        if e.name == "tool.failed" and e.turn_id == turn.id
    )
    assert "project of this conversation" in refused.message
    assert refused.code == conversation.TOOL_ERROR_CODE_PERMISSION_DENIED
    # A delegate works in its own project, not in that of its caller.
    pair.host.provider.script(
        pair.host.model, Script(calls=(call(name, message="?"),)), Script(text="Thanks.")
    )
    turn, view = await pair.client.turn(pair.conv, "Alone.")
    assert turn.status == COMPLETED and turn.issues.tool_failures == 0
    (ended,) = (
        e.agent_call_completed
        for e in view.events
        if e.name == "agent_call_completed" and e.turn_id == turn.id
    )
    delegated = (await pair.client.conversations.GetTurn(pb.GetTurnRequest(turn_id=ended.turn_id))).turn
    wanted = pb.GetConversationRequest(conversation_id=delegated.conversation_id)
    made = (await pair.client.conversations.GetConversation(wanted)).conversation
    caller = pb.GetConversationRequest(conversation_id=pair.conv)
    own = (await pair.client.conversations.GetConversation(caller)).conversation
    assert made.project_id and made.project_id != own.project_id


async def test_the_model_receives_the_failure_of_a_delegate(pair: Pair) -> None:
    name = await pair.begin(Script(status=401))
    turn, view = await pair.turn("Ask.", Script(calls=(call(name, message="?"),)), Script(text="Sorry."))
    assert turn.status == COMPLETED
    assert error_of(view).code == conversation.TOOL_ERROR_CODE_EXECUTION_FAILED
    outcome, delegated = await pair.called(view)
    assert outcome.HasField("error") and delegated.status == conversation.TURN_STATUS_FAILED


async def test_a_delegate_that_takes_too_long_is_stopped(pair: Pair) -> None:
    endless = Script(text=" ".join(["word"] * 2000), delay_ms=20)
    name = await pair.begin(endless, retry={"timeout_ms": 700})
    turn, view = await pair.turn("Ask.", Script(calls=(call(name, message="?"),)), Script(text="Too slow."))
    assert turn.status == COMPLETED and error_of(view).code == conversation.TOOL_ERROR_CODE_TIMEOUT
    async with asyncio.timeout(60):
        await pair.guest.until_closed_early()


async def test_an_absent_agent_cannot_be_asked_until_it_is_created(
    client: Client, provider: Provider
) -> None:
    tool, name = await asking(client, "absent_yet")
    host = Scripted(client, provider, "openai")
    scripts = Script(calls=(call(name, message="?"),)), Script(text="No answer.")
    agent = await host.agent(*scripts, *scripts, tools=(tool,))
    turn, view = await client.turn(await client.open(agent), "Ask.")
    assert turn.status == COMPLETED
    assert error_of(view).code == conversation.TOOL_ERROR_CODE_NOT_FOUND
    await client.agent("absent_yet", "wonder/std/assistant")
    _, view = await client.turn(await client.open(agent), "Ask.")
    assert "tool.completed" in view.names


async def test_bad_input_never_reaches_the_agent(pair: Pair) -> None:
    name = await pair.begin(Script(text="Yes."))
    wrong = (call(name, message=7), call(name, message="?", invocation_mode="both"))
    turn, view = await pair.turn(
        "Ask.", *(Script(calls=(each,)) for each in wrong), Script(calls=(call(name, message="?"),)),
        Script(text="Yes, they say."),
    )  # fmt: skip
    assert turn.status == COMPLETED and turn.issues.tool_failures == 2
    codes = [e.tool_failed.tool_result.error.code for e in view.events if e.name == "tool.failed"]
    assert codes == [conversation.TOOL_ERROR_CODE_INVALID_INPUT] * 2
    assert len(pair.guest.requests) == 1


# --- how deep ---------------------------------------------------------------------------------------


async def test_a_cycle_of_agent_calls_is_refused(client: Client, provider: Provider) -> None:
    """The host asks the guest, who asks the host."""
    back, back_name = await asking(client, "circle_host")
    guest = Scripted(client, provider, "anthropic")
    guest_scripts = Script(calls=(call(back_name, message="You?"),)), Script(text="Then I say three.")
    guest_name = await guest.agent(*guest_scripts, tools=(back,))
    tool, name = await asking(client, guest_name)
    host = Scripted(client, provider, "openai")
    scripts = Script(calls=(call(name, message="Two?"),)), Script(text="Three, then.")
    persona = await host.agent(*scripts, tools=(tool,))
    await client.agent("circle_host", f"e2e/scripted/{persona}")
    turn, view = await client.turn(await client.open("circle_host"), "Ask.")
    assert turn.status == COMPLETED and view.text() == "Three, then."
    refused = json.dumps(guest.requests[1])
    assert "PERMISSION_DENIED" in refused and "cycle" in refused
    assert len(host.requests) == 2


async def test_a_persona_says_how_deep_agents_may_call_agents(client: Client, provider: Provider) -> None:
    last = await Scripted(client, provider, "openai").agent(Script(text="Never."))
    deeper, deeper_name = await asking(client, last)
    middle = Scripted(client, provider, "anthropic")
    middle_scripts = Script(calls=(call(deeper_name, message="Deeper?"),)), Script(text="No deeper.")
    tool, name = await asking(client, await middle.agent(*middle_scripts, tools=(deeper,)))
    host = Scripted(client, provider, "openai")
    scripts = Script(calls=(call(name, message="Deep?"),)), Script(text="So deep.")
    agent = await constrained(host, *scripts, tools=(tool,), max_delegation_depth=1)
    turn, _ = await client.turn(await client.open(agent), "Go.")
    assert turn.status == COMPLETED
    assert "PERMISSION_DENIED" in json.dumps(middle.requests[1]) and "No deeper." in json.dumps(
        host.requests[1]
    )


# --- loop in ----------------------------------------------------------------------------------------


async def test_two_agents_debate_three_rounds_before_everyone(pair: Pair) -> None:
    views = [Script(text=f"Guest's view {n}.") for n in (1, 2, 3)]
    name = await pair.begin(*views, invocation_mode="loop_in")
    rounds = [
        Script(text=f"Host's view {n}." if n else "", calls=(call(name, message=f"Round {n + 1}"),))
        for n in range(3)
    ]
    turn, view = await pair.turn("Debate: tabs or spaces?", *rounds, Script(text="We agree."))
    assert turn.status == COMPLETED, turn.error
    assert [m.content for m in await pair.client.messages(pair.conv)] == [
        "Debate: tabs or spaces?",
        "Round 1", "Guest's view 1.", "Host's view 1.",
        "Round 2", "Guest's view 2.", "Host's view 2.",
        "Round 3", "Guest's view 3.", "We agree.",
    ]  # fmt: skip
    # The guest receives the history, joins once and stays. The calling agent learns that it stays.
    assert "Debate: tabs or spaces?" in json.dumps(pair.guest.requests[0])
    assert "Host's view 2." in json.dumps(pair.guest.requests[2])
    assert view.names.count("participant.joined") == 1
    (joined,) = (e.participant_joined for e in view.events if e.participant_joined.agent.name)
    assert joined.origin == conversation.PARTICIPANT_ORIGIN_LOOPED_IN
    assert joined.added_by.agent.turn_id == turn.id
    host_prompt = json.dumps(pair.host.requests[1])
    assert "Guest's view 1." in host_prompt and "joined" in host_prompt and "stays until" in host_prompt
    asked, _ = await pair.client.turn(pair.conv, f"@{pair.guest_name} are you there?")
    assert asked.agent_id == joined.agent.agent_id
    await removed_hears_nothing(pair, joined.agent.agent_id)


async def removed_hears_nothing(pair: Pair, guest: str) -> None:
    """Remove the guest; it then receives no requests and cannot be addressed."""
    client, guest_requests = pair.client, len(pair.guest.requests)
    removal = pb.RemoveParticipantRequest(conversation_id=pair.conv, agent_id=guest)
    left = (await client.conversations.RemoveParticipant(removal)).conversation
    assert guest not in [person.agent.agent_id for person in left.participants]
    send = pb.ConverseSend(content="And now?", agent_id=guest)
    asked = client.conversations.SendMessage(pb.SendMessageRequest(conversation_id=pair.conv, send=send))
    assert (await rejected(asked))[0] == "AGENT_NOT_FOUND"
    # A message with its name, or a reply to it, goes to another agent.
    turn, _ = await client.turn(pair.conv, f"@{pair.guest_name} are you still there?")
    said = [message.id for message in await client.messages(pair.conv) if message.author == guest]
    send = pb.ConverseSend(content="What did you mean?", reply_to_message_id=said[-1])
    request = pb.SendMessageRequest(conversation_id=pair.conv, send=send)
    reply = (await client.conversations.SendMessage(request)).turn
    await client.settled(pair.conv, reply.id)
    assert guest not in (turn.agent_id, reply.agent_id) and len(pair.guest.requests) == guest_requests
    events = await client.events(pair.conv)
    (gone,) = (event for event in events if event.name == "participant.left")
    assert gone.participant_left.agent.agent_id == guest
    later = [e.conversation_turn.agent_id for e in events[gone.sequence :] if e.name == "conversation_turn"]
    assert len(later) == 2 and guest not in later


async def test_the_model_may_choose_the_mode_of_a_call(pair: Pair) -> None:
    name = await pair.begin(Script(text="Here I am."))
    turn, view = await pair.turn(
        "Bring them in.",
        Script(calls=(call(name, message="Join us.", invocation_mode="loop_in"),)),
        Script(text="They are here."),
    )
    assert turn.status == COMPLETED
    assert "Here I am." in [m.content for m in await pair.client.messages(pair.conv)]
    (outcome, _) = await pair.called(view)
    assert outcome.mode == LOOP_IN
    assert '"invocation_mode": {"type": "string", "enum": ["delegate", "loop_in"]' in json.dumps(
        pair.host.requests[0]
    )
    # The invocation mode is in the list of calls that run, and not in the message to the called agent.
    _, _, message = pair.guest.requests[0]["messages"][-1]["content"].partition("[Message]\n")
    assert message.endswith("Join us.") and "invocation_mode" not in message


# --- what tools may do, and how often they are tried ------------------------------------------------


async def test_an_action_that_the_persona_does_not_allow_is_not_run(
    client: Client, provider: Provider
) -> None:
    await prepared(client)
    host = Scripted(client, provider, "openai")
    calls = (call("quick", text="fine"), call("slow_task", text="not fine"), call("research", topic="x"))
    agent = await constrained(
        host,
        Script(calls=calls),
        Script(text="Only the first."),
        tools=using("quick", "slow_task", "research"),
        allowed_actions=["context", "memory.*"],
    )
    turn, view = await client.turn(await client.open(agent), "Try.")
    assert turn.status == COMPLETED and turn.issues.tool_failures == 2
    errors = [e.tool_failed.tool_result.error for e in view.events if e.name == "tool.failed"]
    assert {each.code for each in errors} == {conversation.TOOL_ERROR_CODE_PERMISSION_DENIED}
    assert [word for each in errors for word in ("sleep", "assert") if word in each.message] == [
        "sleep",
        "assert",
    ]
    assert view.names.count("tool.dispatched") == 1


async def test_a_tool_that_times_out_twice_and_then_works(client: Client, provider: Provider) -> None:
    provider.script("stubborn", Script(stall="headers"), Script(stall="headers"), Script(text="At last."))
    profile = {"provider": "openai", "model": "stubborn", "format": "openai_chat"}
    request = {"model": "stubborn", "messages": [{"role": "user", "content": "?"}]}
    tool = {"target_type": "task", "target_id": "ask_stubborn",
            "retry": {"max_attempts": 3, "backoff_ms": 20, "timeout_ms": 600}}  # fmt: skip
    step = {
        "id": "ask",
        "action": {"kind": "llm", "config": {"request": request, "model_profile": profile}},
        "output_mapping": {"output.text": "result.text"},
    }
    documents = [
        {"name": "stubborn", "description": "Late.", "tool": tool},
        {"name": "ask_stubborn", "task": {"steps": [step]}},
    ]
    await client.apply("e2e/stubborn", "\n---\n".join(map(json.dumps, documents)))
    host = Scripted(client, provider, "anthropic")
    agent = await host.agent(
        Script(calls=(call("stubborn"),)), Script(text="It answered."), tools=("e2e/stubborn/stubborn",)
    )
    turn, view = await client.turn(await client.open(agent), "Ask.")
    assert turn.status == COMPLETED and not turn.issues.tool_failures
    (completed,) = (e.tool_completed for e in view.events if e.name == "tool.completed")
    assert completed.tool_result.attempts == 3 and completed.duration_ms >= 1200
    assert "At last." in json.dumps(host.requests[1])
    assert sum(seen.closed_early for seen in provider.requests if seen.model == "stubborn") == 2
