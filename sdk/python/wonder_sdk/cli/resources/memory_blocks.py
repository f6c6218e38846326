"""``wonder memory blocks``: list, show, set and delete an agent's memory blocks."""

from __future__ import annotations

import argparse
import sys
from functools import partial
from typing import TYPE_CHECKING

from wonder_sdk.cli.shared import connection, deletion, listing
from wonder_sdk.cli.shared.parser import add_examples
from wonder_sdk.cli.shared.terminal import Terminal

if TYPE_CHECKING:
    from wonder_sdk import sync
    from wonder_sdk.methods.memories import MemoryBlockOptions

_EXAMPLES = """\
examples:
  wonder memory blocks
      List the memory blocks of the agent `assistant`; `wonder memory blocks list` does the same.
  wonder memory blocks show house_rules --agent assistant
      Show a memory block.
  wonder memory blocks set house_rules "Answer in English." --description "Rules of the house."
      Create a memory block, or replace it.
  wonder memory blocks set human "Likes tea." --subject mia
      Set a block about a user.
  wonder memory blocks changes house_rules
      List who changed a block, and when.
  wonder memory blocks delete house_rules
      Delete a memory block; --yes skips the confirmation.
"""
_DEFAULT_MAX_CHARACTERS = 2_000
_SHOWN = 60
"""Characters of a block that a list shows."""


def register(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = subparsers.add_parser(
        "blocks",
        help="List, show, set and delete memory blocks.",
        description="Manage the memory blocks of an agent: small texts that stand in each of its requests.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    _add_list_flags(parser)
    connection.connect(parser, run_list)
    verbs = parser.add_subparsers(title="verbs", metavar="VERB")
    connection.add_verb(
        verbs,
        "list",
        "List memory blocks.",
        run_list,
        arguments=partial(_add_list_flags, inherited=True),
        inherited=True,
    )
    show = _verb(verbs, "show", "Show a memory block.", run_show)
    show.add_argument("label", metavar="LABEL", help="Label of the block.")
    put = _verb(verbs, "set", "Create a memory block, or replace it.", run_set)
    put.add_argument("label", metavar="LABEL", help="Label of the block, such as house_rules.")
    put.add_argument("content", metavar="TEXT", help="Text of the block.")
    put.add_argument(
        "--description", default="", metavar="TEXT", help="Tell the model what the block is for."
    )
    put.add_argument(
        "--max-characters",
        type=connection.positive,
        default=0,
        metavar="N",
        help="Limit the characters of the text (default: 2000).",
    )
    put.add_argument("--read-only", action="store_true", help="Keep tools from changing the block.")
    put.add_argument("--etag", default="", metavar="ETAG", help="Replace only this version.")
    changes = _verb(verbs, "changes", "List the changes of a memory block.", run_changes)
    changes.add_argument("label", metavar="LABEL", help="Label of the block.")
    delete = _verb(verbs, "delete", "Delete a memory block.", run_delete)
    delete.add_argument("label", metavar="LABEL", help="Label of the block.")
    deletion.add_yes(delete)
    add_examples(verbs, _EXAMPLES)


def run_list(arguments: argparse.Namespace, client: sync.Client) -> int:
    """Print one line for each block: label, subject, size, first characters."""
    rows: list[tuple[str, ...]] = []
    for block in client.list_memory_blocks(agent=arguments.agent, subject=arguments.subject):
        if arguments.json:
            print(connection.as_json(block))
        size = f"{len(block.content)}/{block.max_characters}"
        rows.append((block.label, block.subject, size, _start(block.content)))
    if not arguments.json:
        listing.show(Terminal(), rows, nothing=f"{arguments.agent} has no memory blocks")
    return 0


def run_show(arguments: argparse.Namespace, client: sync.Client) -> int:
    """Print the block with all its fields."""
    block = client.get_memory_block(arguments.label, agent=arguments.agent, subject=arguments.subject or "")
    if arguments.json:
        print(connection.as_json(block))
        return 0
    terminal = Terminal()
    fields = [
        ("label", block.label),
        ("about", block.subject),
        ("description", block.description),
        ("limit", f"{len(block.content)} of {block.max_characters} characters"),
        ("read-only", "yes" if block.read_only else ""),
        ("changed", listing.local(block.update_time)),
        ("etag", block.etag),
    ]
    for name, value in listing.aligned([(name, value) for name, value in fields if value]):
        terminal.line(f"{name}  {value}", "dim")
    terminal.line(block.content)
    return 0


def run_set(arguments: argparse.Namespace, client: sync.Client) -> int:
    from wonder_sdk import InvalidArgumentError

    options: MemoryBlockOptions = {
        "subject": arguments.subject or "",
        "description": arguments.description,
        "max_characters": arguments.max_characters,
        "read_only": arguments.read_only,
        "etag": arguments.etag,
    }
    try:
        block = client.set_memory_block(arguments.label, arguments.content, agent=arguments.agent, **options)
    except InvalidArgumentError as problem:
        if len(arguments.content) > (arguments.max_characters or _DEFAULT_MAX_CHARACTERS):
            problem.message += " Set another maximum with --max-characters."
        raise
    if arguments.json:
        print(connection.as_json(block))
        return 0
    Terminal().line(f"{block.label} of {arguments.agent} has etag {block.etag}")
    return 0


def run_changes(arguments: argparse.Namespace, client: sync.Client) -> int:
    """Print one line for each change, newest first: etag, time, kind, principal, user, turn."""
    changes = list(
        client.list_memory_block_changes(
            arguments.label, agent=arguments.agent, subject=arguments.subject or ""
        )
    )
    if not changes:
        hint = "" if arguments.subject else " Is it about a user? Use --subject."
        print(f"wonder: There is no such block.{hint}", file=sys.stderr)
        return 1
    if arguments.json:
        for change in changes:
            print(connection.as_json(change))
        return 0
    rows = [
        (
            change.etag,
            listing.local(change.change_time),
            change.kind.name.lower(),
            change.principal,
            change.user_id,
            change.turn_id,
        )
        for change in changes
    ]
    headings = ("etag", "time", "change", "caller", "user", "turn")
    listing.show(Terminal(), rows, nothing="", headings=headings)
    return 0


def run_delete(arguments: argparse.Namespace, client: sync.Client) -> int:
    """Delete the block after confirmation; see `deletion.refusal`."""
    if code := deletion.refusal(arguments, f"{arguments.label} of {arguments.agent} for good"):
        return code
    client.delete_memory_block(arguments.label, agent=arguments.agent, subject=arguments.subject or "")
    if not arguments.json:
        Terminal().line(f"{arguments.label} deleted")
    return 0


def _add_list_flags(parser: argparse.ArgumentParser, *, inherited: bool = False) -> None:
    _add_flags(parser, "Show only the blocks about this user id.", inherited=inherited)


def _add_flags(parser: argparse.ArgumentParser, subject: str, *, inherited: bool) -> None:
    """Add the flags of all verbs. With ``inherited``, their defaults are those of the parent command."""
    parser.add_argument(
        "--agent",
        default=argparse.SUPPRESS if inherited else "assistant",
        help="Use the memory blocks of this agent, by name or id (default: assistant).",
    )
    parser.add_argument(
        "--subject", default=argparse.SUPPRESS if inherited else None, metavar="USER", help=subject
    )
    parser.add_argument(
        "--json",
        action="store_true",
        default=argparse.SUPPRESS if inherited else False,
        help="Print one JSON object per line.",
    )


def _add_block(verb: argparse.ArgumentParser) -> None:
    _add_flags(verb, "Use the block about this user id.", inherited=True)


_verb = partial(connection.add_verb, arguments=_add_block, inherited=True)


def _start(content: str) -> str:
    text = " ".join(content.split())
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 1]}…"
