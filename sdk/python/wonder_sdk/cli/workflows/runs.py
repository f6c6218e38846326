"""``wonder runs``: which runs there are, and what can be done with one."""

from __future__ import annotations

import argparse
import sys
from datetime import UTC, datetime
from itertools import islice
from typing import TYPE_CHECKING, Any

from wonder_sdk.cli.shared import connection, json_input, listing
from wonder_sdk.cli.shared.terminal import Terminal

if TYPE_CHECKING:
    from wonder_sdk import sync, v1

# A record of more events is not read through for its signals.
_LONG = 20_000
_STATUSES = ("running", "waiting", "completed", "failed", "cancelled")
_EXAMPLES = """\
examples:
  wonder runs
      the newest that clients started: id, status, when started, how long, workflow
  wonder runs --status running --status waiting --workflow acme/flows/release
      those of one workflow that have not ended
  wonder runs --conversation conv_01J9...
      those that a conversation's turns began: context assembly, memory extraction, tools
  wonder runs show run_01J9...
      where it stands: nodes, gates, input, state, output
  wonder runs cancel run_01J9... --reason "wrong version"
      stop it, with everything that works for it
  wonder runs signal run_01J9... paid --payload '{"amount": 12}'
      send it a signal; a node that waits for `paid` goes on
  wonder runs fork run_01J9... --before 4 --state '{"tries": 0}'
      a new run that takes over the record up to its 4th node execution, and does that again
  wonder runs replay run_01J9...
      have today's planner decide its record anew, and compare; exit code 1 if it decides otherwise

To start a run, or to watch one: wonder run.
"""


def register(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = subparsers.add_parser(
        "runs",
        help="list runs; show, cancel, signal, fork or replay one",
        description="Runs of workflows: without a verb, the newest that clients started. Those that others "
        "wait for (hooks of turns, tools, child runs) are left out without --all, but not with "
        "--conversation or --parent.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--workflow", default="", metavar="NAME", help="only of this workflow (or @REVISION)")
    parser.add_argument(
        "--status",
        action="append",
        choices=_STATUSES,
        default=[],
        help="only those that stand so; repeatable",
    )
    parser.add_argument("--project", default="", metavar="NAME", help="only in this project")
    parser.add_argument("--conversation", default="", metavar="ID", help="all for this conversation")
    parser.add_argument("--parent", default="", metavar="RUN", help="all children of this run")
    parser.add_argument(
        "--all", action="store_true", help="also runs that others wait for: hooks, tools, children"
    )
    parser.add_argument(
        "-n",
        "--limit",
        type=connection.count,
        default=20,
        metavar="N",
        help="at most so many (default: 20; 0: all)",
    )
    _add_json(parser, "print whole runs, one JSON object per line")
    connection.add_flags(parser)
    parser.set_defaults(run=connection.connected(run_list))
    verbs = parser.add_subparsers(title="verbs", metavar="VERB")
    show = _verb(verbs, "show", "where a run stands", run_show)
    _add_json(show, "print the whole run as JSON")
    cancel = _verb(verbs, "cancel", "cancel a run with everything that works for it", run_cancel)
    cancel.add_argument("--reason", default="", metavar="TEXT", help="why; it stays with the run")
    signal = _verb(verbs, "signal", "send a run a signal", run_signal)
    signal.add_argument("name", metavar="NAME", help="name of the signal")
    signal.add_argument("-p", "--payload", metavar="JSON", help="what it carries: JSON, @FILE or -")
    signal.add_argument("--user", default="", help="who sends it")
    fork = _verb(verbs, "fork", "start a new run from a point of an old one", run_fork)
    point = fork.add_mutually_exclusive_group(required=True)
    point.add_argument(
        "--before",
        type=connection.count,
        metavar="N",
        help="right before its N-th node execution, which runs again",
    )
    point.add_argument("--after", type=connection.count, metavar="SEQ", help="right after its event SEQ")
    fork.add_argument("-i", "--input", metavar="JSON", help="in place of its input: JSON, @FILE or -")
    fork.add_argument("--state", metavar="JSON", help="in place of its state at that point")
    fork.add_argument(
        "--revision",
        type=connection.count,
        default=0,
        metavar="N",
        help="revision of the workflow (default: its own)",
    )
    _verb(verbs, "replay", "have a run's record decided anew, and compare", run_replay)


def run_list(arguments: argparse.Namespace, client: sync.Client) -> int:
    """One line a run, newest first."""
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
    if arguments.json:
        for run in runs:
            terminal.line(connection.as_json(run))
    else:
        listing.show(terminal, map(_row, runs))
        if len(runs) == arguments.limit and terminal.is_interactive:
            terminal.note(f"the newest {arguments.limit}; more with --limit")
    return 0


def run_show(arguments: argparse.Namespace, client: sync.Client) -> int:
    """The rows of its picture, then what it was given, holds and gives."""
    from wonder_sdk.cli.workflows.run_graph import nodes_of, signals, workflow_of
    from wonder_sdk.cli.workflows.run_lines import gate_command, gate_question, outcome_line
    from wonder_sdk.cli.workflows.run_table import row_line
    from wonder_sdk.cli.workflows.run_view import RunView
    from wonder_sdk.methods.runs import ENDED
    from wonder_sdk.values import from_struct, from_value

    run, terminal = client.get_run(arguments.run_id), Terminal()
    if arguments.json:
        terminal.line(connection.as_json(run))
        return 0
    workflow = workflow_of(client, run)
    picture = RunView.from_run(run, nodes_of(workflow))
    terminal.line(f"{run.workflow}  {run.id}", "bold")
    terminal.line(f"started {listing.local(run.create_time)}", "dim")
    for row in picture.rows():
        terminal.line(*row_line(row, datetime.now(UTC)))
    for gate in picture.gates.values():
        terminal.line(f"  ? {gate.node_id}: {gate_question(gate)}", "yellow")
        terminal.line(f"      {gate_command(gate)}")
    for name, value in (("input", run.input), ("state", run.state), ("output", run.output)):
        if value is not None and value.fields:
            terminal.line(f"{name:<7} {_json(from_struct(value))}")
    for signal in _signals(client, run):
        known = workflow is None or signal.name in signals(workflow)
        unused = "" if known else "  (its workflow neither waits for it nor reads it)"
        carried = f" {_json(from_value(signal.payload))}" if signal.payload is not None else ""
        terminal.line(f"signal  {signal.name}{carried}{unused}")
    if run.status in ENDED:
        terminal.line(*outcome_line(run, picture.executions))
    else:
        terminal.line(f"{run.status.name or 'unknown'}".lower(), "yellow")
    return 0


def run_cancel(arguments: argparse.Namespace, client: sync.Client) -> int:
    run = client.cancel_run(arguments.run_id, arguments.reason)
    Terminal().line(f"{run.id} {(run.status.name or 'cancelled').lower()}")
    return 0


def run_signal(arguments: argparse.Namespace, client: sync.Client) -> int:
    payload: Any = None
    if arguments.payload is not None:
        try:
            payload = json_input.read(arguments.payload, "--payload")
        except ValueError as problem:
            print(f"wonder: {problem}", file=sys.stderr)
            return 2
    sequence = client.signal_run(arguments.run_id, arguments.name, payload, user=arguments.user)
    Terminal().line(f"{arguments.run_id} has the signal {arguments.name} (event {sequence})")
    _warn(client, arguments.run_id, arguments.name)
    return 0


def _warn(client: sync.Client, run_id: str, name: str) -> None:
    """A signal that nothing in the workflow hears is most likely misspelt."""
    from wonder_sdk.cli.workflows.run_graph import signals, workflow_of

    run = client.get_run(run_id)
    workflow = workflow_of(client, run)
    if workflow is not None and name not in (known := signals(workflow)):
        there = f"it knows: {', '.join(sorted(known))}" if known else "it knows no signals at all"
        warning = (
            f"no node of {run.workflow} waits for the signal {name}, and no expression reads it; {there}"
        )
        print(f"wonder: {warning}", file=sys.stderr)


def _signals(client: sync.Client, run: v1.Run) -> list[v1.Signal]:
    """The signals that a run has received, in their order; of a very long record, none."""
    if run.last_sequence > _LONG:
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
    """The new run's id on stdout, and for people what to do with it."""
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
    Terminal(sys.stderr).line(f"see it: wonder run --watch {run.id}", "dim")
    return 0


def run_replay(arguments: argparse.Namespace, client: sync.Client) -> int:
    """0 if every decision is the same, else 1 and the first that is not."""
    from wonder_sdk.values import plain

    replayed = client.replay_run(arguments.run_id)
    terminal = Terminal()
    steps = f"record of {replayed.step_count:,} input{'' if replayed.step_count == 1 else 's'} replayed"
    if replayed.identical:
        terminal.line(f"{arguments.run_id}: {steps}: no difference", "green")
        return 0
    terminal.line(f"{arguments.run_id}: {steps}: decided otherwise", "red")
    if (found := replayed.first_difference) is not None:
        terminal.line(f"  at input {found.step}, {found.input}")
        for status_text, decided in (("recorded", found.recorded), ("planned", found.planned)):
            for each in plain(decided.to_dict()) if decided is not None else ():
                terminal.line(f"  {status_text:<9}{_json(each)}")
    return 1


def _verb(
    verbs: argparse._SubParsersAction[argparse.ArgumentParser],
    name: str,
    what: str,
    command: connection.Command,
) -> argparse.ArgumentParser:
    verb = verbs.add_parser(name, help=what, description=f"{what[0].upper()}{what[1:]}.")
    verb.add_argument("run_id", metavar="RUN", help="id of the run")
    connection.add_flags(verb, inherited=True)
    verb.set_defaults(run=connection.connected(command))
    return verb


def _add_json(parser: argparse.ArgumentParser, what: str) -> None:
    parser.add_argument("--json", action="store_true", help=what)


def _row(run: v1.Run) -> tuple[str, ...]:
    from wonder_sdk.cli.workflows.run_view import duration, seconds

    took = duration(seconds(run.create_time, run.complete_time)) if run.complete_time else ""
    error_text = f"  {run.error.message}" if run.error else ""
    return (
        run.id,
        run.status.name.lower() if run.status.name else "",
        listing.local(run.create_time),
        took,
        (run.workflow + error_text),
    )


def _json(value: Any) -> str:
    import json

    return json.dumps(value, ensure_ascii=False)
