"""Accounts equal what the providers counted themselves: calls, each kind of token, and cost (feature M8)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
import pytest_asyncio

from tests.e2e.client import Client, struct
from tests.e2e.process import serving
from tests.fakes.provider import Call, Provider, RecordedRequest, Script, running_provider
from wonder.v1 import common_pb2 as common
from wonder.v1 import conversation_pb2 as conversation
from wonder.v1 import conversation_service_pb2 as pb
from wonder.v1 import coordinator_service_pb2 as runs
from wonder.v1 import library_service_pb2 as library
from wonder.v1 import run_pb2

pytestmark = pytest.mark.asyncio(loop_scope="session")

FORMATS = {
    "dear": "openai_chat",
    "cheap": "anthropic_messages",
    "spare": "gemini",
    "wordy": "openai_responses",
}
PRICES = {
    "dear": {"input": 50, "output": 400, "cached": 5, "cache_write": 60, "reasoning": 500},
    "cheap": {"input": 3, "output": 11, "cached": 1, "cache_write": 4, "reasoning": 13},
    "spare": {"input": 7, "output": 17, "cached": 2, "cache_write": 9, "reasoning": 19},
    "wordy": {"input": 23, "output": 29, "cached": 31, "cache_write": 37, "reasoning": 41},
}
"""Dollars for a million tokens, so millionths of a dollar for one."""
LONG = "x" * 600
LOOK = Call(name="recall", arguments='{"query": "tea"}')
ASK = Call(name="ask_expert", arguments='{"message": "What is it?"}')
THINK = Call(name="ask_model", arguments="{}")
NOTES = '{"operations": [{"op": "write", "content": "Ann likes tea."}]}'

LIBRARY = """
name: talks
model_profile: {provider: dear, model: talks, max_attempts: 2, context_window_tokens: 1000,
  fallbacks: [{provider: spare, model: stands-in}]}
---
name: alone
model_profile: {provider: dear, model: alone, max_attempts: 1}
---
name: notes
model_profile: {provider: cheap, model: notes}
---
name: expert
model_profile: {provider: wordy, model: expert, max_attempts: 1}
---
name: ann
persona:
  system_prompt: You are played by a script.
  model_profile_id: talks
  extraction_model_profile_id: notes
  summary_model_profile_id: notes
  tool_ids: [wonder/std/recall, ask_expert, ask_model]
  context_window: {strategy: summarize, keep_recent_messages: 2}
---
name: expert_persona
persona: {system_prompt: You know., model_profile_id: expert, memory_extraction_workflow_id: none}
---
name: loner
persona: {system_prompt: You wait., model_profile_id: alone, memory_extraction_workflow_id: none}
---
name: ask_expert
tool: {target_type: agent, target_id: expert, description: Asks., input_schema: {type: object}}
---
name: think
task:
  steps:
    - id: ask
      action: {kind: llm, max_attempts: 2, backoff_ms: 1}
      input_mapping:
        model_profile: '{"provider": "wordy", "model": "thinks", "format": "openai_responses"}'
        request: '{"model": "thinks", "input": [{"role": "user", "content": "And?"}]}'
      output_mapping: {output.text: result.text}
---
name: ask_model
tool: {target_type: task, target_id: think, description: Asks a model., input_schema: {type: object}}
---
name: work
workflow:
  nodes:
    - {id: first, task_id: think}
    - id: agent
      agent_id: expert
      invocation_mode: delegate
      input_mapping: {question: "'What is it?'"}
  transitions: [{from_node_id: first, to_node_id: agent}]
"""


@pytest_asyncio.fixture(loop_scope="session")
async def providers() -> AsyncIterator[dict[str, Provider]]:
    async with AsyncExitStack() as stack:
        yield {name: await stack.enter_async_context(running_provider()) for name in FORMATS}


@pytest_asyncio.fixture(loop_scope="session")
async def client(providers: dict[str, Provider], tmp_path: Path) -> AsyncIterator[Client]:
    file = tmp_path / "wonder.toml"
    file.write_text(
        "\n".join(
            f'[[providers]]\nname = "{name}"\nformat = "{format_name}"\nkey_env = "ANY_KEY"\n'
            f'base_url = "{providers[name].url}{"/v1" if format_name.startswith("openai") else ""}"\n'
            f"prices = {{{', '.join(f'{each} = {price}' for each, price in PRICES[name].items())}}}\n"
            for name, format_name in FORMATS.items()
        )
    )
    started = serving(tmp_path / "data", "--config", str(file), environment={"ANY_KEY": "sk-any"})
    async with started as server, server.client() as connected:
        await connected.apply("e2e/counts", LIBRARY)
        await connected.agent("expert", "e2e/counts/expert_persona")
        await connected.agent("ann", "e2e/counts/ann")
        await connected.agent("loner", "e2e/counts/loner")
        yield connected


def bill(name: str, request: RecordedRequest) -> list[int]:
    """Return calls, input, output, cached, written and reasoning tokens, and the cost of one request."""
    counts, price = request.counts, PRICES[name]
    if counts is None:
        return [1, 0, 0, 0, 0, 0, 0]
    cost = (
        (counts.input - counts.cached - counts.written) * price["input"]
        + counts.cached * price["cached"]
        + counts.written * price["cache_write"]
        + (counts.output - counts.reasoning) * price["output"]
        + counts.reasoning * price["reasoning"]
    )
    return [1, counts.input, counts.output, counts.cached, counts.written, counts.reasoning, cost]


def total(each: Iterable[list[int]]) -> list[int]:
    return [sum(column) for column in zip(*each, strict=True)] or [0] * 7


def billed(providers: dict[str, Provider], *models: str) -> list[int]:
    """Return what the providers counted for some models, or for all."""
    return total(
        bill(name, request)
        for name, provider in providers.items()
        for request in provider.requests
        if not models or request.model in models
    )


def account(usage: common.Usage) -> list[int]:
    assert usage.HasField("cost_micros") or not usage.model_calls
    return [
        usage.model_calls, usage.input_tokens, usage.output_tokens, usage.cached_input_tokens,
        usage.cache_write_input_tokens, usage.reasoning_tokens, usage.cost_micros,
    ]  # fmt: skip


async def of_conversation(client: Client, conv: str) -> common.Usage:
    request = pb.GetConversationRequest(conversation_id=conv)
    return (await client.conversations.GetConversation(request)).conversation.usage


async def of_agent(client: Client, name: str) -> common.Usage:
    return (await client.library.GetAgent(library.GetAgentRequest(agent_id=name))).agent.usage


async def of_project(client: Client) -> common.Usage:
    request = library.GetProjectRequest(project_id="default")
    return (await client.library.GetProject(request)).project.usage


async def run_work(client: Client) -> run_pb2.Run:
    request = runs.StartRunRequest(workflow_id="e2e/counts/work", input=struct())
    run_id = (await client.coordinator.StartRun(request)).run.id
    async with asyncio.timeout(60):
        async for _ in client.coordinator.WatchRun(runs.WatchRunRequest(run_id=run_id)):
            pass
    return (await client.coordinator.GetRun(runs.GetRunRequest(run_id=run_id))).run


async def test_a_mixed_load_costs_what_the_providers_counted(
    client: Client, providers: dict[str, Provider]
) -> None:
    dear, cheap, spare, wordy = (providers[name] for name in FORMATS)
    # Turns: a loop of tools, of a delegate and of a model; a busy provider, then one that is down.
    dear.script(
        "talks",
        Script(calls=(LOOK, ASK), scale=2),
        Script(calls=(THINK,), scale=3),
        Script(text=f"Tea. {LONG}", scale=5),
        Script(status=429),
        Script(text=f"Milk. {LONG}", scale=7),
        Script(status=503),
    )
    spare.script("stands-in", Script(text=f"From elsewhere. {LONG}", scale=11))
    # An extraction that works, one that says nonsense, one that is refused; a summary in between.
    cheap.script(
        "notes",
        Script(text=NOTES, scale=13),
        Script(text="Nothing?", scale=17),
        Script(text="It was about tea.", scale=19),
        Script(status=400),
    )
    wordy.script("expert", Script(text="Tea, of course.", scale=23))
    wordy.script("thinks", Script(status=500), Script(text="And so.", scale=29), Script(text="So.", scale=31))
    conv = await client.open("ann")
    for number, ends in enumerate(("completed", "failed", "failed")):
        turn, view = await client.turn(conv, f"number {number}: {LONG}")
        assert turn.status == conversation.TURN_STATUS_COMPLETED, turn.error
        assert view.of_turn(turn.id)[-1] == f"memory_extraction.{ends}"
    assert "context.reduced" in view.names and "model.switched" in view.names
    ours = ("talks", "stands-in", "notes", "expert", "thinks")
    assert account(await of_conversation(client, conv)) == billed(providers, *ours)
    assert account(await of_agent(client, "ann")) == billed(providers, *ours)
    assert account(await of_agent(client, "expert")) == billed(providers, "expert")

    # A call that the provider refuses fails its turn.
    dear.script("alone", Script(status=400), Script(stall="headers"))
    alone = await client.open("loner")
    failed, _ = await client.turn(alone, "Are you there?")
    assert failed.status == conversation.TURN_STATUS_FAILED

    before = billed(providers, "expert", "thinks")
    run = await run_work(client)
    assert run.status == run_pb2.RUN_STATUS_COMPLETED, run.error
    spent = [now - then for now, then in zip(billed(providers, "expert", "thinks"), before, strict=True)]
    assert account(run.usage) == spent and spent[0] == 2

    everything = billed(providers)
    assert account(await of_project(client)) == everything
    assert everything[0] == 18 and min(everything) > 0

    # One is cancelled before the provider has answered: what that will count is unknown, and is not left out.
    async with client.listening(alone) as listener:
        said = await client.say(alone, "Are you there now?")
        await dear.wait_until(lambda: len(dear.of("alone")) == 2)
        await client.conversations.CancelTurn(
            pb.CancelTurnRequest(conversation_id=alone, turn_id=said.turn.id)
        )
        await listener.until(lambda v: v.settled(said.turn.id))
    async with asyncio.timeout(20):
        await dear.wait_until(lambda: dear.of("alone")[1].closed_early)

    async with asyncio.timeout(60):
        # The charge follows the end of the turn.
        while not (lost := await of_conversation(client, alone)).input_tokens:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    whole = await of_project(client)
    assert lost.model_calls == 2 and lost.cost_unknown == 1 and not lost.output_tokens
    assert [whole.model_calls, whole.input_tokens] == [19, everything[1] + lost.input_tokens]
    assert whole.cost_unknown == 1 and not whole.HasField("cost_micros")
