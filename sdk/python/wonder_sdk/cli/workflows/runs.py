"""``wonder runs``: list runs; show, cancel, signal, fork or replay one."""

from __future__ import annotations

import argparse
import sys
from datetime import UTC, datetime
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING

from wonder_sdk.cli.shared import connection, json_input, listing
from wonder_sdk.cli.shared.parser import add_examples
from wonder_sdk.cli.shared.terminal import Terminal
from wonder_sdk.json_types import JsonValue

if TYPE_CHECKING:
    from wonder_sdk import sync, v1

# Signals of a run with more events are not listed: reading all its events would take too long.
_MAX_EVENTS = 20_000
_STATUSES = ("running", "waiting", "completed", "failed", "cancelled")
_EXAMPLES = """\
examples:
  wonder runs
      List the newest runs that clients started: id, status, start, duration, workflow.
  wonder runs --status running --status waiting --workflow acme/flows/release
      List the unfinished runs of a workflow.
  wonder runs --conversation conv_01J9...
      List the runs of a conversation's turns: context assembly, memory extraction, tools.
  wonder runs show run_01J9...
      Show a run's nodes, gates, input, state and output.
  wonder runs cancel run_01J9... --reason "wrong version"
      Cancel a run with all its pending work.
  wonder runs signal run_01J9... paid --payload '{"amount": 12}'
      Send a signal; a node that waits for `paid` continues.
  wonder runs fork run_01J9... --before 4 --state '{"tries": 0}'
      Start a new run from the point before the 4th node execution, which runs again.
  wonder runs replay run_01J9...
      Replay the run's journal and compare the decisions. Exit code 1 if they differ.

To start or watch a run, use wonder run.
"""

_FORK_EXAMPLES = """\
examples:
  wonder runs fork run_01J9... --before 4
      Start a new run before the 4th node execution. `wonder runs show` lists the executions in their order.
  wonder runs fork run_01J9... --before 1 --input '{"version": "1.3"}'
      Start from the beginning with another input.
  wonder runs fork run_01J9... --after 17 --state '{"tries": 0}' --revision 3
      Start after event 17 with another state, in revision 3 of the workflow.
"""


def register(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = subparsers.add_parser(
        "runs",
        help="List runs; show, cancel, signal, fork or replay one.",
        description="List the newest runs that clients started, or use a verb on one. The list omits runs "
        "that hooks, tools or other runs started, unless --all, --conversation or --parent is set.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--workflow",
        default="",
        metavar="NAME",
        help="Show only runs of this workflow, or with @REVISION of that revision.",
    )
    parser.add_argument(
        "--status",
        action="append",
        choices=_STATUSES,
        default=[],
        help="Show only runs with this status; repeatable.",
    )
    parser.add_argument("--project", default="", metavar="NAME", help="Show only runs in this project.")
    parser.add_argument(
        "--conversation", default="", metavar="ID", help="Show only runs of this conversation's turns."
    )
    parser.add_argument("--parent", default="", metavar="RUN", help="Show only runs that this run started.")
    parser.add_argument(
        "--all", action="store_true", help="Include runs that hooks, tools or other runs started."
    )
    parser.add_argument(
        "-n",
        "--limit",
        type=connection.count,
        default=20,
        metavar="N",
        help="Limit the number (default: 20; 0: all).",
    )
    _add_json(parser, "Print complete runs, one JSON object per line.")
    connection.connect(parser, run_list)
    _register_verbs(parser)


def _register_verbs(parser: argparse.ArgumentParser) -> None:
    verbs = parser.add_subparsers(title="verbs", metavar="VERB")
    show = _verb(verbs, "show", "Show a run's status and nodes.", run_show)
    _add_json(show, "Print the complete run as JSON.")
    cancel = _verb(verbs, "cancel", "Cancel a run with all its pending work.", run_cancel)
    cancel.add_argument("--reason", default="", metavar="TEXT", help="Store this reason with the run.")
    signal = _verb(verbs, "signal", "Send a signal to a run.", run_signal)
    signal.add_argument("name", metavar="NAME", help="Name of the signal.")
    signal.add_argument(
        "-p", "--payload", metavar="JSON", help="Send this value with the signal: JSON, @FILE or -."
    )
    signal.add_argument("--user", default="", metavar="NAME", help="Record this user as the sender.")
    fork = _verb(verbs, "fork", "Start a new run from a point in a run.", run_fork)
    fork.epilog, fork.formatter_class = _FORK_EXAMPLES, argparse.RawDescriptionHelpFormatter
    point = fork.add_mutually_exclusive_group(required=True)
    point.add_argument(
        "--before",
        type=connection.count,
        metavar="N",
        help="Start before the N-th node execution, which runs again.",
    )
    point.add_argument(
        "--after", type=connection.count, metavar="SEQ", help="Start after the event with sequence SEQ."
    )
    fork.add_argument("-i", "--input", metavar="JSON", help="Replace the input: JSON, @FILE or -.")
    fork.add_argument("--state", metavar="JSON", help="Replace the state at that point.")
    fork.add_argument(
        "--revision",
        type=connection.count,
        default=0,
        metavar="N",
        help="Use this revision of the workflow (default: that of the run).",
    )
    _verb(verbs, "replay", "Replay a run's journal and compare the decisions.", run_replay)
    add_examples(verbs, _EXAMPLES)


def run_list(arguments: argparse.Namespace, client: sync.Client) -> int:
    """Print one line for each run, newest first."""
    from wonder_sdk import v1

    found = client.list_runs(
        workflow=arguments.workflow,
        project=arguments.project,
        conversation=arguments.conversation,
        statuses=[v1.RunStatus[each.upper()] for each in arguments.status],
        parent=arguments.parent,
        include_children=arguments.all,
    )
    terminal = Terminal()
    runs = list(islice(found, arguments.limit or None))
    if not runs:
        _check_filters(client, arguments)
    if arguments.json:
        for run in runs:
            terminal.line(connection.as_json(run))
    else:
        listing.show(terminal, map(_row, runs), nothing="no matching runs")
        if runs and len(runs) == arguments.limit and terminal.is_interactive:
            terminal.note(f"the newest {arguments.limit}; --limit shows more")
    return 0


def _check_filters(client: sync.Client, arguments: argparse.Namespace) -> None:
    """Raise NotFoundError if a filter names what does not exist; ListRuns answers with an empty list."""
    from wonder_sdk import v1

    if arguments.conversation:
        request = v1.GetConversationRequest(conversation_id=arguments.conversation)
        client.conversations.get_conversation(request)
    if arguments.parent:
        client.get_run(arguments.parent)


def run_show(arguments: argparse.Namespace, client: sync.Client) -> int:
    """Print the run's nodes and gates, then its input, state and output."""
    from wonder_sdk import v1
    from wonder_sdk.cli.workflows.run_graph import nodes_of, signals, workflow_of
    from wonder_sdk.cli.workflows.run_lines import gate_answer, gate_command, gate_question, outcome_line
    from wonder_sdk.cli.workflows.run_table import row_line
    from wonder_sdk.cli.workflows.run_view import RunView
    from wonder_sdk.methods.runs import ENDED
    from wonder_sdk.values import from_struct, from_value

    run, terminal = client.get_run(arguments.run_id), Terminal()
    if arguments.json:
        terminal.line(connection.as_json(run))
        return 0
    workflow = workflow_of(client, run)
    view = RunView.from_run(run, nodes_of(workflow))
    terminal.line(f"{run.workflow}  {run.id}", "bold")
    terminal.line(f"started {listing.local(run.create_time)}", "dim")
    for row in view.rows():
        terminal.line(*row_line(row, datetime.now(UTC)))
    for gate in view.gates.values():
        terminal.line(f"  ? {gate.node_id}: {gate_question(gate)}", "yellow")
        terminal.line(f"      {gate_command(gate)}")
    for gate in client.list_gates(run=run.id, statuses=[each for each in v1.GateStatus if each]):
        if gate.status is not v1.GateStatus.PENDING:
            terminal.line(f"  ? {gate.node_id}: {gate_answer(gate)}", "dim")
    for name, value in (("input", run.input), ("state", run.state), ("output", run.output)):
        if value is not None and value.fields:
            terminal.line(f"{name:<7} {_json(from_struct(value))}")
    for signal in _signals(client, run):
        known = workflow is None or signal.name in signals(workflow)
        unused = "" if known else "  (unused by the workflow)"
        carried = f" {_json(from_value(signal.payload))}" if signal.payload is not None else ""
        terminal.line(f"signal  {signal.name}{carried}{unused}")
    if run.status in ENDED:
        terminal.line(*outcome_line(run, view.executions))
    else:
        terminal.line(f"{run.status.name or 'unknown'}".lower(), "yellow")
    return 0


def run_cancel(arguments: argparse.Namespace, client: sync.Client) -> int:
    run = client.cancel_run(arguments.run_id, arguments.reason)
    Terminal().line(f"{run.id} {(run.status.name or 'cancelled').lower()}")
    return 0


def run_signal(arguments: argparse.Namespace, client: sync.Client) -> int:
    payload: JsonValue = None
    if arguments.payload is not None:
        try:
            payload = json_input.read(arguments.payload, "--payload")
        except ValueError as problem:
            print(f"wonder: {problem}", file=sys.stderr)
            return 2
    sequence = client.signal_run(arguments.run_id, arguments.name, payload, user=arguments.user)
    Terminal().line(f"signal {arguments.name} sent to {arguments.run_id} (event {sequence})")
    _warn(client, arguments.run_id, arguments.name)
    return 0


def _warn(client: sync.Client, run_id: str, name: str) -> None:
    """Print a warning if no part of the workflow uses the signal; its name is probably misspelt."""
    from wonder_sdk.cli.workflows.run_graph import signals, workflow_of

    run = client.get_run(run_id)
    workflow = workflow_of(client, run)
    if workflow is not None and name not in (known := signals(workflow)):
        used = f"it uses: {', '.join(sorted(known))}" if known else "it uses no signals"
        warning = f"{run.workflow} does not use the signal {name}; {used}"
        print(f"wonder: {warning}", file=sys.stderr)


def _signals(client: sync.Client, run: v1.Run) -> list[v1.Signal]:
    """Return the signals that a run has received, in order; [] for a run with very many events."""
    if run.last_sequence > _MAX_EVENTS:
        return []
    found: list[v1.Signal] = []
    items = client.watch_run(run.id)
    for item in items:
        sequence = getattr(item, "sequence", 0)
        if (signal := getattr(item, "signal_received", None)) is not None:
            found.append(signal)
        if sequence >= run.last_sequence:
            break
    items.close()
    return found


def run_fork(arguments: argparse.Namespace, client: sync.Client) -> int:
    """Print the new run's id on stdout, and the command to watch it on stderr."""
    try:
        given = json_input.read_object(arguments.input, "--input")
        state = json_input.read_object(arguments.state, "--state")
    except ValueError as problem:
        print(f"wonder: {problem}", file=sys.stderr)
        return 2
    run = client.fork_run(
        arguments.run_id,
        before=arguments.before,
        after_sequence=arguments.after,
        input=given,
        state=state,
        revision=arguments.revision,
    )
    Terminal().line(run.id)
    Terminal(sys.stderr).line(f"watch: wonder run --watch {run.id}", "dim")
    return 0


def run_replay(arguments: argparse.Namespace, client: sync.Client) -> int:
    """Print the result. Exit code 0 if all decisions are equal, else 1 with the first difference."""
    from wonder_sdk.values import plain

    replayed = client.replay_run(arguments.run_id)
    terminal = Terminal()
    steps = f"{replayed.step_count:,} input{'' if replayed.step_count == 1 else 's'} replayed"
    if replayed.identical:
        terminal.line(f"{arguments.run_id}: {steps}: no difference", "green")
        return 0
    terminal.line(f"{arguments.run_id}: {steps}: the decisions differ", "red")
    if (found := replayed.first_difference) is not None:
        terminal.line(f"  at input {found.step}, {found.input}")
        for status_text, decided in (("recorded", found.recorded), ("planned", found.planned)):
            for each in plain(decided.to_dict()) if decided is not None else ():
                terminal.line(f"  {status_text:<9}{_json(each)}")
    return 1


def _add_run(verb: argparse.ArgumentParser) -> None:
    verb.add_argument("run_id", metavar="RUN", help="Id of the run.")


_verb = partial(connection.add_verb, arguments=_add_run, inherited=True)


def _add_json(parser: argparse.ArgumentParser, text: str) -> None:
    parser.add_argument("--json", action="store_true", help=text)


def _row(run: v1.Run) -> tuple[str, ...]:
    from wonder_sdk.cli.workflows.run_view import duration, seconds

    took = duration(seconds(run.create_time, run.complete_time)) if run.complete_time else ""
    error_text = run.error.message if run.error else ""
    # Messages about a node begin with the workflow's name.
    workflow = error_text if error_text.startswith(run.workflow) else f"{run.workflow}  {error_text}".rstrip()
    return (
        run.id,
        run.status.name.lower() if run.status.name else "",
        listing.local(run.create_time),
        took,
        workflow,
    )


def _json(value: JsonValue) -> str:
    import json

    return json.dumps(value, ensure_ascii=False)
