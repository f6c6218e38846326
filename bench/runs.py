"""Workflow runs of one node, one task, one step, at 1, 64 and 256 at once: started, watched to their end.

The floor is two calls, one unary and one stream, to a bare grpc.aio server that records nothing.
"""

from __future__ import annotations

import time

from client import LIBRARY, Bare, Client, ask
from measure import Effort, Load, Number, load
from servers import bare, wonder

WORKFLOW = f"{LIBRARY}/one_step"
DEFINITIONS = [
    {
        "name": "one_step_task",
        "task": {
            "steps": [{"id": "only", "action": {"kind": "context"}, "output_mapping": {"output.n": "1"}}]
        },
    },
    {"name": "one_step", "workflow": {"nodes": [{"id": "only", "task_id": "one_step_task"}]}},
]
EVENTS = 5
"""Messages that a watcher of such a run gets, about, and their size."""
SIZE = 250
MOST_COMMITS = 2


async def measure(effort: Effort) -> list[Number]:
    numbers: list[Number] = []
    for at_once in (1, 64, 256):
        each = max(effort.rounds * 32 // at_once, 2)
        ours, commits = await runs(at_once, each)
        numbers += _numbers(f"{at_once} at once", ours, commits, await _floor(at_once, each))
    return numbers


async def runs(at_once: int, each: int, shards: int | None = None) -> tuple[Load, float]:
    """The load of ``at_once`` workers with ``each`` runs, and commits per run."""
    with wonder(shards) as server:
        async with Client(server.address) as client:
            await client.apply(DEFINITIONS)
            await client.run(WORKFLOW)
            before = server.commits()
            done = await load(server.pid, at_once, each, lambda index: client.run(WORKFLOW, index))
            return done, (server.commits() - before) / done.count


async def _floor(at_once: int, each: int) -> Load:
    with bare() as server:
        async with Bare(server.address) as client:

            async def run(index: int) -> float:
                began = time.perf_counter()
                await client.unary(SIZE, index)
                call = client.stream(index)
                await call.write(ask(size=SIZE, count=EVENTS))
                for _ in range(EVENTS):
                    await call.read()
                call.cancel()
                return time.perf_counter() - began

            await run(0)
            return await load(server.pid, at_once, each, run)


def _numbers(at: str, ours: Load, commits: float, floor: Load) -> list[Number]:
    bare_is = "bare grpc.aio, nothing recorded"
    return [
        Number(name=f"runs per second, {at}", value=ours.per_second, unit="/s",
               floor=floor.per_second, floor_is=bare_is, better="more"),
        Number(name=f"server CPU per run, {at}", value=ours.cpu_ms, unit="ms",
               floor=floor.cpu_ms, floor_is=bare_is),
        Number(name=f"start to end p50, {at}", value=ours.p50_ms, unit="ms",
               floor=floor.p50_ms, floor_is=bare_is),
        Number(name=f"commits per run, {at}", value=commits, unit="",
               aim=MOST_COMMITS),
    ]  # fmt: skip
