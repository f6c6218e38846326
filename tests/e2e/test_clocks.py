"""The wall clock of a server's machine is set while it runs, and over a restart: clients notice nothing."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.e2e.client import Client
from tests.e2e.process import serving
from tests.e2e.run_view import RunView, start

pytestmark = pytest.mark.asyncio(loop_scope="session")

DAY_S = 86_400
PATIENCE_S = 60
"""Of a timer of moments; it only has to be much less than a day."""
WORKFLOWS = """
name: moment
workflow:
  nodes: [{id: wait, wait: {duration_ms: 300}}]
---
name: moments
workflow:
  nodes: [{id: wait, wait: {duration_ms: 1500}}]
"""


async def ended(client: Client, run_id: str) -> RunView:
    view = RunView(run_id)
    async with asyncio.timeout(PATIENCE_S):
        await view.watch(client)
    assert view.names[-1] == "workflow_completed"
    return view


@pytest.mark.parametrize("step_s", [-DAY_S, DAY_S])
async def test_timers_run_on_while_the_wall_clock_is_set(data: Path, tmp_path: Path, step_s: int) -> None:
    wall = tmp_path / "wall"
    wall.write_text("0")
    async with serving(data, environment={"WALL_CLOCK": str(wall)}) as server, server.client() as client:
        await client.apply("e2e/clocks", WORKFLOWS)
        before = await start(client, "e2e/clocks/moments")
        wall.write_text(str(step_s))
        during = await start(client, "e2e/clocks/moment")
        views = [await ended(client, during), await ended(client, before)]
        for view in views:
            times = [event.create_time.ToMilliseconds() for event in view.events]
            assert times == sorted(times)
        stepped = await server.logged("clock_stepped")
        assert abs(stepped["ahead_s"] - step_s) < 60


async def test_a_timer_goes_on_when_the_wall_clock_was_set_back_over_a_restart(
    data: Path, tmp_path: Path
) -> None:
    wall = tmp_path / "wall"
    wall.write_text("0")
    environment = {"WALL_CLOCK": str(wall)}
    async with serving(data, environment=environment) as server, server.client() as client:
        await client.apply("e2e/clocks", WORKFLOWS)
        run_id = await start(client, "e2e/clocks/moments")
    wall.write_text(str(-DAY_S))
    async with serving(data, environment=environment) as server, server.client() as client:
        await ended(client, run_id)
