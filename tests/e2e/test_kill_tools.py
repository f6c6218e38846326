"""kill -9 at every commit of turns with tools that are waited for, tools in the background, agents, hooks
that wait, and histories that no longer fit.

The record afterwards is that of an uninterrupted run: the same events, moves, results, messages and memories,
whatever the order in which results came back, and each effect once.
"""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from tests.e2e.client import Client, View
from tests.e2e.deaths import at_every, through_deaths
from tests.e2e.kill_stories import CASES, CaseStory, prepare
from tests.e2e.process import serving
from wonder.v1 import conversation_pb2 as conversation
from wonder.v1 import conversation_service_pb2 as pb

pytestmark = pytest.mark.asyncio(loop_scope="session")


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Prepare a data folder with the agents, to copy."""
    data = tmp_path_factory.mktemp("prepared") / "data"
    async with serving(data) as server, server.client() as client:
        await prepare(client)
    return data


_whole: dict[str, dict[str, Any]] = {}


async def whole(name: str, prepared: Path, folder: Path) -> dict[str, Any]:
    """Return the record of an uninterrupted run."""
    if name not in _whole:
        await asyncio.to_thread(shutil.copytree, prepared, folder)
        story = CaseStory(CASES[name])
        assert await through_deaths(folder, story, story.view, "") == 0
        turns = story.record.get("turns", ())
        assert all(status == conversation.TURN_STATUS_COMPLETED for status, *_ in turns)
        assert set(CASES[name].names) <= set(story.view.names)
        _whole[name] = story.record
    return _whole[name]


def assert_same(record: dict[str, Any], whole: dict[str, Any], deaths: int) -> None:
    """Nothing differs, but that a call of a model that was under way when the server died counts besides."""
    calls = "calls of models"
    assert {**record, calls: 0} == {**whole, calls: 0}
    assert whole.get(calls, 0) <= record.get(calls, 0) <= whole.get(calls, 0) + deaths


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("point", ["before-commit", "after-commit", "before-answer", "before-dispatch"])
async def test_a_kill_anywhere_leaves_the_record_of_an_uninterrupted_run(
    prepared: Path, tmp_path: Path, name: str, point: str
) -> None:
    case = CASES[name]
    record = await whole(name, prepared, tmp_path / "whole")

    async def tell(data: Path, doom: str) -> int:
        story = CaseStory(case)
        deaths = await through_deaths(data, story, story.view, doom, "")
        assert_same(story.record, record, deaths)
        return deaths

    deaths = await at_every(point, tell, fresh=prepared, folder=tmp_path)
    assert deaths >= (case.steps if point.endswith("commit") else 1)


STEPS = ("opened", "said", "colleague asked", "colleague at work", "cancelled")
"""Steps of `cancel_it`, each on disk before the next begins."""


async def cancel_it(client: Client, _: View) -> None:
    """Ask the host, cancel its turn once its colleague speaks, and see the colleague stop."""
    conv = await client.open("host", request_id="open")
    said = await client.say(conv, "use the tool colleague with say 1000 words", "say")
    async with asyncio.timeout(60):
        while not (asked := [turn for turn in await turns_of(client) if turn.conversation_id != conv]):
            pass  # Its conversation comes a commit later.
    async with client.listening(asked[0].conversation_id) as listener:
        await listener.until(lambda v: any(v.texts.values()) or "turn.cancelled" in v.names)
        await client.conversations.CancelTurn(
            pb.CancelTurnRequest(conversation_id=conv, turn_id=said.turn.id, request_id="stop")
        )
        await listener.until(lambda v: "turn.cancelled" in v.names)
    cancelled = conversation.TURN_STATUS_CANCELLED
    assert [turn.status for turn in await turns_of(client)] == [cancelled, cancelled]


@pytest.mark.parametrize("point", ["before-commit", "after-commit"])
async def test_a_kill_around_a_cancel_does_not_leave_the_colleague_working(
    prepared: Path, tmp_path: Path, point: str
) -> None:
    async def tell(data: Path, doom: str) -> int:
        return await through_deaths(data, cancel_it, View(), doom, "")

    assert await at_every(point, tell, fresh=prepared, folder=tmp_path) >= len(STEPS)


async def turns_of(client: Client) -> list[conversation.Turn]:
    return list((await client.conversations.ListTurns(pb.ListTurnsRequest())).turns)
