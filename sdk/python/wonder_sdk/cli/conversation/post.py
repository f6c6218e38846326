"""``wonder post``: append a message that no agent answers."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

from wonder_sdk.cli.shared import connection

if TYPE_CHECKING:
    from wonder_sdk import sync

_EXAMPLES = """\
examples:
  wonder post conv_01J9... "The meeting is at nine."
      Append a message, print its id, and start no turn. Later turns see the message.
  wonder post conv_01J9... --user bob --reply-to msg_01J9... "Agreed."
      Answer a message as the user bob.
  git diff | wonder post conv_01J9... -
      Append the standard input.

`wonder chat -c CONVERSATION -m TEXT` sends a message that an agent answers.
"""


def register(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = subparsers.add_parser(
        "post",
        help="Append a message that no agent answers.",
        description="Append a message to a conversation without starting a turn, and print its id.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("conversation", metavar="CONVERSATION", help="Id of the conversation.")
    parser.add_argument("message", metavar="TEXT", help="Text of the message; - for the standard input.")
    parser.add_argument(
        "--user",
        default="",
        metavar="NAME",
        help="Write as this user (default: the token's name).",
    )
    parser.add_argument("--reply-to", default="", metavar="MESSAGE", help="Answer the message with this id.")
    connection.connect(parser, run)


def run(arguments: argparse.Namespace, client: sync.Client) -> int:
    """Print the id of the message."""
    from wonder_sdk import v1
    from wonder_sdk.cli.conversation.addressing import default_user

    text = sys.stdin.read() if arguments.message == "-" else arguments.message
    user = arguments.user
    if not user:
        known = v1.GetConversationRequest(conversation_id=arguments.conversation)
        user = default_user(client.conversations.get_conversation(known).conversation)
    message = client.post(arguments.conversation, text, user=user, reply_to=arguments.reply_to)
    print(message.id)
    return 0
