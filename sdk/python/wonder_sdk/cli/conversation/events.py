"""``wonder events``: show the events of a conversation."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from wonder_sdk.cli.shared import connection
from wonder_sdk.cli.shared.terminal import Terminal

if TYPE_CHECKING:
    from wonder_sdk import sync, v1

_EXAMPLES = """\
examples:
  wonder events conv_01J9...
      Show all events, one line each.
  wonder events conv_01J9... --after 12 --follow
      Show the events after sequence 12 and all new ones, until Ctrl-C.
  wonder events conv_01J9... --json | jq .name
      Print complete events as JSON lines.
"""


# Characters of a message that a line shows.
_SHORT = 60


def register(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = subparsers.add_parser(
        "events",
        help="Show the events of a conversation.",
        description="Show the events of a conversation with their sequence numbers, turns and messages.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("conversation", metavar="CONVERSATION", help="Id of the conversation.")
    parser.add_argument(
        "--after", type=int, default=0, metavar="N", help="Show only events after sequence N."
    )
    parser.add_argument("--follow", action="store_true", help="Wait for new events and show them.")
    parser.add_argument(
        "--json", action="store_true", help="Print complete events, one JSON object per line."
    )
    connection.connect(parser, run)


def run(arguments: argparse.Namespace, client: sync.Client) -> int:
    from wonder_sdk import v1

    terminal = Terminal()
    for item in client.subscribe(arguments.conversation, after_sequence=arguments.after):
        if isinstance(item, v1.CaughtUp) and not arguments.follow:
            break
        if isinstance(item, v1.Event):
            terminal.line(connection.as_json(item) if arguments.json else _line(item))
    return 0


def _line(event: v1.Event) -> str:
    when = event.create_time.astimezone().strftime("%H:%M:%S.%f")[:-3] if event.create_time else ""
    message = event.message_appended
    text = f"{message.id}  {_beginning(message.content)}" if message else _failure_text(event)
    return f"{event.sequence:>6}  {when}  {event.name:<28} {event.turn_id}  {text}".rstrip()


def _failure_text(event: v1.Event) -> str:
    """Return the message and the reason of a failure, or "" for other events."""
    outcomes = (
        event.turn_failed,
        event.context_assembly_failed,
        event.memory_extraction_failed,
        event.tool_failed,
        event.workflow_failed,
        event.agent_call_completed,
    )
    fault = next((outcome.error for outcome in outcomes if outcome and outcome.error), None)
    if fault is not None:
        return _message_with_reason(fault.message, fault.reason.name)
    # A tool call that was never dispatched has only its result for the model.
    result = event.tool_failed.tool_result if event.tool_failed else None
    return (
        _message_with_reason(result.error.message, result.error.code.name) if result and result.error else ""
    )


def _message_with_reason(message: str, reason: str | None) -> str:
    return " ".join([*message.split(), *([f"({reason})"] if reason else [])])


def _beginning(text: str) -> str:
    flat = " ".join(text.split())
    return flat if len(flat) <= _SHORT else flat[: _SHORT - 1] + "…"
