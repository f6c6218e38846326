"""``wonder gates``: list the gates of runs and tool calls that wait for a person, and answer them."""

from __future__ import annotations

import argparse
import json
import sys
from typing import TYPE_CHECKING

from wonder_sdk.cli.shared import connection, json_input, listing
from wonder_sdk.cli.shared.parser import add_examples
from wonder_sdk.cli.shared.terminal import Terminal

if TYPE_CHECKING:
    from wonder_sdk import sync, v1

_STATUSES = ("pending", "approved", "rejected", "expired", "cancelled")
_EXAMPLES = """\
examples:
  wonder gates
      List the pending gates, oldest first.
  wonder gates --run run_01J9...
      List the pending gates of a run.
  wonder gates show gate_01J9...
      Show a gate's question, its data and the schema of its answer.
  wonder gates approve gate_01J9... --comment "looks good"
      Approve, so that the run continues. On a terminal, show the gate and ask for confirmation first.
  wonder gates approve gate_01J9... --set notes="Bugs fixed." --yes
      Approve with an answer (or --answer '{"notes": "Bugs fixed."}'), without confirmation.
  wonder gates reject gate_01J9... --comment "not on a Friday"
      Reject; the run's conditions select the next node. Of a tool call, the model gets the comment.
  wonder gates --conversation conv_01J9...
      List the tool calls of a conversation that wait for approval. An answer replaces their arguments.

An approval applies to the data that was shown. Without an answer it passes on this data, which must
match the schema of the answer if the gate has one. A gate is answered once.
"""

_ANSWER_EXAMPLES = {
    "approve": """\
examples:
  wonder gates approve gate_01J9...
      Show the gate and ask for confirmation on a terminal; then approve.
  wonder gates approve gate_01J9... --set notes="Bugs fixed." --set tries:=2 --yes
      Approve with an answer, without confirmation. `wonder gates show` prints the schema of the answer.

An approval without an answer passes on the data that the gate shows. If this data does not match the
schema of the answer, the approval needs an answer.
""",
    "reject": """\
examples:
  wonder gates reject gate_01J9... --comment "not on a Friday"
      Reject with a comment; the run's conditions select the next node.
""",
}


def register(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = subparsers.add_parser(
        "gates",
        help="List pending gates; show, approve or reject one.",
        description="List the gates that wait for an answer, or use a verb on one.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--run", dest="run_id", default="", metavar="RUN", help="Show only gates of this run."
    )
    parser.add_argument(
        "--conversation",
        default="",
        metavar="CONVERSATION",
        help="Show only gates of tool calls of this conversation.",
    )
    parser.add_argument("--project", default="", metavar="NAME", help="Show only gates of this project.")
    parser.add_argument(
        "--for", dest="user", default="", metavar="USER", help="Show only gates that this user may answer."
    )
    parser.add_argument(
        "--status",
        action="append",
        choices=_STATUSES,
        default=[],
        help="Show only gates with this status; repeatable (default: pending).",
    )
    parser.add_argument("--json", action="store_true", help="Print complete gates, one JSON object per line.")
    connection.connect(parser, run_list)
    verbs = parser.add_subparsers(title="verbs", metavar="VERB")
    show = verbs.add_parser("show", help="Show a gate.", description="Show a gate.")
    show.add_argument("gate", metavar="GATE", help="Id of the gate.")
    show.add_argument("--json", action="store_true", help="Print the complete gate as JSON.")
    connection.connect(show, run_show, inherited=True)
    for verb, text in (("approve", "Approve a gate."), ("reject", "Reject a gate.")):
        parser = verbs.add_parser(
            verb,
            help=text,
            description=text,
            epilog=_ANSWER_EXAMPLES[verb],
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        _register_answer(parser, verb)
    add_examples(verbs, _EXAMPLES)


def _register_answer(parser: argparse.ArgumentParser, verb: str) -> None:
    parser.add_argument("gate", metavar="GATE", help="Id of the gate.")
    parser.add_argument("-a", "--answer", metavar="JSON", help="Answer with this object: JSON, @FILE or -.")
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="Answer with this field: key=text or key:=json; repeatable.",
    )
    parser.add_argument(
        "-c", "--comment", default="", metavar="TEXT", help="Store this comment with the gate."
    )
    parser.add_argument("--user", default="", metavar="NAME", help="Answer as this user.")
    parser.add_argument(
        "--shown-hash", metavar="HASH", help="Answer only if the shown data has this hash (see `--json`)."
    )
    connection.add_yes(parser)
    connection.add_flags(parser, inherited=True)
    parser.set_defaults(run=_run_answer, verb=verb)


def run_list(arguments: argparse.Namespace, client: sync.Client) -> int:
    """Print one line for each gate, oldest first."""
    from wonder_sdk import v1

    gates = client.list_gates(
        run=arguments.run_id,
        conversation=arguments.conversation,
        project=arguments.project,
        user=arguments.user,
        statuses=[v1.GateStatus[each.upper()] for each in arguments.status],
    )
    terminal = Terminal()
    if arguments.json:
        for gate in gates:
            terminal.line(connection.as_json(gate))
    else:
        filtered = any(
            (
                arguments.run_id,
                arguments.conversation,
                arguments.project,
                arguments.user,
                arguments.status,
            )
        )
        nothing = f"no {'matching' if filtered else 'pending'} gates"
        listing.show(terminal, map(_row, gates), nothing=nothing)
    return 0


def run_show(arguments: argparse.Namespace, client: sync.Client) -> int:
    gate, terminal = client.find_gate(arguments.gate), Terminal()
    if arguments.json:
        terminal.line(connection.as_json(gate))
    else:
        _show(terminal, gate)
    return 0


def _run_answer(arguments: argparse.Namespace) -> int:
    try:
        answer = json_input.read_object(arguments.answer, "--answer", arguments.set)
    except ValueError as problem:
        print(f"wonder: {problem}", file=sys.stderr)
        return 2

    def resolve(arguments: argparse.Namespace, client: sync.Client) -> int:
        terminal = Terminal()
        gate = client.find_gate(arguments.gate)
        if arguments.shown_hash:
            gate.shown_hash = arguments.shown_hash  # The server rejects another hash.
        elif not arguments.yes and terminal.is_interactive and sys.stdin.isatty():
            _show(terminal, gate)
            if answer:
                terminal.line("your answer, in place of what is shown:", "bold")
                terminal.line(json.dumps(answer, ensure_ascii=False, indent=2))
            if not _confirmed(arguments.verb):
                terminal.line("the gate was not answered")
                return 1
        resolve_gate = client.approve if arguments.verb == "approve" else client.reject
        resolved = resolve_gate(gate, answer, comment=arguments.comment, user=arguments.user)
        owner = f"its run is {resolved.run_id}"
        if resolved.conversation_id:
            owner = f"its conversation is {resolved.conversation_id}"
        terminal.line(f"{resolved.id} {resolved.status.name.lower()}; {owner}")
        return 0

    return connection.connected(resolve)(arguments)


def _confirmed(verb: str) -> bool:
    try:
        return input(f"{verb.capitalize()}? [y/N] ").strip().lower() in ("y", "yes")
    except EOFError:
        return False


def _show(terminal: Terminal, gate: v1.Gate) -> None:
    """Print the gate's question, its data and the schema of its answer."""
    from wonder_sdk.cli.workflows.run_lines import gate_answer
    from wonder_sdk.values import from_struct

    terminal.line(gate.prompt or "(the gate has no question)", "bold")
    if gate.conversation_id:
        terminal.line(f"{gate.tool_id}, {gate.conversation_id}", "dim")
    else:
        terminal.line(f"{gate.workflow}, node {gate.node_id}, {gate.run_id}", "dim")
    if gate.problem:
        terminal.line(f"its approval expression failed: {gate.problem}", "yellow")
    for name, value in (("shown", gate.shown), ("answer", gate.answer_schema)):
        if value is not None and value.fields:
            terminal.line(f"{name}:")
            terminal.line(json.dumps(from_struct(value), ensure_ascii=False, indent=2))
    if gate.user_ids:
        terminal.line(f"may be answered by: {', '.join(gate.user_ids)}")
    if gate.expire_time and gate.resolution is None:
        terminal.line(f"expires {listing.local(gate.expire_time)}", "dim")
    terminal.line(gate_answer(gate), "yellow")
    if (resolution := gate.resolution) is not None:
        if resolution.resolve_time is not None:
            terminal.line(f"answered {listing.local(resolution.resolve_time)}", "dim")
        if resolution.answer is not None and resolution.answer.fields:
            terminal.line("answer given:")
            terminal.line(json.dumps(from_struct(resolution.answer), ensure_ascii=False, indent=2))


def _row(gate: v1.Gate) -> tuple[str, ...]:
    from wonder_sdk.cli.workflows.run_lines import gate_question

    status = (gate.status.name or "").lower()
    when = listing.local(gate.create_time)
    owner = gate.tool_id if gate.conversation_id else f"{gate.workflow} {gate.node_id}"
    return gate.id, status, when, owner, gate_question(gate)
