"""The examples, run from a shell against a real server as a new user runs them."""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.paths import ROOT
from wonder_sdk import Client, cli, sync, v1
from wonder_sdk.json_types import JsonDict

EXAMPLES = ROOT / "examples"


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """A machine of its own, as far as a process can tell."""
    paths = os.pathsep.join(str(ROOT / part) for part in ("server", "gen/python", "sdk/python"))
    (tmp_path / "tmp").mkdir()
    return {
        **os.environ,
        "PYTHONPATH": paths,
        "PYTHONUNBUFFERED": "1",
        "TMPDIR": str(tmp_path / "tmp"),
        "HOME": str(tmp_path),
    }


@pytest.fixture
def address(environment: dict[str, str], tmp_path: Path) -> Iterator[str]:
    """A server of our own."""
    data = tmp_path / "data"
    command = [
        sys.executable,
        "-m",
        "wonder_sdk.cli",
        "serve",
        "--listen",
        "127.0.0.1:0",
        "--data-dir",
        str(data),
    ]
    with subprocess.Popen(command, env=environment, stderr=subprocess.PIPE) as process:
        while not (data / "ADDRESS").exists():
            assert process.poll() is None, process.communicate()[1].decode()
            time.sleep(0.02)
        yield (data / "ADDRESS").read_text().strip()
        process.terminate()
        process.communicate(timeout=60)


def test_the_quickstart_stores_a_memory(address: str, environment: dict[str, str]) -> None:
    done = subprocess.run(
        [sys.executable, EXAMPLES / "quickstart.py"],
        env={**environment, "WONDER_SERVER": address},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.stderr == ""
    assert done.returncode == 0
    assert "[remember] " in done.stdout
    assert "Mia" in done.stdout.splitlines()[-1]
    assert f"```\n{done.stdout}```" in (ROOT / "README.md").read_text()


def test_the_quickstart_without_a_server_prints_one_line(environment: dict[str, str]) -> None:
    done = subprocess.run(
        [sys.executable, EXAMPLES / "quickstart.py"],
        env={**environment, "WONDER_SERVER": "127.0.0.1:1", "GRPC_VERBOSITY": "NONE"},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.stderr == "no server answers at 127.0.0.1:1; start one with: wonder serve\n"
    assert done.returncode == 1


@pytest.mark.parametrize("page", ["README.md", "sdk/python/README.md"])
def test_the_quickstart_equals_the_code_of_the_readme(page: str) -> None:
    assert (EXAMPLES / "quickstart.py").read_text() in (ROOT / page).read_text()


def test_the_demo_recalls_in_a_second_conversation_and_cleans_up(environment: dict[str, str]) -> None:
    done = subprocess.run(
        [sys.executable, EXAMPLES / "demo.py"],
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=90,
    )
    assert done.stderr == ""
    assert done.returncode == 0
    assert "model: offline" in done.stdout
    assert "library wonder/std applied" in done.stdout
    assert "→ remember" in done.stdout
    assert "Mia" in done.stdout.partition("What is my cat called?")[2]
    assert not list(Path(environment["TMPDIR"]).iterdir())


def test_an_interrupted_demo_cleans_up(environment: dict[str, str]) -> None:
    with subprocess.Popen(
        [sys.executable, EXAMPLES / "demo.py"],
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if found := re.search(r"ready at (\S+)", line):
                break
        process.send_signal(signal.SIGINT)
        process.stdout.read()
        assert process.wait(60) == 130
    health = [sys.executable, "-m", "wonder_sdk.cli", "health", "--server", found[1] if found else ""]
    assert subprocess.run(health, env=environment, capture_output=True, timeout=60).returncode == 1
    assert not list(Path(environment["TMPDIR"]).iterdir())


def commands(file: Path) -> list[list[str]]:
    """Return the commands in the comment at the top of an example."""
    found = re.findall(r"^#   (wonder .*)$", file.read_text(encoding="utf-8"), re.MULTILINE)
    return [shlex.split(line, comments=True) for line in found]


def wonder(address: str, *argv: str) -> tuple[int, str, str]:
    """Run the command; return its exit code, stdout and stderr."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = cli.main([*argv, "--server", address])
    return code, out.getvalue(), err.getvalue()


WORKFLOWS = {
    "sequence": {"greeting": "Hello, Mia!", "characters": 11},
    "diamond": {"sizes": {"characters": 19, "words": 6}, "says": "6 words, 19 characters"},
    "m_of_n": {"votes": "Anna: yes, Ben: no"},
    "for_each": {
        "total": 11,
        "sizes": [{"word": word, "size": len(word)} for word in ("fan", "out", "and", "in")],
        "says": "4 words",
    },
    "loop": {"text": "ho ho ho ho ho!"},
    "sub_workflow": {
        "first": "Doors open.",
        "greetings": ["Hello, Mia!", "Hello, Tom!"],
        "last": "Everybody is in.",
    },
    "agent": {"answer": "word1 word2 word3 word4 word5", "characters": 29},
}


def test_every_workflow_runs_as_its_comment_states(address: str) -> None:
    apply = ("apply", "-f", str(EXAMPLES / "workflows"))
    assert wonder(address, *apply)[0] == 0
    assert "nothing to change" in wonder(address, *apply)[1]
    files = {file.stem for file in (EXAMPLES / "workflows").glob("*.yaml")} - {"library", "tasks"}
    assert files == {*WORKFLOWS, "gate", "signal"}
    for name, output in WORKFLOWS.items():
        ((_, *argv),) = commands(EXAMPLES / "workflows" / f"{name}.yaml")
        code, out, err = wonder(address, *argv)
        assert code == 0, err
        assert json.loads(out) == output
        assert "completed · " in err.splitlines()[-1]
    with sync.Client(address) as client:
        runs = list(client.list_runs(include_children=True))
        assert len(runs) >= len(WORKFLOWS) + 2
        for run in runs:
            assert client.replay_run(run.id).identical, run.workflow


def test_the_examples_with_a_gate_and_a_signal_complete(address: str) -> None:
    assert wonder(address, "apply", "-f", str(EXAMPLES / "workflows"))[0] == 0
    (_, *start), _, (_, *approve) = commands(EXAMPLES / "workflows" / "gate.yaml")
    run_id = wonder(address, *start, "--detach")[1].strip()
    with sync.Client(address) as client:
        gate = next(
            each.gate_opened
            for each in client.watch_run(run_id)
            if isinstance(each, v1.RunEvent) and each.gate_opened is not None
        )
    assert wonder(address, "gates", "--run", run_id)[1].startswith(gate.id)
    argv = [gate.id if word == "gate_…" else word for word in approve]
    code, _, err = wonder(address, *argv, "--set", "foo=3")
    assert code == 1 and "INPUT_INVALID" in err and "foo" in err
    assert wonder(address, *argv)[0] == 0
    code, out, err = wonder(address, "run", "--watch", run_id)
    assert (code, json.loads(out)) == (0, {"released": "Bugs fixed.", "said": ""})
    assert "approved" in err
    code, out, err = wonder(address, *argv)
    assert (code, out) == (1, "") and "GATE_RESOLVED" in err

    (_, *start), (_, *pay) = commands(EXAMPLES / "workflows" / "signal.yaml")
    run_id = wonder(address, *start)[1].strip()
    argv = [run_id if word == "run_…" else word for word in pay]
    assert wonder(address, *argv)[0] == 0
    code, out, _ = wonder(address, "run", "--watch", run_id)
    assert (code, json.loads(out)) == (0, {"says": "Shipped.", "payment": {"amount": 12}})
    code, _, err = wonder(address, *argv)
    assert code == 1 and "RUN_NOT_ACTIVE" in err


def test_the_command_that_a_run_prints_approves_its_gate(address: str, environment: dict[str, str]) -> None:
    assert wonder(address, "apply", "-f", str(EXAMPLES / "workflows"))[0] == 0
    start = commands(EXAMPLES / "workflows" / "gate.yaml")[0]
    line = [sys.executable, "-m", "wonder_sdk.cli", *start[1:], "--server", address]
    for comment in ([], ["--comment", "looks good"]):
        with subprocess.Popen(
            line, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        ) as process:
            assert process.stdout is not None and process.stderr is not None
            found = (re.search(r"wonder (gates approve .*)", each) for each in process.stderr)
            printed = next(each[1] for each in found if each)
            code, _, err = wonder(address, *shlex.split(printed), *comment)
            assert code == 0, err
            process.stderr.read()
            output = json.loads(process.stdout.read())
            assert output == {"released": "Version 1.2 is here.", "said": "".join(comment[1:])}
            assert process.wait(60) == 0


async def test_the_guide_to_workflows_runs_as_written(
    address: str, capsys: pytest.CaptureFixture[str]
) -> None:
    wonder(address, "apply", "-f", str(EXAMPLES / "workflows"))
    guide = (ROOT / "docs" / "workflows.md").read_text(encoding="utf-8")
    running, approving = re.findall(r"```python\n(.*?)```", guide, re.DOTALL)
    async with Client(address) as client:
        await _run_block(running.replace("Client()", f"Client({address!r})"), client)
        output = capsys.readouterr().out.splitlines()
        assert output[0] == "1 workflow_started"
        assert output[-1] == "{'payment': {'amount': 12}, 'says': 'Shipped.'}"
        run = await client.start_run("acme/flows/release", {"version": "1.2"})
        async for event in run.watch():
            if isinstance(event, v1.RunEvent) and event.gate_opened is not None:
                await _run_block(approving.replace('project="shop"', ""), client)
        assert await run.result() == {"released": "Bugs fixed.", "said": "looks good"}


async def test_the_guide_to_multi_party_conversations_runs_as_written(address: str) -> None:
    guide = (ROOT / "docs" / "agents.md").read_text(encoding="utf-8")
    section = guide.split("## Multi-party conversations")[1]
    code = re.findall(r"```python\n(.*?)```", section, re.DOTALL)[0]
    async with Client(address) as client:
        known = (await client.library.get_agent(v1.GetAgentRequest(agent_id="assistant"))).agent
        assert known is not None
        made = await client.library.create_agent(
            v1.CreateAgentRequest(agent=v1.Agent(name="critic", persona_id=known.persona_id))
        )
        assert made.agent is not None
        await _run_block(code.replace("Client()", f"Client({address!r})"), client)
        listed = await client.conversations.list_conversations(
            v1.ListConversationsRequest(agent_id=made.agent.id)
        )
        [shared] = listed.conversations
        assert (len(shared.participants), shared.turn_count) == (4, 2)
        messages = await client.conversations.list_messages(v1.ListMessagesRequest(conversation_id=shared.id))
        authors = [each.author for each in messages.messages if each.role is v1.MessageRole.AGENT]
        assert made.agent.id in authors and len(set(authors)) == 2


async def test_the_guide_to_approval_runs_as_written(address: str, tmp_path: Path) -> None:
    guide = (ROOT / "docs" / "agents.md").read_text(encoding="utf-8").split("## Approval")[1]
    (tmp_path / "post.yaml").write_text(re.findall(r"```yaml\n(.*?)```", guide, re.DOTALL)[0])
    applying, creating, chatting = re.findall(
        r"^wonder (apply .*|agent create .*|chat .*)$", guide, re.MULTILINE
    )
    applying = applying.replace("post.yaml", str(tmp_path / "post.yaml"))
    for line in (applying, creating):
        code, _, err = wonder(address, *shlex.split(line))
        assert code == 0, err
    agent, message = shlex.split(chatting)[2::2]
    async with Client(address) as client:
        async with client.converse(await client.create_conversation(agent=agent)) as chat:
            async for item in (reply := chat.send(message)):
                match item:
                    case v1.Event(gate_opened=v1.Gate() as gate):
                        await client.approve(gate, {"to": "ann"})
                    case v1.Event(tool_completed=v1.ToolOutcome(tool_result=v1.ToolResult(result=result))):
                        assert result is not None and result.to_dict() == {"sent_to": "ann"}
            assert reply.turn is not None and reply.turn.status is v1.TurnStatus.COMPLETED
        code = re.findall(r"```python\n(.*?)```", guide, re.DOTALL)[0]
        with contextlib.redirect_stdout(io.StringIO()) as printed:
            await _run_block(code.replace("Client()", f"Client({address!r})"), client)
        sent, rejected = printed.getvalue().splitlines()[0], printed.getvalue().splitlines()[-1]
        assert '{"sent_to":"ann"}' in sent.replace(" ", "") + printed.getvalue().replace(" ", "")
        assert "Eve gets no letters." in rejected


def test_apply_says_that_an_mcp_server_is_unknown_and_saves(address: str, tmp_path: Path) -> None:
    file = tmp_path / "reader.yaml"
    file.write_text("name: reader\npersona: {system_prompt: Read., tool_sources: [{mcp: tickets}]}\n")
    code, out, err = wonder(address, "apply", "-f", str(file), "--library", "acme/reader")
    assert code == 0 and "1 created" in out
    assert err.startswith("notice: The persona 'reader' has tools of the MCP server 'tickets'")


def test_the_guide_to_workers_runs_as_written(
    address: str, environment: dict[str, str], tmp_path: Path
) -> None:
    guide = (ROOT / "docs" / "workers.md").read_text(encoding="utf-8")
    definitions, _ = re.findall(r"```yaml\n(.*?)```", guide, re.DOTALL)
    code, _ = re.findall(r"```python\n(.*?)```", guide, re.DOTALL)
    (run,) = re.findall(r"^(wonder run .*)$", guide, re.MULTILINE)
    folder = tmp_path / "my-library"
    folder.mkdir()
    (folder / "pages.yaml").write_text(definitions, encoding="utf-8")
    (folder / "library.yaml").write_text("name: acme/pages\n", encoding="utf-8")
    (tmp_path / "ocr.py").write_text(code, encoding="utf-8")
    assert wonder(address, "apply", "-f", str(folder))[0] == 0
    command = [sys.executable, str(tmp_path / "ocr.py")]
    with subprocess.Popen(command, env={**environment, "WONDER_SERVER": address}) as process:
        try:
            status, out, err = wonder(address, *shlex.split(run)[1:])
            assert (status, json.loads(out)) == (
                0,
                {"text": "What stands on https://example.com/scan.png."},
            ), err
            task = ["run", "acme/pages/read_page", "--set", "page=p"]
            status, out, err = wonder(address, *task)
            assert (status, json.loads(out)) == (0, {"text": "What stands on p."}), err
            assert err.splitlines()[0] == "→ read  worker" and err.splitlines()[-1].startswith("✓ read  ")
            assert wonder(address, *task, "--quiet")[1:] == (out, "")
            assert wonder(address, *task, "--detach")[0] == 2
            status, out, err = wonder(address, "run", "acme/pages/read_page", "--set", "page=")
            assert (status, out) == (1, "") and "There is no page to read. (TASK_FAILED)" in err
            status, out, err = wonder(address, "run", "acme/pages/read_page", "--set", "url=p")
            assert (status, out) == (1, "") and "INPUT_INVALID" in err
            _, _, err = wonder(address, "run", "acme/pages/nosuch")
            assert "There is no workflow or task 'acme/pages/nosuch'." in err
        finally:
            process.terminate()


def test_the_guide_to_files_of_workers_runs_as_written(
    address: str, environment: dict[str, str], tmp_path: Path
) -> None:
    guide = (ROOT / "docs" / "workers.md").read_text(encoding="utf-8")
    _, definitions = re.findall(r"```yaml\n(.*?)```", guide, re.DOTALL)
    _, code = re.findall(r"```python\n(.*?)```", guide, re.DOTALL)
    folder = tmp_path / "my-library"
    folder.mkdir()
    (folder / "pictures.yaml").write_text(definitions, encoding="utf-8")
    (folder / "library.yaml").write_text("name: acme/pictures\n", encoding="utf-8")
    (tmp_path / "pictures.py").write_text(code, encoding="utf-8")
    assert wonder(address, "apply", "-f", str(folder))[0] == 0
    content = b"\x89PNG\r\n\x1a\n" + bytes(100)
    with sync.Client(address) as client:
        given = client.upload(content, name="cat.png").id
        command = [sys.executable, str(tmp_path / "pictures.py")]
        with subprocess.Popen(command, env={**environment, "WONDER_SERVER": address}) as process:
            try:
                task = ["run", "acme/pictures/rotate_task", "--set"]
                status, out, err = wonder(address, *task, f"file_id={given}")
                assert status == 0, err
                picture = json.loads(out)["picture"]
                assert (picture["type"], picture["name"]) == ("image", "rotated.png")
                assert picture["file_id"] != given and client.download(picture["file_id"]) == content
                status, out, err = wonder(address, *task, "file_id=file_x")
                assert (status, out) == (1, "") and "no such file" in err
            finally:
                process.terminate()


async def _run_block(block: str, client: Client) -> None:
    names: JsonDict = {"Client": Client, "client": client, "v1": v1}
    exec(f"async def run():\n{textwrap.indent(block, '    ')}", names)
    await names["run"]()


@pytest.mark.parametrize("page", ["README.md", "sdk/python/README.md", "docs/workflows.md"])
def test_every_command_of_the_guides_exists(page: str) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    shown = re.findall(r"^(wonder (?:run|runs|gates|workflow) .*)$", text, re.MULTILINE)
    assert shown
    for line in shown:
        command = re.split(r"  +|\|", line)[0]
        try:
            cli.build_parser().parse_args(shlex.split(command, comments=True)[1:] or ["--help"])
        except SystemExit:
            pytest.fail(f"{page}: {line}")
