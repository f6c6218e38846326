"""Workflow runs, each started by one call that waits for its end; 64 concurrent unless the name differs.

- one step, also watched; ten sequential nodes; a fan-out of 20 with a fan-in; a child of one step
- one run of 10,000 node executions
- a task of ten steps without a run

Nodes only compute. The floor of a call is a call to a bare grpc.aio server that records nothing; the floor of
a watched run is such a call and a stream. In the long run, the first fifth of the nodes is the floor of the
last.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass

from client import LIBRARY, Bare, Client, ask
from measure import Effort, Load, Number, load
from servers import Server, bare, wonder

from wonder_server.core.json_types import JsonDict, JsonValue

AT_ONCE = 64
BRANCHES = 20
LONG = 10_000
MEGABYTE = 1 << 20


def _task(name: str, steps: int) -> JsonDict:
    step = {"action": {"kind": "context"}, "output_mapping": {"output.n": "1"}}
    return {"name": name, "task": {"steps": [{"id": f"s{number}", **step} for number in range(steps)]}}


def _chain(*ids: str) -> list[JsonDict]:
    return [{"from_node_id": a, "to_node_id": b} for a, b in itertools.pairwise(ids)]


def _node(name: str, **fields: JsonValue) -> JsonDict:
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
            "transitions": [transition for each in BRANCH for transition in _chain("begin", each, "end")],
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
"""Approximate number of messages to a watcher of a run of one step. `SIZE` is their size in bytes."""
SIZE = 250

Work = Callable[[Client, int], Awaitable[float]]


@dataclass(frozen=True, slots=True)
class Floor:
    """The same work without Wonder."""

    name: str
    load: Load


@dataclass(frozen=True, slots=True)
class Goal:
    """Goals for runs: at least ``per_second``, with at most ``commits`` for each."""

    per_second: float | None = None
    commits: float | None = None


async def measure(effort: Effort) -> list[Number]:
    each = max(effort.rounds, 4)
    unary = Floor("a bare call", await _floor(each, watched=False))
    stream = Floor("a bare call and a stream", await _floor(each, watched=True))
    with wonder() as server:
        async with Client(server.address) as client:
            await client.apply(DEFINITIONS)
            numbers = [
                *await _runs(server, client, "one_step", each, unary, Goal(1500, 2)),
                *await _watched(server, client, each, stream),
                *await _runs(server, client, "ten_nodes", each, unary, Goal(500, 10)),
                *await _runs(server, client, "fan_out", each, unary, Goal(400, 4)),
                *await _runs(server, client, "child", each, unary, Goal()),
                await _task_alone(server, client, each * 16),
            ]
    return [*numbers, *await _long(effort)]


async def runs(at_once: int, each: int, shards: int | None = None) -> tuple[Load, float]:
    """Return the load of ``at_once`` workers with ``each`` runs of one step, and the commits per run."""
    with wonder(shards) as server:
        async with Client(server.address) as client:
            await client.apply(DEFINITIONS)
            return await _load(server, client, at_once, each, _starting("one_step"))


def _starting(name: str) -> Work:
    return lambda client, index: client.run(f"{LIBRARY}/{name}", index)


async def _load(server: Server, client: Client, at_once: int, each: int, work: Work) -> tuple[Load, float]:
    """Return the load after a warm-up, and the commits for one unit of work."""
    await load(server.pid, at_once, 2, lambda index: work(client, index))
    before = server.commits()
    done = await load(server.pid, at_once, each, lambda index: work(client, index))
    return done, (server.commits() - before) / done.count


async def _runs(
    server: Server, client: Client, name: str, each: int, floor: Floor, goal: Goal
) -> list[Number]:
    done, commits = await _load(server, client, AT_ONCE, each, _starting(name))
    return _numbers(name.replace("_", " "), done, commits, floor, goal)


async def _watched(server: Server, client: Client, each: int, floor: Floor) -> list[Number]:
    work: Work = lambda client, index: client.watched_run(WORKFLOW, index)  # noqa: E731
    done, commits = await _load(server, client, AT_ONCE, each, work)
    return _numbers("one step, watched", done, commits, floor, Goal(commits=2))


def _numbers(name: str, done: Load, commits: float, floor: Floor, goal: Goal) -> list[Number]:
    bare_load, floor_is = floor.load, floor.name
    return [
        Number(name=f"{name}: runs per second", value=done.per_second, unit="/s", aim=goal.per_second,
               floor=bare_load.per_second, floor_is=floor_is, better="more", aim_is="value"),
        Number(name=f"{name}: server CPU", value=done.cpu_ms, unit="ms",
               floor=bare_load.cpu_ms, floor_is=floor_is),
        Number(name=f"{name}: start to end p50", value=done.p50_ms, unit="ms",
               floor=bare_load.p50_ms, floor_is=floor_is),
        Number(name=f"{name}: commits for each", value=commits, unit="", aim=goal.commits),
    ]  # fmt: skip


async def _task_alone(server: Server, client: Client, each: int) -> Number:
    """Return the cost of a task without its call: the CPU of calls, less that of bare calls."""
    work: Work = lambda client, index: client.task(f"{LIBRARY}/ten_step_task", index)  # noqa: E731
    done, _ = await _load(server, client, 1, each, work)
    call = await _floor(each, watched=False, at_once=1)
    return Number(name="a task of ten steps: its own CPU", value=max(0.0, done.cpu_ms - call.cpu_ms),
                  unit="ms", aim=1.0)  # fmt: skip


async def _long(effort: Effort) -> list[Number]:
    """Measure one run of 10,000 node executions: its memory, and whether it becomes slower."""
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
