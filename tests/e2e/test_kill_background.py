"""kill -9 while a result comes late: its context is assembled again, and nothing said meanwhile is lost."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.e2e.background import LIBRARY, dispatched, found
from tests.e2e.client import Client, View
from tests.e2e.deaths import at_every, through_deaths
from tests.e2e.journals import journals
from tests.e2e.process import serving
from tests.simulation.requests import RequestChecks
from wonder_server.core.conversation.model.decisions import DispatchModel

pytestmark = pytest.mark.asyncio(loop_scope="session")

AGENT = """
name: researcher
persona:
  system_prompt: You research.
  memory_extraction_workflow_id: none
  tool_ids: [e2e/background/research]
"""
STEPS = 5
"""Steps that are on disk before the next begins: the conversation, the answer at once, the other turn, the
signal, the end of the first turn."""


async def story(client: Client, view: View) -> None:
    conv = await client.open("researcher", request_id="open")
    asked = (await client.say(conv, "use the tool research with flights to Oslo", "ask")).turn.id
    async with client.listening(conv, view=view) as listener:
        # The agent answers at once that the tool runs.
        await listener.until(lambda v: v.of_turn(asked).count("message.appended") >= 2)
    other = (await client.say(conv, "say 3 words before nine", "other")).turn.id
    await client.settled(conv, other, view)
    await found(client, dispatched(view, "research").operation.run_id, "two flights")
    await client.settled(conv, asked, view)


@pytest.mark.parametrize("point", ["in-commit", "committed"])
async def test_a_late_result_survives_a_kill_at_any_commit(point: str, tmp_path: Path) -> None:
    fresh = tmp_path / "fresh"
    async with serving(fresh) as server, server.client() as client:
        await client.apply("e2e/background", LIBRARY)
        await client.apply("e2e/researcher", AGENT)
        await client.agent("researcher", "e2e/researcher/researcher")

    async def tell(data: Path, doom: str) -> int:
        view = View()
        deaths = await through_deaths(data, story, view, doom, "")
        assert view.names.count("turn.completed") == 2 and "turn.failed" not in view.names
        (entries,) = [each for name, each in (await journals(data)).items() if name.startswith("conv_")]
        checks = RequestChecks()
        checks.check(entries)
        assert not checks.faults and checks.late_assemblies == 1
        requests = [
            each.request for entry in entries for each in entry.decisions if isinstance(each, DispatchModel)
        ]
        last = str(requests[-1].body)
        assert last.count("say 3 words before nine") == 1 and last.count("two flights") == 1
        return deaths

    assert await at_every(point, tell, fresh=fresh, folder=tmp_path) >= STEPS
