"""Memories with the SDK and the `wonder memory` command, against the server's service."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
import pytest_asyncio

from tests.rpc.rpc_kit import FakeNameResolver
from tests.services.memory.memory_kit import open_memory_stack
from tests.views import ForAll
from wonder_sdk import Client, InvalidArgumentError, NotFoundError, cli, sync, v1
from wonder_sdk.cli.shared.terminal import Terminal
from wonder_server.rpc.memory.servicer import MemoryParts, MemoryServicer
from wonder_server.rpc.server.server import RpcServer
from wonder_server.settings import Settings


class TickingClock:
    def __init__(self) -> None:
        self.now = 1_000_000

    def now_ms(self) -> int:
        self.now += 1000
        return self.now


@pytest_asyncio.fixture
async def address(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[str]:
    async with open_memory_stack(tmp_path, TickingClock()) as stack:
        servicer = MemoryServicer(ForAll(MemoryParts(stack.service, FakeNameResolver(), stack.blocks)))
        server = RpcServer(Settings(listen="127.0.0.1:0"))
        target = server.bind()
        await server.start({"wonder.v1.MemoryService": servicer})
        monkeypatch.setenv("WONDER_SERVER", target)
        yield target
        await server.stop(0)


async def test_a_memory_is_recalled_listed_replaced_and_forgotten(address: str) -> None:
    async with Client() as client:
        tea = await client.remember(
            "Anna likes green tea.",
            agent="ada",
            significance=0.9,
            metadata={"about": "Anna"},
            conversation="conv_1",
            speaker="Anna",
            ordinal=3,
        )
        await client.remember("A note.", agent="ada", type="note")
        assert (await client.remember("anna likes GREEN tea.", agent="ada", unless_known=True)).id == tea.id
        [hit] = await client.recall("green tea?", agent="ada", types=["fact"], metadata={"about": "Anna"})
        assert hit.memory == tea and hit.score > 0.5 and hit.memory.source is not None
        assert (hit.memory.source.speaker, hit.memory.source.ordinal) == ("Anna", 3)
        coffee = await client.supersede(tea.id, "Anna likes coffee.", agent="ada")
        assert (coffee.type, coffee.supersedes_id) == ("fact", tea.id)
        assert [m.content async for m in client.list_memories(agent="ada", types=["fact"])] == [
            coffee.content
        ]
        everything = [m.content async for m in client.list_memories(agent="ada", everything=True)]
        assert len(everything) == 3
        later = datetime(1970, 1, 2, tzinfo=UTC)
        assert [m async for m in client.list_memories(agent="ada", since=later)] == []
        assert (await client.get_memory(tea.id, agent="ada")).superseded_by_id == coffee.id
        with pytest.raises(InvalidArgumentError):
            await client.supersede(tea.id, "x", agent="ada")
        await client.forget(tea.id, agent="ada")
        with pytest.raises(NotFoundError):
            await client.get_memory(tea.id, agent="ada")
        with pytest.raises(NotFoundError):
            await client.get_memory(coffee.id, agent="bob")


async def test_the_sync_client_has_the_same_memory_methods(address: str) -> None:
    def work() -> list[str]:
        with sync.Client() as client:
            made = client.remember("Bo plays chess.", agent="bob")
            found = [hit.memory.id for hit in client.recall("chess", agent="bob") if hit.memory]
            assert found == [made.id]
            client.supersede(made.id, "Bo plays go.", agent="bob")
            client.forget(made.id, agent="bob")
            return [memory.content for memory in client.list_memories(agent="bob")]

    assert await asyncio.to_thread(work) == ["Bo plays go."]


def out(capsys: pytest.CaptureFixture[str]) -> list[str]:
    """Return the printed lines without those of the server log."""
    return [line for line in capsys.readouterr().out.splitlines() if "[debug" not in line]


async def wonder(*argv: str) -> int:
    return await asyncio.to_thread(cli.main, ["memory", *argv, "--agent", "ada"])


async def test_the_command_adds_lists_searches_shows_and_forgets(
    address: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert await wonder("add", "Anna likes tea.") == 0
    assert await wonder("add", "long " * 100, "--type", "note") == 0
    [output, _] = out(capsys)
    assert output.startswith("ada remembers mem_")
    memory_id = output.split()[-1]
    assert await wonder("list") == 0
    note, fact = [line.split("\t") for line in out(capsys)]
    assert (fact[0], fact[2], fact[3]) == (memory_id, "fact", "Anna likes tea.")
    assert (note[2], len(note[3]), note[3][-1]) == ("note", 100, "…")
    assert await wonder("list", "--type", "fact", "--json", "-n", "1") == 0
    [line] = out(capsys)
    assert json.loads(line)["content"] == "Anna likes tea."
    assert await wonder("search", "who likes tea?") == 0
    assert [line.split("\t")[0] for line in out(capsys)][:1] == [memory_id]
    assert await wonder("show", memory_id) == 0
    shown = out(capsys)
    assert shown[-1] == "Anna likes tea." and [line.split() for line in shown[:2]] == [
        ["id", memory_id],
        ["type", "fact"],
    ]
    assert await wonder("forget", memory_id) == 2
    assert "Add --yes" in capsys.readouterr().err
    questions: list[str] = []
    with monkeypatch.context() as patch:
        patch.setattr(Terminal, "can_ask", True)
        patch.setattr(Terminal, "confirm", lambda self, question: bool(questions.append(question)))
        assert await wonder("forget", memory_id) == 1
        assert await wonder("forget", memory_id, "mem_x") == 1
    assert questions == [f"Delete {memory_id} of ada for good?", "Delete 2 memories of ada for good?"]
    assert out(capsys) == ["nothing was deleted"] * 2
    assert await wonder("forget", memory_id, "--yes") == 0
    assert out(capsys) == [f"{memory_id} forgotten"]
    for missing in (memory_id, "mem_x"):
        assert await wonder("forget", missing, "--yes") == 1
        output = capsys.readouterr().err
        assert f"'{missing}' of the agent 'agt_" in output or f"'{missing}' of the agent 'ada'" in output
        assert "`wonder memory list --agent NAME`" in output and "MEMORY_NOT_FOUND" in output
    assert await wonder("list", "--type", "fact") == 0
    assert out(capsys) == []


async def test_missing_memories_are_reported_on_stderr(
    address: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert await wonder("search", "zebra") == 0
    output = capsys.readouterr()
    assert "has no matching" not in output.out
    assert output.err.endswith("ada has no matching memories\n")
    assert await wonder("search", "zebra", "--json") == 0
    assert "has no matching" not in capsys.readouterr().err


async def test_an_unknown_agent_is_reported(address: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert await asyncio.to_thread(cli.main, ["memory", "list", "--agent", "eve"]) == 1
    assert "There is no agent 'eve'" in capsys.readouterr().err


async def test_a_misspelt_option_is_refused(address: str) -> None:
    async with Client() as client:
        with pytest.raises(TypeError, match="Did you mean 'turn'"):
            await client.remember("A note.", agent="ada", turn_id="turn_1")  # type: ignore[call-arg]
        with pytest.raises(TypeError, match="Did you mean 'types'"):
            await client.recall("note", agent="ada", type="note")  # type: ignore[call-arg]
        with pytest.raises(TypeError, match="Did you mean 'limit'"):
            await client.recall("note", agent="ada", limt=3)  # type: ignore[call-arg]
        with pytest.raises(TypeError, match="Did you mean 'agent'"):
            await client.remember("A note.", agnt="ada")  # type: ignore[call-arg]
        with pytest.raises(TypeError, match="Did you mean 'agent'"):
            await client.supersede("mem_1", "A note.", agnt="ada")  # type: ignore[call-arg]
        with pytest.raises(TypeError, match="Did you mean 'wait'"):
            await client.run("acme/none", {}, wiat=1)  # type: ignore[call-arg]
        with pytest.raises(TypeError, match="Use one of: input, project, "):
            await client.start_run("acme/none", {}, colour="red")  # type: ignore[call-arg]
        with pytest.raises(TypeError, match="Use one of: agent, types, "):
            [each async for each in client.list_memories(agent="ada", colour="red")]  # type: ignore[call-arg]
        with pytest.raises(TypeError, match="Did you mean 'project'"):
            await client.run("acme/none", {}, projct="one")  # type: ignore[call-arg]
        assert not [each async for each in client.list_memories(agent="ada")]


async def test_memories_are_found_by_the_time_they_were_said_and_above_a_relevance(
    address: str, capsys: pytest.CaptureFixture[str]
) -> None:
    async with Client() as client:
        said_at = datetime(2023, 5, 7, tzinfo=UTC)
        old = await client.remember("Anna bought a kayak.", agent="ada", said_at=said_at)
        new = await client.remember("Anna sold the kayak.", agent="ada", role=v1.MessageRole.USER)
        assert old.said_at == said_at and new.said_at == new.create_time
        since = [
            each.id
            async for each in client.list_memories(agent="ada", said_since=datetime(2023, 1, 1, tzinfo=UTC))
        ]
        assert since == [old.id]
        now = datetime(2023, 6, 2, tzinfo=UTC)
        [first, *_] = await client.recall("what happened last month?", agent="ada", now=now)
        assert first.memory is not None and first.memory.id == old.id
        assert (
            await client.recall("which lake in Scotland has cold water?", agent="ada", min_relevance=0.5)
            == []
        )
        capsys.readouterr()
    assert await wonder("search", "kayak", "--said-since", "2023-01-01", "--min-relevance", "0.2") == 0
    assert [line.split()[0] for line in out(capsys)] == [old.id]
    assert await wonder("add", "Anna paddles.", "--said-at", "2022-02-03T04:05") == 0
    capsys.readouterr()
    assert await wonder("list", "--said-since", "2022-01-01") == 0
    assert "2022-02-03 04:05:00" in "\n".join(out(capsys))


async def test_an_invalid_time_flag_is_refused(address: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        await wonder("list", "--said-since", "yesterday")
    assert "'yesterday' is not a date or time; use 2026-05-31" in capsys.readouterr().err
