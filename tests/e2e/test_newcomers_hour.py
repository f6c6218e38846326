"""The page docs/models.md, followed literally: three providers in one file, outages, budgets and accounts.

A shell runs each command of the page and prints what the page says. Beside it a client of the SDK compares
the accounts with the providers' own counts and with the prices of the file. Ports and the folder in /tmp are
replaced, so that the test runs beside others.
"""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import signal
import socket
import sys
import tomllib
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.e2e.client import PATIENCE_S
from tests.e2e.journals import assert_replays
from tests.e2e.launch import PATH
from tests.paths import ROOT
from wonder_sdk import Client, ResourceExhaustedError, v1
from wonder_sdk.cli.shared.connection import as_json

pytestmark = pytest.mark.asyncio(loop_scope="session")

EXAMPLE = ROOT / "examples" / "providers"
PAGE = (ROOT / "docs" / "models.md").read_text(encoding="utf-8")
PORTS = ("8801", "8802", "8803", "50061")
FOLDER = "/tmp/wonder-hour"
UNTIL = "## End"
COUNTS = {"orchid": (2, 400, 7), "rose": (1, 100, 5), "lily": (1, 100, 5)}
"""Calls, input tokens and output tokens, as the providers of the page print them."""
REFUSED = 3
"""Attempts at providers that had been stopped."""
END = "--the end of the output--"


@dataclass
class Step:
    """A command of the page and the output that the page shows."""

    command: str
    shown: list[str] = field(default_factory=list)


def steps(page: str) -> list[Step]:
    found: list[Step] = []
    for block in re.findall(r"^```console\n(.*?)^```$", page, re.DOTALL | re.MULTILINE):
        for line in block.splitlines():
            if line.startswith("$ "):
                found.append(Step(line.removeprefix("$ ")))
            else:
                found[-1].shown.append(line)
    return found


def free_ports() -> list[str]:
    with_ports = [socket.create_server(("127.0.0.1", 0)) for _ in PORTS]
    numbers = [str(each.getsockname()[1]) for each in with_ports]
    for each in with_ports:
        each.close()
    return numbers


class Shell:
    """A bash that runs one command after the other."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    async def run(self, command: str) -> list[str]:
        """Return the lines of a command's output, errors included."""
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(f"{command}\necho '{END}'\n".encode())
        lines = []
        async with asyncio.timeout(PATIENCE_S):
            while (line := (await self._process.stdout.readline()).decode()).rstrip("\n") != END:
                assert line, f"the shell ended in {command}: {lines}"
                lines.append(line.rstrip("\n"))
        return lines


@asynccontextmanager
async def shell(folder: Path) -> AsyncIterator[Shell]:
    """Run a shell in a folder. With it end all that it has started."""
    programs = folder / "bin"
    programs.mkdir()
    for name, arguments in (("python", ""), ("wonder", "-m wonder_sdk.cli")):
        (programs / name).write_text(f'#!/bin/sh\nexec "{sys.executable}" {arguments} "$@"\n')
        (programs / name).chmod(0o755)
    unset = {"WONDER_TOKEN", "WONDER_CA", "WONDER_DEFAULT_MODEL"}
    kept = {name: value for name, value in os.environ.items() if name not in unset}
    process = await asyncio.create_subprocess_exec(
        "bash", "--noprofile", "--norc",
        cwd=folder,
        env={**kept, "PYTHONPATH": PATH, "PATH": f"{programs}:{os.environ['PATH']}"},
        stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
        start_new_session=True,
    )  # fmt: skip
    try:
        yield Shell(process)
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        await process.wait()


def prices() -> dict[str, Mapping[str, float]]:
    """Return the prices of the example's file: dollars for a million tokens."""
    listed = tomllib.loads((EXAMPLE / "wonder.toml").read_text())["providers"]
    return {each["name"]: each["prices"] for each in listed}


def expected() -> v1.Usage:
    """Return the account that follows from the providers' counts and the prices of the file."""
    cost = sum(
        asked * prices()[name]["input"] + made * prices()[name]["output"]
        for name, (_, asked, made) in COUNTS.items()
    )
    calls, asked, made = (sum(column) for column in zip(*COUNTS.values(), strict=True))
    return v1.Usage(
        model_calls=calls + REFUSED, input_tokens=asked, output_tokens=made, cost_micros=round(cost)
    )


async def test_the_page_shows_the_files_and_the_sums_of_the_example() -> None:
    for name in ("wonder.toml", "garden.yaml"):
        assert f"<!-- examples/providers/{name} -->" in PAGE
        assert (EXAMPLE / name).read_text().strip() in PAGE, f"{name} differs"
    for provider, (calls, asked, made) in COUNTS.items():
        assert f"| {provider} | {calls} | {asked} | {made} |" in PAGE
    account = expected()
    sums = account.model_calls, account.input_tokens, account.output_tokens, account.cost_micros
    assert f"| account of the agent and of the project | {' | '.join(map(str, sums))} |" in PAGE


async def test_a_newcomer_follows_the_page(tmp_path: Path) -> None:
    place = {**dict(zip(PORTS, free_ports(), strict=True)), FOLDER: str(tmp_path / "hour")}

    def moved(text: str) -> str:
        return re.sub("|".join(map(re.escape, place)), lambda found: place[found.group()], text)

    copy = tmp_path / "examples" / "providers"
    shutil.copytree(EXAMPLE, copy, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("wonder.toml", "garden.yaml"):
        (copy / name).write_text(moved((copy / name).read_text()))
    story, _, end = PAGE.partition(UNTIL)
    address = f"127.0.0.1:{place['50061']}"
    async with shell(tmp_path) as sh:
        await sh.run(f"export WONDER_SERVER={address}")
        for step in steps(story):
            assert await sh.run(moved(step.command)) == list(map(moved, step.shown)), step.command
        async with Client(address) as client:
            await accounts_add_up(client)
            assert await sh.run("wonder usage flora --json") == as_json(expected()).splitlines()
            await a_budget_of_a_conversation_holds(client)
        kill, remove = steps(end)
        assert await sh.run(moved(kill.command)) == []
        log = (tmp_path / "hour" / "server.log").read_text()
        assert await assert_replays(tmp_path / "hour" / "data")
        assert await sh.run(moved(remove.command)) == [] and not (tmp_path / "hour").exists()
    assert "sk-" not in log and "Traceback" not in log


async def accounts_add_up(client: Client) -> None:
    """Compare the accounts of agent, project, conversations, turns and moves with the providers' counts."""
    agent = (await client.library.get_agent(v1.GetAgentRequest(agent_id="flora"))).agent
    project = (await client.library.get_project(v1.GetProjectRequest(project_id="garden"))).project
    assert agent is not None and project is not None
    assert agent.usage == project.usage == expected()
    listed = await client.conversations.list_conversations(v1.ListConversationsRequest(agent_id="flora"))
    usages = [each.usage for each in listed.conversations if each.usage is not None]
    turns = []
    counted = dict.fromkeys(COUNTS, (0, 0, 0))
    switches = 0
    for conversation in listed.conversations:
        request = v1.ListTurnsRequest(conversation_id=conversation.id)
        turns += (await client.conversations.list_turns(request)).turns
        events = v1.ListEventsRequest(conversation_id=conversation.id)
        switches += sum(
            each.name == "model.switched" for each in (await client.conversations.list_events(events)).events
        )
    for turn in turns:
        moves = v1.ListMovesRequest(conversation_id=turn.conversation_id, turn_id=turn.id)
        for move in (await client.conversations.list_moves(moves)).moves:
            assert move.usage is not None
            calls, asked, made = counted[move.provider]
            asked, made = asked + move.usage.input_tokens, made + move.usage.output_tokens
            counted[move.provider] = calls + 1, asked, made
    assert counted == COUNTS and switches == REFUSED
    assert added(usages) == added([turn.usage for turn in turns if turn.usage is not None]) == expected()


def added(usages: list[v1.Usage]) -> v1.Usage:
    return v1.Usage(
        model_calls=sum(each.model_calls for each in usages),
        input_tokens=sum(each.input_tokens for each in usages),
        output_tokens=sum(each.output_tokens for each in usages),
        cost_micros=sum(each.cost_micros or 0 for each in usages),
    )


async def a_budget_of_a_conversation_holds(client: Client) -> None:
    """Spend a cost budget at the prices of the file: the next message is refused and costs nothing."""
    participants = [v1.Participant(agent=v1.AgentParticipant(agent_id="flora"))]
    # Above what a short request is estimated at, and below what lily charges for it.
    limited = v1.Conversation(participants=participants, budget=v1.Budget(max_cost_micros=50))
    request = v1.CreateConversationRequest(conversation=limited)
    made = (await client.conversations.create_conversation(request)).conversation
    assert made is not None
    async with client.converse(made.id) as chat:
        async for _ in (reply := chat.send("One")):
            pass
        before = await client.library.get_agent(v1.GetAgentRequest(agent_id="flora"))
        with pytest.raises(ResourceExhaustedError) as refused:
            async for _ in chat.send("Two"):
                pass
    assert reply.turn is not None and reply.turn.usage is not None
    assert refused.value.reason is v1.ErrorReason.BUDGET_EXHAUSTED
    metadata = dict(refused.value.metadata)
    assert (metadata["of"], metadata["budget"], metadata["limit"]) == ("conversation", "cost", "50")
    assert metadata["used"] == str(reply.turn.usage.cost_micros)
    assert await client.library.get_agent(v1.GetAgentRequest(agent_id="flora")) == before
