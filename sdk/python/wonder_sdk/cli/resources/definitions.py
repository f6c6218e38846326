"""``wonder definitions``: list definitions and their revisions, and show one."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from wonder_sdk.cli.shared import connection, listing
from wonder_sdk.cli.shared.parser import add_examples
from wonder_sdk.cli.shared.terminal import Terminal

if TYPE_CHECKING:
    from wonder_sdk import sync, v1

_KINDS = ("persona", "tool", "workflow", "task", "action", "model_profile")
_EXAMPLES = """\
examples:
  wonder definitions
      List the definitions of all libraries: name, kind, newest revision, last change, description.
  wonder definitions --library acme/trivia --kind persona --kind tool
      List the personas and tools of a library. `wonder libraries` lists the libraries.
  wonder definitions show acme/trivia/quizmaster@2
      Show revision 2 as YAML, in the form of the files of `wonder apply`; without @REVISION the newest.
  wonder definitions revisions acme/trivia/quizmaster
      List the revisions, newest first: reference, time, caller, hash of the content.

To save definitions: wonder apply. To draw a workflow: wonder workflow draw.
"""


def register(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = subparsers.add_parser(
        "definitions",
        help="List definitions and their revisions; show one.",
        description="List the newest revision of each definition, by library and name, or use a verb on one "
        "definition.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--library", default="", metavar="NAME", help="Show only definitions of this library."
    )
    parser.add_argument(
        "--kind",
        action="append",
        choices=_KINDS,
        default=[],
        help="Show only definitions of this kind; repeatable.",
    )
    _add_json(parser, "Print complete definitions, one JSON object per line.")
    connection.connect(parser, run_list)
    verbs = parser.add_subparsers(title="verbs", metavar="VERB")
    show = _verb(verbs, "show", "Show a revision of a definition as YAML.", run_show)
    _add_json(show, "Print the complete revision as JSON.")
    revisions = _verb(verbs, "revisions", "List the revisions of a definition.", run_revisions)
    _add_json(revisions, "Print complete revisions, one JSON object per line.")
    add_examples(verbs, _EXAMPLES)


def run_list(arguments: argparse.Namespace, client: sync.Client) -> int:
    """Print one line for each definition."""
    from wonder_sdk import v1

    request = v1.ListDefinitionsRequest(
        library_id=arguments.library,
        kinds=[v1.DefinitionKind[kind.upper()] for kind in arguments.kind],
        page_size=500,
    )
    pages = listing.pages(client.library.list_definitions, request)
    found = [each for page in pages for each in page.definitions]
    rows = ((_name(each), _kind(each), f"@{each.revision}", _saved(each), each.description) for each in found)
    return _print(arguments, found, rows, "no matching definitions")


def run_show(arguments: argparse.Namespace, client: sync.Client) -> int:
    """Print the revision as YAML, with its reference in a comment."""
    from wonder_sdk import v1
    from wonder_sdk.definitions import definition_files

    request = v1.GetDefinitionRequest(definition_id=arguments.definition)
    found, terminal = client.library.get_definition(request).definition, Terminal()
    if arguments.json:
        terminal.line(connection.as_json(found))
        return 0
    terminal.line(f"# {_reference(found)}, saved {_saved(found)} ({found.id})", "dim")
    terminal.write(definition_files.dump(found))
    return 0


def run_revisions(arguments: argparse.Namespace, client: sync.Client) -> int:
    """Print one line for each revision, newest first."""
    from wonder_sdk import v1

    request = v1.ListRevisionsRequest(definition_id=arguments.definition, page_size=500)
    pages = listing.pages(client.library.list_revisions, request)
    found = [each for page in pages for each in page.definitions]
    rows = ((_reference(each), _saved(each), _caller(each.updated_by), _hash(each)) for each in found)
    return _print(arguments, found, rows, "the definition has no revisions")


def _caller(principal: v1.Principal | None) -> str:
    """Return the name of a caller, ``anonymous`` without tokens; "" for a revision that has none."""
    from wonder_sdk import v1

    if principal is None or principal.kind is v1.PrincipalKind.ANONYMOUS:
        return "anonymous" if principal else ""
    return principal.subject


def _add_definition(verb: argparse.ArgumentParser) -> None:
    verb.add_argument(
        "definition", metavar="LIBRARY/NAME", help="Name or id of the definition; @REVISION names a revision."
    )


_verb = partial(connection.add_verb, arguments=_add_definition, inherited=True)


def _add_json(parser: argparse.ArgumentParser, text: str) -> None:
    parser.add_argument("--json", action="store_true", help=text)


def _print(
    arguments: argparse.Namespace,
    found: list[v1.Definition],
    rows: Iterable[Sequence[str]],
    nothing: str,
) -> int:
    terminal = Terminal()
    if arguments.json:
        for each in found:
            terminal.line(connection.as_json(each))
    else:
        listing.show(terminal, rows, nothing=nothing)
    return 0


def _name(definition: v1.Definition) -> str:
    return f"{definition.library}/{definition.name}"


def _reference(definition: v1.Definition) -> str:
    return f"{_name(definition)}@{definition.revision}"


def _kind(definition: v1.Definition) -> str:
    return definition.kind.name.lower() if definition.kind.name else ""


def _saved(definition: v1.Definition) -> str:
    return listing.local(definition.update_time)


def _hash(definition: v1.Definition) -> str:
    return definition.content_hash[:12]
