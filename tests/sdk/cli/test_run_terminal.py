"""`wonder run` at a terminal: the live table, gate approvals and Ctrl-C."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tests.sdk.cli.test_chat_terminal import Person
from tests.sdk.fake_coordinator import GATE, RUN, FakeCoordinator
from tests.sdk.fake_server import serving
from wonder.v1 import coordinator_service_pb2 as service

HERE = 13  # lint is done, unit is tried again


@asynccontextmanager
async def running(
    fake: FakeCoordinator, home: Path, *command: str, **environment: str
) -> AsyncIterator[Person]:
    async with serving(coordinator=fake) as address:
        yield Person(address, home, *command, **environment)


async def test_ctrl_c_exits_and_the_run_continues(tmp_path: Path) -> None:
    fake = FakeCoordinator(held=HERE)
    async with running(fake, tmp_path, "run", "acme/flows/release") as person:
        await asyncio.to_thread(person.reads, "1 of 2 branches arrived")
        person.types("\x03")
        assert await asyncio.to_thread(person.leaves) == 130
    assert f"{RUN} continues" in person.screen
    assert f"wonder run --watch {RUN}" in person.screen and f"wonder runs cancel {RUN}" in person.screen
    assert not [each for each in fake.requests if isinstance(each, service.CancelRunRequest)]
    assert "Traceback" not in person.screen


async def test_ctrl_c_cancels_the_run_with_the_flag(tmp_path: Path) -> None:
    fake = FakeCoordinator(held=HERE)
    async with running(fake, tmp_path, "run", "x", "--cancel-on-interrupt") as person:
        await asyncio.to_thread(person.reads, "1 of 2 branches arrived")
        person.types("\x03")
        assert await asyncio.to_thread(person.leaves) == 130
    assert "cancelled · 600 ms" in person.screen
    assert "continues\r\n" not in person.screen
    assert len([each for each in fake.requests if isinstance(each, service.CancelRunRequest)]) == 1


async def test_the_table_is_redrawn_in_place_and_the_output_comes_last(tmp_path: Path) -> None:
    fake = FakeCoordinator(held=HERE)
    async with running(fake, tmp_path, "run", "x") as person:
        await asyncio.to_thread(person.reads, "1 of 2 branches arrived")
        await fake._happen(fake.events)
        assert await asyncio.to_thread(person.leaves) == 0
    assert "\x1b[J" in person.screen and "F" in person.screen.partition("\x1b[")[2]
    last = person.screen.rpartition("\x1b[J")[2].replace("\r\n", "\n")
    assert last == '{\n  "count": 2,\n  "released": "1.2"\n}\n'


@pytest.mark.parametrize("variable", [{"NO_COLOR": "1"}, {"TERM": "dumb"}])
async def test_without_colours_the_run_is_printed_in_lines(variable: dict[str, str], tmp_path: Path) -> None:
    async with running(FakeCoordinator(), tmp_path, "run", "x", **variable) as person:
        assert await asyncio.to_thread(person.leaves) == 0
    assert "0.030  ✓ build  29 ms" in person.screen
    assert "\x1b[" not in person.screen


async def test_a_lost_and_restored_connection_is_reported(tmp_path: Path) -> None:
    fake = FakeCoordinator(held=HERE)
    async with serving(coordinator=fake) as address:
        person = Person(address, tmp_path, "run", "x")
        await asyncio.to_thread(person.reads, "1 of 2 branches arrived")
    await asyncio.to_thread(person.reads, f"no connection to {address}; reconnecting")
    async with serving(coordinator=fake, address=address):
        await fake._happen(fake.events)
        assert await asyncio.to_thread(person.leaves) == 0
    assert "connected again" in person.screen
    assert person.screen.count("completed · 1.5 s") == 1


@pytest.mark.parametrize(("keys", "code"), [("y\r", 0), ("n\r", 1), ("\x04", 1)])
async def test_an_approval_shows_the_gate_and_asks_for_confirmation(
    keys: str, code: int, tmp_path: Path
) -> None:
    fake = FakeCoordinator(held=HERE)
    async with running(fake, tmp_path, "gates", "approve", GATE) as person:
        await asyncio.to_thread(person.reads, "Approve? [y/N]")
        assert '"version": "1.2"' in person.screen
        person.types(keys)
        assert await asyncio.to_thread(person.leaves) == code
    output = [each for each in fake.requests if isinstance(each, service.ResolveGateRequest)]
    assert len(output) == (0 if code else 1)
    assert ("the gate was not answered" in person.screen) == bool(code)


async def test_an_edited_answer_is_shown_before_the_confirmation(tmp_path: Path) -> None:
    async with running(
        FakeCoordinator(held=HERE), tmp_path, "gates", "approve", GATE, "--set", "notes=x"
    ) as person:
        await asyncio.to_thread(person.reads, "your answer, in place of what is shown:")
        await asyncio.to_thread(person.reads, '"notes": "x"')
        await asyncio.to_thread(person.reads, "Approve? [y/N]")
        person.types("n\r")
        assert await asyncio.to_thread(person.leaves) == 1


async def test_lists_are_printed_in_columns(tmp_path: Path) -> None:
    async with running(FakeCoordinator(), tmp_path, "runs", "-n", "2") as person:
        assert await asyncio.to_thread(person.leaves) == 0
    lines = person.screen.replace("\r", "").splitlines()
    assert lines[0].startswith("run_0  running  20") and lines[1].startswith("run_1  waiting  20")
    assert "--limit shows more" in lines[2]
