"""``wonder actions``: list the action kinds that steps of tasks can use."""

from __future__ import annotations

import argparse
import difflib
import json
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING

from wonder_sdk.cli.shared import connection, listing
from wonder_sdk.cli.shared.terminal import Terminal
from wonder_sdk.json_types import JsonObject, JsonValue

if TYPE_CHECKING:
    from wonder_sdk import sync, v1

_EXAMPLES = """\
examples:
  wonder actions
      List all kinds, those of the server and those of connected workers.
  wonder actions http
      Show the input and output fields of one kind.
  wonder actions http --json
      Print the kind with its schemas as JSON.

The `config` of an action or the `input_mapping` of its step sets the input fields. To use a worker's kind,
write an action of kind `worker` whose config has the kind's `name`.
"""


def register(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = subparsers.add_parser(
        "actions",
        help="List the action kinds that tasks can use.",
        description="List the action kinds that tasks can use, or show one of them.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("kind", nargs="?", metavar="KIND", help="Show this kind in detail.")
    parser.add_argument("--json", action="store_true", help="Print complete kinds, one JSON object per line.")
    connection.connect(parser, run)


def run(arguments: argparse.Namespace, client: sync.Client) -> int:
    """Print one line for each kind, or one kind in detail. Exit code 1 if it does not exist."""
    kinds, terminal = _all(client), Terminal()
    if arguments.kind:
        named = [each for each in kinds if each.name == arguments.kind]
        if not named:
            names = [each.name for each in kinds]
            near = difflib.get_close_matches(arguments.kind, names, 1)
            hint = f" (did you mean '{near[0]}'?)" if near else ""
            remedy = "List the action kinds with `wonder actions`."
            print(f"wonder: There is no action kind '{arguments.kind}'{hint}. {remedy}", file=sys.stderr)
            return 1
        kinds = named
    if arguments.json:
        for kind in kinds:
            terminal.line(connection.as_json(kind))
    elif arguments.kind:
        _show(terminal, kinds[0])
    else:
        listing.show(terminal, map(_row, kinds), nothing="the server has no action kinds")
    return 0


def _all(client: sync.Client) -> list[v1.ActionKind]:
    from wonder_sdk import v1

    pages = listing.pages(client.executor.list_action_kinds, v1.ListActionKindsRequest(page_size=500))
    return [kind for page in pages for kind in page.action_kinds]


def _row(kind: v1.ActionKind) -> tuple[str, ...]:
    from wonder_sdk.values import from_struct

    takes = _names(from_struct(kind.input_schema))
    gives = _names(from_struct(kind.output_schema))
    return kind.name, f"takes {takes}", f"gives {gives}", f"{kind.description}{_where(kind)}"


def _names(schema: JsonObject) -> str:
    """Return the names of an object's fields, the required ones first and marked with `*`."""
    required = set(schema.get("required", ()))
    names = sorted(_fields(schema), key=lambda name: name not in required)
    return ", ".join(f"{name}*" if name in required else name for name in names) or "anything"


def _fields(schema: JsonObject) -> JsonObject:
    found = schema.get("properties")
    return found if isinstance(found, Mapping) else {}


def _where(kind: v1.ActionKind) -> str:
    if not kind.remote:
        return ""
    return f" ({kind.worker_count} worker{'' if kind.worker_count == 1 else 's'})"


def _show(terminal: Terminal, kind: v1.ActionKind) -> None:
    from wonder_sdk.values import from_struct

    terminal.line(kind.name, "bold")
    terminal.line(f"{kind.description}{_where(kind)}")
    if not kind.available and kind.unavailable_reason:
        terminal.line(kind.unavailable_reason, "yellow")
    if kind.idempotent and not kind.remote:
        retry = "After a crash the server executes it again."
    else:
        retry = "After a crash the server executes it again only if the action says so (`idempotent: true`)."
    terminal.line(retry, "dim")
    for label, schema in (("takes", kind.input_schema), ("gives", kind.output_schema)):
        found = from_struct(schema)
        terminal.line()
        terminal.line(f"{label}:" + (f" {found['description']}" if found.get("description") else ""))
        rows = [_field(name, each, found.get("required", ())) for name, each in _fields(found).items()]
        for row in listing.aligned(rows) if rows else [("anything",)] if not found.get("description") else []:
            terminal.line("  " + "  ".join(row).rstrip())


def _field(name: str, schema: JsonValue, required: JsonValue) -> tuple[str, ...]:
    schema = schema if isinstance(schema, Mapping) else {}
    kind = schema.get("type", "any")
    choices = schema.get("enum")
    one_of = (
        f"one of: {', '.join(json.dumps(each) for each in choices)}. " if isinstance(choices, list) else ""
    )
    return (
        name,
        kind if isinstance(kind, str) else " or ".join(map(str, kind)),
        "required" if name in required else "",
        f"{one_of}{schema.get('description', '')}",
    )
