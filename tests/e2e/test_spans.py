"""Spans of a real server at a collector: one trace through turns, tools, runs and called agents (N5)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from grpc import aio

from tests.conformance.models.subjects import KEY
from tests.e2e.background import call
from tests.e2e.client import Client
from tests.e2e.process import Server, serving
from tests.e2e.scripted import Scripted
from tests.e2e.test_trace import BROUGHT, CONSULTING, TRACE, said
from tests.fakes.collector import collecting
from tests.fakes.provider import Provider, Script
from wonder.v1 import conversation_service_pb2 as pb

pytestmark = pytest.mark.asyncio(loop_scope="session")


def of(provider: Provider) -> dict[str, str]:
    """Return the settings of a server whose models are scripted."""
    return {
        "WONDER_DEFAULT_MODEL": "offline",
        "OPENAI_API_KEY": KEY,
        "ANTHROPIC_API_KEY": KEY,
        "WONDER_OPENAI_BASE_URL": f"{provider.url}/v1",
        "WONDER_ANTHROPIC_BASE_URL": provider.url,
    }


def attributes(span: dict[str, Any]) -> dict[str, Any]:
    return {each["key"]: next(iter(each["value"].values())) for each in span["attributes"]}


async def answered(client: Client, text: str, brought: tuple[tuple[str, str], ...] = ()) -> str:
    """Say something in a new conversation, and return its id after the end of the turn."""
    conv = await client.open()
    request = pb.SendMessageRequest(conversation_id=conv, send=pb.ConverseSend(content=text))
    turn = (await client.conversations.SendMessage(request, metadata=aio.Metadata(*brought))).turn
    await client.settled(conv, turn.id)
    return conv


async def test_a_turn_its_call_and_its_hooks_are_one_trace_without_contents(data: Path) -> None:
    async with collecting() as collector:
        async with (
            serving(data, "--otlp-endpoint", collector.url) as server,
            server.client() as client,
        ):
            conv = await answered(client, "canary-words", BROUGHT)
            turn, chat, hook = await collector.named("invoke_agent", "chat", "hook context_assembly")
        assert {span["traceId"] for span in collector.spans} == {TRACE}
        assert "parentSpanId" not in turn
        assert chat["parentSpanId"] == hook["parentSpanId"] == turn["spanId"]
        assert attributes(turn)["gen_ai.conversation.id"] == conv
        assert attributes(chat)["gen_ai.operation.name"] == "chat"
        assert int(turn["endTimeUnixNano"]) >= int(turn["startTimeUnixNano"]) > 0
        assert turn["status"] == {}
        assert len({span["spanId"] for span in collector.spans}) == len(collector.spans)
        assert not [body for body in collector.bodies if "canary" in body]


async def test_tools_runs_nodes_and_called_agents_hang_below_their_callers(
    data: Path, provider: Provider
) -> None:
    async with (
        collecting() as collector,
        serving(data, "--otlp-endpoint", collector.url, environment=of(provider)) as server,
        server.client() as client,
    ):
        expert = Scripted(client, provider, "anthropic")
        name = await expert.agent(Script(text="They say because."), tools=())
        await client.apply(f"e2e/{name}", CONSULTING.format(expert=name))
        host = Scripted(client, provider, "openai")
        scripts = Script(calls=(call("consult"),)), Script(text="Now we know.")
        conv = await client.open(await host.agent(*scripts, tools=(f"e2e/{name}/consult",)))
        await said(client, conv, brought=BROUGHT)
        tool, outer, node, inner = await collector.named(
            "execute_tool consult", "invoke_workflow", "node inside", "node ask"
        )
        assert tool and outer and node and inner
        by_id = {span["spanId"]: span for span in collector.spans}
        chain, span = (
            [],
            next(s for s in collector.spans if s["name"].startswith("invoke_agent") and "parentSpanId" in s),
        )
        while span is not None:
            chain.append(span["name"].split()[0])
            span = by_id.get(span.get("parentSpanId", ""))
        assert chain == [
            "invoke_agent", "node", "invoke_workflow", "node", "invoke_workflow", "execute_tool",
            "invoke_agent",
        ]  # fmt: skip
        assert {span["traceId"] for span in collector.spans} == {TRACE}


async def test_a_dead_collector_costs_spans_and_no_turn(data: Path) -> None:
    async with collecting() as collector:
        collector.status = 503
        async with (
            serving(data, "--otlp-endpoint", collector.url) as server,
            server.client() as client,
        ):
            await answered(client, "say 3 words")
            line = await server.logged("traces_not_exported")
            assert "503" in line["problem"] and line["dropped"] > 0
            collector.status = 200
            await answered(client, "say 3 words")
            await collector.named("invoke_agent")
            assert server.count("traces_not_exported") == 1


SLOW = """
name: slow
model_profile: {provider: offline, model: offline, parameters: {token_delay_ms: 300}}
---
name: slow_speaker
persona: {system_prompt: Speak., model_profile_id: slow}
"""


async def test_a_turn_that_a_kill_interrupts_has_one_span_in_its_trace(data: Path) -> None:
    async with collecting() as collector:
        server = await Server(data, "--otlp-endpoint", collector.url).start()
        async with server.client() as client:
            await client.apply("e2e/slow", SLOW)
            await client.agent("slow", "e2e/slow/slow_speaker")
            conv = await client.open("slow")
            send = pb.ConverseSend(content="say 5 words")
            request = pb.SendMessageRequest(conversation_id=conv, send=send)
            await client.conversations.SendMessage(request, metadata=aio.Metadata(*BROUGHT))
            await server.kill()
        assert not [span for span in collector.spans if span["name"].startswith("invoke_agent")]
        async with serving(data, "--otlp-endpoint", collector.url):
            turn, chat = await collector.named("invoke_agent", "chat")
        assert turn["traceId"] == chat["traceId"] == TRACE and chat["parentSpanId"] == turn["spanId"]
        assert len([span for span in collector.spans if span["name"].startswith("invoke_agent")]) == 1
