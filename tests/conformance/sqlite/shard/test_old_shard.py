"""A shard of the first release (``shard-0001.sql``) with three runs, one of them ended.

It opens, its runs are listed and shown like new ones, and unfinished runs continue.
"""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator
from pathlib import Path

import pytest_asyncio
from structlog.testing import capture_logs

from tests.actors.kit import origin
from tests.actors.run_kit import RunStage
from tests.sqlite_journals import SqliteJournals
from wonder_server.adapters.sqlite.connection import connect
from wonder_server.adapters.sqlite.shard.schema import MIGRATIONS
from wonder_server.core.coordinator.model.values import RunStatus
from wonder_server.ports.records import Query

DUMP = Path(__file__).with_name("shard-0001.sql")
ENDED, ONE, LOOP = (f"run_01HF7YAT000000000000000{number:02}1" for number in (1, 2, 3))
PROJECT, OWNER = "proj_01HF7YAT0000000000000000A1", "conv_01HF7YAT0000000000000000A1"


@pytest_asyncio.fixture
async def stage(tmp_path: Path) -> AsyncIterator[RunStage]:
    folder = tmp_path / "shards"
    await (await SqliteJournals.open(folder, 3)).close()
    (folder / "01.db").unlink()
    old = sqlite3.connect(folder / "01.db")
    old.executescript(DUMP.read_text(encoding="utf-8"))
    old.close()
    shards = await SqliteJournals.open(folder, 3)
    stage = RunStage(shards)
    yield stage
    await stage.loop.stop()
    await shards.close()


async def test_a_long_migration_is_logged_once(tmp_path: Path) -> None:
    with capture_logs() as said:
        for path, dump in (
            (tmp_path / "new.db", ""),
            (tmp_path / "old.db", DUMP.read_text(encoding="utf-8")),
        ):
            connection = sqlite3.connect(path)
            connection.executescript(dump)
            connection.close()
            for _ in range(2):
                connect(path, MIGRATIONS).close()
    logged = [
        (each["store"], each["migration"]) for each in said if each["event"] == "store_migration_started"
    ]
    assert logged == [("old.db", name) for name, _ in MIGRATIONS[1:]]


async def test_old_runs_are_listed_by_their_filters(stage: RunStage) -> None:
    async def listed(**query: object) -> list[str]:
        found = await stage.shards.find(Query(table="runs", newest_first=False, **query))  # type: ignore[arg-type]
        return [run.id for run in found]

    assert await listed() == [ENDED, ONE, LOOP]
    assert await listed(statuses=("running", "waiting")) == [ONE, LOOP]
    assert await listed(fields=(("workflow_id", "def_graph"),)) == [ENDED, ONE, LOOP]
    assert await listed(fields=(("workflow_ref", "team/graph@2"),)) == []
    assert await listed(fields=(("scope.project_id", PROJECT),)) == [ENDED]
    assert await listed(fields=(("scope.project_id", "proj_1"), ("parent.actor_id", ""))) == [ONE, LOOP]
    assert await listed(parent=OWNER) == [ENDED]


async def test_old_runs_have_their_events(stage: RunStage) -> None:
    whole = await stage.runs.lookup.with_details(ENDED)
    assert whole.run.status is RunStatus.COMPLETED and whole.executions == 1
    assert whole.details is not None and whole.details.state["a"]["n"] == 1
    events = await stage.shards.of(ENDED).events(ENDED, 0, 50)
    assert [event.sequence for event in events] == list(range(1, whole.head.sequence + 1))
    assert (await stage.runs.replay(ENDED)).steps


async def test_unfinished_old_runs_continue(stage: RunStage) -> None:
    await stage.loop.resume()
    await stage.wait_until_idle()
    await stage.finish("a", {"n": 5}, run_id=ONE)
    assert (await stage.runs.lookup.run(ONE)).status is RunStatus.COMPLETED
    # This action may not be executed twice, and its outcome is unknown.
    looped = await stage.runs.lookup.run(LOOP)
    assert looped.fault is not None and looped.fault.reason == "OUTCOME_UNKNOWN"


async def test_unfinished_old_runs_can_be_cancelled(stage: RunStage) -> None:
    assert (await stage.runs.cancel(ONE, "", "", origin())).run.status is RunStatus.CANCELLED
