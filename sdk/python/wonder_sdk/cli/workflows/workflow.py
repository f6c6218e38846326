"""``wonder workflow draw``: draw the graph of a workflow from a server or a file."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from wonder_sdk.cli.shared import connection
from wonder_sdk.cli.shared.parser import add_examples

if TYPE_CHECKING:
    from wonder_sdk import sync, v1

_EXAMPLES = """\
examples:
  wonder workflow draw wonder/std/assemble_context
      Draw a workflow of the server as text; @REVISION draws an older revision.
  wonder workflow draw flows/release.yaml
      Draw a workflow of a file, without a server. A folder draws all its workflows.
  wonder workflow draw flows/release.yaml --only release --format mermaid
      Draw one of several workflows as a Mermaid flowchart.

In the text, successors are below. `├─` marks alternatives, of which the first match is taken; `╞═` marks
branches that are all taken. ↺ leads back, → leads to a node drawn elsewhere, ↓ leads on below, ■ is an end.
[task]  [[workflow]]  (agent)  <gate>  ~wait~
"""


def register(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = subparsers.add_parser(
        "workflow",
        help="Draw the graph of a workflow.",
        description="Show workflow definitions. To run a workflow, use wonder run.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    verbs = parser.add_subparsers(title="verbs", metavar="VERB", required=True)
    draw = verbs.add_parser(
        "draw",
        help="Draw the graph.",
        description="Draw the graph of a workflow.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    draw.add_argument(
        "source", metavar="NAME|FILE", help="Workflow (library/name or id), .yaml file or folder."
    )
    draw.add_argument(
        "--format",
        choices=("text", "mermaid"),
        default="text",
        help="Draw as text, or as source for Mermaid (default: text).",
    )
    draw.add_argument("--only", metavar="NAME", help="Draw only the workflow with this name.")
    connection.add_flags(draw)
    draw.set_defaults(run=_run_draw)
    add_examples(verbs, _EXAMPLES)


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
        print(f"wonder: {path} contains no workflows", file=sys.stderr)
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
