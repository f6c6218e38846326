"""Accounts add up: per turn, conversation, run, agent and project, and to what the providers counted (M8)."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable
from pathlib import Path

import pytest

from tests.conformance.models.subjects import KEY
from tests.e2e.client import Client, struct
from tests.e2e.process import serving
from tests.e2e.scripted import Scripted
from tests.fakes.provider import Call, Provider, Script
from wonder.v1 import common_pb2 as common
from wonder.v1 import conversation_pb2 as conversation
from wonder.v1 import conversation_service_pb2 as pb
from wonder.v1 import coordinator_service_pb2 as runs
from wonder.v1 import library_service_pb2 as library
from wonder.v1 import run_pb2

pytestmark = pytest.mark.asyncio(loop_scope="session")

COUNTED = (
    "input_tokens", "output_tokens", "model_calls", "cached_input_tokens", "cache_write_input_tokens",
    "reasoning_tokens",
)  # fmt: skip
PRICED = "gpt-4o-mini"
SAID = "one two three"
SLOW = Script(text=" ".join(["word"] * 2000), delay_ms=20)

WORK = """
name: ask
task:
  steps:
    - id: ask
      action: {kind: llm, max_attempts: 2, backoff_ms: 1}
      input_mapping:
        model_profile: '{"provider": "openai", "model": "MODEL", "format": "openai_chat"}'
        request: '{"model": "MODEL", "messages": [{"role": "user", "content": "And?"}]}'
      output_mapping: {output.text: result.text}
---
name: inner
workflow: {nodes: [{id: ask, task_id: ask}]}
---
name: work
workflow:
  nodes:
    - {id: first, task_id: ask}
    - {id: below, workflow_id: inner}
    - id: agent
      agent_id: AGENT
      invocation_mode: delegate
      input_mapping: {question: "'What is it?'"}
      output_mapping: {output.turn_id: result.turn_id}
  transitions:
    - {from_node_id: first, to_node_id: below}
    - {from_node_id: below, to_node_id: agent}
"""


def counts(usage: common.Usage) -> list[int]:
    return [getattr(usage, name) for name in COUNTED]


def total(usages: Iterable[common.Usage]) -> list[int]:
    return [sum(each) for each in zip(*map(counts, usages), strict=True)]


async def of_turn(client: Client, turn_id: str) -> common.Usage:
    return (await client.conversations.GetTurn(pb.GetTurnRequest(turn_id=turn_id))).turn.usage


async def of_agent(client: Client, name: str) -> common.Usage:
    return (await client.library.GetAgent(library.GetAgentRequest(agent_id=name))).agent.usage


async def of_project(client: Client) -> common.Usage:
    request = library.GetProjectRequest(project_id="default")
    return (await client.library.GetProject(request)).project.usage


async def of_run(client: Client, run_id: str) -> common.Usage:
    return (await client.coordinator.GetRun(runs.GetRunRequest(run_id=run_id))).run.usage


async def start_run(client: Client, workflow: str) -> str:
    request = runs.StartRunRequest(workflow_id=workflow, input=struct())
    return str((await client.coordinator.StartRun(request)).run.id)


async def end_run(client: Client, run_id: str) -> run_pb2.Run:
    async with asyncio.timeout(60):
        async for _ in client.coordinator.WatchRun(runs.WatchRunRequest(run_id=run_id)):
            pass
    return (await client.coordinator.GetRun(runs.GetRunRequest(run_id=run_id))).run


async def test_accounts_add_up_to_what_the_provider_counted_across_a_kill(
    provider: Provider, data: Path
) -> None:
    environment = {"OPENAI_API_KEY": KEY, "WONDER_OPENAI_BASE_URL": f"{provider.url}/v1"}
    before = len(provider.requests)
    async with serving(data, environment=environment) as first, first.client() as client:
        expert = Scripted(client, provider, "openai")
        expert_name = await expert.agent(Script(text=SAID), tools=())
        tool = {"target_type": "agent", "target_id": expert_name, "description": "Asks the expert."}
        await client.apply("e2e/accounts", json.dumps({"name": "ask_expert", "tool": tool}))
        call = Call(name="ask_expert", arguments='{"message": "What is it?"}')
        notes = Script(text='[{"content": "Ann likes tea."}]')
        caller = Scripted(client, provider, "openai")
        caller_name = await caller.agent(
            Script(calls=(call,)), Script(text=SAID), notes,
            tools=("e2e/accounts/ask_expert",), extraction="",
        )  # fmt: skip
        conv = await client.open(caller_name)
        turn, _ = await client.turn(conv, "My name is Ann, and I like tea.")
        assert turn.status == conversation.TURN_STATUS_COMPLETED
        # Two calls of the caller, one of the expert, one of the extraction.
        usage = await of_turn(client, turn.id)
        assert usage.model_calls == len(provider.requests) - before == 4
        provider.script("accounts-run", Script(text=SAID), SLOW, Script(text=SAID))
        document = WORK.replace("MODEL", "accounts-run").replace("AGENT", expert_name)
        await client.apply("e2e/accounts", document)
        run_id = await start_run(client, "e2e/accounts/work")
        # The call of the child run is in progress.
        await provider.wait_until(lambda: len(provider.of("accounts-run")) == 2)
        assert (await of_run(client, run_id)).cost_unknown == 2
        await first.kill()
    async with serving(data, environment=environment) as second, second.client() as client:
        run = await end_run(client, run_id)
        assert run.status == run_pb2.RUN_STATUS_COMPLETED, run.error
        asked = provider.of("accounts-run")
        assert len(asked) == 3
        # Three calls of `llm` actions and one of the agent.
        assert run.usage.model_calls == 4
        assert run.usage.cost_unknown == 4 and not run.usage.HasField("cost_micros")
        seen = len(provider.requests) - before
        turns = [await of_turn(client, turn.id)]
        whole = await of_project(client)
        assert whole.model_calls == seen == 8
        assert counts(whole) == total([*turns, run.usage])
        # The expert's turns: one below the turn, one below the run.
        caller_usage, expert_usage = await of_agent(client, caller_name), await of_agent(client, expert_name)
        assert counts(caller_usage) == total(turns)
        request = pb.GetConversationRequest(conversation_id=conv)
        found = (await client.conversations.GetConversation(request)).conversation.usage
        assert found == turns[0]
        events = await client.events(conv)
        called = [e.agent_call_completed.turn_id for e in events if e.HasField("agent_call_completed")]
        called.append(run.output["turn_id"])
        own = [await of_turn(client, each) for each in called]
        assert counts(expert_usage) == total(own) and expert_usage.model_calls == len(expert.requests) == 2
        # Deletions do not reduce what was spent.
        await client.conversations.DeleteConversation(pb.DeleteConversationRequest(conversation_id=conv))
        assert await of_project(client) == whole


async def test_a_run_is_charged_also_if_it_is_cancelled_during_a_call(
    client: Client, provider: Provider
) -> None:
    provider.script("cancelled-run", SLOW)
    expert = await Scripted(client, provider, "openai").agent(Script(text=SAID), tools=())
    document = WORK.replace("MODEL", "cancelled-run").replace("AGENT", expert)
    await client.apply("e2e/cancelled", document)
    run_id = await start_run(client, "e2e/cancelled/work")
    await provider.wait_until(lambda: len(provider.of("cancelled-run")) == 1)
    await client.coordinator.CancelRun(runs.CancelRunRequest(run_id=run_id))
    await end_run(client, run_id)
    async with asyncio.timeout(60):
        await provider.wait_until(lambda: provider.of("cancelled-run")[0].closed_early)
    assert (await of_run(client, run_id)).model_calls == 1


async def test_the_model_calls_of_a_tools_run_are_in_the_accounts_of_turn_and_run(
    client: Client, provider: Provider
) -> None:
    provider.script("tool-run", Script(text=SAID))
    tools = """
name: ask_work
tool: {target_type: workflow, target_id: inner, description: Asks., input_schema: {type: object}}
"""
    document = WORK[: WORK.index("---\nname: work")].replace("MODEL", "tool-run")
    await client.apply("e2e/toolrun", f"{document}---{tools}")
    scripted = Scripted(client, provider, "openai")
    call = Call(name="ask_work", arguments="{}")
    agent = await scripted.agent(Script(calls=(call,)), Script(text="Done."), tools=("e2e/toolrun/ask_work",))
    before = await of_project(client)
    conv = await client.open(agent)
    turn, _ = await client.turn(conv, "Ask.")
    usage = await of_turn(client, turn.id)
    assert usage.model_calls == 3
    listed = runs.ListRunsRequest(conversation_id=conv, include_children=True)
    found = await client.coordinator.ListRuns(listed)
    (run_id,) = [each.id for each in found.runs if "inner" in each.workflow]
    in_run = await of_run(client, run_id)
    assert in_run.model_calls == 1 and 0 < in_run.output_tokens < usage.output_tokens
    after = await of_project(client)
    assert counts(after) == total([before, usage])


@pytest.mark.parametrize(("rule", "completes"), [("count", True), ("refuse", False), ("free", True)])
async def test_a_cost_budget_holds_for_a_model_without_a_price_as_the_operator_sets(
    provider: Provider, data: Path, rule: str, completes: bool
) -> None:
    environment = {
        "OPENAI_API_KEY": KEY,
        "WONDER_OPENAI_BASE_URL": f"{provider.url}/v1",
        "WONDER_UNKNOWN_COST": rule,
        **({"WONDER_FALLBACK_PRICE": "1000/1000"} if rule == "count" else {}),
    }
    async with serving(data, environment=environment) as server, server.client() as client:
        scripted = Scripted(client, provider, "openai")
        limits = {"max_cost_micros_per_turn": 1}
        agent = await scripted.agent(Script(text=SAID), tools=(), limits=limits)
        conv = await client.open(agent)
        turn, _ = await client.turn(conv, "Count.")
        usage = turn.usage
        if completes:
            assert turn.status == conversation.TURN_STATUS_COMPLETED
            assert len(scripted.requests) == 1 and usage.cost_unknown == usage.model_calls == 1
        else:
            assert turn.status == conversation.TURN_STATUS_FAILED
            assert turn.error.reason == "COST_UNKNOWN" or turn.error.reason == 85
            assert scripted.requests == [] and usage.model_calls == 0
        # The cost by the fallback price counts towards the budget, and is not shown as known.
        assert not usage.HasField("cost_micros") or rule == "refuse"
        free = await scripted.agent(Script(text=SAID), tools=())
        other, _ = await client.turn(await client.open(free), "Count.")
        assert other.status == conversation.TURN_STATUS_COMPLETED
