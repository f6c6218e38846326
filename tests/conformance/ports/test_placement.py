"""Placement: the owner of a key, such as an agent's id, is the owner of the shard that the key spreads to."""

from __future__ import annotations

from wonder_server.adapters.in_memory.journal import MemoryJournal
from wonder_server.adapters.placement.local import LocalPlacement
from wonder_server.core import ids
from wonder_server.ports.placement import owns_key


async def test_the_owner_of_a_shard_owns_its_keys_until_it_loses_the_shard() -> None:
    placement = await LocalPlacement.open(MemoryJournal())
    agents = [f"agt_{number}" for number in range(200)]
    assert {ids.spread(agent) for agent in agents} == set(range(ids.SHARDS))
    assert all(owns_key(placement, agent) for agent in (*agents, ""))
    lost = ids.spread(agents[0])
    placement.surrender(lost, placement.held()[lost])
    kept = {agent for agent in agents if owns_key(placement, agent)}
    assert kept == {agent for agent in agents if ids.spread(agent) != lost}
