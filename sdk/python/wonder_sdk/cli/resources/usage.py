"""``wonder usage``: show what models have cost."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from wonder_sdk.cli.shared import connection
from wonder_sdk.cli.shared.terminal import Terminal
from wonder_sdk.cli.shared.text_summary import counted

if TYPE_CHECKING:
    from wonder_sdk import sync, v1

_EXAMPLES = """\
examples:
  wonder usage
      Show the usage of the project default, in all conversations and runs.
  wonder usage conv_01J9...
      Show the usage of a conversation. Turns, runs, agents and projects have ids of their own too.
  wonder usage assistant --json
      Print the usage of an agent as JSON.
"""
_MICROS = 1_000_000


def register(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = subparsers.add_parser(
        "usage",
        help="Show tokens, calls and cost.",
        description="Show the usage of models by a project, agent, conversation, turn or run.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "of",
        nargs="?",
        default="",
        help="Id of a project, agent, conversation, turn or run, or name of an agent (default: the project "
        "default).",
    )
    parser.add_argument("--project", default="", metavar="NAME", help="Show the usage of this project.")
    parser.add_argument("--json", action="store_true", help="Print the usage as JSON.")
    connection.connect(parser, run)


def run(arguments: argparse.Namespace, client: sync.Client) -> int:
    """Print the usage. Without model calls, print a zero usage."""
    from wonder_sdk import v1

    usage = usage_of(client, arguments.project or arguments.of or "default", bool(arguments.project))
    usage, terminal = usage or v1.Usage(cost_micros=0), Terminal()
    if arguments.json:
        terminal.line(connection.as_json(usage))
    else:
        for line in usage_lines(usage):
            terminal.line(line)
    return 0


def usage_of(client: sync.Client, name: str, is_project: bool = False) -> v1.Usage | None:
    """Return the usage of a project, agent, conversation, turn or run; None if it has none."""
    from wonder_sdk import v1

    found: v1.Usage | None
    if is_project or name.startswith("proj_") or name == "default":
        found = client.library.get_project(v1.GetProjectRequest(project_id=name)).project.usage
    elif name.startswith("conv_"):
        request = v1.GetConversationRequest(conversation_id=name)
        found = client.conversations.get_conversation(request).conversation.usage
    elif name.startswith("turn_"):
        found = client.conversations.get_turn(v1.GetTurnRequest(turn_id=name)).turn.usage
    elif name.startswith("run_"):
        found = client.get_run(name).usage
    else:
        found = client.library.get_agent(v1.GetAgentRequest(agent_id=name)).agent.usage
    return found


def usage_lines(usage: v1.Usage) -> list[str]:
    """Return the lines that show a usage."""
    cost = "unknown" if usage.cost_micros is None else f"${usage.cost_micros / _MICROS:.4f}"
    if usage.cost_unknown:
        cost = f"unknown, since {counted(usage.cost_unknown, 'call')} had no known price"
    lines = [
        f"calls: {usage.model_calls}",
        f"input: {counted(usage.input_tokens, 'token')}, {usage.cached_input_tokens} from the cache, "
        f"{usage.cache_write_input_tokens} written to it",
        f"output: {counted(usage.output_tokens, 'token')}, {usage.reasoning_tokens} of reasoning",
        f"cost: {cost}",
    ]
    return lines
