"""The view of a run: rows in the order of the graph, and the table drawn from them."""

from __future__ import annotations

import io
import re
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta

import betterproto2
import pytest

from tests.sdk.fake_coordinator import BEGIN_MS, RUN, Script, a_run
from wonder.v1 import run_pb2 as run
from wonder_sdk import v1
from wonder_sdk.cli.shared.terminal import Terminal
from wonder_sdk.cli.workflows.run_lines import RunLines, clock, gate_command
from wonder_sdk.cli.workflows.run_table import RunTable, _fit_width
from wonder_sdk.cli.workflows.run_view import RunView, duration, label
from wonder_sdk.values import to_struct

NOW = datetime.fromtimestamp(BEGIN_MS / 1000, UTC) + timedelta(seconds=2)


class Screen(io.StringIO):
    """A terminal that interprets the escape sequences of the table, so that tests can read the screen."""

    def isatty(self) -> bool:
        return True

    @property
    def shown(self) -> list[str]:
        lines, row = [""], 0
        for piece in re.findall(r"\x1b\[\d*[A-Za-z]|\n|[^\x1b\n]+", self.getvalue()):
            if piece == "\n":
                row += 1
                if row == len(lines):
                    lines.append("")
            elif up := re.fullmatch(r"\x1b\[(\d+)F", piece):
                row -= int(up[1])
                assert row >= 0
            elif piece == "\x1b[J":
                del lines[row + 1 :]
                lines[row] = ""
            elif piece == "\x1b[K":
                written = self._written if self._row == row else ""
                lines[row] = written
            elif not piece.startswith("\x1b"):
                self._written = piece if self._row != row or not lines[row] else self._written + piece
                self._row, lines[row] = row, piece
        return [line.rstrip() for line in lines]

    _written, _row = "", -1


def run_view_of(events: Iterable[run.RunEvent]) -> list[v1.RunEvent]:
    return [v1.RunEvent.parse(event.SerializeToString()) for event in events]


def drawn(
    events: Iterable[v1.RunEvent | v1.NodeProgress], monkeypatch: pytest.MonkeyPatch, lines: int = 24
) -> tuple[list[str], RunView]:
    monkeypatch.setenv("COLUMNS", "90")
    monkeypatch.setenv("LINES", str(lines))
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    screen, picture = Screen(), RunView()
    table = RunTable(Terminal(screen), picture, now=lambda: NOW, monotonic=lambda: 0.0)
    for event in events:
        picture.apply(event)
        table.show(event)
        table._next_at = float("-inf")  # every event makes a frame
    table.close()
    return screen.shown, picture


def test_early_events_of_a_node_are_shown_after_its_start() -> None:
    script = Script()
    script.start()
    script.token(0, "t", "build", "WAITING_FOR_TASK")
    script.begin(5, "build")
    *before, begun = run_view_of(script.events)
    picture = RunView()
    for event in before:
        picture.apply(event)
    picture.apply(
        v1.NodeProgress(
            node_id="build", node_execution_id="op_1", progress=v1.Progress(message="waits for a worker")
        )
    )
    picture.apply(begun)
    assert [row.current_step for row in picture.rows()] == ["waits for a worker"]


def test_the_last_frame_stays_below_the_other_events(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    shown, picture = drawn(run_view_of(a_run()), monkeypatch)
    assert shown == [
        "! unit emits coverage",
        "! signal hurry",
        "? agree  approved by mia: fine",
        "acme/flows/release@3  run_1",
        "  ✓ build                        29 ms",
        "  ✓   lint                       28 ms",
        "  ✓   unit                       268 ms · attempt 2",
        "  ✓   report[unit]               49 ms",
        "  ✓ agree                        1.0 s",
        "completed · 1.5 s · 5 nodes",
        "",
    ]
    assert picture.has_ended and picture.executions == 5 and not picture.gates


def test_a_frame_shows_running_nodes_waiting_nodes_and_commands(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    events = run_view_of(a_run())
    shown, _ = drawn(events[:13], monkeypatch)  # lint is done and waits for unit, which is tried again
    assert [re.sub("[⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏]", "*", line) for line in shown[1:-1]] == [
        "acme/flows/release@3  run_1",
        "  ✓ build                        29 ms",
        "  ✓   lint                       28 ms",
        "  *   unit                       2.0 s · attempt 2 · before: The machine is busy.",
        "  ⋯ agree  1 of 2 branches arrived",
        "running 2.0 s · Ctrl-C exits; the run continues",
    ]
    shown, picture = drawn(events[:21], monkeypatch)
    assert shown[-5:-1] == [
        "  ⋯ agree                        1.6 s · waits for a person",
        "  ? agree: Shall this be released?  version: 1.2",
        "      wonder gates approve gate_1",
        "waiting 2.0 s · Ctrl-C exits; the run continues",
    ]
    assert list(picture.gates) == ["gate_1"]


def test_rows_are_ordered_by_branch() -> None:
    script = Script()
    script.start()
    script.token(0, "t", "each")
    script.begin(1, "each")
    script.done(2, "each")
    for index in (2, 0, 1):
        more = {"parent_token_id": "t", "fan_out_node_id": "each", "branch": str(index)}
        script.token(3, f"t.{index}", "work", branch_index=index, branch_count=3, **more)
    for node in ("work", "check"):
        for index in (1, 2, 0):
            script.begin(5, node, f"t.{index}")
            script.done(6, node, f"t.{index}")
    script.token(7, "t", "gather")
    script.begin(8, "gather")
    picture = RunView()
    for event in run_view_of(script.events):
        picture.apply(event)
    assert [(row.depth, row.name) for row in picture.rows()] == [
        (0, "each"),
        (1, "work[0]"),
        (1, "check[0]"),
        (1, "work[1]"),
        (1, "check[1]"),
        (1, "work[2]"),
        (1, "check[2]"),
        (0, "gather"),
    ]
    assert picture.path("t.2") == ["2"] and picture.path("unknown") == []
    assert label(["1", "lint"], "lint") == "[1]" and label(["1", "lint"], "x") == "[1/lint]"


def test_a_large_run_shows_open_and_newest_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    script = Script()
    script.start()
    for number in range(40):
        script.token(0, f"t{number}", f"node_{number}")
        script.begin(1, f"node_{number}", f"t{number}")
        if number not in (3, 17):
            script.done(2, f"node_{number}", f"t{number}")
    shown, _ = drawn(run_view_of(script.events), monkeypatch, lines=12)
    assert [line.split()[1] for line in shown[2:-2]] == [
        f"node_{number}" for number in (3, 17, 34, 35, 36, 37, 38, 39)
    ]
    assert shown[1] == "  … 32 more nodes"
    assert len(shown) <= 12


def test_progress_is_shown_in_its_row_until_the_node_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    script = Script()
    script.start()
    script.token(0, "t", "build")
    script.begin(1, "build")
    step = v1.NodeProgress(
        node_id="build",
        node_execution_id="op_1",
        step=v1.StepTrace(step_id="compile", status=v1.StepStatus.RUNNING),
    )
    output = v1.NodeProgress(
        node_id="build", node_execution_id="op_1", progress=v1.Progress(message="linking")
    )
    stray = v1.NodeProgress(node_id="x", node_execution_id="op_9", progress=v1.Progress(message="?"))
    events: list[v1.RunEvent | v1.NodeProgress] = [*run_view_of(script.events), step]
    assert drawn(events, monkeypatch)[0][1].endswith("build                        2.0 s · compile")
    assert drawn([*events, output, stray], monkeypatch)[0][1].endswith("2.0 s · linking")
    script.done(5, "build")
    assert drawn([*events, output, run_view_of(script.events)[-1]], monkeypatch)[0][1].endswith(
        "build                        4 ms"
    )


@pytest.mark.parametrize("details", [False, True])
def test_lines_always_show_that_a_node_waits_for_a_worker(details: bool) -> None:
    script = Script()
    script.start()
    script.token(0, "t", "build")
    script.begin(1, "build")
    reason = "waits for a worker of 'ocr': no worker for 'ocr' is connected"
    waits = v1.NodeProgress(node_id="build", node_execution_id="op_1", progress=v1.Progress(message=reason))
    output = v1.NodeProgress(
        node_id="build", node_execution_id="op_1", progress=v1.Progress(message="linking")
    )
    out, picture = io.StringIO(), RunView()
    lines = RunLines(Terminal(out), picture, details=details)
    for item in [*run_view_of(script.events), waits, output] + ([] if details else [waits]):
        picture.apply(item)
        lines.show(item)
    assert out.getvalue().count(reason) == 1
    assert ("linking" in out.getvalue()) is details


def test_the_view_of_get_run_equals_the_view_of_its_events() -> None:
    events, output = run_view_of(a_run())[:13], RunView()
    for event in events:
        output.apply(event)
    tokens = {each.token_moved.id: each.token_moved for each in events if each.token_moved is not None}
    executions: dict[str, v1.NodeExecution] = {}
    for event in events:
        name, payload = betterproto2.which_one_of(event, "payload")
        if name.startswith("node_") and isinstance(payload, v1.NodeExecution):
            executions[payload.id] = payload
    read = RunView.from_run(
        v1.Run(
            id=RUN, tokens=[*tokens.values()][::-1], node_executions=[*executions.values()], last_sequence=13
        )
    )
    assert (
        [row.name for row in read.rows()] == [row.name for row in output.rows()] == ["build", "lint", "unit"]
    )
    assert read.fan_ins() == output.fan_ins() == [("agree", 1, 2)]
    assert read.cursor == output.cursor == 13


def test_text_of_the_server_cannot_control_the_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    script = Script()
    script.start()
    script.token(0, "t", "build")
    script.begin(1, "build")
    script.failed(2, "build", "\x1b[2Jgone\x07", again=True)
    script.add(3, "event.emitted", event_emitted=run.EmittedEvent(name="\x1b]0;title\x07", node_id="build"))
    shown, _ = drawn(run_view_of(script.events), monkeypatch)
    assert "[2Jgone" in "".join(shown)
    assert shown[0] == "! build emits ]0;title"


@pytest.mark.parametrize(
    ("text", "width", "cut"),
    [
        ("short", 5, "short"),
        ("longer", 5, "long…"),
        ("日本語", 6, "日本語"),
        ("日本語", 5, "日本…"),
        ("a\nb", 5, "a b"),
        ("e\u0301e", 2, "e\u0301e"),
        ("xy", 1, "…"),
        ("xy", 0, ""),
    ],
)
def test_lines_are_cut_by_character_width(text: str, width: int, cut: str) -> None:
    assert _fit_width(text, width) == cut


@pytest.mark.parametrize(
    ("required", "flags"),
    [
        ([], ""),
        (["version"], ""),  # The gate shows it.
        (["notes"], " --set notes=TEXT"),
        (["notes", "tries", "done"], " --set notes=TEXT --set tries:=INTEGER --set done=TEXT"),
        (["a b"], " --set 'a b=TEXT'"),
    ],
)
def test_the_command_of_a_gate_sets_what_its_answer_requires(required: list[str], flags: str) -> None:
    fields = {"notes": {"type": "string"}, "tries": {"type": "integer"}, "version": {"type": "string"}}
    gate = v1.Gate(
        id="gate_1",
        shown=to_struct({"version": "1.2"}),
        answer_schema=to_struct({"type": "object", "properties": fields, "required": required}),
    )
    assert gate_command(gate) == f"wonder gates approve gate_1{flags}"
    assert gate_command(v1.Gate(id="gate_1")) == "wonder gates approve gate_1"


@pytest.mark.parametrize(
    ("shown", "flags"), [({"version": "1.2"}, " --set notes=TEXT"), ({"notes": "Bugs fixed."}, ""), ({}, "")]
)
def test_the_command_of_a_gate_answers_if_the_schema_excludes_a_shown_field(
    shown: dict[str, str], flags: str
) -> None:
    schema = to_struct({"properties": {"notes": {"type": "string"}}, "additionalProperties": False})
    gate = v1.Gate(id="gate_1", shown=to_struct(shown), answer_schema=schema)
    assert gate_command(gate) == f"wonder gates approve gate_1{flags}"


def test_times_are_human_readable() -> None:
    assert [duration(each) for each in (0.0291, 1.25, 59.94, 200, 7500)] == [
        "29 ms", "1.2 s", "59.9 s", "3 min 20 s", "2 h 05 min",
    ]  # fmt: skip
    assert (clock(12.3456), clock(3723)) == ("12.346", "1:02:03")
