"""The start of a server whose folder holds much that waits.

Ten thousand conversations wait for a tool whose run waits for a person, and a hundred thousand runs wait: a
third each at a gate that expires, for a signal, and for a time. The number is the seconds until the server
serves, and its memory then and after it has read all outboxes. The floor is an empty folder.
"""

from __future__ import annotations

import asyncio
import tempfile
import time
from pathlib import Path

from client import LIBRARY, Client
from copies import copy_actors, open_shards, read_actors
from measure import Effort, Number
from servers import Server, wonder

from wonder.v1 import coordinator_service_pb2 as pb
from wonder_server.core.json_types import JsonDict

COUNTS = ((1_000, 10_000), (10_000, 100_000))
QUICK_COUNTS = ((100, 1_000),)
"""Numbers of conversations and of runs."""
MOST_READY_S = 2.0
MB = 1 << 20
_DAY_MS = 86_400_000
_GATE: JsonDict = {"prompt": "Go on?", "expire_after_ms": 10 * _DAY_MS}
_WAITS: dict[str, JsonDict] = {
    "gate": {"human_gate": _GATE},
    "signal": {"wait": {"signal": "go"}},
    "sleep": {"wait": {"duration_ms": 10 * _DAY_MS}},
}


async def measure(effort: Effort) -> list[Number]:
    with wonder() as server:
        empty, empty_rss = server.ready_seconds, server.rss
    numbers: list[Number] = []
    for conversations, runs in QUICK_COUNTS if effort.quick else COUNTS:
        with tempfile.TemporaryDirectory(prefix="wonder-bench-") as name:
            folder = Path(name)
            await fill(folder, conversations, runs)
            with wonder(folder=folder) as server:
                ready, rss = server.ready_seconds, server.rss
                seconds = await _until_resumed(server)
                resumed_rss = server.rss
        at = f"{conversations:,} conversations, {runs:,} runs"
        floor = {"floor_is": "an empty folder"}
        numbers += [
            Number(name=f"seconds until it serves, {at}", value=ready, unit="s", floor=empty,
                   aim=MOST_READY_S, aim_is="value", **floor),
            Number(name=f"memory then, {at}", value=rss / MB, unit="MB", floor=empty_rss / MB, **floor),
            Number(name=f"seconds until all outboxes are read, {at}", value=seconds, unit="s"),
            Number(name=f"memory then, outboxes read, {at}", value=resumed_rss / MB, unit="MB",
                   floor=empty_rss / MB, **floor),
        ]  # fmt: skip
    return numbers


async def fill(folder: Path, conversations: int, runs: int) -> None:
    """Fill a new data folder with conversations and runs that wait. Of the runs, one belongs to each
    conversation."""
    with wonder(folder=folder) as server:
        async with Client(server.address) as client:
            conversation_id, run_id = await _waiting_conversation(client)
            waiting = [await _waiting_run(client, name) for name in _WAITS]
    async with open_shards(folder) as shards:
        each = (runs - conversations) // len(waiting)
        await copy_actors(shards, await read_actors(shards, [conversation_id, run_id]), conversations - 1)
        for waiting_id in waiting:
            await copy_actors(shards, await read_actors(shards, [waiting_id]), each - 1)


async def _waiting_run(client: Client, name: str) -> str:
    await client.apply([{"name": name, "workflow": {"nodes": [{"id": "wait", **_WAITS[name]}]}}])
    started = await client.coordinators[0].StartRun(pb.StartRunRequest(workflow_id=f"{LIBRARY}/{name}"))
    return str(started.run.id)


async def _waiting_conversation(client: Client) -> tuple[str, str]:
    """Return the ids of a conversation whose turn waits for a tool, and of the tool's run."""
    await client.apply(
        [
            {"name": "ask", "workflow": {"nodes": [{"id": "wait", "human_gate": _GATE}]}},
            {
                "name": "ask_person",
                "description": "Asks a person.",
                "tool": {"target_type": "TARGET_TYPE_WORKFLOW", "target_id": "ask",
                         "retry": {"timeout_ms": _DAY_MS}},
            },
        ]
    )  # fmt: skip
    agent = await client.agent("asker", persona={"tool_ids": ["ask_person"]})
    conversation_id = await client.conversation(agent)
    async with client.chat(conversation_id) as chat:
        await chat.send("use the tool ask_person")
        while True:
            gates = (await client.coordinators[0].ListGates(pb.ListGatesRequest())).gates
            if gates:
                return conversation_id, str(gates[0].run_id)
            await asyncio.sleep(0.02)


async def _until_resumed(server: Server) -> float:
    """Wait until the server has no work left, and return the seconds since its start."""
    began, cpu = time.perf_counter(), server.cpu
    while True:
        await asyncio.sleep(0.5)
        before, cpu = cpu, server.cpu
        if cpu - before < 0.05:
            return server.ready_seconds + time.perf_counter() - began - 0.5
