"""Commands of agents in a real server, in real sandboxes: what they see, what ends them, what is left."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from google.protobuf.json_format import MessageToDict

from tests.conformance.sandbox.test_isolation import sandboxed
from tests.e2e.client import Client, View, struct
from tests.e2e.launch import ROOT
from tests.e2e.process import Server, serving
from tests.sandboxes import bubblewrap
from wonder.v1 import conversation_pb2 as conversation
from wonder.v1 import conversation_service_pb2 as convs
from wonder.v1 import executor_service_pb2 as pb
from wonder.v1 import library_pb2, task_pb2
from wonder.v1 import library_service_pb2 as library
from wonder_sdk import cli

pytestmark = pytest.mark.asyncio(loop_scope="session")

LIBRARY = """
name: sh
description: Runs a command.
tool:
  target_type: task
  target_id: run_command
  input_schema: {type: object, properties: {command: {type: string}}, required: [command]}
---
name: run_command
task:
  steps:
    - id: run
      action: {kind: shell, timeout_ms: 60000}
      input_mapping: {command: input.command}
      output_mapping: {output.exit_code: result.exit_code, output.text: result.output}
---
name: typist
description: Runs the commands that it is given.
persona: {system_prompt: You run commands., tool_ids: [sh]}
"""
MARK = f"60.{os.getpid()}"
"""Duration of a sleep that no test waits for; it identifies the processes of these tests."""


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def server(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Server]:
    await (await bubblewrap()).close()
    folder = tmp_path_factory.mktemp("shell")
    repository = folder / "hello"
    for command in ("init -qb main", "add .", "commit -qm first"):
        repository.mkdir(exist_ok=True)
        (repository / "README").write_text("hello there\n")
        identity = ("-c", "user.name=t", "-c", "user.email=t@t")
        subprocess.run(["git", *identity, *command.split()], cwd=repository, check=True)  # noqa: ASYNC221
    data = folder / "data"
    async with serving(
        data,
        environment={
            "OPENAI_API_KEY": "sk-of-the-house",
            "WONDER_DEFAULT_MODEL": "offline",
            "WONDER_REPOSITORY_ROOTS": str(folder),
        },
    ) as running:
        async with running.client() as client:
            await client.apply("e2e/shell", LIBRARY)
            await client.agent("typist", "e2e/shell/typist")
            repositories = [library_pb2.Repository(name="hello", url=str(repository))]
            project = library_pb2.Project(
                name="open", repositories=repositories, network=library_pb2.NetworkPolicy(shell_network=True)
            )
            await client.library.CreateProject(library.CreateProjectRequest(project=project))
            request = library.CreateAgentRequest()
            request.agent.name, request.agent.persona_id = "developer", "e2e/shell/typist"
            request.agent.project_ids.append("open")
            await client.library.CreateAgent(request)
        yield running
    logged = [line for line in running.log if line.get("level") in ("error", "warning")]
    assert [line["event"] for line in logged if line["event"] != "rpc_rejected"] == ["egress_refused"], logged
    assert not sandboxed(MARK, str(data))


@pytest_asyncio.fixture(loop_scope="session")
async def client(server: Server) -> AsyncIterator[Client]:
    async with server.client() as connected:
        yield connected


def telling(command: str) -> str:
    return f"use the tool sh with {json.dumps({'command': command})}"


async def says(client: Client, conv: str, command: str) -> dict[str, Any]:
    """Return the result of a command that the agent of a conversation runs on request."""
    turn, view = await client.turn(conv, telling(command))
    assert turn.status == conversation.TURN_STATUS_COMPLETED
    [done] = [e.tool_completed.tool_result for e in view.events if e.name == "tool.completed"][-1:]
    return dict(MessageToDict(done.result))


def asked(command: str, **context: str) -> dict[str, Any]:
    return {
        "task_id": "e2e/shell/run_command",
        "input": struct(command=command),
        "context": task_pb2.ExecutionContext(**context),
    }


async def test_shell_is_an_action_like_any_other_and_never_simply_repeated(client: Client) -> None:
    kinds = (await client.executor.ListActionKinds(pb.ListActionKindsRequest())).action_kinds
    [shell] = [kind for kind in kinds if kind.name == "shell"]
    assert shell.available and not shell.idempotent and shell.requires_commit
    assert "command" in MessageToDict(shell.input_schema)["properties"]


async def test_the_command_line_runs_a_task_by_itself_on_a_branch(
    server: Server, client: Client, capsys: pytest.CaptureFixture[str]
) -> None:
    run = ("run", "e2e/shell/run_command", "--project", "open", "--server", server.address)
    say = ("--set", "command=cat README", "-q")
    assert await asyncio.to_thread(cli.main, (*run, *say)) == 1
    assert "--branch NAME" in capsys.readouterr().err
    assert await asyncio.to_thread(cli.main, (*run, *say, "--branch", "try-it")) == 0
    assert json.loads(capsys.readouterr().out) == {"exit_code": 0, "text": "hello there\n"}

    conv = await client.open("developer")
    await says(client, conv, "echo mine > README")
    assert await asyncio.to_thread(cli.main, (*run, *say, "--conversation", conv)) == 0
    assert json.loads(capsys.readouterr().out)["text"] == "mine\n"


async def test_an_agent_works_in_the_folder_of_its_conversation(client: Client) -> None:
    one, other = await client.open("typist"), await client.open("typist")
    done = await says(client, one, "echo mine > note; pwd; exit 3")
    assert (done["exit_code"], done["text"]) == (3, "/work\n")
    assert (await says(client, one, "cat note"))["text"] == "mine\n"
    seen = await says(client, other, "cat note; ls -A; ls -A /tmp")
    assert "mine" not in seen["text"]


async def allow(client: Client, host: str) -> None:
    """Let the project `open` reach a host."""
    network = library_pb2.NetworkPolicy(shell_network=True, http_allow=[host])
    request = library.UpdateProjectRequest(project=library_pb2.Project(id="open", network=network))
    request.update_mask.paths.append("network")
    await client.library.UpdateProject(request)


async def test_a_project_s_files_are_there(client: Client) -> None:
    conv = await client.open("developer", project_id="open")
    assert (await says(client, conv, "cat README; ls -A"))["text"] == "hello there\nREADME\n"


async def test_the_network_of_commands_is_what_their_project_allows(client: Client) -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 204 No Content\r\n\r\n")
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        fetch = (
            "python3 -c \"import http.client; proxy = http.client.HTTPConnection('127.0.0.1', 3128);"
            f" proxy.request('GET', 'http://127.0.0.1:{port}/'); print(proxy.getresponse().status)\""
        )
        direct = f"python3 -c \"import socket; socket.create_connection(('127.0.0.1', {port}), 5)\""
        open_conversation = await client.open("developer", project_id="open")
        assert (await says(client, open_conversation, fetch))["text"] == "403\n", "not named"
        await allow(client, f"127.0.0.1:{port}")
        assert (await says(client, open_conversation, fetch))["text"] == "204\n"
        assert "refused" in (await says(client, open_conversation, direct))["text"], (
            "the proxy is the only way"
        )
        assert "refused" in (await says(client, await client.open("typist"), fetch))["text"]


async def test_nothing_of_the_server_is_to_be_seen(client: Client, server: Server) -> None:
    seen = await says(
        client,
        await client.open("typist"),
        f"env; cat /proc/*/environ /proc/*/cmdline; cd {server.data} && ls && cat catalog.db; ls /work/..",
    )
    assert "sk-of-the-house" not in seen["text"] and "SQLite" not in seen["text"]
    assert "catalog.db\n" not in seen["text"] and "WONDER_" not in seen["text"]


async def test_output_is_streamed_while_the_command_runs(client: Client, server: Server) -> None:
    conv = await client.open("typist")
    line = "echo first; while [ ! -e go ]; do sleep 0.01; done; echo second"
    call = client.executor.StreamTask(pb.StreamTaskRequest(**asked(line, conversation_id=conv)))
    progress = ""
    async for answer in call:
        if not answer.HasField("result"):
            progress += answer.progress.progress.output
        if progress == "first\n":
            progress += "|"
            for folder in (server.data / "worktrees").iterdir():
                (folder / "go").touch()
    assert progress == "first\n|second\n"


async def test_a_data_folder_may_be_relative_as_the_usual_one_is(server: Server, tmp_path: Path) -> None:
    data = Path(os.path.relpath(tmp_path / "data", ROOT))  # noqa: ASYNC240
    async with serving(data) as running, running.client() as client:
        await client.apply("e2e/shell", LIBRARY)
        await client.agent("typist", "e2e/shell/typist")
        conv = await client.open("typist")
        assert (await says(client, conv, "echo mine > note; cat note"))["text"] == "mine\n"
        assert (await running.logged("ready"))["data"] == str((tmp_path / "data").resolve())


async def test_a_command_without_a_conversation_has_no_folder(client: Client) -> None:
    answer = await client.executor.ExecuteTask(pb.ExecuteTaskRequest(**asked("true")))
    assert answer.result.error.reason and "conversation" in answer.result.error.message


async def begun(client: Client, server: Server, conv: str) -> str:
    """A turn whose command runs, and has tried to outlive it; the turn's id."""
    line = f"setsid sleep {MARK} & sleep {MARK}"
    said = await client.say(conv, telling(line))
    while len(sandboxed(f"sleep\x00{MARK}")) < 2:  # noqa: ASYNC110 - processes do not tell
        await asyncio.sleep(0.01)
    return str(said.turn.id)


async def nothing_left(data: Path) -> None:
    latest = time.monotonic() + 60
    while left := sandboxed(MARK, str(data)):
        assert time.monotonic() < latest, left
        await asyncio.sleep(0.01)


async def test_cancel_ends_the_command_and_all_that_it_started(client: Client, server: Server) -> None:
    conv = await client.open("typist")
    turn = await begun(client, server, conv)
    await client.conversations.CancelTurn(convs.CancelTurnRequest(turn_id=turn))
    await client.settled(conv, turn)
    latest = time.monotonic() + 60
    while sandboxed(f"sleep\x00{MARK}"):
        assert time.monotonic() < latest
        await asyncio.sleep(0.01)
    assert (await says(client, conv, "echo on"))["text"] == "on\n"


async def test_after_a_kill_nothing_runs_on_and_the_model_learns_that_the_outcome_is_unknown(
    server: Server, tmp_path: Path
) -> None:
    data = tmp_path / "data"
    async with serving(data) as first:
        async with first.client() as client:
            await client.apply("e2e/shell", LIBRARY)
            await client.agent("typist", "e2e/shell/typist")
            conv = await client.open("typist")
            await says(client, conv, "echo kept > note")
            turn = await begun(client, first, conv)
        await first.kill()
        await nothing_left(data)
        async with serving(data) as second, second.client() as client:
            view: View = await client.settled(conv, turn)
            [failed] = [e.tool_failed.tool_result for e in view.events if e.name == "tool.failed"]
            assert "whether it took effect is unknown" in failed.error.message
            assert not sandboxed(f"sleep\x00{MARK}"), "it was not run again"
            assert (await says(client, conv, "cat note"))["text"] == "kept\n"


async def test_a_server_that_stops_takes_its_sandboxes_along(server: Server, tmp_path: Path) -> None:
    data = tmp_path / "data"
    async with serving(data) as running:
        async with running.client() as client:
            await client.apply("e2e/shell", LIBRARY)
            await client.agent("typist", "e2e/shell/typist")
            conv = await client.open("typist")
            await begun(client, running, conv)
            assert sandboxed(str(data))
        assert await running.stop() == 0
    assert not sandboxed(MARK, str(data))
