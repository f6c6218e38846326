"""Metrics of a real server: read like Prometheus does, and named by the dashboard (features J3, N5)."""

from __future__ import annotations

import json
import re
from pathlib import Path

import aiohttp
import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.e2e.client import Client
from tests.e2e.process import Server, serving
from tests.paths import ROOT
from tests.rpc.rpc_kit import rejected
from wonder.v1 import conversation_service_pb2 as pb

pytestmark = pytest.mark.asyncio(loop_scope="session")

ON = ("--metrics-address", "127.0.0.1:0")
DASHBOARD = ROOT / "examples" / "telemetry" / "dashboard.json"
SUFFIXES = re.compile(r"_(bucket|count|sum|total)$")

Samples = dict[tuple[str, ...], float]


async def answer(server: Server, *, path: str = "", **headers: str) -> tuple[int, str]:
    """Return status and text of a read."""
    url = (await server.logged("metrics_served"))["url"]
    async with aiohttp.ClientSession() as session, session.get(url + path, headers=headers) as found:
        return found.status, await found.text()


async def scraped(server: Server) -> Samples:
    """Return the samples of a scrape by name and label values."""
    status, text = await answer(server)
    assert status == 200
    return {
        (sample.name, *sample.labels.values()): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


async def said(client: Client, conversation_id: str, text: str) -> None:
    send = pb.ConverseSend(content=text)
    request = pb.SendMessageRequest(conversation_id=conversation_id, send=send)
    turn = (await client.conversations.SendMessage(request)).turn
    await client.settled(conversation_id, turn.id)


async def test_a_scrape_counts_what_was_done(data: Path) -> None:
    async with serving(data, *ON) as server, server.client() as client:
        before = await scraped(server)
        assert before["wonder_turns_total", "completed"] == 0
        assert before["wonder_turn_seconds_count",] == 0
        conv = await client.open()
        await said(client, conv, "say 3 words")
        await said(client, conv, "say 3 words")
        missing = pb.GetConversationRequest(conversation_id="conv_nowhere")
        await rejected(client.conversations.GetConversation(missing))
        after = await scraped(server)
        assert after["wonder_turns_total", "completed"] == after["wonder_turn_seconds_count",] == 2
        assert after["wonder_turn_seconds_bucket", "+Inf"] == 2
        assert after["wonder_tokens_total", "input"] > 0 and after["wonder_tokens_total", "output"] > 0
        assert after["wonder_cost_dollars_total",] == 0
        calls = {name[1:]: count for name, count in after.items() if name[0] == "wonder_model_calls_total"}
        assert calls == {("completed", "offline"): 2}, "labels are in the order of the alphabet"
        first = next(name for name in after if name[0] == "wonder_model_first_chunk_seconds_count")
        assert after[first] == 2
        assert after["wonder_calls_rejected_total", "CONVERSATION_NOT_FOUND"] == 1
        assert after["wonder_commit_seconds_count", "shards"] >= 2
        assert after["wonder_wal_bytes", "shards"] > 0
        assert after["wonder_actors_loaded", "conversation"] == 1
        assert after["wonder_gates_pending",] == after["wonder_workers_connected",] == 0
        assert after["wonder_hooks_failing", "memory_extraction"] == 0
        assert after["process_resident_memory_bytes",] > 0


async def test_open_streams_are_gauges(data: Path) -> None:
    async with serving(data, *ON) as server, server.client() as client:
        conv = await client.open()
        stream = client.conversations.Converse()
        await stream.write(pb.ConverseRequest(attach=pb.ConverseAttach(conversation_id=conv)))
        assert (await stream.read()) is not None
        samples = await scraped(server)
        assert samples["wonder_calls_active", "stream"] == samples["wonder_subscriptions_open",] == 1
        stream.cancel()


async def test_the_listener_serves_metrics_and_nothing_else(tmp_path: Path) -> None:
    async with serving(tmp_path / "data", *ON) as server:
        url = (await server.logged("metrics_served"))["url"]
        base = url.removesuffix("/metrics")
        async with aiohttp.ClientSession() as session:
            for method, path, status in (
                ("GET", "/healthz", 200),
                ("GET", "/", 404),
                ("GET", "/metrics/../etc/passwd", 404),
                ("POST", "/metrics", 405),
                ("DELETE", "/metrics", 405),
            ):
                async with session.request(method, base + path, data=b"x" * 100_000) as found:
                    assert found.status == status, (method, path)


async def test_a_token_of_a_file_is_required_and_can_change(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("canary-one\n")
    async with serving(tmp_path / "data", *ON, "--metrics-token-file", str(file)) as server:
        for given in ("", "Bearer", "Bearer wrong", "Basic canary-one", "Bearer canary-on", "Bearer é"):
            assert (await answer(server, **({"Authorization": given} if given else {})))[0] == 401, given
        assert (await answer(server, Authorization="Bearer canary-one"))[0] == 200
        file.write_text("canary-two")
        assert (await answer(server, Authorization="Bearer canary-one"))[0] == 401
        status, text = await answer(server, Authorization="Bearer canary-two")
        assert status == 200
        file.write_text("")
        assert (await answer(server, Authorization="Bearer "))[0] == 401
        file.unlink()
        assert (await answer(server, Authorization="Bearer canary-two"))[0] == 401
        assert "path" in await server.logged("metrics_token_unreadable")
        assert "canary" not in text + json.dumps(server.log)


async def test_labels_never_name_a_user_or_a_conversation(data: Path) -> None:
    async with serving(data, *ON) as server, server.client() as client:
        conv = await client.open()
        await said(client, conv, "canary-content")
        _, text = await answer(server)
        assert conv not in text and "canary" not in text and "conv_" not in text


async def test_the_dashboard_names_only_metrics_that_exist(data: Path) -> None:
    async with serving(data, *ON) as server, server.client() as client:
        await said(client, await client.open(), "say 3 words")
        _, text = await answer(server)
    exist = {name for name, _ in re.findall(r"^# TYPE (\S+) (\S+)$", text, re.MULTILINE)}
    exist |= {SUFFIXES.sub("", name) for name in exist}
    dashboard = json.loads(DASHBOARD.read_text(encoding="utf-8"))
    queries = [target["expr"] for panel in dashboard["panels"] for target in panel.get("targets", ())]
    named = {name for query in queries for name in re.findall(r"\b(?:wonder|process)_[a-z_]+", query)}
    assert len(queries) >= 10 and named
    assert {SUFFIXES.sub("", name) for name in named} <= exist
    documented = set(re.findall(r"`(wonder_[a-z_]+)`", (ROOT / "docs" / "telemetry.md").read_text("utf-8")))
    own = set(re.findall(r"^# TYPE (wonder_\S+)", text, re.MULTILINE))
    assert own == documented
