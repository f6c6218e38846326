"""The nodes over one disk, and the network between them and their clients.

A request and its answer take a random time. While there are faults, an answer can be lost after the request
was executed, and a client can hang up. A node that dies breaks all its connections. A new node starts a
moment later.

At times the next node starts while the old one still runs, as after a pause of the old node's machine: the
old node works on with a stale epoch until it is killed.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from contextvars import Context, copy_context
from dataclasses import dataclass, field
from typing import Any, TypeVar

from tests.simulation.disk import Disk, DiskFaults
from tests.simulation.event_loop import KilledError, SeededLoop
from tests.simulation.node import CALM_SWEEP_S, Node, NodeFaults, NodeParts
from tests.simulation.outside import Outside, OutsideFaults
from wonder_server.actors.runtime.limits import LoopLimits
from wonder_server.core.errors import WonderError
from wonder_server.ports.placement import Placement

T = TypeVar("T")


class LostError(Exception):
    """The connection ended without an answer. The request may have been executed."""


@dataclass(kw_only=True)
class Weather:
    """The faults of one history, chosen from its seed."""

    lives: int = 1
    """Number of nodes that may end; the one after them runs to the end without faults."""
    disk: DiskFaults = field(default_factory=DiskFaults)
    outside: OutsideFaults = field(default_factory=OutsideFaults)
    max_callbacks: int = 0
    """A life may end after at most so many callbacks; 0 is never."""
    dies_at_point: float = 0.0
    overlaps: float = 0.0
    """Probability that the next node starts while the last one still runs."""
    stops: float = 0.0
    """Probability that a life ends in order."""
    max_life_s: float = 0.5
    loses_answer: float = 0.0
    hangs_up: float = 0.0
    max_delay_s: float = 0.01
    clock_error_ms: int = 0
    expire_after_ms: int = 0
    limits: LoopLimits = field(default_factory=LoopLimits)


class Cluster:
    """Starts nodes one after another, and carries the requests of the clients."""

    def __init__(
        self,
        loop: SeededLoop,
        dice: random.Random,
        disk: Disk,
        outside: Outside,
        weather: Weather,
        parts: NodeParts,
    ) -> None:
        self.disk = disk
        self.outside = outside
        self.nodes: list[Node] = []
        """Running nodes, the newest last. All but the last have a stale epoch."""
        self.lives = 0
        self.is_calm = False
        """True once the last node has started: no fault follows."""
        self._loop = loop
        self.dice = dice
        self.weather = weather
        self._parts = parts
        self._connections: dict[Node, dict[asyncio.Future[Any], None]] = {}
        self._context: Context = copy_context()
        self.calm = asyncio.Event()
        self.is_lone = True
        """True as long as no two nodes ran at the same time."""

    # --- lives of nodes -------------------------------------------------------------------------

    def start(self) -> None:
        """Start the first node."""
        self._start_node()

    async def wait_until_calm(self) -> None:
        await self.calm.wait()

    def _start_node(self) -> None:
        self.is_calm = self.lives >= self.weather.lives
        node = self.add_node()
        if self.is_calm:
            for stale in self.nodes[:-1]:
                stale.process.die()
            self.calm.set()
        else:
            self._loop.call_later(
                self.dice.random() * self.weather.max_life_s, self._end_life, node, context=self._context
            )

    def add_node(self, placement: Placement | None = None) -> Node:
        """Start a node, with the faults of the weather unless the cluster is calm."""
        self.lives += 1
        node = Node(
            f"node {self.lives}",
            self._loop,
            self.dice,
            disk=self.disk,
            outside=self.outside,
            faults=self._faults(),
            parts=self._parts,
            limits=self.weather.limits,
            on_death=self._on_death,
            placement=placement,
        )
        self.disk.trace("starts", node.name)
        self._connections[node] = {}
        self.nodes.append(node)
        self.is_lone &= len(self.nodes) == 1
        node.spawn(node.start()).add_done_callback(self._check_start)
        return node

    def _check_start(self, starting: asyncio.Task[None]) -> None:
        """Report a start that failed for another reason than its store or its node's death."""
        failure = None if starting.cancelled() else starting.exception()
        if failure is not None and not isinstance(failure, KilledError):
            self._loop.failures.append(f"a node did not start: {failure!r}")

    def _faults(self) -> NodeFaults:
        weather = self.weather
        if self.is_calm:
            return NodeFaults(
                disk=DiskFaults(max_delay_s=weather.disk.max_delay_s),
                outside=OutsideFaults(max_delay_s=weather.outside.max_delay_s),
                sweep_interval_s=CALM_SWEEP_S,
                expire_after_ms=weather.expire_after_ms,
            )
        return NodeFaults(
            disk=weather.disk,
            outside=weather.outside,
            dies_after_callbacks=self.dice.randint(1, weather.max_callbacks)
            if weather.max_callbacks
            else None,
            dies_at_point=weather.dies_at_point,
            expire_after_ms=weather.expire_after_ms,
            clock_ahead_ms=self.dice.randint(0, weather.clock_error_ms) if weather.clock_error_ms else 0,
        )

    def _end_life(self, node: Node) -> None:
        """End a life that no fault has ended: at once, in order, or after the next node has started."""
        if node.process.is_dead or node is not self.nodes[-1]:
            return
        chance = self.dice.random()
        if chance < self.weather.overlaps:
            self.disk.trace("overlaps", node.name)
            self._start_node()
            if not node.process.is_dead:
                self._loop.call_later(
                    self.dice.random() * self.weather.max_life_s, node.process.die, context=self._context
                )
        elif chance < self.weather.overlaps + self.weather.stops and node.is_ready:
            self.disk.trace("stops", node.name)
            self._loop.create_task(self._stop(node), context=self._context.copy())
        else:
            node.process.die()

    async def _stop(self, node: Node) -> None:
        stopped = self._loop.create_future()
        node.spawn(node.stop()).add_done_callback(lambda _: stopped.done() or stopped.set_result(None))
        self._connections[node][stopped] = None
        try:
            await stopped
        except LostError:
            return
        node.process.die()

    def _on_death(self, node: Node) -> None:
        """Break the connections of a node and start the next one, if it was the newest."""
        self.disk.trace("dies", node.name)
        for answer in self._connections.pop(node):
            if not answer.done():
                answer.set_exception(LostError(node.name))
        was_newest = node is self.nodes[-1]
        self.nodes.remove(node)
        self.replace(was_newest=was_newest)

    def replace(self, *, was_newest: bool) -> None:
        """Start the next node a moment later, if the newest has died."""
        if was_newest:
            self._loop.call_later(
                self.dice.random() * self.weather.max_life_s, self._restart, context=self._context
            )

    def _restart(self) -> None:
        self._start_node()

    # --- requests -------------------------------------------------------------------------------

    def ready(self) -> list[Node]:
        """Return the nodes that accept requests."""
        return [node for node in self.nodes if node.is_ready]

    async def call(self, work: Callable[[Node], Awaitable[T]], actor_id: str = "") -> T:
        """Send a request to a running node and return its answer. Raises `LostError`, and the errors of
        ``work``. ``actor_id`` is the actor that the request is about, if its owner matters."""
        await self._travel()
        ready = self.ready()
        if not ready:
            raise LostError("no node")
        return await self.call_node(self.choose(ready, actor_id), work)

    async def call_node(self, node: Node, work: Callable[[Node], Awaitable[T]]) -> T:
        """Send a request to this node; see `call`."""
        answer: asyncio.Future[T] = self._loop.create_future()
        connections = self._connections.get(node)
        if connections is None:
            raise LostError(node.name)
        connections[answer] = None
        serving = node.spawn(self._serve(work, node, answer))
        if not self.is_calm and self.dice.random() < self.weather.hangs_up:
            self._loop.call_later(
                self.dice.random() * 0.05, _arrive, answer, None, LostError("hung up"), context=self._context
            )
        try:
            return await answer
        finally:
            connections.pop(answer, None)
            serving.cancel()  # The client may have hung up. A server learns of that once.

    def choose(self, ready: list[Node], actor_id: str) -> Node:
        """Return the node for a request: mostly the newest, which owns all shards."""
        return ready[-1] if self.dice.random() < 0.7 else self.dice.choice(ready)

    async def _serve(
        self, work: Callable[[Node], Awaitable[T]], node: Node, answer: asyncio.Future[T]
    ) -> None:
        """Execute a request in the node's process, and send its answer."""
        problem: Exception | None = None
        result: Any = None
        try:
            result = await work(node)
        except WonderError as refused:
            problem = refused
        except Exception as failure:
            self._loop.failures.append(f"a request failed on {node.name}: {failure!r}")
            problem = LostError("failed")
        if not self.is_calm and self.dice.random() < self.weather.loses_answer:
            problem = LostError("lost on the way")
        delay_s = self.dice.random() * self.weather.max_delay_s
        self._loop.call_later(delay_s, _arrive, answer, result, problem, context=self._context)

    async def _travel(self) -> None:
        await asyncio.sleep(self.dice.random() * self.weather.max_delay_s)


def _arrive(answer: asyncio.Future[Any], result: Any, problem: Exception | None) -> None:
    if answer.done():
        return
    if problem is not None:
        answer.set_exception(problem)
    else:
        answer.set_result(result)
