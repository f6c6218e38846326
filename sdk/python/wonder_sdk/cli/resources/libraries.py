"""``wonder libraries``: list libraries."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from wonder_sdk.cli.shared import connection, listing
from wonder_sdk.cli.shared.terminal import Terminal
from wonder_sdk.cli.shared.text_summary import counted

if TYPE_CHECKING:
    from wonder_sdk import sync

_EXAMPLES = """\
examples:
  wonder libraries
      List the libraries: name, number of definitions, last change, description.
  wonder libraries --json
      Print complete libraries, one JSON object per line.

To list the definitions of one: wonder definitions --library acme/trivia. To save a library: wonder apply. To
write one as files: wonder export.
"""


def register(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = subparsers.add_parser(
        "libraries",
        help="List libraries.",
        description="List the libraries of the server by name. A library contains definitions.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--json", action="store_true", help="Print complete libraries, one JSON object per line."
    )
    connection.connect(parser, run)


def run(arguments: argparse.Namespace, client: sync.Client) -> int:
    """Print one line for each library."""
    from wonder_sdk import v1

    pages = listing.pages(client.library.list_libraries, v1.ListLibrariesRequest(page_size=500))
    found, terminal = [each for page in pages for each in page.libraries], Terminal()
    if arguments.json:
        for each in found:
            terminal.line(connection.as_json(each))
        return 0
    rows = (
        (
            each.name,
            counted(each.definition_count, "definition"),
            listing.local(each.update_time),
            each.description,
        )
        for each in found
    )
    listing.show(terminal, rows, nothing="the server has no libraries")
    return 0
