"""``wonder message``: print one complete message."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

from wonder_sdk.cli.shared import connection

if TYPE_CHECKING:
    from wonder_sdk import sync

_EXAMPLES = """\
examples:
  wonder message conv_01J9...
      Print the latest message of the conversation.
  wonder message conv_01J9... msg_01J9... > answer.md
      Print this message; `wonder conversations show conv_01J9...` shows the ids.

Other commands cut a message of more than the server's max_message_bytes.
"""


def register(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = subparsers.add_parser(
        "message",
        help="Print a complete message.",
        description="Print the complete text of one message.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("conversation", metavar="CONVERSATION", help="Id of the conversation.")
    parser.add_argument(
        "message", nargs="?", default="", metavar="MESSAGE", help="Id of the message (default: the latest)."
    )
    connection.connect(parser, run)


def run(arguments: argparse.Namespace, client: sync.Client) -> int:
    """Print only the text. Exit code 1 if the conversation has no message, 2 for a message's id before it."""
    from wonder_sdk import v1

    if arguments.conversation.startswith("msg_"):
        named = f"wonder message {arguments.message or 'CONVERSATION'} {arguments.conversation}"
        problem = f"'{arguments.conversation}' is the id of a message. Name its conversation first: {named}"
        print(f"wonder: {problem}", file=sys.stderr)
        return 2
    message_id = arguments.message
    if not message_id:
        latest = v1.ListMessagesRequest(conversation_id=arguments.conversation, page_size=1)
        messages = client.conversations.list_messages(latest).messages
        if not messages:
            print(f"wonder: {arguments.conversation} has no message", file=sys.stderr)
            return 1
        message_id = messages[0].id
    wanted = v1.ReadMessageRequest(conversation_id=arguments.conversation, message_id=message_id)
    for piece in client.conversations.read_message(wanted):
        sys.stdout.write(piece.content)
    sys.stdout.write("\n")
    return 0
