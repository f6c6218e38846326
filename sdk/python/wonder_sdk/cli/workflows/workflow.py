"""``wonder workflow draw``: the graph of a workflow, from a server or from a file."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from wonder_sdk.cli.shared import connection

if TYPE_CHECKING:
    from wonder_sdk import sync, v1

_EXAMPLES = """\
examples:
  wonder workflow draw wonder/std/assemble_context
      as text, from the server; with @REVISION an older one
  wonder workflow draw flows/release.yaml
      from a file, without a server; a folder draws all of its workflows
  wonder workflow draw flows/release.yaml --only release --format mermaid
      one of several, as a Mermaid flowchart for a page

In the text, what follows stands below. `├─` are ways of which the first that fits is taken, `╞═` ways that
are all taken at once; ↺ leads back, → to a node that is drawn elsewhere, ↓ on below; ■ is an end.
[task]  [[workflow]]  (agent)  <gate>  ~wait~
"""


def register(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = subparsers.add_parser(
        "workflow",
        help="draw the graph of a workflow",
        description="Workflows as definitions. To run one: wonder run.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    verbs = parser.add_subparsers(title="verbs", metavar="VERB", required=True)
    draw = verbs.add_parser(
        "draw",
        help="draw the graph",
        description="Draw the graph of a workflow.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    draw.add_argument("source", metavar="NAME|FILE", help="library/name or id; or a .yaml file, or a folder")
    draw.add_argument(
        "--format", choices=("text", "mermaid"), default="text", help="what to print (default: text)"
    )
    draw.add_argument("--only", metavar="NAME", help="of the workflows in the file, this one")
    connection.add_flags(draw)
    draw.set_defaults(run=_run_draw)


def _run_draw(arguments: argparse.Namespace) -> int:
    path = Path(arguments.source)
    if path.suffix in (".yaml", ".yml") or path.is_dir():
        return _draw_files(arguments, path)
    return connection.connected(_draw_from_server)(arguments)


def _draw_from_server(arguments: argparse.Namespace, client: sync.Client) -> int:
    from wonder_sdk import v1

    response = client.library.get_definition(v1.GetDefinitionRequest(definition_id=arguments.source))
    return _print([response.definition], arguments.format)


def _draw_files(arguments: argparse.Namespace, path: Path) -> int:
    from wonder_sdk.definitions.definition_files import DefinitionFilesError, load

    try:
        folder = load(path)
    except DefinitionFilesError as problem:
        print(problem, file=sys.stderr)
        return 1
    except OSError as problem:
        print(f"wonder: {path}: {problem.strerror}", file=sys.stderr)
        return 1
    workflows = [each for each in folder.definitions if each.workflow is not None]
    if arguments.only:
        chosen = [each for each in workflows if each.name == arguments.only]
        if not chosen:
            names = ", ".join(each.name for each in workflows) or "none"
            print(f"wonder: {path} has no workflow {arguments.only}; it has: {names}", file=sys.stderr)
            return 1
        workflows = chosen
    if not workflows:
        print(f"wonder: there are no workflows in {path}", file=sys.stderr)
        return 1
    return _print(workflows, arguments.format)


def _print(definitions: Iterable[v1.Definition], form: str) -> int:
    from wonder_sdk.cli.shared.terminal import Terminal
    from wonder_sdk.drawing import graph, mermaid, text

    terminal, is_first = Terminal(), True
    for definition in definitions:
        try:
            drawn = graph.of(definition)
        except ValueError as problem:
            print(f"wonder: {problem}", file=sys.stderr)
            return 1
        if not is_first:
            terminal.line()
        terminal.write(mermaid.draw(drawn) if form == "mermaid" else text.draw(drawn))
        is_first = False
    return 0
