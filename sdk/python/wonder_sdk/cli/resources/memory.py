"""``wonder memory``: list, search, add and forget an agent's memories."""

from __future__ import annotations

import argparse
from functools import partial
from typing import TYPE_CHECKING

from wonder_sdk.cli.resources import memory_blocks
from wonder_sdk.cli.shared import connection, deletion, listing
from wonder_sdk.cli.shared.parser import add_examples
from wonder_sdk.cli.shared.terminal import Terminal

if TYPE_CHECKING:
    from wonder_sdk import sync, v1
    from wonder_sdk.methods.memories import MemoryFilters

_EXAMPLES = """\
examples:
  wonder memory list
      List the memories of the agent `assistant`, newest first.
  wonder memory search "which database?" --agent assistant
      Search an agent's memories, best hits first, each with its score and its relevance.
  wonder memory search "what did we plan last week?" --said-since 2026-05-01
      Search what was said since a date.
  wonder memory show mem_01…
      Show a memory with its source, its replacements and its contradictions.
  wonder memory add "The office is closed on Fridays."
      Add a memory.
  wonder memory forget mem_01…
      Delete a memory for good; --yes skips the confirmation.
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
        "-n", "--limit", type=connection.count, default=50, help="Limit the number (default: 50; 0: all)."
    )
    search = _verb(verbs, "search", "Search memories.", run_search)
    search.add_argument("query", help="Query in plain words.")
    search.add_argument(
        "--min-relevance",
        type=float,
        default=0.0,
        metavar="R",
        help="Show only hits of at least this relevance, 0 to 1 (default: 0).",
    )
    _add_filters(search)
    search.add_argument(
        "-n", "--limit", type=connection.positive, default=10, help="Limit the number (default: 10)."
    )
    show = _verb(verbs, "show", "Show a complete memory.", run_show)
    show.add_argument("memory", metavar="ID", help="Id of the memory, mem_….")
    add = _verb(verbs, "add", "Add a memory.", run_add)
    add.add_argument("content", metavar="TEXT", help="Text of the memory.")
    add.add_argument("--type", default="fact", help="Store the memory with this type (default: fact).")
    add.add_argument(
        "--said-at",
        type=connection.time,
        metavar="TIME",
        help="Store the time at which it was said, such as 2026-05-31 (default: now).",
    )
    add.add_argument("--subject", default="", metavar="USER", help="Store whom it is about, by user id.")
    forget = _verb(verbs, "forget", "Delete memories for good.", run_forget)
    forget.add_argument("memories", metavar="ID", nargs="+", help="Id of a memory, mem_….")
    deletion.add_yes(forget)
    memory_blocks.register(verbs)
    add_examples(verbs, _EXAMPLES)


def run_list(arguments: argparse.Namespace, client: sync.Client) -> int:
    """Print one line for each memory: id, time at which it was said, type, first characters."""
    rows: list[tuple[str, ...]] = []
    for memory in client.list_memories(agent=arguments.agent, **_filters(arguments)):
        if len(rows) == (arguments.limit or None):
            break
        if arguments.json:
            print(connection.as_json(memory))
        rows.append(
            (memory.id, listing.local(memory.said_at or memory.create_time), memory.type, _start(memory))
        )
    if not arguments.json:
        listing.show(Terminal(), rows, nothing=f"{arguments.agent} has no matching memories")
    return 0


def run_search(arguments: argparse.Namespace, client: sync.Client) -> int:
    """Print one line for each hit: id, score, relevance, type, first characters."""
    hits = client.recall(
        arguments.query,
        agent=arguments.agent,
        limit=arguments.limit,
        min_relevance=arguments.min_relevance,
        **_filters(arguments),
    )
    if arguments.json:
        for hit in hits:
            print(connection.as_json(hit))
        return 0
    rows = [
        (hit.memory.id, f"{hit.score:.3f}", f"{hit.relevance:.3f}", hit.memory.type, _start(hit.memory))
        for hit in hits
        if hit.memory is not None
    ]
    headings = ("memory", "score", "relevance", "type", "text")
    nothing = f"{arguments.agent} has no matching memories"
    listing.show(Terminal(), rows, nothing=nothing, headings=headings)
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
        ("said", listing.local(memory.said_at)),
        ("written", listing.local(memory.create_time)),
        ("changed", listing.local(memory.update_time)),
        ("archived", listing.local(memory.archive_time)),
        ("replaces", memory.supersedes_id),
        ("replaced by", memory.superseded_by_id),
        ("contradicts", " ".join(memory.contradicts_ids)),
        ("about", memory.subject),
    ]
    if source is not None:
        fields += [
            ("speaker", " ".join(each for each in (source.speaker, source.speaker_id) if each)),
            ("role", "" if source.role == 0 else source.role.name.lower()),
            ("conversation", source.conversation_id),
            ("turn", source.turn_id),
            ("message", source.message_id),
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
    options = {} if arguments.said_at is None else {"said_at": arguments.said_at}
    memory = client.remember(
        arguments.content,
        agent=arguments.agent,
        type=arguments.type,
        subject=arguments.subject,
        unless_known=True,
        **options,
    )
    if arguments.json:
        print(connection.as_json(memory))
        return 0
    Terminal().line(f"{arguments.agent} remembers {memory.id}")
    return 0


def run_forget(arguments: argparse.Namespace, client: sync.Client) -> int:
    """Delete the memories after confirmation; see `deletion.refusal`."""
    terminal, ids = Terminal(), arguments.memories
    what = ids[0] if len(ids) == 1 else f"{len(ids)} memories"
    if code := deletion.refusal(arguments, f"{what} of {arguments.agent} for good"):
        return code
    for memory_id in ids:
        client.forget(memory_id, agent=arguments.agent)
        if not arguments.json:
            terminal.line(f"{memory_id} forgotten")
    return 0


def _add_agent(verb: argparse.ArgumentParser) -> None:
    verb.add_argument(
        "--agent",
        default="assistant",
        help="Use the memories of this agent, by name or id (default: assistant).",
    )
    verb.add_argument("--json", action="store_true", help="Print one JSON object per line.")


_verb = partial(connection.add_verb, arguments=_add_agent)


def _add_filters(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--type", action="append", default=[], help="Show only memories of this type; repeatable."
    )
    parser.add_argument(
        "--all", dest="everything", action="store_true", help="Include superseded and archived memories."
    )
    parser.add_argument("--subject", default="", metavar="USER", help="Show only what is about this user id.")
    for name, what in (("since", "from this time on"), ("until", "before this time")):
        parser.add_argument(
            f"--said-{name}", type=connection.time, metavar="TIME", help=f"Show only what was said {what}."
        )


def _filters(arguments: argparse.Namespace) -> MemoryFilters:
    filters: MemoryFilters = {
        "types": arguments.type,
        "everything": arguments.everything,
        "subject": arguments.subject,
    }
    if arguments.said_since is not None:
        filters["said_since"] = arguments.said_since
    if arguments.said_until is not None:
        filters["said_until"] = arguments.said_until
    return filters


def _start(memory: v1.Memory) -> str:
    text = " ".join(memory.content.split())
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 1]}…"
