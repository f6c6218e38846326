"""``wonder run``: start a run of a workflow, and show its progress."""

from __future__ import annotations

import argparse
import difflib
import json
import re
import sys
import time
from typing import TYPE_CHECKING

from wonder_sdk.cli.shared import connection, json_input
from wonder_sdk.cli.shared.terminal import Terminal
from wonder_sdk.json_types import JsonDict

if TYPE_CHECKING:
    from wonder_sdk import WonderError, sync
    from wonder_sdk.cli.workflows.run_lines import RunLines
    from wonder_sdk.cli.workflows.run_table import RunTable
    from wonder_sdk.cli.workflows.run_view import RunView
    from wonder_sdk.conversation.subscriptions import RunItem
    from wonder_sdk.transport.loop_thread import SyncIterator

_EXAMPLES = """\
examples:
  wonder run acme/flows/release --input '{"version": "1.2"}'
      Start a run, show its progress, and print its output as JSON.
  wonder run acme/flows/release --set version=1.2 --set dry_run:=true
      Set the input field by field: `=` sets text, `:=` sets JSON.
  wonder run acme/flows/release -i @input.json | jq .notes
      Read the input from a file (or `-`: standard input). Stdout contains only the output.
  wonder run acme/flows/release@3 --project shop --agent assistant --timeout 600
      Run a revision in a project, with an agent's memory, for at most ten minutes.
  wonder run acme/trivia/say --set text=Hooray
      Execute a task without a run: show its steps and print its output. Ctrl-C cancels it.
  wonder run acme/dev/run_tests --project shop --branch try-it
      Execute a task that works in repositories (`shell`, `repo.…`) on a branch.
  wonder run acme/flows/release --detach
      Start a run, print its id, exit.
  wonder run --watch run_01J9...
      Show a run from its start, even if it has ended; --after 42 begins after its event 42.

`wonder apply -f DIR` saves the libraries of these examples: acme/flows is examples/workflows of the source
tree, acme/trivia is examples/library, and docs/shell.md describes acme/dev.

Ctrl-C exits and the run continues; with --cancel-on-interrupt it is cancelled. See also `wonder runs` and
`wonder gates`.

exit codes: 0 completed, 1 failed or cancelled, 2 invalid command line, 130 interrupted
"""
_TICK_SECONDS = 0.1
# Shorter interruptions are not reported.
_NOTICE_AFTER_SECONDS = 1.0


def register(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = subparsers.add_parser(
        "run",
        help="Run a workflow and show its progress.",
        description="Start a run of a workflow and show its progress, or watch an existing run.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "workflow", nargs="?", metavar="WORKFLOW", help="Workflow or task: library/name[@REVISION] or id."
    )
    parser.add_argument(
        "-i", "--input", metavar="JSON", help="Start with this input: JSON, @FILE, or - for standard input."
    )
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="Start with this input field: key=text or key:=json (a number, true, a list); repeatable.",
    )
    _add_context_flags(parser)
    _add_output_flags(parser)
    connection.add_flags(parser)
    parser.set_defaults(run=_run)


def _add_context_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--project", default="", metavar="NAME", help="Run in this project (default: default)."
    )
    parser.add_argument("--agent", default="", metavar="NAME", help="Run with the memories of this agent.")
    parser.add_argument(
        "--branch",
        default="",
        metavar="NAME",
        help="Work on this branch of the repositories (default: that of the conversation or the run).",
    )
    parser.add_argument(
        "--conversation",
        default="",
        metavar="ID",
        help="Run for this conversation, on its branch.",
    )
    parser.add_argument(
        "--timeout",
        type=connection.seconds,
        default=0.0,
        metavar="SECONDS",
        help="Fail the run with TIMEOUT after this time.",
    )
    parser.add_argument(
        "--request-id",
        default="",
        metavar="ID",
        help="Send this request id; a repeated id returns the same run.",
    )


def _add_output_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--watch", metavar="RUN", help="Show this run instead of starting one.")
    parser.add_argument(
        "--after",
        type=connection.count,
        default=0,
        metavar="N",
        help="Show only events after sequence N.",
    )
    shape = parser.add_mutually_exclusive_group()
    shape.add_argument("-d", "--detach", action="store_true", help="Print the run's id and exit.")
    shape.add_argument(
        "--json", action="store_true", help="Print events on stdout, one JSON object per line."
    )
    shape.add_argument("-q", "--quiet", action="store_true", help="Print only the output.")
    parser.add_argument(
        "-v",
        "--verbose",
        action="store_true",
        help="Print lines with inputs, outputs and the steps of tasks.",
    )
    parser.add_argument("--cancel-on-interrupt", action="store_true", help="Cancel the run on Ctrl-C.")


def _run(arguments: argparse.Namespace) -> int:
    if bool(arguments.workflow) == bool(arguments.watch):
        print("wonder: name a workflow to run, or a run with --watch", file=sys.stderr)
        return 2
    if arguments.watch and (arguments.input or arguments.set or arguments.detach):
        print("wonder: --watch starts no run. Remove --input, --set and --detach.", file=sys.stderr)
        return 2
    try:
        given = json_input.read_object(arguments.input, "--input", arguments.set)
    except ValueError as problem:
        print(f"wonder: {problem}", file=sys.stderr)
        return 2

    def start(arguments: argparse.Namespace, client: sync.Client) -> int:
        from wonder_sdk import InvalidArgumentError, v1

        try:
            return _start(arguments, client, given)
        except InvalidArgumentError as problem:
            if problem.reason is v1.ErrorReason.INPUT_INVALID:
                problem.message += _input_hint(problem.message, arguments.set)
            raise

    return connection.connected(start)(arguments)


def _input_hint(message: str, settings: list[str]) -> str:
    """Return a hint for an input that the server rejected; "" if there is none."""
    missing = [name.rpartition(".")[2] for name in re.findall(r"([\w.-]+): is missing", message)]
    for setting in settings:
        key = setting.partition("=")[0].removesuffix(":")
        if close := difflib.get_close_matches(key, missing, 1):
            return f" (did you mean {close[0]} instead of {key}?)"
    if missing and "must be" not in message:
        return ""
    text = _as_json_setting(settings)
    return f" (`=` sets text; for a number or a list use `:=`, as in {text})" if text else ""


def _as_json_setting(settings: list[str]) -> str:
    """Return the first text setting whose value is also JSON, written with ``:=``; "" if there is none."""
    for setting in settings:
        key, _, text = setting.partition("=")
        if not key.endswith(":"):
            try:
                json.loads(text)
            except ValueError:
                continue
            return f"{key}:={text}"
    return ""


def _start(arguments: argparse.Namespace, client: sync.Client, given: JsonDict | None) -> int:
    if arguments.watch:
        return _RunWatcher(arguments, client, arguments.watch).run()
    from wonder_sdk import NotFoundError
    from wonder_sdk.cli.workflows.run_task import is_task, run_task

    if is_task(client, arguments.workflow):  # StartRun rejects a task, and the server logs each rejection.
        return run_task(arguments, client, given)
    try:
        run = client.start_run(
            arguments.workflow,
            given,
            project=arguments.project,
            agent=arguments.agent,
            conversation=arguments.conversation,
            branch=arguments.branch,
            timeout=arguments.timeout,
            request_id=arguments.request_id,
        )
    except NotFoundError as problem:
        # The server was asked for a workflow; this command also accepts a task.
        problem.message = problem.message.replace("There is no workflow ", "There is no workflow or task ", 1)
        raise
    if arguments.detach:
        print(run.id)
        return 0
    return _RunWatcher(arguments, client, run.id).run()


class _RunWatcher:
    """A run that the command shows until it ends."""

    def __init__(self, arguments: argparse.Namespace, client: sync.Client, run_id: str) -> None:
        from wonder_sdk.cli.workflows.run_view import RunView

        self._arguments, self._client, self._run_id = arguments, client, run_id
        self._notes = Terminal(sys.stderr)
        self._run_view = RunView()
        if arguments.after:  # Earlier events are not shown, but the positions of branches are needed.
            self._run_view = RunView.from_run(client.get_run(run_id))
            self._run_view.reopen()
        self._disconnected_at: float | None = None
        self._is_disconnected = False
        self._knows_graph = False
        self._view = self._choose_view(self._run_view)

    def run(self) -> int:
        """Show the run until it ends or the user interrupts; return the exit code."""
        interrupts = 0
        items = self._client.watch_run(
            self._run_id,
            after_sequence=self._arguments.after,
            include_progress=True,
            on_connection=self._connection,
        )
        while True:
            try:
                if interrupts == 1:
                    self._cancel()
                self._show(items)
                break
            except KeyboardInterrupt:
                interrupts += 1
                if interrupts > 1 or not self._arguments.cancel_on_interrupt:
                    return self._print_resume_hint(items)
        if self._view is not None:
            self._view.close()
        return self._end(130 if interrupts else 0)

    def _show(self, items: SyncIterator[RunItem]) -> None:
        """Show new items. After an interrupt, call it again for the rest."""
        from wonder_sdk import v1
        from wonder_sdk.cli.workflows.run_graph import nodes_of, workflow_of

        while True:
            while not items.ready(within=_TICK_SECONDS):
                self._tick()
            self._tick()
            try:
                item = next(items)
            except StopIteration:
                return
            self._run_view.apply(item)
            if not self._knows_graph and self._view is not None and self._run_view.run.workflow:
                self._knows_graph = True
                self._run_view.nodes = nodes_of(workflow_of(self._client, self._run_view.run))
            if isinstance(item, v1.RunEvent) and self._arguments.json:
                print(connection.as_json(item), flush=True)
            if self._view is not None:
                self._view.show(item)

    def _tick(self) -> None:
        if self._view is None:
            return
        lost_at = self._disconnected_at
        if (
            lost_at is not None
            and not self._is_disconnected
            and time.monotonic() - lost_at >= _NOTICE_AFTER_SECONDS
        ):
            self._is_disconnected = True
            self._view.note(f"no connection to {self._client.target}; reconnecting")
        elif lost_at is None and self._is_disconnected:
            self._is_disconnected = False
            self._view.note("connected again")
        self._view.tick()

    def _connection(self, problem: WonderError | None) -> None:
        """Record the state of the connection. The client's thread calls it."""
        self._disconnected_at = None if problem is None else self._disconnected_at or time.monotonic()

    def _cancel(self) -> None:
        from wonder_sdk import FailedPreconditionError

        try:
            self._client.cancel_run(self._run_id, "Interrupted at the command line.")
        except FailedPreconditionError:
            pass  # The run has ended; its last events give the outcome.

    def _choose_view(self, run_view: RunView) -> RunLines | RunTable | None:
        from wonder_sdk.cli.workflows.run_lines import RunLines
        from wonder_sdk.cli.workflows.run_table import RunTable

        if self._arguments.json or self._arguments.quiet:
            return None
        if self._notes.is_styled and not self._arguments.verbose:
            return RunTable(self._notes, run_view)
        return RunLines(self._notes, run_view, details=self._arguments.verbose)

    def _print_resume_hint(self, items: SyncIterator[RunItem]) -> int:
        """Print the commands that continue with the run, and return 130."""
        items.close()
        self._notes.line()
        self._notes.line(f"{self._run_id} continues")
        self._notes.line(f"  watch:   wonder run --watch {self._run_id}", "dim")
        self._notes.line(f"  cancel:  wonder runs cancel {self._run_id}", "dim")
        return 130

    def _end(self, code: int) -> int:
        """Print the output, or in one line the reason for its absence."""
        from wonder_sdk import v1
        from wonder_sdk.cli.workflows.run_lines import outcome_line
        from wonder_sdk.values import from_struct

        run = self._run_view.run
        is_silent = run.status is v1.RunStatus.COMPLETED and run.output is None
        if is_silent or not self._run_view.has_ended:  # The watch began after the run's end.
            run = self._client.get_run(self._run_id)
        if run.status is not v1.RunStatus.COMPLETED:
            if self._view is None and not self._arguments.json:
                text, style = outcome_line(run, self._run_view.executions)
                self._notes.line(f"wonder: {self._run_id} {text}", style)
            message = run.error.message if run.error is not None else ""
            texts = [each for each in self._arguments.set if not each.partition("=")[0].endswith(":")]
            if texts and "cannot compare" in message:
                key = texts[0].partition("=")[0]
                self._notes.line(f"`--set {key}=…` sets text; for a number use {key}:=…", "dim")
            return code or 1
        if not self._arguments.json:
            indent = 2 if sys.stdout.isatty() else None
            print(json.dumps(from_struct(run.output), ensure_ascii=False, indent=indent))
        return code
