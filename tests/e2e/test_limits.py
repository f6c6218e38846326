"""Costs, budgets and the context window, from the client's side (features B4, B10, B12, C6, D6)."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from google.protobuf.field_mask_pb2 import FieldMask
from google.protobuf.json_format import MessageToDict

from tests.conformance.models.subjects import KEY
from tests.e2e.background import asking
from tests.e2e.client import Client
from tests.e2e.process import serving
from tests.e2e.scripted import PROVIDERS, Scripted
from tests.fakes.provider import Call, Provider, Script
from tests.rpc.rpc_kit import rejected
from wonder.v1 import common_pb2 as common
from wonder.v1 import conversation_pb2 as conversation
from wonder.v1 import conversation_service_pb2 as pb
from wonder.v1 import errors_pb2

pytestmark = pytest.mark.asyncio(loop_scope="session")

COMPLETED, FAILED = conversation.TURN_STATUS_COMPLETED, conversation.TURN_STATUS_FAILED
EXHAUSTED = errors_pb2.ERROR_REASON_BUDGET_EXHAUSTED
RECALL = Call(name="recall", arguments='{"query": "tea"}')
AGAIN = Script(text="Again.", calls=(RECALL,))


@pytest.fixture
def scripted(client: Client, provider: Provider) -> Scripted:
    return Scripted(client, provider, "openai")


async def conversation_of(client: Client, conv: str) -> conversation.Conversation:
    request = pb.GetConversationRequest(conversation_id=conv)
    return (await client.conversations.GetConversation(request)).conversation


# --- what it costs ----------------------------------------------------------------------------------


async def test_a_model_with_a_price_has_a_cost_and_one_without_has_none(scripted: Scripted) -> None:
    client = scripted.client
    agent = await scripted.agent(AGAIN, Script(text="Done."), model="gpt-4o-mini")
    conv = await client.open(agent)
    turn, _ = await client.turn(conv, "What is it?")
    moves = await client.moves(turn.id, conv)
    assert turn.usage.model_calls == 2 and turn.usage.HasField("cost_micros")
    assert turn.usage.cost_micros == sum(move.usage.cost_micros for move in moves) > 0
    assert (await conversation_of(client, conv)).usage == turn.usage
    agent = await scripted.agent(Script(text="Done."))
    conv = await client.open(agent)
    turn, _ = await client.turn(conv, "What is it?")
    assert turn.usage.input_tokens and not turn.usage.HasField("cost_micros")
    assert not (await conversation_of(client, conv)).usage.HasField("cost_micros")


async def test_the_built_in_model_costs_nothing_and_says_so(client: Client) -> None:
    conv = await client.open()
    turn, _ = await client.turn(conv, "say 3 words")
    assert turn.usage.HasField("cost_micros") and turn.usage.cost_micros == 0


ASKING = """
name: think_{model}
description: Thinks about it.
tool: {{target_type: {kind}, target_id: {target}_{model}}}
---
name: thoughts_{model}
workflow: {{nodes: [{{id: inside, workflow_id: inner_{model}}}]}}
---
name: inner_{model}
workflow: {{nodes: [{{id: ask, task_id: ask_{model}}}]}}
---
name: ask_{model}
task:
  steps:
    - id: ask
      action:
        kind: llm
        config:
          request: {{model: {model}, messages: [{{role: user, content: "?"}}]}}
          model_profile: {{provider: openai, model: {model}, format: openai_chat}}
"""


@pytest.mark.parametrize(("kind", "target"), [("task", "ask"), ("workflow", "thoughts")])
async def test_what_a_tool_asks_of_models_is_its_turns_to_pay(
    client: Client, provider: Provider, kind: str, target: str
) -> None:
    model = f"asked-by-a-{kind}"
    provider.script(model, Script(text="A long thought."))
    documents = ASKING.format(model=model, kind=kind, target=target)
    await client.apply("e2e/asking_models", documents)
    scripted = Scripted(client, provider, "openai")
    calls = Script(calls=(Call(name=f"think_{model}", arguments="{}"),))
    agent = await scripted.agent(calls, Script(text="So."), tools=(f"e2e/asking_models/think_{model}",))
    conv = await client.open(agent)
    turn, _ = await client.turn(conv, "Think.")
    own = [move.usage for move in await client.moves(turn.id, conv)]
    assert turn.status == COMPLETED and len(own) == 2
    assert turn.usage.model_calls == 3
    assert turn.usage.output_tokens > sum(usage.output_tokens for usage in own)
    assert (await conversation_of(client, conv)).usage == turn.usage


# --- limits -----------------------------------------------------------------------------------------


async def test_the_model_learns_the_token_limit_before_it_is_enforced(scripted: Scripted) -> None:
    client = scripted.client
    conv = await client.open(await scripted.agent(AGAIN, limits={"max_tokens_per_turn": 900}))
    turn, view = await client.turn(conv, "Go on and on.")
    assert turn.status == FAILED and turn.error.reason == EXHAUSTED
    reached = [e.limit_reached for e in view.events if e.name == "limit.reached"]
    assert [each.enforced for each in reached] == [False, True]
    assert dict(turn.error.metadata)["budget"] == "tokens" and turn.error.metadata["limit"] == "900"
    last: Any = scripted.requests[-1]
    assert last["tool_choice"] == "none" and "Do not call tools" in last["messages"][-1]["content"]
    assert len(await client.moves(turn.id, conv)) == len(scripted.requests)


async def test_a_conversation_that_has_spent_everything_takes_no_message(scripted: Scripted) -> None:
    client = scripted.client
    budget = common.Budget(max_tokens=10)
    conv = await client.open(await scripted.agent(Script(text="Yes.")), budget=budget)
    assert (await conversation_of(client, conv)).budget == budget
    turn, _ = await client.turn(conv, "Is it?")
    assert turn.status == COMPLETED
    reason, details = await rejected(client.say(conv, "And that?"))
    assert reason == "BUDGET_EXHAUSTED", details


async def revised(client: Client, conv: str, budget: common.Budget | None) -> conversation.Conversation:
    change = conversation.Conversation(id=conv, budget=budget)
    request = pb.UpdateConversationRequest(conversation=change, update_mask=FieldMask(paths=["budget"]))
    return (await client.conversations.UpdateConversation(request)).conversation


async def test_the_budget_of_a_conversation_can_be_changed(scripted: Scripted) -> None:
    client = scripted.client
    conv = await client.open(await scripted.agent(AGAIN, AGAIN, Script(text="Yes.")))
    turn, _ = await client.turn(conv, "Is it?")
    spent = turn.usage.input_tokens + turn.usage.output_tokens
    budget = common.Budget(max_tokens=spent)
    assert (await revised(client, conv, budget)).budget == budget
    assert (await rejected(client.say(conv, "And that?")))[0] == "BUDGET_EXHAUSTED"
    # A little more allows one call, and the server tells the model so.
    await revised(client, conv, common.Budget(max_tokens=spent + 10))
    turn, view = await client.turn(conv, "And that?")
    assert turn.status == COMPLETED
    assert [e.limit_reached.enforced for e in view.events if e.name == "limit.reached"] == [False]
    assert not (await revised(client, conv, None)).HasField("budget")
    turn, _ = await client.turn(conv, "And now?")
    assert turn.status == COMPLETED
    names = [event.name for event in await client.events(conv)]
    assert names.count("conversation.updated") == 3
    refusal = revised(client, conv, common.Budget(max_duration_ms=-1))
    assert (await rejected(refusal)) == ("FIELD_INVALID", ["conversation.budget.max_duration_ms"])


async def test_a_budget_below_nothing_is_refused(client: Client) -> None:
    reason, _ = await rejected(client.open(budget=common.Budget(max_cost_micros=-1)))
    assert reason == "FIELD_INVALID"


async def test_a_service_limits_what_its_call_spends(scripted: Scripted) -> None:
    agent = await scripted.agent(AGAIN)
    request = pb.CallAgentRequest(agent_id=agent, budget=common.Budget(max_tokens=900))
    request.input.string_value = "Go on and on."
    answer = await scripted.client.conversations.CallAgent(request)
    assert answer.turn.error.reason == EXHAUSTED and answer.HasField("error")
    request.budget.max_tokens = -1
    assert (await rejected(scripted.client.conversations.CallAgent(request)))[0] == "FIELD_INVALID"


async def test_a_delegate_spends_what_its_caller_has_left(client: Client, provider: Provider) -> None:
    guest, host = Scripted(client, provider, "anthropic"), Scripted(client, provider, "openai")
    tool, name = await asking(client, await guest.agent(AGAIN))
    question = Script(calls=(Call(name=name, arguments='{"message": "What is it?"}'),))
    agent = await host.agent(
        question, Script(text="No."), tools=(tool,), limits={"max_tokens_per_turn": 2_000}
    )
    conv = await client.open(agent)
    turn, view = await client.turn(conv, "Ask.")
    (call,) = (e.agent_call_completed for e in view.events if e.name == "agent_call_completed")
    called = (await client.conversations.GetTurn(pb.GetTurnRequest(turn_id=call.turn_id))).turn
    assert called.error.reason == EXHAUSTED and int(called.error.metadata["limit"]) < 2_000
    # What it spent is its caller's too, although it failed.
    own = sum(move.usage.input_tokens for move in await client.moves(turn.id, conv))
    assert turn.usage.input_tokens == own + called.usage.input_tokens
    assert (await conversation_of(client, conv)).usage == turn.usage
    assert turn.status == COMPLETED


async def test_the_time_of_a_turn_ends_it(scripted: Scripted) -> None:
    client = scripted.client
    agent = await scripted.agent(Script(text="one two", stall="chunks"), limits={"max_turn_ms": 400})
    conv = await client.open(agent)
    turn, _ = await client.turn(conv, "Take your time.")
    assert turn.status == FAILED and turn.error.reason == EXHAUSTED
    assert turn.error.metadata["budget"] == "time"
    took = turn.complete_time.ToMilliseconds() - turn.create_time.ToMilliseconds()
    assert 400 <= took < 2_000
    await scripted.until_closed_early()


async def test_a_kill_gives_a_turn_no_more_time(provider: Provider, data: Path) -> None:
    environment = {"OPENAI_API_KEY": KEY, "WONDER_OPENAI_BASE_URL": f"{provider.url}/v1"}
    async with serving(data, environment=environment) as first:
        async with first.client() as client:
            scripted = Scripted(client, provider, "openai")
            agent = await scripted.agent(Script(stall="headers"), limits={"max_turn_ms": 1_500})
            conv = await client.open(agent)
            said = await client.say(conv, "Take your time.")
            await provider.wait_until(lambda: any(s.model == scripted.model for s in provider.requests))
        await first.kill()
    async with serving(data, environment=environment) as second, second.client() as client:
        view = await client.settled(conv, said.turn.id)
        assert view.names[-1] == "turn.failed"
        error = view.events[-1].turn_failed.error
        assert error.reason == EXHAUSTED and error.metadata["budget"] == "time"


# --- the context window -----------------------------------------------------------------------------


def prompt_of(request: Any) -> str:
    return json.dumps(request["messages"])


async def test_a_long_conversation_keeps_its_newest_messages_and_says_so(scripted: Scripted) -> None:
    client = scripted.client
    window: dict[str, object] = {"keep_recent_messages": 2}
    agent = await scripted.agent(
        Script(text="Fine. " + "y" * 600), window=window, tools=(), context_window_tokens=1_000
    )
    conv = await client.open(agent)
    for number in range(4):
        turn, view = await client.turn(conv, f"number {number}: " + "x" * 600)
        assert turn.status == COMPLETED
    reduced = [e.context_reduced for e in view.events if e.name == "context.reduced"]
    assert reduced and reduced[-1].messages_left_out > 0 and not reduced[-1].summarized
    assert reduced[-1].tokens_after < reduced[-1].tokens_before
    last = prompt_of(scripted.requests[-1])
    assert "number 0" not in last and "number 3" in last
    assert f"{reduced[-1].messages_left_out} older messages are left out" in last


async def test_older_messages_are_summed_up_once(scripted: Scripted) -> None:
    client = scripted.client
    window: dict[str, object] = {"strategy": "summarize", "keep_recent_messages": 2}
    agent = await scripted.agent(
        Script(text="Fine. " + "y" * 600), window=window, tools=(), context_window_tokens=1_000
    )
    conv = await client.open(agent)
    for number in range(3):
        turn, _ = await client.turn(conv, f"number {number}: " + "x" * 600)
        assert turn.status == COMPLETED
    assert len(scripted.requests) == 3 + 1
    asked, then = scripted.requests[-2:]
    assert "Sum it up" in prompt_of(asked) and "number 0" in prompt_of(asked)
    assert "What the conversation was about before:" in prompt_of(then) and "number 0" not in prompt_of(then)
    events = await client.events(conv)
    (reduced,) = [e.context_reduced for e in events if e.name == "context.reduced"]
    assert reduced.summarized and reduced.messages_left_out == 2
    assert turn.usage.model_calls == 2


async def test_a_summary_that_a_kill_interrupts_is_made_again_and_once(
    provider: Provider, data: Path
) -> None:
    environment = {"OPENAI_API_KEY": KEY, "WONDER_OPENAI_BASE_URL": f"{provider.url}/v1"}
    window: dict[str, object] = {"strategy": "summarize", "keep_recent_messages": 2}
    long = Script(text="Fine. " + "y" * 600)
    async with serving(data, environment=environment) as first:
        async with first.client() as client:
            scripted = Scripted(client, provider, "openai")
            scripts = long, long, Script(stall="headers"), Script(text="It was about x."), long
            agent = await scripted.agent(*scripts, window=window, tools=(), context_window_tokens=1_000)
            conv = await client.open(agent)
            for number in range(2):
                await client.turn(conv, f"number {number}: " + "x" * 600)
            said = await client.say(conv, "number 2: " + "x" * 600)
            await provider.wait_until(lambda: len(scripted.requests) == 3)
        await first.kill()
    async with serving(data, environment=environment) as second, second.client() as client:
        view = await client.settled(conv, said.turn.id)
        assert view.names[-1] == "turn.completed"
        (reduced,) = [e.context_reduced for e in view.events if e.name == "context.reduced"]
        assert reduced.summarized and reduced.messages_left_out == 2
    assert len(scripted.requests) == 5
    assert "It was about x." in prompt_of(scripted.requests[-1])


async def test_a_request_that_is_too_long_for_the_provider_is_sent_once_more_with_less(
    scripted: Scripted,
) -> None:
    client = scripted.client
    too_long = Script(
        status=400,
        error="This model's maximum context length is 8 tokens",
        error_code="context_length_exceeded",
    )
    agent = await scripted.agent(
        Script(text="One."), Script(text="Two."), too_long, Script(text="Three."), too_long, tools=()
    )
    conv = await client.open(agent)
    for text in ("first " + "x" * 300, "second " + "y" * 300):
        await client.turn(conv, text)
    turn, view = await client.turn(conv, "third")
    assert turn.status == COMPLETED and view.text().endswith("Three.")
    cut = "bytes are left out here"
    assert cut not in prompt_of(scripted.requests[2]) and cut in prompt_of(scripted.requests[3])
    turn, view = await client.turn(conv, "fourth")
    assert turn.status == FAILED and "longer than" in turn.error.message
    assert [e.name for e in view.events].count("context.reduced") == 2


# --- previews ---------------------------------------------------------------------------------------


async def preview(client: Client, conv: str, text: str, **fields: Any) -> pb.PreviewContextResponse:
    send = pb.ConverseSend(content=text, **fields)
    request = pb.PreviewContextRequest(conversation_id=conv, send=send)
    answer: pb.PreviewContextResponse = await client.conversations.PreviewContext(request)
    return answer


def at(request: Any, pointer: str) -> Any:
    for key in pointer.split("/")[1:]:
        request = request[int(key) if isinstance(request, list) else key]
    return request


@pytest.mark.parametrize("speaks", [name for name in PROVIDERS if name != "litellm"])
async def test_a_preview_is_what_is_sent_and_says_where_it_is_from(
    client: Client, provider: Provider, speaks: str
) -> None:
    scripted = Scripted(client, provider, speaks)
    agent = await scripted.agent(Script(text="Noted."), Script(text="Teal."))
    conv = await client.open(agent)
    first, _ = await client.turn(conv, "My colour is teal.")
    before = await client.events(conv)
    shown = await preview(client, conv, "What is my colour?")
    assert await client.events(conv) == before and len(scripted.requests) == 1
    assert (shown.model, shown.context_window_tokens) == (scripted.model, 0)
    assert shown.workflow.startswith("wonder/std/assemble_context@") and shown.input_tokens > 0
    request = MessageToDict(shown.request)
    sources = {}
    for block in shown.blocks:
        assert block.excerpt in at(request, block.path), block
        sources.setdefault(pb.ContextSource.Name(block.source).removeprefix("CONTEXT_SOURCE_"), block)
    assert {"PERSONA", "TURN", "TOOL", "MESSAGE"} <= set(sources)
    assert sources["TURN"].source_id == first.id and sources["MESSAGE"].excerpt == "What is my colour?"
    await client.turn(conv, "What is my colour?")
    sent: Any = dict(scripted.requests[-1])
    for key, value in request.items():
        assert sent.get(key, value) == value


async def test_a_preview_of_memories_names_them(client: Client, scripted: Scripted) -> None:
    fact = Call(name="remember", arguments='{"fact": "The user likes tea."}')
    agent = await scripted.agent(Script(calls=(fact,)), Script(text="Kept."))
    conv = await client.open(agent)
    await client.turn(conv, "I like tea.")
    shown = await preview(client, conv, "What do I like? tea?")
    memories = [block for block in shown.blocks if block.source == pb.CONTEXT_SOURCE_MEMORY]
    assert [block.source_id[:4] for block in memories] == ["mem_"]
    assert "The user likes tea." in memories[0].excerpt


async def test_a_preview_of_a_missing_agent_conversation_or_text_is_refused(client: Client) -> None:
    conv = await client.open()
    assert (await rejected(preview(client, conv, " ")))[0] == "FIELD_INVALID"
    assert (await rejected(preview(client, conv, "x", agent_id="absent")))[0] == "AGENT_NOT_FOUND"
    assert (await rejected(preview(client, "conv_nowhere", "x")))[0] == "CONVERSATION_NOT_FOUND"


WRITING = """
name: keeps
task:
  steps:
    - {id: write, action: {kind: memory.write}, input_mapping: {content: input.user_message}}
---
name: writing_assembly
workflow:
  nodes: [{id: keep, task_id: keeps, input_mapping: {user_message: input.user_message}}]
---
name: keeping
persona: {system_prompt: x, context_assembly_workflow_id: writing_assembly}
"""


async def test_a_preview_changes_nothing_even_if_the_assembly_would(client: Client) -> None:
    await client.apply("e2e/limits", WRITING)
    await client.agent("keeping", "e2e/limits/keeping")
    conv = await client.open("keeping")
    reason, _ = await rejected(preview(client, conv, "Keep this."))
    assert reason == "CONTEXT_ASSEMBLY_FAILED"
    assert await client.memories("keeping") == []


async def test_previews_run_side_by_side_with_turns(client: Client) -> None:
    conv = await client.open()
    shown, turn = await asyncio.gather(preview(client, conv, "one"), client.turn(conv, "say 2 words"))
    assert shown.request and turn[0].status == COMPLETED
