"""A run as a table that changes where it stands: for people at a terminal.

Plain ANSI: the cursor goes up over the last frame, and each line of the new one clears the rest of its own.
What happens besides (signals, events, answers at gates) is printed above the table and stays.
"""

from __future__ import annotations

import shutil
import time
import unicodedata
from collections.abc import Callable
from datetime import UTC, datetime

from wonder_sdk import v1
from wonder_sdk.cli.run_graph import meeting
from wonder_sdk.cli.run_lines import ending, flat, gate_command, gate_question, happening
from wonder_sdk.cli.run_picture import Picture, Row, duration, seconds
from wonder_sdk.cli.terminal import Terminal, printable
from wonder_sdk.watch import RunItem

_FRAME_SECONDS = 0.1
# Of its time, drawing takes a tenth at most, however large the run.
_PAUSES = 9
_SPINNER = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
_LEAST_ROWS = 5
# What stands around the rows: the run, what is left out, the end, and the line that the cursor needs.
_OTHER_LINES = 4
# Gates that are shown with their command; more are counted.
_GATES = 3

Line = tuple[str, str]


class RunTable:
    """Draws the picture again and again; `close` leaves the last frame on the screen."""

    def __init__(
        self,
        terminal: Terminal,
        picture: Picture,
        *,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._terminal, self._picture = terminal, picture
        self._now, self._monotonic = now, monotonic
        self._drawn = 0
        self._next_at = float("-inf")
        self._frames = 0

    def show(self, item: RunItem) -> None:
        """Draw an item that the picture has taken, now or with one of the next."""
        match item:
            case (
                v1.RunEvent(signal_received=v1.Signal())
                | v1.RunEvent(event_emitted=v1.EmittedEvent())
                | v1.RunEvent(gate_resolved=v1.Gate())
            ):
                said = happening(self._picture, item)
                if said is not None:
                    self._above(*said)
            case _:
                self.tick()

    def note(self, text: str) -> None:
        """Print something that is not the run's, above the table."""
        self._above(f"  {text}", "dim")

    def tick(self) -> None:
        """Draw, if there is something to draw and the last frame is old enough."""
        if self._picture.run.id and self._monotonic() >= self._next_at:
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
            clean = _cut(printable(text), width - 1)
            parts.append((self._terminal.style(clean, style) if style else clean) + "\x1b[K\n")
        parts.append("\x1b[J")
        self._terminal.raw("".join(parts))
        now = self._monotonic()
        self._drawn, self._next_at = len(lines), now + max(_FRAME_SECONDS, _PAUSES * (now - begun_at))

    def _above(self, text: str, style: str) -> None:
        if self._drawn:
            self._terminal.raw(f"\x1b[{self._drawn}F\x1b[J")
            self._drawn = 0
        self._terminal.line(_cut(printable(text), self._terminal.width), style)
        self._draw()

    def _lines(self, height: int) -> list[Line]:
        picture = self._picture
        run = picture.run
        if picture.has_ended:
            last = ending(run, picture.executions)
        else:
            status = "waiting" if _only_waits(picture) else "running"
            last = (
                f"{status} {duration(seconds(run.create_time, self._now()))} · Ctrl-C leaves; it goes on",
                "dim",
            )
        gates = [line for gate in list(picture.gates.values())[:_GATES] for line in _gate(gate)]
        if len(picture.gates) > _GATES:
            gates.append(
                (f"  ? and {len(picture.gates) - _GATES} more: wonder gates --run {run.id}", "yellow")
            )
        meetings = [
            (f"  ⋯ {node}  {_meeting(picture.nodes.get(node), here, count)}", "dim")
            for node, here, count in picture.meetings()[:_GATES]
        ]
        room = max(_LEAST_ROWS, height - _OTHER_LINES - len(gates) - len(meetings))
        rows, left_out = _choose(list(picture.rows()), room)
        head: list[Line] = [(f"{run.workflow}  {run.id}", "bold")]
        if left_out:
            head.append((f"  … {left_out:,} more nodes", "dim"))
        spinner, now = _SPINNER[self._frames % len(_SPINNER)], self._now()
        return [*head, *(row_line(row, now, spinner) for row in rows), *meetings, *gates, last]


def row_line(row: Row, now: datetime, spinner: str = "●") -> Line:
    """A row as it stands ``now``, and its style."""
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
        facts += [each for each in (row.waits, row.doing, before) if each]
    elif execution.status is v1.NodeExecutionStatus.FAILED and execution.error is not None:
        facts.append(flat(execution.error.message))
    name = "  " * row.depth + row.name
    return f"  {mark} {name:<28} {' · '.join(facts)}", style


def _meeting(node: v1.Node | None, here: int, branches: int) -> str:
    text = meeting(node, here, branches)
    return text if "needed" in text else f"{text} branches are here"


def _choose(rows: list[Row], room: int) -> tuple[list[Row], int]:
    """As many rows as there is room for, and how many are left out: what is open comes first, then what is
    newest; in the order in which they were."""
    if len(rows) <= room:
        return rows, 0
    ranked = sorted(
        range(len(rows)), key=lambda index: (not rows[index].is_open, -rows[index].execution.ordinal)
    )
    kept = sorted(ranked[:room])
    return [rows[index] for index in kept], len(rows) - room


def _only_waits(picture: Picture) -> bool:
    open_rows = [row for row in picture.rows() if row.is_open]
    return bool(open_rows) and all(row.waits for row in open_rows)


def _gate(gate: v1.Gate) -> list[Line]:
    return [(f"  ? {gate.node_id}: {gate_question(gate)}", "yellow"), (f"      {gate_command(gate)}", "")]


def _cut(text: str, width: int) -> str:
    """As much of the text as fits into one line of the terminal, by the room that its characters take."""
    flat_text = text.replace("\n", " ").replace("\t", " ")
    if sum(map(_room, flat_text)) <= width:
        return flat_text
    kept, room = "", width - 1
    for each in flat_text:
        room -= _room(each)
        if room < 0:
            break
        kept += each
    return f"{kept}…" if width > 0 else ""


def _room(character: str) -> int:
    if unicodedata.combining(character):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1
