"""A run as a table that is redrawn in place, for terminals.

It uses plain ANSI: the cursor moves up over the last frame, and each new line clears the rest of its line.
Signals, emitted events and answers at gates are printed above the table and stay.
"""

from __future__ import annotations

import shutil
import time
import unicodedata
from collections.abc import Callable
from datetime import UTC, datetime

from wonder_sdk import v1
from wonder_sdk.cli.shared.terminal import Terminal, printable
from wonder_sdk.cli.workflows.run_graph import fan_in_status
from wonder_sdk.cli.workflows.run_lines import event_line, flat, gate_command, gate_question, outcome_line
from wonder_sdk.cli.workflows.run_view import Row, RunView, duration, seconds
from wonder_sdk.conversation.subscriptions import RunItem

_FRAME_SECONDS = 0.1
# Drawing takes at most a tenth of the time: a pause of nine times the drawing time follows.
_PAUSES = 9
_SPINNER = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
_MIN_ROWS = 5
# Lines around the rows: the run, the number of omitted rows, the status, and the cursor's line.
_OTHER_LINES = 4
# Gates that are shown with their command; the others are only counted.
_GATES = 3

Line = tuple[str, str]


class RunTable:
    """Redraws the run; `close` leaves the last frame on the screen."""

    def __init__(
        self,
        terminal: Terminal,
        run_view: RunView,
        *,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._terminal, self._run_view = terminal, run_view
        self._now, self._monotonic = now, monotonic
        self._drawn = 0
        self._next_at = float("-inf")
        self._frames = 0

    def show(self, item: RunItem) -> None:
        """Show an item that the view has applied, now or in the next frame."""
        match item:
            case (
                v1.RunEvent(signal_received=v1.Signal())
                | v1.RunEvent(event_emitted=v1.EmittedEvent())
                | v1.RunEvent(gate_resolved=v1.Gate())
            ):
                line = event_line(self._run_view, item)
                if line is not None:
                    self._print_above(*line)
            case _:
                self.tick()

    def note(self, text: str) -> None:
        """Print a line above the table."""
        self._print_above(f"  {text}", "dim")

    def tick(self) -> None:
        """Draw a frame if the last one is old enough."""
        if self._run_view.run.id and self._monotonic() >= self._next_at:
            self._draw()

    def close(self) -> None:
        """Draw the last frame."""
        self._draw()
        self._drawn = 0

    def _draw(self) -> None:
        begun_at = self._monotonic()
        height = shutil.get_terminal_size((100, 24)).lines
        width = self._terminal.width
        lines = self._lines(height)
        self._frames += 1
        parts = [f"\x1b[{self._drawn}F" if self._drawn else ""]
        for text, style in lines:
            clean = _fit_width(printable(text), width - 1)
            parts.append((self._terminal.style(clean, style) if style else clean) + "\x1b[K\n")
        parts.append("\x1b[J")
        self._terminal.raw("".join(parts))
        now = self._monotonic()
        self._drawn, self._next_at = len(lines), now + max(_FRAME_SECONDS, _PAUSES * (now - begun_at))

    def _print_above(self, text: str, style: str) -> None:
        if self._drawn:
            self._terminal.raw(f"\x1b[{self._drawn}F\x1b[J")
            self._drawn = 0
        self._terminal.line(_fit_width(printable(text), self._terminal.width), style)
        self._draw()

    def _lines(self, height: int) -> list[Line]:
        view = self._run_view
        run = view.run
        if view.has_ended:
            last = outcome_line(run, view.executions)
        else:
            status = "waiting" if _only_waits(view) else "running"
            elapsed = duration(seconds(run.create_time, self._now()))
            last = f"{status} {elapsed} · Ctrl-C exits; the run continues", "dim"
        gates = [line for gate in list(view.gates.values())[:_GATES] for line in _gate(gate)]
        if len(view.gates) > _GATES:
            gates.append((f"  ? and {len(view.gates) - _GATES} more: wonder gates --run {run.id}", "yellow"))
        fan_ins = [
            (f"  ⋯ {node}  {_fan_in_line(view.nodes.get(node), arrived, count)}", "dim")
            for node, arrived, count in view.fan_ins()[:_GATES]
        ]
        max_rows = max(_MIN_ROWS, height - _OTHER_LINES - len(gates) - len(fan_ins))
        rows, left_out = _select_rows(list(view.rows()), max_rows)
        head: list[Line] = [(f"{run.workflow}  {run.id}", "bold")]
        if left_out:
            head.append((f"  … {left_out:,} more nodes", "dim"))
        spinner, now = _SPINNER[self._frames % len(_SPINNER)], self._now()
        return [*head, *(row_line(row, now, spinner) for row in rows), *fan_ins, *gates, last]


def row_line(row: Row, now: datetime, spinner: str = "●") -> Line:
    """Return the line of a row at the time ``now``, and its style."""
    execution = row.execution
    mark, style = {
        v1.NodeExecutionStatus.COMPLETED: ("✓", "green"),
        v1.NodeExecutionStatus.FAILED: ("✗", "red"),
        v1.NodeExecutionStatus.CANCELLED: ("○", "dim"),
    }.get(execution.status, (spinner, ""))
    if row.is_open and row.waits:
        mark, style = "⋯", "yellow"
    facts = [duration(seconds(execution.create_time, now if row.is_open else execution.complete_time))]
    if execution.attempts > 1:
        facts.append(f"attempt {execution.attempts}")
    if row.is_open:
        before = f"before: {flat(row.fault.message)}" if row.fault is not None else ""
        facts += [each for each in (row.waits, row.current_step, before) if each]
    elif execution.status is v1.NodeExecutionStatus.FAILED and execution.error is not None:
        facts.append(flat(execution.error.message))
    name = "  " * row.depth + row.name
    return f"  {mark} {name:<28} {' · '.join(facts)}", style


def _fan_in_line(node: v1.Node | None, arrived_count: int, branch_count: int) -> str:
    text = fan_in_status(node, arrived_count, branch_count)
    return text if "needed" in text else f"{text} branches arrived"


def _select_rows(rows: list[Row], max_rows: int) -> tuple[list[Row], int]:
    """Return up to ``max_rows`` rows in their order, and the number of omitted rows.

    Open rows are kept first, then the newest.
    """
    if len(rows) <= max_rows:
        return rows, 0
    ranked = sorted(
        range(len(rows)), key=lambda index: (not rows[index].is_open, -rows[index].execution.ordinal)
    )
    kept = sorted(ranked[:max_rows])
    return [rows[index] for index in kept], len(rows) - max_rows


def _only_waits(view: RunView) -> bool:
    open_rows = [row for row in view.rows() if row.is_open]
    return bool(open_rows) and all(row.waits for row in open_rows)


def _gate(gate: v1.Gate) -> list[Line]:
    return [(f"  ? {gate.node_id}: {gate_question(gate)}", "yellow"), (f"      {gate_command(gate)}", "")]


def _fit_width(text: str, width: int) -> str:
    """Cut the text to one line of the terminal, by the width of its characters."""
    flat_text = text.replace("\n", " ").replace("\t", " ")
    if sum(map(_char_width, flat_text)) <= width:
        return flat_text
    kept, remaining = "", width - 1
    for each in flat_text:
        remaining -= _char_width(each)
        if remaining < 0:
            break
        kept += each
    return f"{kept}…" if width > 0 else ""


def _char_width(character: str) -> int:
    if unicodedata.combining(character):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1
