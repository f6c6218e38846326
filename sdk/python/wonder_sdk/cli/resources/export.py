"""``wonder export``: write a library as files, with its agents and their projects."""

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
      Write library.yaml and one file per definition; below them, in folders, the agents that have a persona
      of the library, and their projects. `wonder apply -f tools` then changes nothing. On another server it
      sets up everything.
  wonder export wonder/std -o std --definitions-only
  wonder apply -f std --library mine
      Copy the standard library under a name of your own.
"""


def register(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = subparsers.add_parser(
        "export",
        help="Write a library as files.",
        description="Write the newest revision of each definition of a library as YAML files, with the "
        "agents that have a persona of the library, and their projects. Memories are not exported.",
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
    parser.add_argument("--definitions-only", action="store_true", help="Write no agents and projects.")
    connection.connect(parser, run)


def run(arguments: argparse.Namespace, client: sync.Client) -> int:
    """Read all pages, then write the files. Other files in the folder stay and are listed."""
    from wonder_sdk import v1
    from wonder_sdk.definitions import definition_files, resource_files

    terminal = Terminal()
    response = client.library.get_library(v1.GetLibraryRequest(library_id=arguments.library))
    request = v1.ExportDefinitionsRequest(library_id=arguments.library, page_size=500)
    pages = listing.pages(client.library.export_definitions, request)
    definitions = [definition for page in pages for definition in page.definitions]
    resources = resource_files.Resources()
    if not arguments.definitions_only:
        agents = listing.pages(client.library.list_agents, v1.ListAgentsRequest(page_size=500))
        projects = listing.pages(client.library.list_projects, v1.ListProjectsRequest(page_size=500))
        resources = resource_files.of_library(
            response.library,
            definitions,
            [agent for listed in agents for agent in listed.agents],
            [project for listed in projects for project in listed.projects],
        )
    written = definition_files.save(arguments.output, response.library, definitions)
    written += resource_files.save(arguments.output, resources)
    terminal.line(f"library {response.library.name}: {len(written)} files in {arguments.output}")
    for notice in resources.notices:
        terminal.line(notice, "yellow")
    others = sorted(
        str(file.relative_to(arguments.output))
        for file in arguments.output.rglob("*")
        if file.suffix in (".yaml", ".yml") and file not in written
    )
    if others:
        terminal.line(f"other files in the folder: {', '.join(others)}", "yellow")
    return 0
