"""``wonder memory``: list, search, add and forget an agent's memories."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from wonder_sdk.cli.shared import connection, listing
from wonder_sdk.cli.shared.terminal import Terminal

if TYPE_CHECKING:
    from wonder_sdk import sync, v1

_EXAMPLES = """\
examples:
  wonder memory list
      List the memories of the agent `assistant`, newest first.
  wonder memory search "which database?" --agent assistant
      Search an agent's memories, best hits first.
  wonder memory show mem_01…
      Show a memory with its source, its replacements and its contradictions.
  wonder memory add "The office is closed on Fridays."
      Add a memory.
  wonder memory forget mem_01…
      Delete a memory for good.
"""
_SHOWN = 100
"""Characters of a memory that a list shows."""


def register(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = subparsers.add_parser(
        "memory",
        help="List, search, add and forget an agent's memories.",
        description="Manage the memories of an agent, across all its conversations.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    verbs = parser.add_subparsers(title="verbs", metavar="VERB", required=True)
    lists = _verb(verbs, "list", "List memories.", run_list)
    _add_filters(lists)
    lists.add_argument(
        "-n", "--limit", type=connection.count, default=50, help="Limit the number (default: 50)."
    )
    search = _verb(verbs, "search", "Search memories.", run_search)
    search.add_argument("query", help="Query in plain words.")
    _add_filters(search)
    search.add_argument(
        "-n", "--limit", type=connection.count, default=10, help="Limit the number (default: 10)."
    )
    show = _verb(verbs, "show", "Show a complete memory.", run_show)
    show.add_argument("memory", metavar="ID", help="Id of the memory, mem_….")
    add = _verb(verbs, "add", "Add a memory.", run_add)
    add.add_argument("content", metavar="TEXT", help="Text of the memory.")
    add.add_argument("--type", default="fact", help="Set the type (default: fact).")
    forget = _verb(verbs, "forget", "Delete memories for good.", run_forget)
    forget.add_argument("memories", metavar="ID", nargs="+", help="Id of a memory, mem_….")


def run_list(arguments: argparse.Namespace, client: sync.Client) -> int:
    """Print one line for each memory: id, time, type, first characters."""
    rows: list[tuple[str, ...]] = []
    found = client.list_memories(agent=arguments.agent, types=arguments.type, everything=arguments.everything)
    for memory in found:
        if len(rows) == arguments.limit:
            break
        if arguments.json:
            print(connection.as_json(memory))
        rows.append((memory.id, listing.local(memory.create_time), memory.type, _start(memory)))
    if not arguments.json:
        _show(rows, f"{arguments.agent} has no matching memories")
    return 0


def run_search(arguments: argparse.Namespace, client: sync.Client) -> int:
    """Print one line for each hit: id, score, type, first characters."""
    hits = client.recall(
        arguments.query,
        agent=arguments.agent,
        limit=arguments.limit,
        types=arguments.type,
        everything=arguments.everything,
    )
    if arguments.json:
        for hit in hits:
            print(connection.as_json(hit))
        return 0
    found = [(hit.memory, hit.score) for hit in hits if hit.memory is not None]
    rows = [(memory.id, f"{score:.3f}", memory.type, _start(memory)) for memory, score in found]
    _show(rows, f"{arguments.agent} has no matching memories")
    return 0


def run_show(arguments: argparse.Namespace, client: sync.Client) -> int:
    """Print the memory with all its fields."""
    memory = client.get_memory(arguments.memory, agent=arguments.agent)
    if arguments.json:
        print(connection.as_json(memory))
        return 0
    terminal, source = Terminal(), memory.source
    fields = [
        ("id", memory.id),
        ("type", memory.type),
        ("significance", f"{memory.significance or 0:g}"),
        ("written", listing.local(memory.create_time)),
        ("changed", listing.local(memory.update_time)),
        ("archived", listing.local(memory.archive_time)),
        ("replaces", memory.supersedes_id),
        ("replaced by", memory.superseded_by_id),
        ("contradicts", " ".join(memory.contradicts_ids)),
    ]
    if source is not None:
        fields += [
            ("speaker", source.speaker),
            ("conversation", source.conversation_id),
            ("turn", source.turn_id),
            ("move", source.move_id),
            ("run", source.run_id),
        ]
    if memory.metadata is not None:
        fields.append(("metadata", connection.as_json(memory.metadata)))
    for name, value in listing.aligned([(name, value) for name, value in fields if value]):
        terminal.line(f"{name}  {value}", "dim")
    terminal.line(memory.content)
    return 0


def run_add(arguments: argparse.Namespace, client: sync.Client) -> int:
    memory = client.remember(arguments.content, agent=arguments.agent, type=arguments.type, unless_known=True)
    if arguments.json:
        print(connection.as_json(memory))
        return 0
    Terminal().line(f"{arguments.agent} remembers {memory.id}")
    return 0


def run_forget(arguments: argparse.Namespace, client: sync.Client) -> int:
    for memory_id in arguments.memories:
        client.forget(memory_id, agent=arguments.agent)
        if not arguments.json:
            Terminal().line(f"{memory_id} forgotten")
    return 0


def _verb(
    verbs: argparse._SubParsersAction[argparse.ArgumentParser],
    name: str,
    text: str,
    run: connection.Command,
) -> argparse.ArgumentParser:
    parser = verbs.add_parser(name, help=text, description=text)
    parser.add_argument(
        "--agent", default="assistant", help="Set the agent, by name or id (default: assistant)."
    )
    parser.add_argument("--json", action="store_true", help="Print one JSON object per line.")
    connection.add_flags(parser)
    parser.set_defaults(run=connection.connected(run))
    return parser


def _add_filters(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--type", action="append", default=[], help="Filter by type; repeatable.")
    parser.add_argument(
        "--all", dest="everything", action="store_true", help="Include superseded and archived memories."
    )


def _show(rows: Sequence[tuple[str, ...]], nothing: str) -> None:
    if rows:
        listing.show(Terminal(), rows)
    else:  # On stderr: a program gets an empty stdout.
        Terminal(sys.stderr).line(nothing, "dim")


def _start(memory: v1.Memory) -> str:
    text = " ".join(memory.content.split())
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 1]}…"
