"""``wonder preview``: show the model request that a message would cause."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from wonder_sdk.cli.shared import connection, overrides
from wonder_sdk.cli.shared.terminal import Terminal

if TYPE_CHECKING:
    from wonder_sdk import sync, v1

_EXAMPLES = """\
examples:
  wonder preview conv_01J9... "What is my colour?"
      Show the source of each part of the request. Nothing is sent or stored.
  wonder preview conv_01J9... "What is my colour?" --json | jq .request
      Print the request that the model would get.
  wonder preview conv_01J9... "What is my colour?" --model acme/cloud --tool-choice required
      Show the request of a message with another model and a tool choice.
"""

_SHORT = 60


def register(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = subparsers.add_parser(
        "preview",
        help="Show the model request for a message.",
        description="Show the model request that a message would cause, and the source of each part.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("conversation", metavar="CONVERSATION", help="Id of the conversation.")
    parser.add_argument("message", metavar="TEXT", help="Text of the message.")
    parser.add_argument("-a", "--agent", default="", help="Preview the request of this agent, by name or id.")
    parser.add_argument(
        "--user", default="", metavar="NAME", help="Preview a message of this user (default: as in chat)."
    )
    overrides.add_options(parser)
    parser.add_argument("--json", action="store_true", help="Print the preview as JSON.")
    connection.connect(parser, run)


def run(arguments: argparse.Namespace, client: sync.Client) -> int:
    terminal = Terminal()
    preview = client.preview_context(
        arguments.conversation,
        arguments.message,
        agent=arguments.agent,
        user=arguments.user,
        overrides=overrides.overrides_of(arguments),
    )
    if arguments.json:
        terminal.line(connection.as_json(preview))
        return 0
    for block in preview.blocks:
        terminal.line(_line(block))
    for source in preview.tool_sources:
        tools = "1 tool" if source.tool_count == 1 else f"{source.tool_count:,} tools"
        listed = f", list {source.tools_hash}" if source.tools_hash else ""
        terminal.line(f"{tools} of {source.mcp}{listed}")
        for notice in source.notices:
            terminal.line(f"    {notice}", "yellow")
    fits = f" of {preview.context_window_tokens:,}" if preview.context_window_tokens else ""
    model = shown_model(preview.provider, preview.model)
    for what, side in (("memory extraction", preview.extraction_model), ("summaries", preview.summary_model)):
        if side is not None:
            terminal.line(f"{what} with {shown_model(side.provider, side.model)} ({side.model_profile})")
    terminal.line(f"about {preview.input_tokens:,}{fits} tokens for {model}")
    return 0


def shown_model(provider: str, model: str) -> str:
    """Return ``provider/model``, or the provider if it has only one model, as `offline`."""
    return f"{provider}/{model}" if model else provider


def _line(block: v1.ContextBlock) -> str:
    name = (block.source.name or "").removeprefix("CONTEXT_SOURCE_").lower()
    source = name if name != "unspecified" else "-"
    text = " ".join(block.excerpt.split())
    excerpt = text if len(text) <= _SHORT else text[: _SHORT - 1] + "…"
    return f"{source:<12} {block.source_id:<30} {block.tokens:>7}  {block.path:<28} {excerpt}".rstrip()
