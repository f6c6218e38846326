"""``wonder conversations``: list, show, fork, import and export conversations."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

from wonder_sdk.cli.conversation import histories
from wonder_sdk.cli.shared import connection, listing
from wonder_sdk.cli.shared.parser import add_examples
from wonder_sdk.cli.shared.terminal import Terminal

if TYPE_CHECKING:
    from wonder_sdk import sync, v1

_EXAMPLES = """\
examples:
  wonder conversations
      List the newest conversations. Continue one: wonder chat -c conv_01J9...
  wonder conversations --agent developer --project shop
      List the conversations of an agent in a project.
  wonder conversations --archived
      Include archived conversations; listing does not restore them.
  wonder conversations show conv_01J9...
      Print the messages with their ids, times and speakers.
  wonder conversations fork conv_01J9... msg_01J9... --before -m "What I meant"
      Edit a message: a new conversation with the messages before it, and the new text.
  wonder conversations fork conv_01J9... --regenerate
      Have the last message answered again, in a new conversation.
  wonder conversations import transcript.json --agent developer --user mia
      Make a conversation of OpenAI's messages, with their times and tool calls.
  wonder conversations export conv_01J9... -o transcript.json
      Write a conversation as such a file.
"""


def register(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = subparsers.add_parser(
        "conversations",
        help="List, show, fork, import and export conversations.",
        description="List conversations, newest first; show, fork, import and export them.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "-a", "--agent", default="", help="Show only conversations with this agent, by name or id."
    )
    parser.add_argument(
        "--project", default="", metavar="NAME", help="Show only conversations of this project."
    )
    parser.add_argument(
        "--archived", action="store_true", help="Include archived conversations, with their archiving time."
    )
    parser.add_argument(
        "-n", type=connection.count, default=20, metavar="N", help="Limit the number (default: 20; 0: all)."
    )
    parser.add_argument(
        "--json", action="store_true", help="Print complete conversations, one JSON object per line."
    )
    connection.connect(parser, run)
    verbs = parser.add_subparsers(title="verbs", metavar="VERB")
    show = connection.add_verb(
        verbs, "show", "Print the messages with their ids, times and speakers.", run_show, inherited=True
    )
    show.add_argument("conversation", metavar="CONVERSATION", help="Id of the conversation.")
    show.add_argument(
        "-n",
        dest="messages",
        type=connection.count,
        default=100,
        metavar="N",
        help="Print the newest N messages (default: 100; 0: all).",
    )
    show.add_argument(
        "--json", action="store_true", help="Print complete messages, one JSON object per line."
    )
    histories.add_verbs(verbs)
    add_examples(verbs, _EXAMPLES)


def run(arguments: argparse.Namespace, client: sync.Client) -> int:
    """Print one line for each conversation: id, last change, turns, participants, title.

    With ``--archived`` the archiving time precedes the title.
    """
    found, terminal = _newest(client, arguments), Terminal()
    if arguments.json:
        for each in found:
            terminal.line(connection.as_json(each))
    else:
        rows = (_row(each, archived=arguments.archived) for each in found)
        listing.show(terminal, rows, nothing="no matching conversations")
    return 0


def run_show(arguments: argparse.Namespace, client: sync.Client) -> int:
    """Print the conversation in one line, and its messages, oldest first."""
    from wonder_sdk import v1

    known = v1.GetConversationRequest(conversation_id=arguments.conversation)
    conversation = client.conversations.get_conversation(known).conversation
    messages, terminal = _messages(client, arguments), Terminal()
    if arguments.json:
        for each in messages:
            terminal.line(connection.as_json(each))
        return 0
    if terminal.is_interactive:
        terminal.line("  ".join(filter(None, _row(conversation, archived=True))), "dim")
    for each in messages:
        _show_message(terminal, each, conversation)
    return 0


def _show_message(terminal: Terminal, message: v1.Message, conversation: v1.Conversation) -> None:
    """Print a heading of id, time and speaker, and below it the text, which spaces set apart."""
    from wonder_sdk.cli.conversation import addressing
    from wonder_sdk.cli.conversation.message_parts import readable

    speaker = addressing.author(message, conversation)
    terminal.line(f"{message.id}  {listing.local(message.create_time)}  {speaker}", "cyan")
    for line in readable(message).splitlines():
        terminal.line(f"  {line}")


def _messages(client: sync.Client, arguments: argparse.Namespace) -> list[v1.Message]:
    """Return the newest messages, oldest first."""
    from wonder_sdk import v1

    limit = arguments.messages or sys.maxsize
    request = v1.ListMessagesRequest(conversation_id=arguments.conversation, page_size=min(limit, 500))
    found: list[v1.Message] = []
    for page in listing.pages(client.conversations.list_messages, request):
        found += page.messages
        if len(found) >= limit:
            break
    return found[:limit][::-1]


def _newest(client: sync.Client, arguments: argparse.Namespace) -> list[v1.Conversation]:
    from wonder_sdk import v1

    found: list[v1.Conversation] = []
    token = ""
    limit = arguments.n or sys.maxsize
    while len(found) < limit:
        page = client.conversations.list_conversations(
            v1.ListConversationsRequest(
                agent_id=arguments.agent,
                project_id=arguments.project,
                include_archived=arguments.archived,
                page_size=min(limit - len(found), 500),
                page_token=token,
            )
        )
        found += page.conversations
        token = page.next_page_token
        if not token:
            break
    return found


def _row(each: v1.Conversation, *, archived: bool) -> tuple[str, ...]:
    names = [person.agent.name if person.agent else _user(person) for person in each.participants]
    turns = f"{each.turn_count} turn{'' if each.turn_count == 1 else 's'}"
    archived_at = f"archived {listing.local(each.archive_time)}" if each.archive_time else ""
    return (
        each.id,
        listing.local(each.update_time),
        turns,
        ", ".join(filter(None, names)),
        *((archived_at,) if archived else ()),
        each.title,
    )


def _user(person: v1.Participant) -> str:
    return person.user.user_id if person.user else ""
