"""Execution of a task by ``wonder run``: its steps as lines, and its output. Nothing is stored."""

from __future__ import annotations

import argparse
import json
import sys

from wonder_sdk import UnavailableError, WonderError, sync, v1
from wonder_sdk.cli.shared import connection
from wonder_sdk.cli.shared.terminal import Terminal
from wonder_sdk.cli.workflows.run_lines import WAITS_FOR_WORKER, flat
from wonder_sdk.cli.workflows.run_view import duration
from wonder_sdk.json_types import JsonDict
from wonder_sdk.values import from_struct, to_struct

_ENDS = {
    v1.StepStatus.COMPLETED: ("✓", "green"),
    v1.StepStatus.FAILED: ("✗", "red"),
    v1.StepStatus.RUNNING: ("→", "dim"),
}


def is_task(client: sync.Client, reference: str) -> bool:
    """Return True if the reference leads to a task."""
    try:
        found = client.library.get_definition(v1.GetDefinitionRequest(definition_id=reference))
    except WonderError as problem:
        if isinstance(problem, UnavailableError) and problem.not_connected:
            raise
        return False  # The start of a run reports what is wrong.
    return found.definition is not None and found.definition.task is not None


def run_task(arguments: argparse.Namespace, client: sync.Client, given: JsonDict | None) -> int:
    """Execute the task, print its steps and its output. Exit code 1 if it fails.

    Leaving cancels the task, unless it has a request id.
    """
    if arguments.detach:
        print("wonder: a task runs only while its caller waits. Remove --detach.", file=sys.stderr)
        return 2
    request = v1.StreamTaskRequest(
        task_id=arguments.workflow,
        input=to_struct(given, "input") if given is not None else None,
        context=v1.ExecutionContext(
            project_id=arguments.project,
            agent_id=arguments.agent,
            conversation_id=arguments.conversation,
            branch=arguments.branch,
        ),
        timeout_ms=round(arguments.timeout * 1000),
        request_id=arguments.request_id,
    )
    notes = Terminal(sys.stderr)
    for item in client.executor.stream_task(request):
        if arguments.json:
            print(connection.as_json(item), flush=True)
        elif not arguments.quiet:
            _print_item(notes, item, details=arguments.verbose)
        if item.result is not None:
            return _end(arguments, notes, item.result)
    print("wonder: the server ended the task without a result", file=sys.stderr)
    return 1


def _print_item(notes: Terminal, item: v1.StreamTaskResponse, *, details: bool) -> None:
    if item.step is not None:
        step = item.step
        mark, style = _ENDS.get(step.status, ("○", "dim"))
        took = f"  {duration(step.duration_ms / 1000)}" if mark in "✓✗" else f"  {step.action_kind}"
        other = f"  {(step.status.name or '').lower()}" if mark == "○" else ""
        error_text = f": {flat(step.error.message)}" if step.error is not None else ""
        notes.line(f"{mark} {step.step_id}{other or took}{error_text}".rstrip(), style)
    elif item.progress is not None and item.progress.progress is not None:
        message = item.progress.progress.message
        if message.startswith(WAITS_FOR_WORKER):
            notes.line(f"⋯ {item.progress.step_id}  {flat(message)}", "yellow")
        elif message and details:
            notes.line(f"  · {item.progress.step_id}: {flat(message)}", "dim")


def _end(arguments: argparse.Namespace, notes: Terminal, result: v1.TaskResult) -> int:
    fault = result.error
    if fault is not None:
        reason = f" ({fault.reason.name})" if fault.reason and fault.reason.name else ""
        if not arguments.json:
            notes.line(
                f"wonder: {result.task or arguments.workflow} failed: {flat(fault.message)}{reason}", "red"
            )
        return 1
    if not arguments.json:
        indent = 2 if sys.stdout.isatty() else None
        print(json.dumps(from_struct(result.output) or {}, ensure_ascii=False, indent=indent))
    return 0
