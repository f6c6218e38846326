"""``wonder preview``: the request that a message would lead to."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from wonder_sdk.cli.shared import connection
from wonder_sdk.cli.shared.terminal import Terminal

if TYPE_CHECKING:
    from wonder_sdk import sync, v1

_EXAMPLES = """\
examples:
  wonder preview conv_01J9... "What is my colour?"
      where each part of the request comes from; nothing is sent or kept
  wonder preview conv_01J9... "What is my colour?" --json | jq .request
      the request itself, as the model would get it
"""

_SHORT = 60


def register(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = subparsers.add_parser(
        "preview",
        help="show what the model would be sent for a message",
        description="Show the request that a message would lead to, and where its parts come from.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("conversation", metavar="CONVERSATION", help="id of the conversation")
    parser.add_argument("message", metavar="TEXT", help="what would be said")
    parser.add_argument("-a", "--agent", default="", help="agent who would answer, by name or id")
    parser.add_argument("--json", action="store_true", help="print all of it as JSON")
    connection.add_flags(parser)
    parser.set_defaults(run=connection.connected(run))


def run(arguments: argparse.Namespace, client: sync.Client) -> int:
    terminal = Terminal()
    preview = client.preview_context(arguments.conversation, arguments.message, agent=arguments.agent)
    if arguments.json:
        terminal.line(connection.as_json(preview))
        return 0
    for block in preview.blocks:
        terminal.line(_line(block))
    fits = f" of {preview.context_window_tokens:,}" if preview.context_window_tokens else ""
    model = shown_model(preview.provider, preview.model)
    terminal.line(f"about {preview.input_tokens:,}{fits} tokens for {model}")
    return 0


def shown_model(provider: str, model: str) -> str:
    """``provider/model``, or the provider alone if it has but one, as `offline` does."""
    return f"{provider}/{model}" if model else provider


def _line(block: v1.ContextBlock) -> str:
    name = (block.source.name or "").removeprefix("CONTEXT_SOURCE_").lower()
    source = name if name != "unspecified" else "-"
    text = " ".join(block.excerpt.split())
    excerpt = text if len(text) <= _SHORT else text[: _SHORT - 1] + "…"
    return f"{source:<12} {block.source_id:<30} {block.tokens:>7}  {block.path:<28} {excerpt}".rstrip()
