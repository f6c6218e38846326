"""A placement that moves shards between running nodes at random.

Each move raises the shard's epoch in the store first. The node that gains the shard and the node that loses
it learn of the move a moment later, in either order. So for a while each owns the shard as far as it knows,
and the store refuses the commits of the old owner.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Mapping

from tests.simulation.cluster import Cluster
from tests.simulation.disk import Disk
from tests.simulation.node import Node
from wonder_server.core import ids
from wonder_server.ports.placement import Owner, PlacementListener

MAX_NEWS_S = 0.2
"""Longest time after which a node learns of a move."""

MAX_PAUSE_S = 0.5
"""Longest time between two moves."""

MAX_FAULTS_S = 3.0
"""Time after which no fault follows."""


class NodePlacement:
    """The placement as one node knows it. Implements the port ``Placement``."""

    def __init__(self, moves: Moves) -> None:
        self.node: Node | None = None
        self._moves = moves
        self._held: dict[int, int] = {}
        self._listeners: list[PlacementListener] = []

    def owner(self, shard: int) -> Owner:
        assert self.node is not None
        return Owner(self.node.name, self._held[shard]) if shard in self._held else Owner("", 0)

    def held(self) -> Mapping[int, int]:
        return dict(self._held)

    def watch(self, listener: PlacementListener) -> None:
        self._listeners.append(listener)

    def surrender(self, shard: int, epoch: int) -> None:
        if self._held.get(shard) == epoch:
            del self._held[shard]
            self._moves.surrendered(self, shard, epoch)

    def gain(self, shard: int, epoch: int) -> None:
        """Learn of a shard. Ignore news that a later move has overtaken."""
        if self._held.get(shard, 0) < epoch and self._moves.is_current(shard, epoch):
            self._held[shard] = epoch
            for listener in self._listeners:
                listener.gained(shard, epoch)

    def lose(self, shard: int, epoch: int) -> None:
        """Learn that the shard of this epoch has another owner."""
        if self._held.get(shard) == epoch:
            del self._held[shard]
            for listener in self._listeners:
                listener.lost(shard)


class Moves:
    """All owners, as the store knows them. `shuffle` moves some."""

    def __init__(self, dice: random.Random, disk: Disk) -> None:
        self._dice = dice
        self._disk = disk
        self._nodes: list[NodePlacement] = []
        self._owners: dict[int, tuple[NodePlacement, int]] = {}

    def new_node(self) -> NodePlacement:
        """Return the placement of a node that starts."""
        return NodePlacement(self)

    def is_current(self, shard: int, epoch: int) -> bool:
        return self._owners[shard][1] == epoch

    def owns(self, node: Node, actor_id: str) -> bool:
        """Return True if the node is the owner of the actor's shard."""
        owner = self._owners.get(ids.shard_of(actor_id))
        return owner is not None and owner[0].node is node

    def join(self, placement: NodePlacement) -> None:
        """Add a node that starts. The next shuffle can give it shards."""
        self._nodes.append(placement)

    async def shuffle(self) -> None:
        """Move some shards to other nodes. Shards of dead nodes move as well."""
        self._nodes = [each for each in self._nodes if not _is_dead(each)]
        ready = [each for each in self._nodes if each.node is not None and each.node.is_ready]
        for shard in range(ids.SHARDS) if ready else ():
            if not self._has_living_owner(shard) or self._dice.random() < 0.3:
                await self._move(shard, self._dice.choice(ready))

    def surrendered(self, placement: NodePlacement, shard: int, epoch: int) -> None:
        """Free a shard that its owner gave up."""
        if self._owners.get(shard) == (placement, epoch):
            del self._owners[shard]

    def _has_living_owner(self, shard: int) -> bool:
        return shard in self._owners and not _is_dead(self._owners[shard][0])

    async def _move(self, shard: int, to: NodePlacement) -> None:
        epoch = (await self._disk.journal.raise_epochs([shard]))[shard]
        before = self._owners.get(shard)
        self._owners[shard] = (to, epoch)
        self._disk.trace("moves", shard, "to", to.node.name if to.node else "", "under", epoch)
        if before is not None:
            self._tell(before[0], before[0].lose, shard, before[1])
        self._tell(to, to.gain, shard, epoch)

    def _tell(self, placement: NodePlacement, news: object, shard: int, epoch: int) -> None:
        assert placement.node is not None
        if not placement.node.process.is_dead:
            placement.node.spawn(self._deliver(news, shard, epoch))

    async def _deliver(self, news: object, shard: int, epoch: int) -> None:
        await asyncio.sleep(self._dice.random() * MAX_NEWS_S)
        assert callable(news)
        news(shard, epoch)


def _is_dead(placement: NodePlacement) -> bool:
    return placement.node is None or placement.node.process.is_dead


class SharedCluster(Cluster):
    """Two nodes over one disk, with a placement that moves shards between them.

    A node that dies is replaced. After some time, or ``lives`` deaths, two nodes without faults take over.
    Their shards move a few times more.
    """

    def start(self) -> None:
        """Start two nodes, and move shards from then on."""
        self._moves = Moves(self.dice, self.disk)
        asyncio.get_running_loop().create_task(self._run())

    def choose(self, ready: list[Node], actor_id: str) -> Node:
        """Return the owner of the actor's shard, or any node if the request names none or there is none."""
        owners = [node for node in ready if actor_id and self._moves.owns(node, actor_id)]
        return owners[0] if owners else self.dice.choice(ready)

    def replace(self, *, was_newest: bool) -> None:
        """Do nothing: `_run` replaces nodes."""

    async def _run(self) -> None:
        deadline_s = asyncio.get_running_loop().time() + MAX_FAULTS_S
        while self.lives < 2 + self.weather.lives and asyncio.get_running_loop().time() < deadline_s:
            await self._keep_two_nodes()
        for node in [*self.nodes]:
            node.process.die()
        self.is_calm = True
        for _ in range(3):
            await self._keep_two_nodes()
        self.calm.set()

    async def _keep_two_nodes(self) -> None:
        """Start what is missing, then move some shards."""
        while len(self.nodes) < 2:
            placement = self._moves.new_node()
            placement.node = self.add_node(placement)
            self._moves.join(placement)
        await asyncio.sleep(self.dice.random() * MAX_PAUSE_S)
        await self._moves.shuffle()
