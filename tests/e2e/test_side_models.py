"""Memory extraction and summaries with a model of their own, cheaper than that of the turns (feature M8)."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import grpc
import pytest
import pytest_asyncio

from tests.e2e.client import Client
from tests.e2e.journals import assert_replays
from tests.e2e.process import Server, serving
from tests.fakes.provider import Call, Provider, Script, running_provider
from wonder.v1 import common_pb2 as common
from wonder.v1 import conversation_pb2 as conversation
from wonder.v1 import conversation_service_pb2 as pb
from wonder.v1 import errors_pb2
from wonder.v1 import library_service_pb2 as library

pytestmark = pytest.mark.asyncio(loop_scope="session")

FORMATS = {"dear": "openai_chat", "cheap": "anthropic_messages", "spare": "gemini"}
PRICES = {"dear": 100, "cheap": 1, "spare": 10}
"""Of a million input tokens, in dollars; an output token costs ten times as much."""
NOTES = Script(text='{"operations": [{"op": "write", "content": "Ann likes tea."}]}')
SUMMARY = Script(text="It was about tea.")
LONG = "x" * 600


@pytest_asyncio.fixture(loop_scope="session")
async def providers() -> AsyncIterator[dict[str, Provider]]:
    async with AsyncExitStack() as stack:
        yield {name: await stack.enter_async_context(running_provider()) for name in FORMATS}


@pytest.fixture
def config(providers: dict[str, Provider], tmp_path: Path) -> Path:
    file = tmp_path / "wonder.toml"
    file.write_text(
        "\n".join(
            f'[[providers]]\nname = "{name}"\nformat = "{format_name}"\nkey_env = "ANY_KEY"\n'
            f'base_url = "{providers[name].url}{"/v1" if name == "dear" else ""}"\n'
            f"prices = {{input = {PRICES[name]}, output = {10 * PRICES[name]}}}\n"
            for name, format_name in FORMATS.items()
        )
    )
    return file


def running(tmp_path: Path, config: Path) -> object:
    return serving(tmp_path / "data", "--config", str(config), environment={"ANY_KEY": "sk-any"})


@pytest_asyncio.fixture(loop_scope="session")
async def server(config: Path, tmp_path: Path) -> AsyncIterator[Server]:
    async with running(tmp_path, config) as started:  # type: ignore[attr-defined]
        yield started


def profile(name: str, provider: str, **fields: object) -> dict[str, object]:
    return {"name": name, "model_profile": {"provider": provider, "model": name, "max_attempts": 1, **fields}}


def persona(**fields: object) -> dict[str, object]:
    return {
        "system_prompt": "You are played by a script.",
        "model_profile_id": "talks",
        "tool_ids": [],
        "context_window": {"strategy": "summarize", "keep_recent_messages": 2},
        **fields,
    }


async def agent(client: Client, *, spare: bool = False, **fields: object) -> str:
    """Return an agent whose extraction and summaries have two cheaper profiles."""
    fallbacks = [{"provider": "spare", "model": "stands-in"}] if spare else []
    documents: list[dict[str, object]] = [
        profile("talks", "dear", context_window_tokens=1_000),
        profile("notes", "cheap", fallbacks=fallbacks),
        profile("sums", "cheap", fallbacks=fallbacks),
        {
            "name": "ann",
            "persona": persona(
                extraction_model_profile_id="notes", summary_model_profile_id="sums", **fields
            ),
        },
    ]
    await client.apply("e2e/side", "\n---\n".join(map(json.dumps, documents)))
    await client.agent("ann", "e2e/side/ann")
    return "ann"


def asked(providers: dict[str, Provider]) -> dict[str, int]:
    """Return the number of requests for each model."""
    seen = [request for provider in providers.values() for request in provider.requests]
    return {model: sum(each.model == model for each in seen) for model in sorted({e.model for e in seen})}


def cost(**calls: int) -> int:
    """Return the price of calls of 11 input and 7 output tokens each."""
    return sum(PRICES[name] * (11 + 70) * count for name, count in calls.items())


async def of_conversation(client: Client, conv: str) -> common.Usage:
    request = pb.GetConversationRequest(conversation_id=conv)
    return (await client.conversations.GetConversation(request)).conversation.usage


async def test_extraction_and_summaries_use_the_cheaper_models_at_their_prices(
    server: Server, providers: dict[str, Provider], tmp_path: Path
) -> None:
    providers["dear"].script("talks", Script(text=f"Fine. {LONG}"))
    providers["cheap"].script("notes", NOTES)
    providers["cheap"].script("sums", SUMMARY)
    async with server.client() as client:
        name = await agent(client)
        conv = await client.open(name)
        for number in range(3):
            turn, view = await client.turn(conv, f"number {number}: {LONG}")
            assert turn.status == conversation.TURN_STATUS_COMPLETED, turn.error
        assert asked(providers) == {"notes": 3, "sums": 1, "talks": 3}
        assert "It was about tea." in json.dumps(providers["dear"].requests[-1].body)
        usage = (await client.conversations.GetTurn(pb.GetTurnRequest(turn_id=turn.id))).turn.usage
        assert usage.cost_micros == cost(dear=1, cheap=2) and usage.model_calls == 3
        whole = await of_conversation(client, conv)
        assert whole.cost_micros == cost(dear=3, cheap=4) and whole.model_calls == 7
        request = library.GetAgentRequest(agent_id=name)
        account = (await client.library.GetAgent(request)).agent.usage
        assert account.cost_micros == whole.cost_micros and not account.cost_unknown
        [outcome] = [e.memory_extraction_completed for e in view.events if e.turn_id == turn.id
                     and e.name == "memory_extraction.completed"]  # fmt: skip
        assert outcome.model_profile == "e2e/side/notes@1"
        decided = await client.conversations.ListDecisions(pb.ListDecisionsRequest(conversation_id=conv))
        said = [each.summary for each in decided.decisions if each.type == "DISPATCH_WORKFLOW"]
        assert "extraction → e2e/side/notes@1" in said and "summary → e2e/side/sums@1" in said
        preview = await client.conversations.PreviewContext(
            pb.PreviewContextRequest(conversation_id=conv, send=pb.ConverseSend(content="Hello?"))
        )
        assert (preview.provider, preview.model) == ("dear", "talks")
        side = preview.extraction_model
        assert (side.model_profile, side.provider, side.model) == ("e2e/side/notes@1", "cheap", "notes")
        assert preview.summary_model.model_profile == "e2e/side/sums@1"
        assert await client.memories(name) == ["Ann likes tea."]
    await server.stop()
    assert await assert_replays(tmp_path / "data")


async def test_a_kill_during_either_call_repeats_it_with_the_same_model(
    providers: dict[str, Provider], config: Path, tmp_path: Path
) -> None:
    held = Script(stall="headers")
    providers["dear"].script("talks", Script(text=f"Fine. {LONG}"))
    providers["cheap"].script("notes", NOTES, NOTES, held, NOTES)
    providers["cheap"].script("sums", held, SUMMARY)
    async with running(tmp_path, config) as first, first.client() as client:  # type: ignore[attr-defined]
        conv = await client.open(await agent(client))
        for number in range(2):
            await client.turn(conv, f"number {number}: {LONG}")
        said = await client.say(conv, f"number 2: {LONG}")
        await providers["cheap"].wait_until(lambda: len(providers["cheap"].of("sums")) == 1)
        await first.kill()
    async with running(tmp_path, config) as second, second.client() as client:  # type: ignore[attr-defined]
        await providers["cheap"].wait_until(lambda: len(providers["cheap"].of("notes")) == 3)
        await second.kill()
    async with running(tmp_path, config) as third, third.client() as client:  # type: ignore[attr-defined]
        await client.settled(conv, said.turn.id)
        assert asked(providers) == {"notes": 4, "sums": 2, "talks": 3}
        whole = await of_conversation(client, conv)
        assert whole.model_calls == 9
        # The provider never answered the two interrupted calls.
        assert whole.cost_unknown == 2 and not whole.HasField("cost_micros")
        assert (whole.input_tokens, whole.output_tokens) == (7 * 11, 7 * 7)
    assert await assert_replays(tmp_path / "data")


async def test_the_fallbacks_of_their_profiles_go_on(
    server: Server, providers: dict[str, Provider], tmp_path: Path
) -> None:
    down = Script(status=503)
    providers["dear"].script("talks", Script(text=f"Fine. {LONG}"))
    providers["cheap"].script("notes", down)
    providers["cheap"].script("sums", down)
    spare = providers["spare"]
    spare.script("stands-in", NOTES, NOTES, SUMMARY, NOTES)
    async with server.client() as client:
        conv = await client.open(await agent(client, spare=True))
        for number in range(3):
            turn, view = await client.turn(conv, f"number {number}: {LONG}")
            assert turn.status == conversation.TURN_STATUS_COMPLETED, turn.error
            assert "memory_extraction.completed" in view.of_turn(turn.id)
        assert len(spare.requests) == 4 and len(providers["dear"].requests) == 3
        assert "It was about tea." in json.dumps(providers["dear"].requests[-1].body)
        switches = [event.model_switched for event in view.events if event.name == "model.switched"]
        last = [(each.hook, each.from_provider, each.to_provider) for each in switches][-2:]
        assert last == [("summary", "cheap", "spare"), ("memory_extraction", "cheap", "spare")]
        whole = await of_conversation(client, conv)
        # Refused calls cost nothing.
        assert whole.cost_micros == cost(dear=3, spare=4)
        seen = sum(len(provider.requests) for provider in providers.values())
        assert whole.model_calls == seen
    await server.stop()
    assert await assert_replays(tmp_path / "data")


async def test_a_kill_after_a_switch_goes_on_with_the_fallback(
    providers: dict[str, Provider], config: Path, tmp_path: Path
) -> None:
    providers["dear"].script("talks", Script(text="Fine."))
    providers["cheap"].script("notes", Script(status=503))
    spare = providers["spare"]
    spare.script("stands-in", Script(stall="headers"), NOTES)
    async with running(tmp_path, config) as first, first.client() as client:  # type: ignore[attr-defined]
        name = await agent(client, spare=True)
        conv = await client.open(name)
        said = await client.say(conv, "I like tea.")
        await spare.wait_until(lambda: len(spare.requests) == 1)
        failed = len(providers["cheap"].requests)
        await first.kill()
    async with running(tmp_path, config) as second, second.client() as client:  # type: ignore[attr-defined]
        view = await client.settled(conv, said.turn.id)
        assert view.names.count("model.switched") == 1 and view.names[-1] == "memory_extraction.completed"
        assert len(providers["cheap"].requests) == failed and len(spare.requests) == 2
        assert await client.memories(name) == ["Ann likes tea."]
        whole = await of_conversation(client, conv)
        assert whole.model_calls == 1 + failed + 2 and whole.cost_unknown == 1
    assert await assert_replays(tmp_path / "data")


async def test_without_a_model_of_their_own_the_turns_fallback_goes_on(
    server: Server, providers: dict[str, Provider]
) -> None:
    providers["dear"].script("talks", Script(text="Fine."), Script(status=503))
    providers["spare"].script("stands-in", NOTES)
    fallbacks = [{"provider": "spare", "model": "stands-in"}]
    async with server.client() as client:
        documents = [
            profile("talks", "dear", fallbacks=fallbacks),
            {"name": "bob", "persona": persona()},
        ]
        await client.apply("e2e/own", "\n---\n".join(map(json.dumps, documents)))
        await client.agent("bob", "e2e/own/bob")
        turn, view = await client.turn(await client.open("bob"), "I like tea.")
        assert turn.status == conversation.TURN_STATUS_COMPLETED
        assert view.of_turn(turn.id)[-1] == "memory_extraction.completed"
        assert await client.memories("bob") == ["Ann likes tea."]


@pytest.mark.parametrize("field", ["extraction_model_profile_id", "summary_model_profile_id"])
async def test_a_profile_that_does_not_exist_is_refused_and_nothing_is_saved(
    client: Client, field: str
) -> None:
    document = {"name": "ann", "persona": {"system_prompt": "Be brief.", field: "nowhere"}}
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await client.apply("e2e/unknown", json.dumps(document))
    assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert "There is no model profile 'nowhere'" in (refused.value.details() or "")
    assert field in str(refused.value.trailing_metadata())


WORK = """
name: ask
task:
  steps:
    - id: ask
      action: {kind: llm, max_attempts: 1}
      input_mapping:
        model_profile: '{"provider": "cheap", "model": "thinks", "format": "anthropic_messages"}'
        request: '{"model": "thinks", "max_tokens": 9, "messages": [{"role": "user", "content": "And?"}]}'
      output_mapping: {output.text: result.text}
---
name: inner
workflow: {nodes: [{id: ask, task_id: ask}]}
---
name: outer
workflow: {nodes: [{id: below, workflow_id: inner}]}
---
name: ask_task
tool: {target_type: task, target_id: ask, description: Asks., input_schema: {type: object}}
---
name: ask_work
tool: {target_type: workflow, target_id: outer, description: Asks., input_schema: {type: object}}
---
"""


@pytest.mark.parametrize("limited", [True, False])
async def test_a_budget_of_the_agent_refuses_hooks_and_tools_whose_price_is_unknown(
    providers: dict[str, Provider], tmp_path: Path, limited: bool
) -> None:
    file = tmp_path / "unpriced.toml"
    prices = {"dear": "prices = {input = 1, output = 1}\n", "cheap": ""}
    file.write_text(
        "\n".join(
            f'[[providers]]\nname = "{name}"\nformat = "{FORMATS[name]}"\nkey_env = "ANY_KEY"\n'
            f'base_url = "{providers[name].url}{"/v1" if name == "dear" else ""}"\n{priced}'
            for name, priced in prices.items()
        )
    )
    environment = {"ANY_KEY": "sk-any", "WONDER_UNKNOWN_COST": "refuse"}
    calls = (Call(name="ask_task", arguments="{}"), Call(name="ask_work", arguments="{}"))
    providers["dear"].script("talks", Script(calls=calls), Script(text="Fine."))
    providers["cheap"].script("notes", NOTES)
    providers["cheap"].script("thinks", Script(text="And so."))
    async with (
        serving(tmp_path / "data", "--config", str(file), environment=environment) as started,
        started.client() as client,
    ):
        await client.apply("e2e/side", WORK + json.dumps(profile("notes", "cheap")))
        name = await agent(client, tool_ids=["ask_task", "ask_work"])
        if limited:
            known = (await client.library.GetAgent(library.GetAgentRequest(agent_id=name))).agent
            change = library.UpdateAgentRequest(agent={"id": known.id, "budget": {"max_cost_micros": 10**6}})
            change.update_mask.paths.append("budget")
            await client.library.UpdateAgent(change)
        turn, view = await client.turn(await client.open(name), "I like tea.")
        assert turn.status == conversation.TURN_STATUS_COMPLETED
        assert turn.issues.tool_failures == (2 if limited else 0)
        assert len(providers["cheap"].requests) == (0 if limited else 3)
        failed = [e.memory_extraction_failed for e in view.events if e.name == "memory_extraction.failed"]
        assert [each.error.reason for each in failed] == [errors_pb2.ERROR_REASON_COST_UNKNOWN] * limited
