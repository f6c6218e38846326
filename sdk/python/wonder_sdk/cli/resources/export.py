"""``wonder export``: write a library as files."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from wonder_sdk.cli.shared import connection, listing
from wonder_sdk.cli.shared.terminal import Terminal

if TYPE_CHECKING:
    from wonder_sdk import sync

_EXAMPLES = """\
examples:
  wonder export acme/tools -o tools
      Write one file per definition, and library.yaml. `wonder apply -f tools` then changes nothing.
  wonder export wonder/std -o std && sed -i s/^name:.*/name:\\ mine/ std/library.yaml && wonder apply -f std
      Copy the standard library under a name of your own.
"""


def register(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = subparsers.add_parser(
        "export",
        help="Write a library as files.",
        description="Write the newest revision of each definition of a library as YAML files.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("library", help="Name or id of the library.")
    parser.add_argument(
        "-o",
        "--output",
        type=Path,
        required=True,
        metavar="DIR",
        help="Write into this folder; it is created if missing.",
    )
    connection.connect(parser, run)


def run(arguments: argparse.Namespace, client: sync.Client) -> int:
    """Read all pages, then write the files. Other files in the folder stay and are listed."""
    from wonder_sdk import v1
    from wonder_sdk.definitions import definition_files

    terminal = Terminal()
    response = client.library.get_library(v1.GetLibraryRequest(library_id=arguments.library))
    request = v1.ExportDefinitionsRequest(library_id=arguments.library, page_size=500)
    pages = listing.pages(client.library.export_definitions, request)
    definitions = [definition for page in pages for definition in page.definitions]
    written = definition_files.save(arguments.output, response.library, definitions)
    terminal.line(f"library {response.library.name}: {len(written)} files in {arguments.output}")
    others = sorted(
        file.name
        for file in arguments.output.iterdir()
        if file.suffix in (".yaml", ".yml") and file not in written
    )
    if others:
        terminal.line(f"other files in the folder: {', '.join(others)}", "yellow")
    return 0
