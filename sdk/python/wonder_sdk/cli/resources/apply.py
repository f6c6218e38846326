"""``wonder apply``: save a folder of definitions."""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from wonder_sdk.cli.shared import connection
from wonder_sdk.cli.shared.terminal import Terminal

if TYPE_CHECKING:
    from wonder_sdk import sync, v1
    from wonder_sdk.definitions.definition_files import DefinitionFilesError, Folder

_CONFIRM_SECONDS = 5.0
_PLACES = ("definitions", "agents", "projects")
"""Fields of a request that have places in the files."""

_PLACE = re.compile(r"(.+?):(\d+): ")
_EXAMPLES = """\
examples:
  wonder apply -f my-library
      Show the changes, ask for confirmation on a terminal, and save all of them or none.
  wonder apply -f my-library --dry-run
      Show the changes without saving them.
  wonder apply -f my-library --prune --yes
      Also delete definitions that are not in the folder, without confirmation. A script needs --yes for that.
  wonder apply -f tool.yaml --library acme/tools
      Save one file in the library acme/tools. The default is the library that a library.yaml beside it names.

The folder (or that of the file) contains a library.yaml with the library's name, unless --library sets it:

  name: acme/tools
  description: What we taught our agents.

and any number of .yaml files with definitions, in folders of any depth, one definition per document:

  name: note
  description: Write something down.
  tool:
    target_type: task
    target_id: write_note

An agent or a project is a document too; empty fields keep their stored values, and --prune deletes none:

  name: secretary
  agent: {persona_id: secretary, project_ids: [office]}

Applying the same folder again changes nothing. Each changed definition gets a new revision; turns and runs in
progress keep the revision with which they started.
"""


def register(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = subparsers.add_parser(
        "apply",
        help="Save a folder of definitions.",
        description="Show the changes of a folder of definitions, and save it in a library.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "-f",
        "--file",
        type=Path,
        required=True,
        metavar="DIR",
        help="Read this folder or file of definitions.",
    )
    parser.add_argument(
        "--library", metavar="NAME", help="Save in this library (default: that of library.yaml)."
    )
    parser.add_argument("--dry-run", action="store_true", help="Show the changes without saving them.")
    parser.add_argument(
        "--prune", action="store_true", help="Delete definitions of the library that are not in the folder."
    )
    parser.add_argument(
        "-v", "--verbose", action="store_true", help="Show the content of new and deleted definitions."
    )
    connection.add_yes(parser)
    connection.add_flags(parser)
    parser.set_defaults(run=_run)


def _run(arguments: argparse.Namespace) -> int:
    from wonder_sdk.definitions.definition_files import DefinitionFilesError, load

    try:
        folder = load(arguments.file)
    except DefinitionFilesError as problem:
        unnamed = (
            [] if arguments.library or _names_library(arguments, problem) else [_unnamed_library(arguments)]
        )
        faults = sorted([*problem.faults, *_server_faults(arguments, problem)], key=_place)
        print("\n".join([*unnamed, *faults]), file=sys.stderr)
        return 1
    except OSError as problem:
        print(f"wonder: {arguments.file}: {problem.strerror}", file=sys.stderr)
        return 1
    library = arguments.library or folder.library
    if not library:
        print(_unnamed_library(arguments), file=sys.stderr)
        return 2
    if not (folder.definitions or folder.agents or folder.projects or arguments.prune):
        print(f"wonder: {arguments.file} contains no definitions", file=sys.stderr)
        return 1
    return connection.connected(lambda parsed, client: _apply(parsed, client, folder, library))(arguments)


def _unnamed_library(arguments: argparse.Namespace) -> str:
    file = f" or `name:` in {arguments.file / 'library.yaml'}" if arguments.file.is_dir() else ""
    return f"wonder: the library is not named. Set --library{file}."


def _names_library(arguments: argparse.Namespace, problem: DefinitionFilesError) -> bool:
    """Return True if a library is named, or if a library.yaml exists, whose faults say more."""
    from wonder_sdk.definitions.definition_files import LIBRARY_FILE

    if problem.folder is not None and problem.folder.library:
        return True
    root: Path = arguments.file if arguments.file.is_dir() else arguments.file.parent
    return (root / LIBRARY_FILE).exists()


def _place(fault: str) -> tuple[str, int]:
    """Return file and line of a fault, for its order; faults without a place come first."""
    found = _PLACE.match(fault)
    return (found[1], int(found[2])) if found else ("", 0)


def _server_faults(arguments: argparse.Namespace, problem: DefinitionFilesError) -> list[str]:
    """Return the faults that the server finds, so that all faults appear together; [] without a server."""
    from wonder_sdk import InvalidArgumentError, WonderError, v1

    folder, found = problem.folder, list[str]()
    if folder is None or not (library := arguments.library or folder.library):
        return found

    def check(_: argparse.Namespace, client: sync.Client) -> int:
        request = v1.ApplyDefinitionsRequest(
            library=library,
            definitions=folder.definitions,
            agents=folder.agents,
            projects=folder.projects,
            validate_only=True,
        )
        try:
            client.library.apply_definitions(request, timeout=_CONFIRM_SECONDS)
        except InvalidArgumentError as refusal:
            found.extend(problem.explain(refusal.violations))
        except WonderError:
            pass  # The faults of the files are reported without a server.
        return 0

    connection.connected(check)(arguments)
    return found


def _apply(arguments: argparse.Namespace, client: sync.Client, folder: Folder, library: str) -> int:
    from wonder_sdk import WonderError, v1

    terminal = Terminal()

    def send(*, validate_only: bool) -> v1.ApplyDefinitionsResponse:
        response: v1.ApplyDefinitionsResponse = client.library.apply_definitions(
            v1.ApplyDefinitionsRequest(
                library=library,
                definitions=folder.definitions,
                agents=folder.agents,
                projects=folder.projects,
                prune=arguments.prune,
                validate_only=validate_only,
            )
        )
        return response

    try:
        planned = send(validate_only=True)
    except WonderError as problem:
        if not any(each.field.partition("[")[0] in _PLACES for each in problem.violations):
            raise
        print("\n".join(folder.explain(problem.violations)), file=sys.stderr)
        return 1
    for notice in planned.notices:
        Terminal(sys.stderr).line(f"notice: {notice}", "yellow")
    changes = [each for each in _all(planned) if each.action is not v1.DefinitionChangeAction.UNCHANGED]
    if not changes:
        terminal.line(f"library {library}: nothing to change ({_count(planned)})")
        return 0
    for change in changes:
        _show(terminal, change, is_whole=arguments.verbose)
    if arguments.dry_run:
        terminal.line(f"library {library}: {_summary(planned)}; nothing was saved")
        return 0
    if code := _refusal(arguments, terminal, changes, library):
        return code
    _ensure_library(client, library, folder.description)
    terminal.line(f"library {library} applied: {_summary(send(validate_only=False))}")
    return 0


def _refusal(
    arguments: argparse.Namespace,
    terminal: Terminal,
    changes: Sequence[v1.DefinitionChange | v1.ResourceChange],
    library: str,
) -> int:
    """Ask the user whether to save. Return the exit code if not, otherwise 0.

    Without a terminal nothing is asked, but changes that delete definitions need ``--yes``.
    """
    from wonder_sdk import v1

    if arguments.yes:
        return 0
    deleted = sum(each.action is v1.DefinitionChangeAction.DELETED for each in changes)
    if deleted and not terminal.can_ask:
        what = "1 definition" if deleted == 1 else f"{deleted} definitions"
        print(
            f"wonder: --prune would delete {what}, and there is no terminal to confirm on. "
            "Nothing was saved. Add --yes to delete.",
            file=sys.stderr,
        )
        return 2
    if terminal.confirm(f"Save these changes in {library}?"):
        return 0
    terminal.line("nothing was saved")
    return 1


def _all(
    response: v1.ApplyDefinitionsResponse,
) -> list[v1.DefinitionChange | v1.ResourceChange]:
    return [*response.changes, *response.resource_changes]


def _show(terminal: Terminal, change: v1.DefinitionChange | v1.ResourceChange, *, is_whole: bool) -> None:
    """Print one line, and the diff if the definition existed before or ``is_whole`` is set."""
    from wonder_sdk import v1

    mark, style = {
        v1.DefinitionChangeAction.CREATED: ("+", "green"),
        v1.DefinitionChangeAction.UPDATED: ("~", "yellow"),
        v1.DefinitionChangeAction.DELETED: ("-", "red"),
    }.get(change.action, ("?", "bold"))
    is_update = change.action is v1.DefinitionChangeAction.UPDATED
    if isinstance(change, v1.DefinitionChange):
        kind = (change.kind.name or "").lower().replace("_", " ")
        revision = f" (revision {change.new_revision})" if is_update else ""
    else:
        kind, revision = (change.type.name or "").lower(), ""
    terminal.line(f"{mark} {kind} {change.name}{revision}", style)
    is_whole = is_whole or is_update
    for line in change.diff if is_whole else ():
        terminal.line(f"    {line}", {"+": "green", "-": "red", "@": "cyan"}.get(line[:1], "dim"))


def _ensure_library(client: sync.Client, name: str, description: str) -> None:
    """Create a new library with its description; ApplyDefinitions would create it without one."""
    from wonder_sdk import NotFoundError, v1

    if not description:
        return
    try:
        client.library.get_library(v1.GetLibraryRequest(library_id=name))
    except NotFoundError:
        library = v1.Library(name=name, description=description)
        client.library.create_library(v1.CreateLibraryRequest(library=library))


def _summary(response: v1.ApplyDefinitionsResponse) -> str:
    counts: dict[str, int] = {}
    for change in _all(response):
        action = change.action.name.lower()
        counts[action] = counts.get(action, 0) + 1
    order = ("created", "updated", "deleted", "unchanged")
    return ", ".join(f"{counts[word]} {word}" for word in order if word in counts)


def _count(response: v1.ApplyDefinitionsResponse) -> str:
    number, others = len(response.changes), len(response.resource_changes)
    definitions = "1 definition" if number == 1 else f"{number} definitions"
    return f"{definitions}, {others} of agents and projects" if others else definitions
