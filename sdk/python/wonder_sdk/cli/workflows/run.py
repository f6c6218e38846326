"""``wonder run``: start a workflow, and see its graph move."""

from __future__ import annotations

import argparse
import json
import sys
import time
from typing import TYPE_CHECKING, Any

from wonder_sdk.cli.shared import connection, json_input
from wonder_sdk.cli.shared.terminal import Terminal

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
      start it, see its nodes move, and get its output as JSON
  wonder run acme/flows/release --set version=1.2 --set dry_run:=true
      the same field by field: `=` gives text, `:=` JSON
  wonder run acme/flows/release -i @input.json | jq .notes
      input from a file (or `-`: piped in); stdout has the output and nothing else
  wonder run acme/flows/release@3 --project shop --agent assistant --timeout 600
      that revision, in a project, with an agent's memory, for ten minutes at most
  wonder run acme/trivia/say --set text=Hooray
      a task by itself: its steps, and its output; nothing of it is kept, and Ctrl-C cancels it
  wonder run acme/dev/run_tests --project shop --branch try-it
      a task by itself that works in repositories (`shell`, `repo.…`), on this branch of them
  wonder run acme/flows/release --detach
      start it, print its id, and leave
  wonder run --watch run_01J9...
      see a run from its beginning, ended or not; with --after 42 what came after its event 42

Ctrl-C leaves; the run goes on (with --cancel-on-interrupt it is cancelled). More: wonder runs, wonder gates.

exit codes: 0 it completed, 1 it failed or was cancelled, 2 the command line makes no sense, 130 interrupted
"""
_TICK_SECONDS = 0.1
# Shorter breaks are nobody's business.
_NOTICE_AFTER_SECONDS = 1.0


def register(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = subparsers.add_parser(
        "run",
        help="run a workflow, and see its graph move",
        description="Start a run of a workflow and show what happens, or watch one that is there already.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "workflow", nargs="?", metavar="WORKFLOW", help="library/name, maybe @REVISION; or id; or a task"
    )
    parser.add_argument(
        "-i", "--input", metavar="JSON", help="its input: JSON, @FILE, or - for what is piped in"
    )
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="one field of its input: key=text or key:=json (a number, true, a list); repeatable",
    )
    parser.add_argument("--project", default="", metavar="NAME", help="project (default: default)")
    parser.add_argument("--agent", default="", metavar="NAME", help="agent whose memories it may use")
    parser.add_argument(
        "--branch",
        default="",
        metavar="NAME",
        help="branch of the repositories to work on (default: the conversation's, or the run's own)",
    )
    parser.add_argument(
        "--conversation", default="", metavar="ID", help="conversation that it is for; its branch is used"
    )
    parser.add_argument(
        "--timeout", type=connection.seconds, default=0.0, metavar="SECONDS", help="how long it may take"
    )
    parser.add_argument(
        "--request-id", default="", metavar="ID", help="started again with the same one, it is the same run"
    )
    parser.add_argument("--watch", metavar="RUN", help="start nothing; show this run")
    parser.add_argument(
        "--after", type=connection.count, default=0, metavar="N", help="only events after sequence N"
    )
    shape = parser.add_mutually_exclusive_group()
    shape.add_argument("-d", "--detach", action="store_true", help="print the run's id and leave")
    shape.add_argument("--json", action="store_true", help="print events on stdout, one JSON object per line")
    shape.add_argument("-q", "--quiet", action="store_true", help="show no progress, only the output")
    parser.add_argument(
        "-v", "--verbose", action="store_true", help="lines, also with inputs, outputs and the steps of tasks"
    )
    parser.add_argument(
        "--cancel-on-interrupt", action="store_true", help="Ctrl-C cancels the run instead of leaving it"
    )
    connection.add_flags(parser)
    parser.set_defaults(run=_run)


def _run(arguments: argparse.Namespace) -> int:
    if bool(arguments.workflow) == bool(arguments.watch):
        print("wonder: which workflow is to be run, or with --watch: which run shown?", file=sys.stderr)
        return 2
    if arguments.watch and (arguments.input or arguments.set or arguments.detach):
        print("wonder: --watch starts nothing, so there is no input and nothing to detach", file=sys.stderr)
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
            if problem.reason is v1.ErrorReason.INPUT_INVALID and (text := _texts(arguments.set)):
                problem.message += (
                    f" (`=` gives text; for a number, a list and the like use `:=`, as in {text})"
                )
            raise

    return connection.connected(start)(arguments)


def _texts(settings: list[str]) -> str:
    """The first of some ``--set`` that gives as text what may be meant otherwise, written the other way."""
    for setting in settings:
        key, _, text = setting.partition("=")
        if not key.endswith(":"):
            try:
                json.loads(text)
            except ValueError:
                continue
            return f"{key}:={text}"
    return ""


def _start(arguments: argparse.Namespace, client: sync.Client, given: dict[str, Any] | None) -> int:
    if arguments.watch:
        return _RunWatcher(arguments, client, arguments.watch).run()
    from wonder_sdk import NotFoundError
    from wonder_sdk.cli.workflows.run_task import is_task, run_task

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
        if is_task(client, arguments.workflow):
            return run_task(arguments, client, given)
        # The server was asked for a workflow alone; here it may have been a task as well.
        problem.message = problem.message.replace("There is no workflow ", "There is no workflow or task ", 1)
        raise
    if arguments.detach:
        print(run.id)
        return 0
    return _RunWatcher(arguments, client, run.id).run()


class _RunWatcher:
    """One run before somebody's eyes."""

    def __init__(self, arguments: argparse.Namespace, client: sync.Client, run_id: str) -> None:
        from wonder_sdk.cli.workflows.run_view import RunView

        self._arguments, self._client, self._run_id = arguments, client, run_id
        self._notes = Terminal(sys.stderr)
        self._run_view = RunView()
        if arguments.after:  # what came before is not told, but where branches stand must be known
            self._run_view = RunView.from_run(client.get_run(run_id))
            self._run_view.reopen()
        self._disconnected_at: float | None = None
        self._is_disconnected = False
        self._knows_graph = False
        self._view = self._choose_view(self._run_view)

    def run(self) -> int:
        """Show it until it has ended or somebody interrupts; the exit code."""
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
        """Show what comes. Interrupted, it may be called again for the rest."""
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
            self._view.note(f"no connection to {self._client.target}; trying again")
        elif lost_at is None and self._is_disconnected:
            self._is_disconnected = False
            self._view.note("connected again")
        self._view.tick()

    def _connection(self, problem: WonderError | None) -> None:
        """Called from the client's own thread."""
        self._disconnected_at = None if problem is None else self._disconnected_at or time.monotonic()

    def _cancel(self) -> None:
        from wonder_sdk import FailedPreconditionError

        try:
            self._client.cancel_run(self._run_id, "It was interrupted at the command line.")
        except FailedPreconditionError:
            pass  # it has ended, and its last events say how

    def _choose_view(self, run_view: RunView) -> RunLines | RunTable | None:
        from wonder_sdk.cli.workflows.run_lines import RunLines
        from wonder_sdk.cli.workflows.run_table import RunTable

        if self._arguments.json or self._arguments.quiet:
            return None
        if self._notes.is_styled and not self._arguments.verbose:
            return RunTable(self._notes, run_view)
        return RunLines(self._notes, run_view, details=self._arguments.verbose)

    def _print_resume_hint(self, items: SyncIterator[RunItem]) -> int:
        """Interrupted: say how to come back."""
        items.close()
        self._notes.line()
        self._notes.line(f"{self._run_id} goes on")
        self._notes.line(f"  see it:     wonder run --watch {self._run_id}", "dim")
        self._notes.line(f"  cancel it:  wonder runs cancel {self._run_id}", "dim")
        return 130

    def _end(self, code: int) -> int:
        """The output, or in one line why there is none."""
        from wonder_sdk import v1
        from wonder_sdk.cli.workflows.run_lines import outcome_line
        from wonder_sdk.values import from_struct

        run = self._run_view.run
        is_silent = run.status is v1.RunStatus.COMPLETED and run.output is None
        if is_silent or not self._run_view.has_ended:  # what was watched began after its end
            run = self._client.get_run(self._run_id)
        if run.status is not v1.RunStatus.COMPLETED:
            if self._view is None and not self._arguments.json:
                text, style = outcome_line(run, self._run_view.executions)
                self._notes.line(f"wonder: {self._run_id} {text}", style)
            message = run.error.message if run.error is not None else ""
            texts = [each for each in self._arguments.set if not each.partition("=")[0].endswith(":")]
            if texts and "cannot compare" in message:
                key = texts[0].partition("=")[0]
                self._notes.line(f"`--set {key}=…` gives text; for a number write {key}:=…", "dim")
            return code or 1
        if not self._arguments.json:
            indent = 2 if sys.stdout.isatty() else None
            print(json.dumps(from_struct(run.output), ensure_ascii=False, indent=indent))
        return code
