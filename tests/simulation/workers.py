"""Remote workers: they connect to every node, execute jobs, fall silent, and connect again.

A worker lives outside the nodes, so it survives them. It talks to the pool of a node as the servicer of the
worker stream does. Now and then it sends a result twice, or after it let the lease expire.
"""

from __future__ import annotations

import asyncio
import random
from dataclasses import dataclass, field
from typing import Final

from tests.simulation.cluster import Cluster, LostError
from tests.simulation.node import LEASE_MS, Node
from wonder_server.core.errors import Reason, WonderError
from wonder_server.services.workers.messages import AssignmentMessage, Registration, WorkerKind
from wonder_server.services.workers.session import WorkerSession

KINDS: Final = (WorkerKind(name="paint"), WorkerKind(name="polish", idempotent=True))
HEARTBEAT_S: Final = LEASE_MS / 3000


@dataclass
class _Connection:
    """One stream of a worker: its session, and the leases that it works on."""

    session: WorkerSession
    leases: dict[str, None] = field(default_factory=dict)


class Worker:
    """A worker that executes both kinds. `run` never ends."""

    def __init__(self, name: str, cluster: Cluster, dice: random.Random) -> None:
        self._registration = Registration(name=name, kinds=KINDS, max_concurrency=2)
        self._cluster = cluster
        self._dice = dice

    async def run(self) -> None:
        """Connect to each node, again and again."""
        connected: dict[Node, asyncio.Task[None]] = {}
        try:
            while True:
                for node in self._cluster.ready():
                    if node not in connected or connected[node].done():
                        connected[node] = asyncio.get_running_loop().create_task(self._connect(node))
                await asyncio.sleep(self._dice.random() * 0.2)
        finally:
            for stream in connected.values():
                stream.cancel()

    async def _connect(self, node: Node) -> None:
        """Serve one stream of a node to its end."""
        try:
            await self._cluster.call_node(node, self._serve)
        except LostError:
            pass
        except WonderError as problem:
            # The pool ends the stream of a silent worker, and of every worker when its node stops.
            assert problem.fault.reason in (Reason.TIMEOUT, Reason.SERVER_DRAINING), problem

    async def _serve(self, node: Node) -> None:
        """Serve one stream. Runs in the node's process, as the servicer does."""
        connection = _Connection(node.workers.join(self._registration))
        talking = node.spawn(self._send_heartbeats(node, connection))
        try:
            while (message := await connection.session.next_message()) is not None:
                if isinstance(message, AssignmentMessage):
                    connection.leases[message.lease_id] = None
                    node.spawn(self._execute(node, connection, message))
        finally:
            talking.cancel()
            node.workers.disconnected(connection.session)

    async def _send_heartbeats(self, node: Node, connection: _Connection) -> None:
        """Extend the leases, unless the worker falls silent."""
        while self._cluster.is_calm or self._dice.random() > 0.1:
            node.workers.record_heartbeat(connection.session)
            node.workers.extend(connection.session, list(connection.leases))
            await asyncio.sleep(HEARTBEAT_S)

    async def _execute(self, node: Node, connection: _Connection, message: AssignmentMessage) -> None:
        """Execute a job and send its result."""
        path = str(message.job.input["url"]).removeprefix("http://world")
        outside = self._cluster.outside
        await asyncio.sleep(self._dice.random() * 0.05)
        outside.requests[path] += 1
        outside.keys[path].add(message.job.operation_id)
        outside.trace("worked", path)
        await asyncio.sleep(self._dice.random() * 0.05)
        connection.leases.pop(message.lease_id, None)
        if not self._cluster.is_calm and self._dice.random() < 0.1:
            # The next heartbeats do not name the lease, so it expires before its result arrives.
            await asyncio.sleep(2 * LEASE_MS / 1000)
        for _ in range(2 if self._dice.random() < 0.2 else 1):
            node.workers.completed(connection.session, message.lease_id, {"text": path})
