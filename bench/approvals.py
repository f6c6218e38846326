"""Tool calls that wait for approval: what 10,000 of them cost at a start and afterwards.

The numbers are the seconds until the server serves, its memory after it has read all outboxes, the tasks
that it then has beside an empty server, and the milliseconds of a list of open gates and of one answer. The
floor is an empty folder.
"""

from __future__ import annotations

import asyncio
import tempfile
import time
from pathlib import Path

from client import Client
from copies import copy_actors, open_shards, read_actors
from measure import Effort, Number
from servers import Server, wonder

from wonder.v1 import coordinator_service_pb2 as pb

COUNT, QUICK_COUNT = 10_000, 1_000
MOST_READY_S = 2.0
MB = 1 << 20


async def measure(effort: Effort) -> list[Number]:
    count = QUICK_COUNT if effort.quick else COUNT
    with wonder() as server:
        await _until_idle(server)
        empty, empty_rss, empty_tasks = server.ready_seconds, server.rss, server.probe()["tasks"]
    with tempfile.TemporaryDirectory(prefix="wonder-bench-") as name:
        folder = Path(name)
        await fill(folder, count)
        with wonder(folder=folder) as server:
            ready = server.ready_seconds
            await _until_idle(server)
            rss, tasks = server.rss, server.probe()["tasks"]
            async with Client(server.address) as client:
                listed, answered = await _list_and_answer(client)
    at = f"{count:,} waiting calls"
    return [
        Number(name=f"seconds until it serves, {at}", value=ready, unit="s", floor=empty,
               floor_is="an empty folder", aim=MOST_READY_S, aim_is="value"),
        Number(name=f"memory, outboxes read, {at}", value=rss / MB, unit="MB", floor=empty_rss / MB,
               floor_is="an empty folder"),
        Number(name=f"tasks added by {at}", value=tasks - empty_tasks, unit="", aim=0),
        Number(name=f"first page of open gates, {at}", value=listed * 1000, unit="ms"),
        Number(name=f"one approval, {at}", value=answered * 1000, unit="ms"),
    ]  # fmt: skip


async def fill(folder: Path, count: int) -> None:
    """Fill a new data folder with conversations whose tool calls wait."""
    with wonder(folder=folder) as server:
        async with Client(server.address) as client:
            conversation_id = await _waiting_conversation(client)
    async with open_shards(folder) as shards:
        await copy_actors(shards, await read_actors(shards, [conversation_id]), count - 1)


async def _waiting_conversation(client: Client) -> str:
    """Return the id of a conversation whose turn waits for the approval of a call."""
    await client.apply(
        [
            {"name": "echo", "task": {"steps": [{"id": "say", "action": {"kind": "context"}}]}},
            {
                "name": "post",
                "description": "Posts a text.",
                "tool": {"target_type": "TARGET_TYPE_TASK", "target_id": "echo", "approval": "always"},
            },
        ]
    )
    agent = await client.agent("poster", persona={"tool_ids": ["post"]})
    conversation_id = await client.conversation(agent)
    async with client.chat(conversation_id) as chat:
        await chat.send("use the tool post")
        while True:
            if (await client.coordinators[0].ListGates(pb.ListGatesRequest())).gates:
                return conversation_id
            await asyncio.sleep(0.02)


async def _list_and_answer(client: Client) -> tuple[float, float]:
    """Return the seconds of a list of open gates, and of the approval of the first."""
    began = time.perf_counter()
    gate = (await client.coordinators[0].ListGates(pb.ListGatesRequest())).gates[0]
    listed = time.perf_counter() - began
    began = time.perf_counter()
    approve = pb.ResolveGateRequest(
        gate_id=gate.id, decision=pb.GATE_DECISION_APPROVE, shown_hash=gate.shown_hash
    )
    await client.coordinators[0].ResolveGate(approve)
    return listed, time.perf_counter() - began


async def _until_idle(server: Server) -> None:
    cpu = server.cpu
    while True:
        await asyncio.sleep(0.5)
        before, cpu = cpu, server.cpu
        if cpu - before < 0.05:
            return
