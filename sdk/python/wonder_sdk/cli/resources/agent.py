"""``wonder agent``: make agents, see which there are, what they have spent and may spend."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

from wonder_sdk.cli.shared import connection, listing
from wonder_sdk.cli.shared.terminal import Terminal

if TYPE_CHECKING:
    from wonder_sdk import sync, v1

_EXAMPLES = """\
examples:
  wonder agent list
      the agents of the server
  wonder agent create quizmaster --persona acme/trivia/quizmaster
      an agent of its own, with a memory of its own; then: wonder chat --agent quizmaster
  wonder agent show quizmaster
      what it is, what it has spent in its life, and what it may spend
  wonder agent budget quizmaster --tokens 5000000 --cost 20
      no more than 5 million tokens and 20 dollars in its life; `--none`: as much as it likes
"""

_MICROS = 1_000_000


def register(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = subparsers.add_parser(
        "agent",
        help="make agents, list them, limit what they spend",
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
    delete = verbs.add_parser(
        "delete", help="delete an agent", description="Delete an agent and all that it remembers."
    )
    delete.add_argument("name", help="its name, or its id")
    delete.add_argument("-y", "--yes", action="store_true", help="do not ask")
    connection.add_flags(delete)
    delete.set_defaults(run=connection.connected(run_delete))
    lists = verbs.add_parser("list", help="list the agents", description="List the agents of the server.")
    connection.add_flags(lists)
    lists.set_defaults(run=connection.connected(run_list))
    show = verbs.add_parser("show", help="what an agent is and has spent", description="Show an agent.")
    show.add_argument("name", help="its name, or its id")
    connection.add_flags(show)
    show.set_defaults(run=connection.connected(run_show))
    budget = verbs.add_parser(
        "budget",
        help="limit what an agent spends",
        description="What an agent may spend in its life, over all its conversations; what it has spent "
        "already counts. What is not given is not limited. A new budget holds for turns that start from then "
        "on. It is looked at before each call of a model: the last that fits, by an estimate, is asked to "
        "answer without tools, and its answer may still go beyond the budget. Then no turn of the agent "
        "begins (BUDGET_EXHAUSTED) until the budget is raised.",
    )
    budget.add_argument("name", help="its name, or its id")
    budget.add_argument("--tokens", type=_amount(1), default=0, metavar="N", help="most tokens")
    budget.add_argument("--cost", type=_amount(_MICROS), default=0, metavar="DOLLARS", help="most US dollars")
    budget.add_argument("--time", type=_amount(1_000), default=0, metavar="SECONDS", help="most time at work")
    budget.add_argument("--none", action="store_true", help="as much as it likes")
    connection.add_flags(budget)
    budget.set_defaults(run=connection.connected(run_budget))


def _amount(unit: int) -> Callable[[str], int]:
    """Reads how much of something there may be at most, in so many parts of it."""

    def read(text: str) -> int:
        try:
            amount = round(float(text) * unit)
        except (ValueError, OverflowError):
            amount = 0
        if not 0 < amount <= 2**53:
            raise argparse.ArgumentTypeError(f"{text!r} is no number above 0")
        return amount

    return read


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


def run_delete(arguments: argparse.Namespace, client: sync.Client) -> int:
    """1, and nothing is deleted, if who was asked says no."""
    from wonder_sdk import v1

    agent, terminal = _get(client, arguments.name), Terminal()
    if not arguments.yes and not terminal.confirm(f"Delete {agent.name} and all that it remembers?"):
        return 1
    client.library.delete_agent(v1.DeleteAgentRequest(agent_id=agent.id))
    terminal.line(f"agent {agent.name} deleted")
    return 0


def run_show(arguments: argparse.Namespace, client: sync.Client) -> int:
    _show(client, _get(client, arguments.name))
    return 0


def run_budget(arguments: argparse.Namespace, client: sync.Client) -> int:
    """2 if nothing is said, or two things at once."""
    from wonder_sdk import v1
    from wonder_sdk._proto.google import protobuf

    limited = bool(arguments.tokens or arguments.cost or arguments.time)
    if limited == arguments.none:
        print("wonder: give --tokens, --cost or --time, or else --none", file=sys.stderr)
        return 2
    budget = v1.Budget(
        max_tokens=arguments.tokens, max_cost_micros=arguments.cost, max_duration_ms=arguments.time
    )
    agent = v1.Agent(id=_get(client, arguments.name).id, budget=budget if limited else None)
    request = v1.UpdateAgentRequest(agent=agent, update_mask=protobuf.FieldMask(paths=["budget"]))
    _show(client, client.library.update_agent(request).agent)
    return 0


def _get(client: sync.Client, key: str) -> v1.Agent:
    from wonder_sdk import v1

    agent: v1.Agent = client.library.get_agent(v1.GetAgentRequest(agent_id=key)).agent
    return agent


def _project(client: sync.Client, project_id: str) -> str:
    """The project's name; its id if it is no more."""
    from wonder_sdk import NotFoundError, v1

    try:
        found = client.library.get_project(v1.GetProjectRequest(project_id=project_id)).project
    except NotFoundError:
        return project_id
    return str(found.name)


def _show(client: sync.Client, agent: v1.Agent) -> None:
    """The agent, where it works, what it has spent, and what it may."""
    terminal, usage, budget = Terminal(), agent.usage, agent.budget
    terminal.line(f"agent {agent.name} ({agent.id})")
    terminal.line(f"persona: {agent.persona_id or 'a persona of its own'}")
    names = [_project(client, each) for each in agent.project_ids]
    terminal.line(f"{'project' if len(names) == 1 else 'projects'}: {', '.join(names)}")
    if agent.description:
        terminal.line(agent.description)
    if usage is not None:
        tokens = usage.input_tokens + usage.output_tokens
        cost = "unknown" if usage.cost_micros is None else f"${usage.cost_micros / _MICROS:.4f}"
        terminal.line(f"spent: {tokens:,} tokens in {usage.model_calls:,} calls of models, cost {cost}")
    limits = []
    if budget is not None and budget.max_tokens:
        limits.append(f"{budget.max_tokens:,} tokens")
    if budget is not None and budget.max_cost_micros:
        limits.append(f"${budget.max_cost_micros / _MICROS:.2f}")
    if budget is not None and budget.max_duration_ms:
        limits.append(f"{budget.max_duration_ms / 1_000:g} s")
    terminal.line(f"may spend: {', '.join(limits) or 'as much as it likes'}")
