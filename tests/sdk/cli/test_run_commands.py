"""`wonder run`, `wonder runs` and `wonder gates` against a fake coordinator."""

from __future__ import annotations

import asyncio
import io
import json
import re
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from google.protobuf import json_format

from tests.sdk.fake_coordinator import GATE, RUN, WORKFLOW, FakeCoordinator, Script, a_gate, at
from tests.sdk.fake_server import serving
from wonder.v1 import coordinator_service_pb2 as service
from wonder.v1 import definition_pb2
from wonder.v1 import library_service_pb2 as library_service
from wonder.v1 import library_service_pb2_grpc as library_rpc
from wonder.v1 import run_pb2 as run
from wonder_sdk import cli
from wonder_sdk.cli.shared import json_input
from wonder_sdk.cli.workflows.run import _as_json_setting, _input_hint

LINES = """\
    0.000  acme/flows/release@3  run_1
    0.001  → build  acme/flows/work@1
    0.030  ✓ build  29 ms
    0.032    → lint  acme/flows/work@1
    0.032    → unit  acme/flows/work@1
    0.050    ↻ unit  attempt 2: The machine is busy.
    0.060    ✓ lint  28 ms
    0.060  ⋯ agree  [lint] arrived, 1 of 2
    0.062  ! unit emits coverage
    0.300    ✓ unit  268 ms
    0.301    → report[unit]  acme/flows/work@1
    0.350    ✓ report[unit]  49 ms
    0.400  ? agree  Shall this be released?  version: 1.2
             wonder gates approve gate_1
    0.500  ! signal hurry
    1.400  ? agree  approved by mia: fine
    1.400  ✓ agree  1.0 s
    1.500  completed · 1.5 s · 5 nodes
"""
OUTPUT = {"released": "1.2", "count": 2}


@pytest.fixture(autouse=True)
def quiet(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("GRPC_VERBOSITY", "NONE")
    monkeypatch.setenv("TZ", "UTC")
    monkeypatch.setattr(sys, "stdin", io.StringIO())
    yield


async def wonder(fake: FakeCoordinator, *argv: str) -> int:
    """Run the command in a thread; the event loop serves the fake."""
    async with serving(coordinator=fake) as address:
        return await asyncio.to_thread(cli.main, [*argv, "--server", address])


def ended(status: str, reason: str) -> FakeCoordinator:
    script = Script()
    script.start()
    script.token(0, "t", "build")
    script.begin(5, "build")
    script.failed(10, "build", reason)
    script.end(20, status, reason)
    return FakeCoordinator(script.events)


async def test_a_run_is_reported_on_stderr_and_stdout_has_only_its_output(
    capsys: pytest.CaptureFixture[str],
) -> None:
    fake = FakeCoordinator()
    flags = ("--project", "shop", "--agent", "assistant", "--timeout", "90", "--request-id", "r-1")
    flags += ("--branch", "try-it", "--conversation", "conv_1")
    assert await wonder(fake, "run", "acme/flows/release", "-i", '{"version": "1.2"}', *flags) == 0
    output = capsys.readouterr()
    assert output.err == LINES
    assert json.loads(output.out) == OUTPUT
    request = fake.requests[0]
    assert dict(request.input) == {"version": "1.2"}
    assert (request.context.project_id, request.context.agent_id) == ("shop", "assistant")
    assert (request.context.branch, request.context.conversation_id) == ("try-it", "conv_1")
    assert (request.timeout_ms, request.request_id) == (90_000, "r-1")


async def test_a_comparison_of_text_with_a_number_gets_a_hint(capsys: pytest.CaptureFixture[str]) -> None:
    def fake() -> FakeCoordinator:
        return ended("FAILED", "'<' cannot compare string with int")

    assert await wonder(fake(), "run", "a/b/c", "--set", "wanted=abc") == 1
    assert capsys.readouterr().err.endswith("`--set wanted=…` sets text; for a number use wanted:=…\n")
    assert await wonder(fake(), "run", "a/b/c", "--set", "wanted:=[]") == 1
    assert "sets text" not in capsys.readouterr().err


async def test_details_are_shown_on_request(capsys: pytest.CaptureFixture[str]) -> None:
    assert await wonder(FakeCoordinator(), "run", "acme/flows/release", "-v") == 0
    lines = capsys.readouterr().err.splitlines()
    assert lines[0].endswith("run_1  version: 1.2")
    assert lines[2].endswith("✓ build  29 ms  size: 3")


async def test_a_run_is_watched_from_the_start_or_from_a_cursor(
    capsys: pytest.CaptureFixture[str],
) -> None:
    fake = FakeCoordinator()
    assert await wonder(fake, "run", "--watch", RUN) == 0
    assert capsys.readouterr().err == LINES
    assert await wonder(fake, "run", "--watch", RUN, "--after", "21") == 0
    output = capsys.readouterr()
    assert output.err == LINES[LINES.index("    0.500") :]
    assert json.loads(output.out) == OUTPUT
    assert await wonder(fake, "run", "--watch", RUN, "--after", "25") == 0
    output = capsys.readouterr()
    assert (output.err, json.loads(output.out)) == ("", OUTPUT), "nothing new; the output all the same"


async def test_flags_select_events_the_output_or_the_id(capsys: pytest.CaptureFixture[str]) -> None:
    fake = FakeCoordinator()
    assert await wonder(fake, "run", "x", "--json") == 0
    output = capsys.readouterr()
    events = [json.loads(line) for line in output.out.splitlines()]
    assert [int(each["sequence"]) for each in events] == list(range(1, len(fake.events) + 1))
    assert events[-1]["workflow_completed"]["output"] == OUTPUT
    assert output.err == ""
    assert await wonder(fake, "run", "x", "--quiet") == 0
    assert capsys.readouterr() == ('{"count": 2, "released": "1.2"}\n', "")
    assert await wonder(fake, "run", "x", "--detach") == 0
    assert capsys.readouterr() == (f"{RUN}\n", "")


@pytest.mark.parametrize(
    ("status", "word"), [("FAILED", "failed"), ("CANCELLED", "cancelled")], ids=["failed", "cancelled"]
)
async def test_a_failed_run_prints_its_error_and_exits_with_1(
    status: str, word: str, capsys: pytest.CaptureFixture[str]
) -> None:
    fake = ended(status, "The disk\nis full.")
    assert await wonder(fake, "run", "x") == 1
    output = capsys.readouterr()
    assert output.out == ""
    reason = {"failed": "RUN_FAILED", "cancelled": "CANCELLED"}[word]
    assert output.err.splitlines()[-2:] == [
        "    0.010  ✗ build  5 ms: The disk is full.",
        f"    0.020  {word} · 20 ms · 1 node: The disk is full. ({reason})",
    ]
    assert await wonder(fake, "run", "x", "--quiet") == 1
    assert capsys.readouterr().err.startswith(f"wonder: {RUN} {word} · ")


async def test_refusals_print_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    fake = FakeCoordinator()
    no_gate = "There is no gate 'gate_9'. List the gates with `wonder gates` or ListGates."
    for argv, output in (
        (["run", "nothing"], "There is no workflow or task `nothing`. (DEFINITION_NOT_FOUND)"),
        (["run", "--watch", "run_9"], "There is no run run_9. (RUN_NOT_FOUND)"),
        (["runs", "show", "run_9"], "There is no run run_9. (RUN_NOT_FOUND)"),
        (["runs", "cancel", RUN], "The run has ended. (RUN_NOT_ACTIVE)"),
        (["gates", "approve", "gate_9"], f"{no_gate} (GATE_NOT_FOUND)"),
    ):
        assert await wonder(fake, *argv) == 1
        assert capsys.readouterr() == ("", f"wonder: {output}\n")


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (["run"], "name a workflow to run"),
        (["run", "x", "--watch", RUN], "name a workflow to run"),
        (["run", "--watch", RUN, "--set", "a=1"], "--watch starts no run"),
        (["run", "x", "-i", "{"], "--input: the value is not JSON"),
        (["run", "x", "-i", "[1]"], "--input: the value is not an object"),
        (["run", "x", "-i", '{"a": NaN}'], "--input: the value is not JSON"),
        (["run", "x", "-i", "@/nowhere"], "--input @/nowhere: No such file"),
        (["run", "x", "-i", "[" * 9000 + "]" * 9000], "--input: the value is nested too deeply"),
        (["run", "x", "-i", "[" * 40 + "]" * 40], "--input: the value is nested more than 32 levels deep"),
        (["run", "x", "--set", "a"], "--set a: use key=text"),
        (["run", "x", "--set", ":=1"], "--set :=1: use key=text"),
        (["run", "x", "--set", "a:=1.2.3"], "--set a: the value is not JSON"),
        (["run", "x", "--set", "a=1", "--set", "a.b=2"], "--set a.b=2: a is not an object"),
        (["runs", "signal", RUN, "paid", "-p", "{"], "--payload: the value is not JSON"),
        (["runs", "fork", RUN, "--before", "1", "--state", "3"], "--state: the value is not an object"),
        (["gates", "approve", GATE, "-a", "yes"], "--answer: the value is not JSON"),
    ],
)
async def test_an_invalid_command_line_exits_with_2(
    argv: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    fake = FakeCoordinator()
    assert await wonder(fake, *argv) == 2
    output = capsys.readouterr().err
    assert output.startswith(f"wonder: {said}") and output.count("\n") == 1
    assert not [each for each in fake.requests if not isinstance(each, service.ListGatesRequest)]


@pytest.mark.parametrize(
    "argv", [["run", "x", "--timeout", "0"], ["runs", "-n", "-1"], ["runs", "fork", RUN]]
)
def test_flags_are_checked(argv: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left:
        cli.main(argv)
    assert left.value.code == 2
    assert "error: " in capsys.readouterr().err


def test_the_input_is_json_a_file_or_a_pipe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "input.json"
    file.write_text('{"a": "ä"}')
    assert json_input.read_object(f"@{file}", "--input") == {"a": "ä"}
    file.write_bytes(b"\xff")
    with pytest.raises(ValueError, match="not UTF-8"):
        json_input.read_object(f"@{file}", "--input")
    monkeypatch.setattr(sys, "stdin", io.StringIO('{"a": 1}'))
    settings = ["b=2", "c.d:=true", "c.e=some text", "f=", "g:=[1.5]", "h=x=y", "i=:=", "j:=-"]
    assert json_input.read_object("-", "--input", settings[:-1]) == {
        "a": 1, "b": "2", "c": {"d": True, "e": "some text"}, "f": "", "g": [1.5], "h": "x=y", "i": ":=",
    }  # fmt: skip
    monkeypatch.setattr(sys, "stdin", io.StringIO("[]"))
    assert json_input.read_object(None, "--input", settings[-1:]) == {"j": []}
    assert json_input.read_object(None, "--input") is None


async def test_runs_are_listed_with_filters(capsys: pytest.CaptureFixture[str]) -> None:
    fake = FakeCoordinator()
    assert await wonder(fake, "runs", "--status", "running", "--workflow", "a/b", "--all", "-n", "3") == 0
    rows = [line.split("\t") for line in capsys.readouterr().out.splitlines()]
    assert [row[:2] for row in rows] == [["run_0", "running"], ["run_1", "waiting"], ["run_2", "completed"]]
    assert rows[0][4] == "acme/flows/release@3"
    asked = fake.requests[0]
    assert (asked.workflow_id, list(asked.statuses)) == ("a/b", [run.RUN_STATUS_RUNNING])
    assert asked.include_children
    assert await wonder(fake, "runs", "--json", "--limit", "0") == 0
    assert [json.loads(line)["id"] for line in capsys.readouterr().out.splitlines()] == [
        f"run_{number}" for number in range(5)
    ]


@pytest.mark.parametrize("flag", ["--parent", "--conversation"])
async def test_an_empty_list_names_a_filter_that_does_not_exist(
    flag: str, capsys: pytest.CaptureFixture[str]
) -> None:
    class Empty(FakeCoordinator):
        async def ListRuns(self, request: object, context: object) -> service.ListRunsResponse:
            return service.ListRunsResponse()

    assert await wonder(Empty(), "runs", flag, "run_none") == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    assert flag == "--conversation" or "RUN_NOT_FOUND" in captured.err
    assert "no matching runs" not in captured.err
    assert await wonder(Empty(), "runs", "--parent", RUN) == 0
    assert capsys.readouterr().err == "no matching runs\n"


async def test_an_answered_gate_of_a_run_shows_its_answerer_and_comment(
    capsys: pytest.CaptureFixture[str],
) -> None:
    fake = FakeCoordinator()
    gate = a_gate(run.GATE_STATUS_APPROVED)
    gate.resolution.user_id, gate.resolution.comment = "mia", "fine"
    fake.gates = [gate]
    assert await wonder(fake, "runs", "show", RUN) == 0
    assert "  ? agree: approved by mia: fine\n" in capsys.readouterr().out


async def test_the_current_state_of_a_run_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    fake = FakeCoordinator(held=21)
    assert await wonder(fake, "runs", "show", RUN) == 0
    shown = capsys.readouterr().out
    assert "✓ build                        29 ms\n" in shown
    assert "✓ unit                         268 ms · attempt 2\n" in shown
    assert "? agree: Shall this be released?  version: 1.2\n      wonder gates approve gate_1" in shown
    assert shown.endswith('state   {"size": 3}\nrunning\n')
    assert await wonder(FakeCoordinator(), "runs", "show", RUN) == 0
    assert capsys.readouterr().out.endswith(
        'output  {"count": 2, "released": "1.2"}\nsignal  hurry\ncompleted · 1.5 s · 5 nodes\n'
    )
    assert await wonder(fake, "runs", "show", RUN, "--json") == 0
    assert json.loads(capsys.readouterr().out)["state"] == {"size": 3}


async def test_a_run_is_cancelled_signalled_forked_and_replayed(capsys: pytest.CaptureFixture[str]) -> None:
    fake = FakeCoordinator(held=5)
    assert await wonder(fake, "runs", "cancel", RUN, "--reason", "wrong version") == 0
    assert fake.requests[-1].reason == "wrong version"
    assert (
        await wonder(fake, "runs", "signal", RUN, "paid", "--payload", '{"amount": 12}', "--user", "mia") == 0
    )
    signal = fake.requests[-1].signal
    assert (signal.name, signal.user_id) == ("paid", "mia")
    assert dict(signal.payload.struct_value) == {"amount": 12}
    assert await wonder(fake, "runs", "fork", RUN, "--before", "2", "--state", '{"tries": 0}') == 0
    assert fake.requests[-1].before_node_execution == 2
    assert await wonder(fake, "runs", "fork", RUN, "--after", "0") == 0
    assert fake.requests[-1].WhichOneof("point") == "after_sequence"
    assert await wonder(fake, "runs", "replay", RUN) == 0
    assert await wonder(fake, "runs", "replay", "run_7") == 1
    assert capsys.readouterr().out.splitlines() == [
        "run_1 cancelled",
        "signal paid sent to run_1 (event 7)",
        "run_2",
        "run_2",
        "run_1: 12 inputs replayed: no difference",
        "run_7: 12 inputs replayed: the decisions differ",
        "  at input 4, TaskDone",
        '  recorded {"kind": "EndRun"}',
        '  planned  {"kind": "MoveToken"}',
    ]


async def test_an_empty_list_of_gates_is_reported_on_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    for flags, said in (([], "no pending gates"), (["--status", "approved"], "no matching gates")):
        fake = FakeCoordinator()
        fake.gates.clear()
        assert await wonder(fake, "gates", *flags) == 0
        assert capsys.readouterr() == ("", f"{said}\n")
        assert await wonder(fake, "gates", *flags, "--json") == 0
        assert capsys.readouterr() == ("", "")


async def test_gates_are_listed_shown_and_resolved_once(capsys: pytest.CaptureFixture[str]) -> None:
    fake = FakeCoordinator(held=5)
    fake.gates.append(a_gate())
    fake.gates[1].id = "gate_2"
    assert await wonder(fake, "gates", "--run", RUN, "--for", "mia", "--project", "shop") == 0
    asked = fake.requests[-1]
    assert (asked.run_id, asked.user_id, asked.project_id) == (RUN, "mia", "shop")
    assert capsys.readouterr().out.splitlines()[1].split("\t")[4] == "Shall this be released? version: 1.2"
    assert await wonder(fake, "gates", "show", GATE) == 0
    shown = capsys.readouterr().out
    assert shown.startswith("Shall this\nbe released?\n") and '"version": "1.2"' in shown
    flags = ("--set", "notes=Bugs fixed.", "--comment", "fine", "--user", "mia")
    assert await wonder(fake, "gates", "approve", GATE, *flags) == 0
    output = fake.requests[-1]
    assert output.decision == service.GATE_DECISION_APPROVE
    assert (dict(output.answer), output.comment, output.user_id) == ({"notes": "Bugs fixed."}, "fine", "mia")
    assert output.shown_hash == "abc"
    assert await wonder(fake, "gates", "reject", "gate_2", "--shown-hash", "other") == 1
    assert fake.requests[-1].shown_hash == "other"
    assert await wonder(fake, "gates", "reject", "gate_2") == 0
    assert fake.requests[-1].decision == service.GATE_DECISION_REJECT
    assert await wonder(fake, "gates", "approve", GATE) == 1
    printed = capsys.readouterr()
    assert printed.out == "gate_1 approved; its run is run_1\ngate_2 rejected; its run is run_1\n"
    assert printed.err.count("(GATE_RESOLVED)") == 2
    assert await wonder(fake, "gates", "--status", "rejected", "--json") == 0
    assert json.loads(capsys.readouterr().out)["id"] == "gate_2"
    resolution = fake.gates[0].resolution
    resolution.user_id, resolution.comment = "mia", "fine"
    resolution.resolve_time.CopyFrom(at(1400))
    resolution.answer.update({"notes": "Bugs fixed."})
    assert await wonder(fake, "gates", "show", GATE) == 0
    printed = capsys.readouterr().out
    assert "approved by mia: fine\nanswered 2023-11-14 22:13:21\nanswer given:\n" in printed
    assert '"notes": "Bugs fixed."' in printed


class Definitions(library_rpc.LibraryServiceServicer):
    """A library with the workflow of the run, in which `agree` waits."""

    async def GetDefinition(self, request: Any, context: object) -> library_service.GetDefinitionResponse:
        assert request.definition_id == WORKFLOW
        text = """
        {"name": "release", "workflow": {
          "nodes": [{"id": "build", "wait": {"signal": "paid", "duration_ms": 60000}},
                    {"id": "agree", "fan_in": {"mode": "FAN_IN_MODE_M_OF_N", "count": 2}}],
          "transitions": [{"from_node_id": "build", "to_node_id": "agree", "condition": "signals.hurry.x"}]}}
        """
        found = json_format.Parse(text, definition_pb2.Definition())
        return library_service.GetDefinitionResponse(definition=found)


async def test_the_reason_of_a_wait_comes_from_the_workflow(capsys: pytest.CaptureFixture[str]) -> None:
    script = Script()
    script.start()
    script.token(0, "t", "build", "WAITING_FOR_SIGNAL", update_time=at(0))
    script.begin(0, "build", target="wait")
    script.add(5, "signal.received", signal_received=run.Signal(name="payd"))
    script.token(20, "t.1", "agree", "WAITING_FOR_SIBLINGS", branch="a", branch_count=3, parent_token_id="t")
    script.end(90, "CANCELLED")
    fake = FakeCoordinator(script.events)
    async with serving(coordinator=fake, library=Definitions()) as address:

        async def said(*argv: str) -> tuple[str, str]:
            await asyncio.to_thread(cli.main, [*argv, "--server", address])
            output = capsys.readouterr()
            return output.out, output.err

        _, lines = await said("run", "--watch", RUN)
        assert "⋯ build  waits for the signal paid, until 22:14:20" in lines
        assert "⋯ agree  [a] arrived, 1 of 2 needed (3 branches)" in lines
        shown, _ = await said("runs", "show", RUN)
        assert "signal  payd  (unused by the workflow)\n" in shown
        _, warned = await said("runs", "signal", RUN, "payd")
        assert "does not use the signal payd; it uses: hurry, paid\n" in warned
        assert await said("runs", "signal", RUN, "hurry") == (f"signal hurry sent to {RUN} (event 7)\n", "")


@pytest.mark.parametrize(
    ("message", "setting", "hint"),
    [
        ("input.name: is missing", "nme=3", "did you mean name instead of nme?"),
        ("input.name: is missing", "other=3", ""),
        ("input.tries: must be a whole number", "tries=3", "`=` sets text"),
    ],
)
def test_the_hint_for_an_invalid_input_fits_the_fault(message: str, setting: str, hint: str) -> None:
    given = _input_hint(message, [setting])
    assert hint in given if hint else given == ""


def test_a_number_given_as_text_gets_a_suggestion() -> None:
    assert _as_json_setting(["a=x", "n=3"]) == "n:=3"
    assert _as_json_setting(["a=x", "b:=3", "c=1.2.3"]) == ""


async def test_the_server_flag_works_before_the_verb(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WONDER_SERVER", "127.0.0.1:1")
    async with serving(coordinator=FakeCoordinator()) as address:
        assert await asyncio.to_thread(cli.main, ["runs", "--server", address, "replay", RUN]) == 0
        assert await asyncio.to_thread(cli.main, ["gates", "--server", address, "show", GATE]) == 0
        assert await asyncio.to_thread(cli.main, ["runs", "replay", RUN]) == 1


@pytest.mark.parametrize("command", [["run"], ["runs"], ["gates"], ["workflow"], ["workflow", "draw"]])
def test_help_has_examples(command: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left:
        cli.main([*command, "--help"])
    assert left.value.code == 0
    shown: Any = capsys.readouterr().out
    examples = re.findall(r"^  (wonder (?!COMMAND)[^|\n]*)", shown.partition("examples:")[2], re.MULTILINE)
    assert len(examples) >= 3
    for example in examples:
        cli.build_parser().parse_args(shlex.split(example)[1:])
