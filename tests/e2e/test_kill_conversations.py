"""kill -9 around deleting and archiving: nothing is half done, nothing is lost, and nothing is left over."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Awaitable, Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from tests.e2e.archived import AHEAD, Populated, is_away, objects, populate, shown
from tests.e2e.client import Client, View
from tests.e2e.deaths import at_every, through_deaths
from tests.e2e.process import serving
from tests.e2e.test_conversations import deletion, get
from tests.rpc.rpc_kit import rejected
from wonder.v1 import conversation_pb2 as conversation
from wonder.v1 import conversation_service_pb2 as pb
from wonder_server.ports.journal import KEPT

pytestmark = pytest.mark.asyncio(loop_scope="session")

COMMITS = ["in-commit", "committed"]
"""Points of the writer's thread. `tests.simulation` dies before and after each commit."""
OBJECTS = ["after-object", "after-object-goes"]
"""Points of the object store. `tests.simulation` dies before each change too."""


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def populated(tmp_path_factory: pytest.TempPathFactory) -> Populated:
    return await populate(tmp_path_factory.mktemp("populated") / "data")


async def until(seen: Callable[[], Awaitable[Any]]) -> None:
    """Poll until a state holds that no event reports."""
    async with asyncio.timeout(60):
        while True:
            if await seen():
                return
            await asyncio.sleep(0.01)


# --- deleting ---------------------------------------------------------------------------------------


def written_beside(data: Path, kept: str) -> dict[str, int]:
    """Rows by table of what does not belong to the conversation ``kept``, but for requests that stay."""
    found = {}
    scopes = ", ".join(f"'{scope}'" for scope in KEPT)
    for path in sorted((data / "shards").glob("*.db")):
        with closing(sqlite3.connect(path)) as shard:
            sql = "SELECT id FROM actors WHERE root = ? OR id = ?"
            known = {row[0] for row in shard.execute(sql, (kept, kept))}
            for (table,) in shard.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall():
                columns = [row[1] for row in shard.execute(f"PRAGMA table_info({table})")]
                whose = next((name for name in ("actor", "root") if name in columns), "")
                but = f"WHERE scope NOT IN ({scopes})" if table == "requests_answered" else ""
                rows = shard.execute(f"SELECT {whose} FROM {table} {but}").fetchall() if whose else []
                strangers = sum(row[0] not in known for row in rows)
                if strangers:
                    found[table] = strangers
    return found


async def all_turns(client: Client) -> list[conversation.Turn]:
    return list((await client.conversations.ListTurns(pb.ListTurnsRequest(page_size=200))).turns)


@pytest.mark.parametrize("archived", [False, True])
@pytest.mark.parametrize("point", [*COMMITS, *OBJECTS])
async def test_a_deletion_that_dies_is_none_or_whole(
    tmp_path: Path, populated: Populated, point: str, archived: bool
) -> None:
    """With all that was delegated from it; ``archived``: it has expired, and is put away first."""
    environment = {"CLOCK_AHEAD_S": AHEAD} if archived else {}

    async def tell(data: Path, doom: str) -> int:
        seen: list[bool] = []

        async def gone(client: Client) -> bool:
            return {turn.conversation_id for turn in await all_turns(client)} == {populated.kept}

        async def story(client: Client, _: View) -> None:
            if archived and not seen:
                await until(lambda: is_away(client, populated.doomed.conv))
                seen.append(True)
            await client.conversations.DeleteConversation(deletion(populated.doomed.conv, request_id="bye"))
            assert (await rejected(get(client, populated.doomed.conv)))[0] == "CONVERSATION_NOT_FOUND"
            await until(lambda: gone(client))

        deaths = await through_deaths(data, story, View(), doom, "", environment=environment)
        assert written_beside(data, populated.kept) == {} and objects(data) == []
        async with serving(data) as server, server.client() as client:
            assert len(await client.messages(populated.kept)) == 2
        return deaths

    deaths = await at_every(point, tell, fresh=populated.data, folder=tmp_path)
    assert deaths >= (2 if archived or point in COMMITS else 0)


async def test_a_deletion_while_agents_work_stops_them(tmp_path: Path, populated: Populated) -> None:
    async def tell(data: Path, doom: str) -> int:
        convs: list[str] = []

        async def story(client: Client, _: View) -> None:
            if not convs:
                conv = await client.open("boss", request_id="open")
                await client.say(conv, "use the tool ask_snail with say 1000 words", "say")
                await until(lambda: two_speak(client))
                convs.append(conv)
            await client.conversations.DeleteConversation(deletion(convs[0], request_id="bye"))
            await until(lambda: two_speak(client, no_more=True))

        async def two_speak(client: Client, no_more: bool = False) -> bool:
            active = [t for t in await all_turns(client) if t.status == conversation.TURN_STATUS_ACTIVE]
            return not active if no_more else len(active) == 2

        deaths = await through_deaths(data, story, View(), doom, "")
        async with serving(data) as server, server.client() as client:
            for conv in (populated.doomed.conv, populated.kept):
                await client.conversations.DeleteConversation(deletion(conv))
        assert written_beside(data, "") == {} and objects(data) == []
        return deaths

    assert await at_every("committed", tell, fresh=populated.data, folder=tmp_path) >= 5


# --- archiving --------------------------------------------------------------------------------------


@pytest.mark.parametrize("point", [*COMMITS, *OBJECTS])
async def test_what_expires_is_archived_whole_and_comes_back_whole(
    tmp_path: Path, populated: Populated, point: str
) -> None:
    """The server is killed during archiving, during the restore, and at the next message."""

    async def tell(data: Path, doom: str) -> int:
        seen: list[bool] = []
        view = View()

        async def story(client: Client, view: View) -> None:
            if not seen:
                await until(lambda: is_away(client, populated.doomed.conv))
                assert len(objects(data)) == 2, "what was delegated goes with it"
                seen.append(True)
            assert (
                await shown(client, populated.doomed.conv, populated.doomed.turn) == populated.doomed.before
            )
            said = await client.say(populated.doomed.conv, "use the tool ask_helper with say 2 words", "back")
            await client.settled(populated.doomed.conv, said.turn.id, view)
            assert (
                await shown(client, populated.doomed.conv, populated.doomed.turn) == populated.doomed.before
            )
            helped = populated.delegated
            assert await shown(client, helped.conv, helped.turn) == helped.before
            # Two of it, one of each helper, one of the other.
            assert len(await all_turns(client)) == 5

        deaths = await through_deaths(data, story, view, doom, "", environment={"CLOCK_AHEAD_S": AHEAD})
        assert objects(data) == []
        assert [e.sequence for e in view.events] == list(range(1, len(view.events) + 1))
        updates = [e.conversation_updated for e in view.events if e.name == "conversation.updated"]
        assert [each.HasField("archive_time") for each in updates] == [True, False]
        assert view.names.count("conversation_turn") == 2
        assert view.names.count("tool.completed") == 2
        return deaths

    deaths = await at_every(point, tell, fresh=populated.data, folder=tmp_path)
    assert deaths >= (6 if point in COMMITS else 2)
