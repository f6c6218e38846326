"""Workflow runs, each started with one call that waits for its end; 64 at once, unless it says otherwise.

One step, ten nodes one after the other, a fan-out of 20 that is joined again, a child of one step; one run of
10,000 node executions; and a task of ten steps, which no run is needed for. Nodes do nothing but compute. The
floor of calls is a call to a bare grpc.aio server that records nothing, that of a watched run such a call and
a stream; the first fifth of a long run's nodes is the floor of its last.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

from client import LIBRARY, Bare, Client, ask
from measure import Effort, Load, Number, load
from servers import Server, bare, wonder

AT_ONCE = 64
BRANCHES = 20
LONG = 10_000
MEGABYTE = 1 << 20


def _task(name: str, steps: int) -> dict[str, Any]:
    step = {"action": {"kind": "context"}, "output_mapping": {"output.n": "1"}}
    return {"name": name, "task": {"steps": [{"id": f"s{number}", **step} for number in range(steps)]}}


def _chain(*ids: str) -> list[dict[str, Any]]:
    return [{"from_node_id": a, "to_node_id": b} for a, b in itertools.pairwise(ids)]


def _node(name: str, **fields: Any) -> dict[str, Any]:
    return {"id": name, "task_id": "one_step_task", **fields}


TEN = [f"n{number}" for number in range(10)]
BRANCH = [f"b{number}" for number in range(BRANCHES)]
DEFINITIONS = [
    _task("one_step_task", 1),
    _task("ten_step_task", 10),
    {"name": "one_step", "workflow": {"nodes": [_node("only")]}},
    {"name": "ten_nodes", "workflow": {"nodes": [_node(each) for each in TEN], "transitions": _chain(*TEN)}},
    {
        "name": "fan_out",
        "workflow": {
            "nodes": [
                _node("begin", fan_out=True),
                *(_node(each) for each in BRANCH),
                _node("end", fan_in={"mode": "FAN_IN_MODE_ALL"}),
            ],
            "transitions": [way for each in BRANCH for way in _chain("begin", each, "end")],
        },
    },
    {"name": "child", "workflow": {"nodes": [{"id": "only", "workflow_id": "one_step"}]}},
    {
        "name": "long",
        "workflow": {
            "nodes": [_node("again")],
            "transitions": [{"from_node_id": "again", "to_node_id": "again", "loop_limit": LONG - 1}],
        },
    },
]
WORKFLOW = f"{LIBRARY}/one_step"
EVENTS = 5
"""Messages that a watcher of a run of one step gets, about, and their size."""
SIZE = 250

Work = Callable[[Client, int], Awaitable[float]]


async def measure(effort: Effort) -> list[Number]:
    each = max(effort.rounds, 4)
    unary, stream = await _floor(each, watched=False), await _floor(each, watched=True)
    with wonder() as server:
        async with Client(server.address) as client:
            await client.apply(DEFINITIONS)
            numbers = [
                *await _runs(server, client, "one_step", each, unary, per_second=1500, commits=2),
                *await _watched(server, client, each, stream),
                *await _runs(server, client, "ten_nodes", each, unary, per_second=500, commits=10),
                *await _runs(server, client, "fan_out", each, unary, per_second=400, commits=4),
                *await _runs(server, client, "child", each, unary),
                await _task_alone(server, client, each * 16),
            ]
    return [*numbers, *await _long(effort)]


async def runs(at_once: int, each: int, shards: int | None = None) -> tuple[Load, float]:
    """The load of ``at_once`` workers with ``each`` runs of one step, and commits per run."""
    with wonder(shards) as server:
        async with Client(server.address) as client:
            await client.apply(DEFINITIONS)
            return await _load(server, client, at_once, each, _starting("one_step"))


def _starting(name: str) -> Work:
    return lambda client, index: client.run(f"{LIBRARY}/{name}", index)


async def _load(server: Server, client: Client, at_once: int, each: int, work: Work) -> tuple[Load, float]:
    """The load, after one that is not counted, and commits for each piece of work."""
    await load(server.pid, at_once, 2, lambda index: work(client, index))
    before = server.commits()
    done = await load(server.pid, at_once, each, lambda index: work(client, index))
    return done, (server.commits() - before) / done.count


async def _runs(
    server: Server,
    client: Client,
    name: str,
    each: int,
    floor: Load,
    *,
    per_second: float | None = None,
    commits: float | None = None,
) -> list[Number]:
    done, made = await _load(server, client, AT_ONCE, each, _starting(name))
    return _numbers(name.replace("_", " "), done, made, floor, "a bare call", per_second, commits)


async def _watched(server: Server, client: Client, each: int, floor: Load) -> list[Number]:
    work: Work = lambda client, index: client.watched_run(WORKFLOW, index)  # noqa: E731
    done, made = await _load(server, client, AT_ONCE, each, work)
    return _numbers("one step, watched", done, made, floor, "a bare call and a stream", None, 2)


def _numbers(
    name: str,
    done: Load,
    commits: float,
    floor: Load,
    floor_is: str,
    per_second: float | None,
    most_commits: float | None,
) -> list[Number]:
    return [
        Number(name=f"{name}: runs per second", value=done.per_second, unit="/s", aim=per_second,
               floor=floor.per_second, floor_is=floor_is, better="more", aim_is="value"),
        Number(name=f"{name}: server CPU", value=done.cpu_ms, unit="ms",
               floor=floor.cpu_ms, floor_is=floor_is),
        Number(name=f"{name}: start to end p50", value=done.p50_ms, unit="ms",
               floor=floor.p50_ms, floor_is=floor_is),
        Number(name=f"{name}: commits for each", value=commits, unit="", aim=most_commits),
    ]  # fmt: skip


async def _task_alone(server: Server, client: Client, each: int) -> Number:
    """Return the cost of a task without its call: the CPU of calls, less that of bare calls."""
    work: Work = lambda client, index: client.task(f"{LIBRARY}/ten_step_task", index)  # noqa: E731
    done, _ = await _load(server, client, 1, each, work)
    call = await _floor(each, watched=False, at_once=1)
    return Number(name="a task of ten steps: its own CPU", value=max(0.0, done.cpu_ms - call.cpu_ms),
                  unit="ms", aim=1.0)  # fmt: skip


async def _long(effort: Effort) -> list[Number]:
    """One run of 10,000 node executions: what it takes of memory, and whether it gets slower."""
    with wonder() as server:
        async with Client(server.address) as client:
            await client.apply(DEFINITIONS)
            for _ in range(20):
                await client.run(f"{LIBRARY}/ten_nodes")
            before, most = server.rss, 0
            work = asyncio.ensure_future(client.run(f"{LIBRARY}/long"))
            while not work.done():
                with suppress(TimeoutError):
                    await asyncio.wait_for(asyncio.shield(work), 0.05)
                most = max(most, server.rss)
            seconds = await work
            ends = await client.node_ends(f"{LIBRARY}/long")
    part = LONG // 5
    first, last = ends[part] - ends[0], ends[-1] - ends[-1 - part]
    return [
        Number(name="10,000 nodes in one run: nodes per second", value=LONG / seconds, unit="/s"),
        Number(name="10,000 nodes in one run: memory", value=(most - before) / MEGABYTE, unit="MB", aim=50),
        Number(name="10,000 nodes in one run: the last, each", value=last / part * 1000, unit="ms",
               floor=first / part * 1000, floor_is="the first", aim=1.15),
    ]  # fmt: skip


async def _floor(each: int, *, watched: bool, at_once: int = AT_ONCE) -> Load:
    with bare() as server:
        async with Bare(server.address) as client:

            async def run(index: int) -> float:
                began = time.perf_counter()
                await client.unary(SIZE, index)
                if watched:
                    call = client.stream(index)
                    await call.write(ask(size=SIZE, count=EVENTS))
                    for _ in range(EVENTS):
                        await call.read()
                    call.cancel()
                return time.perf_counter() - began

            await load(server.pid, at_once, 2, run)
            return await load(server.pid, at_once, each, run)
