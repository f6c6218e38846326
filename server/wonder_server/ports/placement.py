"""Placement: which node owns a shard, and under which epoch.

A shard has at most one owner. Each change of owner, and each start of a node, raises the epoch of the shard.
The store refuses commits of an earlier epoch (`wonder_server.ports.journal.StaleEpochError`), so a node that
lost a shard without noticing cannot write to it. Safety rests on this refusal alone. Placement makes a move
quick, and tells callers where a shard is.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Protocol

from wonder_server.core import ids
from wonder_server.core.errors import Reason, WonderError, error


@dataclass(frozen=True, slots=True)
class Owner:
    """The owner of a shard. ``node`` is the name of the node, "" while the shard is free."""

    node: str
    epoch: int


class PlacementListener(Protocol):
    """Receives the changes of this node's shards, in the event loop's thread."""

    def gained(self, shard: int, epoch: int) -> None:
        """This node owns the shard from now on, and writes to it under this epoch."""
        ...

    def lost(self, shard: int) -> None:
        """This node no longer owns the shard."""
        ...


class Placement(Protocol):
    """The owners of all shards, as this node knows them."""

    def owner(self, shard: int) -> Owner:
        """Return the owner of a shard. The answer can be out of date."""
        ...

    def held(self) -> Mapping[int, int]:
        """Return the epochs of the shards that this node owns, by shard."""
        ...

    def watch(self, listener: PlacementListener) -> None:
        """Tell the listener each later change of this node's shards."""
        ...

    def surrender(self, shard: int, epoch: int) -> None:
        """Give up a shard, since the store refused a commit of this epoch. Ignore an epoch that is not this
        node's."""
        ...


OwnsKey = Callable[[str], bool]
"""Returns True if this node owns the shard `ids.spread` of a key: of an agent's id, for its memories."""


def owns_everything(_key: str) -> bool:
    """Return True: the node is the only one."""
    return True


def owns_key(placement: Placement, key: str) -> bool:
    """Return True if this node owns the shard of ``key``, so that sweeps on this node process what belongs to
    the key. A key that has another owner by now may be processed once more, which changes nothing."""
    return ids.spread(key) in placement.held()


class Epochs(Protocol):
    """The epochs of shards, in the store that refuses commits of earlier ones."""

    async def raise_epochs(self, shards: Collection[int]) -> dict[int, int]:
        """Raise the epoch of each of these shards durably, and return the new epochs.

        Raises STORAGE_UNAVAILABLE. Commits that were submitted before may still be written.
        """
        ...


def owner_moved(shard: int) -> WonderError:
    """Build OWNER_MOVED for a request to a shard that this node does not own."""
    return error(
        Reason.OWNER_MOVED,
        "Another server owns this conversation or run now. Try again.",
        transient=True,
        retry_after_ms=RETRY_AFTER_MS,
        shard=str(shard),
    )


RETRY_AFTER_MS = 100
"""Milliseconds after which a client may repeat a request that was answered with OWNER_MOVED."""
