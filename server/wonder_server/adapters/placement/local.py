"""Placement of one server without others: every shard is here.

The epochs are in the data folder. Each start raises them, so the journal shows which run of the server wrote
an entry, and an earlier process whose file lock was lost cannot write any more.
"""

from __future__ import annotations

from collections.abc import Mapping

from wonder_server.core import ids
from wonder_server.ports.placement import Epochs, Owner, PlacementListener

NODE = "local"


class LocalPlacement:
    """Implements the port ``Placement``: this node owns every shard until the store refuses its commit."""

    def __init__(self, epochs: Mapping[int, int]) -> None:
        """Internal; use `open`."""
        self._epochs = dict(epochs)
        self._listeners: list[PlacementListener] = []

    @classmethod
    async def open(cls, epochs: Epochs) -> LocalPlacement:
        """Raise the epochs of all shards and own them. Raises STORAGE_UNAVAILABLE."""
        return cls(await epochs.raise_epochs(range(ids.SHARDS)))

    def owner(self, shard: int) -> Owner:
        epoch = self._epochs.get(shard)
        return Owner("", 0) if epoch is None else Owner(NODE, epoch)

    def held(self) -> Mapping[int, int]:
        return dict(self._epochs)

    def watch(self, listener: PlacementListener) -> None:
        self._listeners.append(listener)

    def surrender(self, shard: int, epoch: int) -> None:
        if self._epochs.get(shard) == epoch:
            del self._epochs[shard]
            for listener in self._listeners:
                listener.lost(shard)
