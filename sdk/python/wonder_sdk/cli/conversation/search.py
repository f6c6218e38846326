"""``wonder search``: find messages by words."""

from __future__ import annotations

import argparse
from itertools import islice
from typing import TYPE_CHECKING

from wonder_sdk.cli.shared import connection, listing
from wonder_sdk.cli.shared.terminal import Terminal

if TYPE_CHECKING:
    from wonder_sdk import sync, v1
    from wonder_sdk.methods.messages import MessageFilters

_EXAMPLES = """\
examples:
  wonder search harbour meet
      List the newest messages with words that begin with `harbour` and `meet`.
  wonder search deadline --conversation conv_01J9... --best
      List the messages of one conversation in which the word counts most.
  wonder search invoice --user mia --since 2026-05-01 --json
      Print what a user wrote since a date, one JSON object per line.

Messages of archived conversations are found only with --conversation.
"""


def register(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = subparsers.add_parser(
        "search",
        help="Find messages by words.",
        description="Find messages that contain all of the words, newest first.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("words", nargs="+", metavar="WORD", help="Word, or the beginning of one.")
    parser.add_argument(
        "-c",
        "--conversation",
        default="",
        metavar="ID",
        help="Filter by conversation; restores an archived one.",
    )
    parser.add_argument(
        "-a", "--agent", default="", help="Filter by the agent that wrote the message, by name or id."
    )
    parser.add_argument("--user", default="", help="Filter by the user who wrote the message.")
    parser.add_argument("--project", default="", help="Filter by project, by name or id.")
    parser.add_argument(
        "--since",
        type=connection.time,
        metavar="TIME",
        help="Filter by time, from this one, such as 2026-05-31.",
    )
    parser.add_argument(
        "--until", type=connection.time, metavar="TIME", help="Filter by time, before this one."
    )
    parser.add_argument("--best", action="store_true", help="List the best matches first.")
    parser.add_argument(
        "-n", "--limit", type=connection.count, default=20, help="Limit the number (default: 20; 0: all)."
    )
    parser.add_argument("--json", action="store_true", help="Print one JSON object per line.")
    connection.connect(parser, run)


def run(arguments: argparse.Namespace, client: sync.Client) -> int:
    """Print one line for each match: conversation, number, time, author, text around the match."""
    found = client.search_messages(
        " ".join(arguments.words), best_first=arguments.best, **_filters(arguments)
    )
    matches = islice(found, arguments.limit or None)
    if arguments.json:
        for match in matches:
            print(connection.as_json(match))
        return 0
    names: dict[str, str] = {}
    rows = (_row(match, _author(client, match.message, names)) for match in matches)
    listing.show(Terminal(), rows, nothing="no message has all of these words")
    return 0


def _filters(arguments: argparse.Namespace) -> MessageFilters:
    filters: MessageFilters = {
        "conversation": arguments.conversation,
        "agent": arguments.agent,
        "user": arguments.user,
        "project": arguments.project,
    }
    if arguments.since is not None:
        filters["since"] = arguments.since
    if arguments.until is not None:
        filters["until"] = arguments.until
    return filters


def _author(client: sync.Client, message: v1.Message | None, names: dict[str, str]) -> str:
    """Return the author of a message: an agent by name and id. ``names`` has the agents that are known."""
    from wonder_sdk import NotFoundError, PermissionDeniedError, v1

    if message is None or message.role is not v1.MessageRole.AGENT or not message.author:
        return message.author if message is not None else ""
    if message.author not in names:
        try:
            request = v1.GetAgentRequest(agent_id=message.author)
            names[message.author] = f"{client.library.get_agent(request).agent.name} ({message.author})"
        except (NotFoundError, PermissionDeniedError):
            names[message.author] = message.author
    return names[message.author]


def _row(match: v1.MessageMatch, author: str) -> tuple[str, ...]:
    message = match.message
    if message is None:
        return ("", "", "", "", match.snippet)
    role = (message.role.name or "").lower()
    return (
        message.conversation_id,
        str(message.ordinal),
        listing.local(message.create_time),
        f"{role} {author}".rstrip(),
        match.snippet,
    )
