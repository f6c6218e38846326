"""``wonder decisions``: show the recorded decisions of a conversation or a turn."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from wonder_sdk.cli.shared import connection
from wonder_sdk.cli.shared.terminal import Terminal

if TYPE_CHECKING:
    from wonder_sdk import sync, v1

_EXAMPLES = """\
examples:
  wonder decisions conv_01J9...
      Show all decisions of a conversation, one line each.
  wonder decisions conv_01J9... --turn turn_01J9... --type CALL_LLM --type MARK_WAITING
      Show the model calls and the waits of one turn.
  wonder decisions conv_01J9... --json | jq -r .type
      Print complete decisions as JSON lines.
"""


def register(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = subparsers.add_parser(
        "decisions",
        help="Show the decisions of a conversation.",
        description="Show the recorded decisions of a conversation or a turn, oldest first.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "conversation", metavar="CONVERSATION", help="Id of the conversation; restores an archived one."
    )
    parser.add_argument("--turn", default="", metavar="ID", help="Filter by turn.")
    parser.add_argument(
        "--type", action="append", default=[], metavar="TYPE", help="Filter by type; repeat it for several."
    )
    parser.add_argument("--json", action="store_true", help="Print one JSON object per line.")
    connection.connect(parser, run)


def run(arguments: argparse.Namespace, client: sync.Client) -> int:
    """Print one line for each decision: number, time, type, turn, summary."""
    terminal = Terminal()
    types = [name.upper() for name in arguments.type]
    for decision in client.decisions(conversation=arguments.conversation, turn=arguments.turn, types=types):
        terminal.line(connection.as_json(decision) if arguments.json else _line(decision))
    return 0


def _line(decision: v1.Decision) -> str:
    when = decision.create_time.astimezone().strftime("%H:%M:%S.%f")[:-3] if decision.create_time else ""
    place = f"{decision.sequence}.{decision.index}"
    return f"{place:>8}  {when}  {decision.type:<25} {decision.turn_id}  {decision.summary}".rstrip()
