"""``wonder agent``: make agents and see which there are."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from wonder_sdk.cli import connection, listing
from wonder_sdk.cli.terminal import Terminal

if TYPE_CHECKING:
    from wonder_sdk import sync

_EXAMPLES = """\
examples:
  wonder agent list
      the agents of the server
  wonder agent create quizmaster --persona acme/trivia/quizmaster
      an agent of its own, with a memory of its own; then: wonder chat --agent quizmaster
"""


def register(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = subparsers.add_parser(
        "agent",
        help="make agents, or list them",
        description="An agent is a persona with a memory. Personas come from libraries: see `wonder apply`.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    verbs = parser.add_subparsers(title="verbs", metavar="VERB", required=True)
    create = verbs.add_parser("create", help="make an agent", description="Make an agent from a persona.")
    create.add_argument("name", help="its name, unique on the server")
    create.add_argument(
        "--persona",
        required=True,
        metavar="LIBRARY/NAME",
        help="persona it is made from; with @REVISION it stays with that revision",
    )
    create.add_argument(
        "--project",
        action="append",
        default=[],
        metavar="NAME",
        help="project it works for (default: default)",
    )
    connection.add_flags(create)
    create.set_defaults(run=connection.connected(run_create))
    lists = verbs.add_parser("list", help="list the agents", description="List the agents of the server.")
    connection.add_flags(lists)
    lists.set_defaults(run=connection.connected(run_list))


def run_create(arguments: argparse.Namespace, client: sync.Client) -> int:
    """Make the agent, and say how to talk to it."""
    from wonder_sdk import v1

    agent = v1.Agent(name=arguments.name, persona_id=arguments.persona, project_ids=arguments.project)
    response = client.library.create_agent(v1.CreateAgentRequest(agent=agent))
    terminal = Terminal()
    terminal.line(f"agent {response.agent.name} created ({response.agent.id})")
    terminal.line(f"talk to it: wonder chat --agent {response.agent.name}", "dim")
    return 0


def run_list(arguments: argparse.Namespace, client: sync.Client) -> int:
    """One line an agent: in columns for people, separated by tabs for programs."""
    from wonder_sdk import v1

    terminal, token = Terminal(), ""
    rows: list[tuple[str, str, str]] = []
    while True:
        page = client.library.list_agents(v1.ListAgentsRequest(page_size=500, page_token=token))
        rows += ((each.name, each.persona_id or "a persona of its own", each.id) for each in page.agents)
        token = page.next_page_token
        if not token:
            break
    listing.show(terminal, rows)
    return 0
