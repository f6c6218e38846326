"""``wonder agent``: create, list, show and delete agents, and set their budgets."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

from wonder_sdk.cli.shared import connection, deletion, listing
from wonder_sdk.cli.shared.parser import add_examples
from wonder_sdk.cli.shared.terminal import Terminal
from wonder_sdk.cli.shared.text_summary import counted

if TYPE_CHECKING:
    from wonder_sdk import sync, v1

_EXAMPLES = """\
examples:
  wonder agent list
      List the agents of the server.
  wonder agent create quizmaster --persona acme/trivia/quizmaster
      Create an agent with its own memory. Talk to it: wonder chat --agent quizmaster
  wonder agent show quizmaster
      Show the agent, its lifetime usage and its budget.
  wonder agent budget quizmaster --tokens 5000000 --cost 20
      Limit the agent's lifetime usage to 5 million tokens and 20 dollars; `--none` removes the limits.
  wonder agent delete quizmaster
      Delete the agent and its memories; --yes skips the confirmation.
"""

_MICROS = 1_000_000


def register(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = subparsers.add_parser(
        "agent",
        help="Create, list, show and delete agents, and set their budgets.",
        description="Manage agents. An agent is a persona with a memory; libraries contain personas (see "
        "`wonder apply`).",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    verbs = parser.add_subparsers(title="verbs", metavar="VERB", required=True)
    create = verbs.add_parser(
        "create", help="Create an agent.", description="Create an agent from a persona."
    )
    create.add_argument("name", help="Name of the new agent, unique on the server.")
    create.add_argument(
        "--persona",
        required=True,
        metavar="LIBRARY/NAME",
        help="Create the agent from this persona; @REVISION pins a revision.",
    )
    create.add_argument(
        "--project",
        action="append",
        default=[],
        metavar="NAME",
        help="Let the agent work for this project; repeatable (default: default).",
    )
    connection.connect(create, run_create)
    delete = verbs.add_parser(
        "delete", help="Delete an agent.", description="Delete an agent and its memories."
    )
    delete.add_argument("name", help="Name or id of the agent.")
    deletion.add_yes(delete)
    connection.connect(delete, run_delete)
    lists = verbs.add_parser("list", help="List the agents.", description="List the agents of the server.")
    connection.connect(lists, run_list)
    show = verbs.add_parser(
        "show", help="Show an agent.", description="Show an agent, its usage and its budget."
    )
    show.add_argument("name", help="Name or id of the agent.")
    show.add_argument("--json", action="store_true", help="Print the complete agent as JSON.")
    connection.connect(show, run_show)
    _register_budget(verbs)
    add_examples(verbs, _EXAMPLES)


def _register_budget(verbs: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    budget = verbs.add_parser(
        "budget",
        help="Set an agent's budget.",
        description="Limit an agent's lifetime usage over all conversations, including its past usage. A "
        "limit that is not given is removed. The budget applies to turns that start later. The server checks "
        "it before each model call. It asks the last call that fits (an estimate) to answer without tools; "
        "that answer may still exceed the budget. Further turns fail with BUDGET_EXHAUSTED until the budget "
        "is raised.",
    )
    budget.add_argument("name", help="Name or id of the agent.")
    budget.add_argument(
        "--tokens", type=_amount(1), default=0, metavar="N", help="Allow at most N input and output tokens."
    )
    budget.add_argument(
        "--cost",
        type=_amount(_MICROS),
        default=0,
        metavar="DOLLARS",
        help="Allow at most this cost in US dollars.",
    )
    budget.add_argument(
        "--time",
        type=_amount(1_000),
        default=0,
        metavar="SECONDS",
        help="Allow at most this working time, in seconds.",
    )
    budget.add_argument("--none", action="store_true", help="Remove all limits.")
    connection.connect(budget, run_budget)


def _amount(unit: int) -> Callable[[str], int]:
    """Return a parser of a positive amount, which it multiplies by ``unit``."""

    def read(text: str) -> int:
        try:
            amount = round(float(text) * unit)
        except (ValueError, OverflowError):
            amount = 0
        if not 0 < amount <= 2**53:
            raise argparse.ArgumentTypeError(f"{text!r} is not a number above 0")
        return amount

    return read


def run_create(arguments: argparse.Namespace, client: sync.Client) -> int:
    """Create the agent, and print the command to talk to it."""
    from wonder_sdk import v1

    agent = v1.Agent(name=arguments.name, persona_id=arguments.persona, project_ids=arguments.project)
    response = client.library.create_agent(v1.CreateAgentRequest(agent=agent))
    terminal = Terminal()
    terminal.line(f"agent {response.agent.name} created ({response.agent.id})")
    terminal.line(f"talk to it: wonder chat --agent {response.agent.name}", "dim")
    return 0


def run_list(arguments: argparse.Namespace, client: sync.Client) -> int:
    """Print one line for each agent."""
    from wonder_sdk import v1

    pages = listing.pages(client.library.list_agents, v1.ListAgentsRequest(page_size=500))
    listing.show(
        Terminal(),
        ((each.name, each.persona_id or "inline persona", each.id) for page in pages for each in page.agents),
        nothing="you see no agents",
    )
    return 0


def run_delete(arguments: argparse.Namespace, client: sync.Client) -> int:
    """Delete the agent after confirmation; see `deletion.refusal`."""
    from wonder_sdk import v1

    agent = _get(client, arguments.name)
    if code := deletion.refusal(arguments, f"{agent.name} and its memories"):
        return code
    client.library.delete_agent(v1.DeleteAgentRequest(agent_id=agent.id))
    Terminal().line(f"agent {agent.name} deleted")
    return 0


def run_show(arguments: argparse.Namespace, client: sync.Client) -> int:
    agent = _get(client, arguments.name)
    if arguments.json:
        Terminal().line(connection.as_json(agent))
    else:
        _show(client, agent)
    return 0


def run_budget(arguments: argparse.Namespace, client: sync.Client) -> int:
    """Set or remove the budget. Exit code 2 without a limit, and with both a limit and ``--none``."""
    from wonder_sdk import v1
    from wonder_sdk._proto.google import protobuf

    limited = bool(arguments.tokens or arguments.cost or arguments.time)
    if limited == arguments.none:
        print("wonder: set --tokens, --cost or --time, or --none", file=sys.stderr)
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
    """Return the project's name, or its id if it does not exist any more."""
    from wonder_sdk import NotFoundError, v1

    try:
        found = client.library.get_project(v1.GetProjectRequest(project_id=project_id)).project
    except NotFoundError:
        return project_id
    return str(found.name)


def _show(client: sync.Client, agent: v1.Agent) -> None:
    """Print the agent, its projects, its usage and its budget."""
    terminal, usage, budget = Terminal(), agent.usage, agent.budget
    terminal.line(f"agent {agent.name} ({agent.id})")
    terminal.line(f"persona: {agent.persona_id or 'inline persona'}")
    names = [_project(client, each) for each in agent.project_ids]
    terminal.line(f"{'project' if len(names) == 1 else 'projects'}: {', '.join(names)}")
    if agent.description:
        terminal.line(agent.description)
    if usage is not None:
        tokens = usage.input_tokens + usage.output_tokens
        cost = "unknown" if usage.cost_micros is None else f"${usage.cost_micros / _MICROS:.4f}"
        terminal.line(
            f"usage: {counted(tokens, 'token')} in {counted(usage.model_calls, 'model call')}, cost {cost}"
        )
    limits = []
    if budget is not None and budget.max_tokens:
        limits.append(counted(budget.max_tokens, "token"))
    if budget is not None and budget.max_cost_micros:
        limits.append(f"${budget.max_cost_micros / _MICROS:.2f}")
    if budget is not None and budget.max_duration_ms:
        limits.append(f"{budget.max_duration_ms / 1_000:g} s")
    terminal.line(f"budget: {', '.join(limits) or 'unlimited'}")
    for failure in agent.failing_hooks:
        _show_failing_hook(terminal, failure)


def _show_failing_hook(terminal: Terminal, failure: v1.HookFailure) -> None:
    name = str(failure.hook.name).lower().replace("_", " ")
    since = f" since {failure.first_time:%Y-%m-%d %H:%M} UTC" if failure.first_time is not None else ""
    times = counted(failure.count, "time") + (" in a row" if failure.count > 1 else "")
    problem = failure.error.message if failure.error is not None else ""
    terminal.line(f"{name} failed {times}{since} ({failure.workflow}): {problem}", "red")
    terminal.line(f"  the last run: wonder runs show {failure.run_id}", "dim")
