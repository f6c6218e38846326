"""The journals of a data folder whose server has ended: read, and replayed."""

from __future__ import annotations

from pathlib import Path

from tests.sqlite_journals import SqliteJournal
from wonder_server.actors.runs.replay import replay
from wonder_server.core.actor.planner import Planner
from wonder_server.core.conversation.planner import CONVERSATION
from wonder_server.core.coordinator.planner import RUN
from wonder_server.ports.journal import Entry

PLANNERS: dict[str, Planner] = {planner.prefix: planner for planner in (CONVERSATION, RUN)}


async def journals(data: Path) -> dict[str, list[Entry]]:
    """Every actor's whole journal, by its id."""
    found: dict[str, list[Entry]] = {}
    for path in sorted((data / "shards").glob("*.db")):
        shard = await SqliteJournal.open(path)
        try:
            actors = await shard.database.read(
                lambda connection: [row[0] for row in connection.execute("SELECT id FROM actors")]
            )
            for actor_id in actors:
                found[actor_id] = await shard.entries(actor_id, 0, 1_000_000)
        finally:
            await shard.close()
    return found


async def assert_replays(data: Path) -> int:
    """Every journal gives the same decisions again; how many actors there were."""
    found = await journals(data)
    for actor_id, entries in found.items():
        assert [entry.sequence for entry in entries] == list(range(1, len(entries) + 1)), actor_id
        verdict = replay(PLANNERS[actor_id.partition("_")[0]], entries)
        assert verdict.difference is None, f"{actor_id}: {verdict.difference}"
        assert verdict.steps == len(entries)
    return len(found)
