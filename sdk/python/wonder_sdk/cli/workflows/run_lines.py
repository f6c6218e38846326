"""A run as lines, one for each event: for pipes, files, and terminals without styles."""

from __future__ import annotations

import shlex

from wonder_sdk import v1
from wonder_sdk.cli.shared.terminal import Terminal
from wonder_sdk.cli.shared.text_summary import one_line
from wonder_sdk.cli.workflows.run_graph import fan_in_status
from wonder_sdk.cli.workflows.run_view import RunView, Status, duration, label, seconds
from wonder_sdk.conversation.subscriptions import RunItem
from wonder_sdk.json_types import JsonValue
from wonder_sdk.values import from_struct, from_value

WAITS_FOR_WORKER = "waits for a worker"
"""First words of the server's message that no worker has taken a node's assignment."""


class RunLines:
    """Prints the events of a run. ``details`` adds inputs, outputs and the steps of tasks.

    A node that waits for a worker is always reported, once for each reason.
    """

    def __init__(self, terminal: Terminal, run_view: RunView, *, details: bool = False) -> None:
        self._terminal, self._run_view, self._details = terminal, run_view, details
        self._waits: set[tuple[str, str]] = set()

    def tick(self) -> None:
        """Do nothing: lines do not change with time."""

    def note(self, text: str) -> None:
        """Print a line that is not an event."""
        self._terminal.line(f"{'':>9}  {text}", "dim")

    def close(self) -> None:
        """Do nothing: all lines are printed."""

    def show(self, item: RunItem) -> None:
        """Print an item that the view has applied."""
        if isinstance(item, v1.NodeProgress):
            if self._details:
                self._progress(item)
            else:
                self._wait(item)
            return
        line = event_line(self._run_view, item, details=self._details)
        if line is not None:
            text, style = line
            at = seconds(self._run_view.run.create_time, item.create_time)
            self._terminal.line(f"{clock(at):>9}  {text}", style)

    def _wait(self, progress: v1.NodeProgress) -> None:
        message = progress.progress.message if progress.progress is not None else ""
        key = progress.node_execution_id, message
        if message.startswith(WAITS_FOR_WORKER) and key not in self._waits:
            self._waits.add(key)
            self._terminal.line(f"{'':>9}  ⋯ {progress.node_id}  {flat(message)}", "yellow")

    def _progress(self, progress: v1.NodeProgress) -> None:
        text = ""
        if progress.step is not None:
            text = f"{progress.step.step_id} {progress.step.status.name.lower()}"
        elif progress.progress is not None:
            text = progress.progress.message
        if text:
            self._terminal.line(f"{'':>9}    · {progress.node_id}: {text}", "dim")


def event_line(run_view: RunView, event: v1.RunEvent, *, details: bool = False) -> tuple[str, str] | None:
    """Return the line of an event and its style, or None for an event without a line."""
    match event:
        case v1.RunEvent(token_moved=v1.Token() as token):
            return _token(run_view, token)
        case v1.RunEvent(gate_opened=v1.Gate() as gate):
            return f"? {gate.node_id}  {gate_question(gate)}\n{'':>13}{gate_command(gate)}", "yellow"
        case v1.RunEvent(gate_resolved=v1.Gate() as gate):
            return f"? {gate.node_id}  {gate_answer(gate)}", "yellow"
        case v1.RunEvent(signal_received=v1.Signal() as signal):
            return f"! signal {signal.name}{_payload_text(from_value(signal.payload))}", "cyan"
        case v1.RunEvent(event_emitted=v1.EmittedEvent() as emitted):
            payload = _payload_text(from_struct(emitted.payload))
            return f"! {emitted.node_id} emits {emitted.name}{payload}", "cyan"
        case _:
            return _run_line(run_view, event, details) or _node_line(run_view, event, details)


def _run_line(run_view: RunView, event: v1.RunEvent, details: bool) -> tuple[str, str] | None:
    match event:
        case v1.RunEvent(workflow_started=v1.Run() as run):
            given = f"  {flat(one_line(from_struct(run.input)))}" if details and run.input else ""
            forked = f", forked from {run.forked_from_run_id}" if run.forked_from_run_id else ""
            return f"{run.workflow}  {run.id}{forked}{given}", "bold"
        case (
            v1.RunEvent(workflow_completed=v1.Run() as run)
            | v1.RunEvent(workflow_failed=v1.Run() as run)
            | v1.RunEvent(workflow_cancelled=v1.Run() as run)
        ):
            return outcome_line(run, run_view.executions)
        case _:
            return None


def _node_line(run_view: RunView, event: v1.RunEvent, details: bool) -> tuple[str, str] | None:
    match event:
        case v1.RunEvent(node_started=v1.NodeExecution(target="gate" | "wait")):
            return None  # Another event names the signal or the gate.
        case v1.RunEvent(node_started=v1.NodeExecution() as execution):
            given = f"  {flat(one_line(from_struct(execution.input)))}" if details and execution.input else ""
            by = f"  {execution.carried_out_by}" if execution.carried_out_by else ""
            return _execution_line(run_view, execution, "→", f"  {execution.target}{by}{given}"), "dim"
        case v1.RunEvent(node_completed=v1.NodeExecution() as execution):
            given = (
                f"  {flat(one_line(from_value(execution.output)))}" if details and execution.output else ""
            )
            return _execution_line(run_view, execution, "✓", f"  {_duration_text(execution)}{given}"), "green"
        case v1.RunEvent(node_failed=v1.NodeExecution() as execution):
            return _failed(run_view, execution)
        case v1.RunEvent(node_cancelled=v1.NodeExecution() as execution):
            return _execution_line(run_view, execution, "○", "  cancelled"), "dim"
        case _:
            return None


def outcome_line(run: v1.Run, executions: int) -> tuple[str, str]:
    """Return the line of a run's outcome and its style."""
    took = duration(seconds(run.create_time, run.complete_time))
    count = max(executions, run.node_execution_count)
    facts = f"{took} · {count:,} node{'' if count == 1 else 's'}"
    if run.status is v1.RunStatus.COMPLETED:
        return f"completed · {facts}", "green"
    fault = run.error
    reason = f" ({fault.reason.name})" if fault and fault.reason and fault.reason.name else ""
    error_text = f": {flat(fault.message)}{reason}" if fault and fault.message else ""
    status_text = (run.status.name or "ended").lower()
    return f"{status_text} · {facts}{error_text}", "yellow" if run.status is v1.RunStatus.CANCELLED else "red"


def gate_question(gate: v1.Gate) -> str:
    """Return the question and the data of a gate in one line."""
    shown = one_line(from_struct(gate.shown))
    return "  ".join(flat(part) for part in (gate.prompt, shown) if part)


def gate_command(gate: v1.Gate) -> str:
    """Return the command that approves a gate, with a flag for each field that the answer must have.

    Without an answer the run continues with what the gate shows, so a field that it shows needs no flag.
    If the gate shows a field that its schema excludes, the approval needs an answer. Then each field of
    the schema has a flag.
    """
    schema, shown = from_struct(gate.answer_schema) or {}, from_struct(gate.shown) or {}
    required, properties = schema.get("required"), schema.get("properties")
    fields = properties if isinstance(properties, dict) else {}
    names = [name for name in required if name not in shown] if isinstance(required, list) else []
    if schema.get("additionalProperties") is False and not shown.keys() <= fields.keys():
        names = list(fields)
    flags = [f"--set {shlex.quote(_setting(str(name), fields.get(str(name))))}" for name in names]
    return " ".join(["wonder gates approve", gate.id, *flags])


def _setting(name: str, schema: JsonValue) -> str:
    """Return the form of a setting: ``name=TEXT``, or ``name:=`` and the type of its JSON value."""
    type_name = schema.get("type") if isinstance(schema, dict) else None
    return f"{name}=TEXT" if type_name in ("string", None) else f"{name}:={str(type_name).upper()}"


def gate_answer(gate: v1.Gate) -> str:
    """Return the answer to a gate and its user in one line."""
    answer_text = (gate.status.name or "resolved").lower()
    resolution = gate.resolution
    if resolution is None:
        return answer_text
    user = f" by {resolution.user_id}" if resolution.user_id else ""
    comment = f": {flat(resolution.comment)}" if resolution.comment else ""
    return f"{answer_text}{user}{comment}"


def clock(value: float) -> str:
    """Format the seconds since the run's start: ``12.345``, from one hour on ``1:02:03``."""
    if value < 3600:
        return f"{value:.3f}"
    return f"{int(value // 3600)}:{int(value % 3600 // 60):02}:{int(value % 60):02}"


def flat(text: str) -> str:
    """Return the text on one line."""
    return " ".join(text.split())


def _token(run_view: RunView, token: v1.Token) -> tuple[str, str] | None:
    path = run_view.path(token.id)
    if token.status is Status.WAITING_FOR_SIBLINGS:
        branch = f"[{'/'.join(path)}] arrived, " if path else ""
        node = run_view.nodes.get(token.node_id)
        status = f"{branch}{fan_in_status(node, run_view.arrived_count(token), token.branch_count)}"
        return f"{_indent(path[:-1])}⋯ {token.node_id}  {status}", "dim"
    if token.status is Status.WAITING_FOR_SIGNAL:
        return (
            f"{_indent(path)}⋯ {token.node_id}{label(path, token.node_id)}  {run_view.wait_text(token)}",
            "dim",
        )
    return None


def _failed(run_view: RunView, execution: v1.NodeExecution) -> tuple[str, str]:
    fault = execution.error
    error_text = flat(fault.message) if fault else "no reason given"
    if execution.status is v1.NodeExecutionStatus.RUNNING:
        return _execution_line(
            run_view, execution, "↻", f"  attempt {execution.attempts}: {error_text}"
        ), "yellow"
    attempts = f", {execution.attempts} attempts" if execution.attempts > 1 else ""
    return _execution_line(
        run_view, execution, "✗", f"  {_duration_text(execution)}{attempts}: {error_text}"
    ), "red"


def _execution_line(run_view: RunView, execution: v1.NodeExecution, mark: str, rest: str) -> str:
    row = run_view.row_of(execution)
    return f"{_indent(row.depth)}{mark} {row.name}{rest}".rstrip()


def _duration_text(execution: v1.NodeExecution) -> str:
    return duration(seconds(execution.create_time, execution.complete_time))


def _payload_text(payload: object) -> str:
    return f"  {flat(one_line(payload))}" if payload not in (None, {}) else ""


def _indent(depth: int | list[str]) -> str:
    return "  " * (depth if isinstance(depth, int) else len(depth))
