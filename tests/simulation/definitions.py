"""Agents and workflows of the simulation, pinned once for all seeds.

The workflows are those of the kill tests (`tests.e2e.corpus`), whose outcome does not depend on time or
order, and those of `tests.simulation.library`.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Final

import yaml

from tests.e2e import corpus
from tests.services.catalog.library_kit import STANDARD, make
from tests.simulation.event_loop import SeededLoop
from tests.simulation.library import AGENTS
from wonder_server.adapters.in_memory.catalog import MemoryCatalog
from wonder_server.core import ids
from wonder_server.core.budget import NO_BUDGET, Budget
from wonder_server.core.definitions.document import parse_draft
from wonder_server.core.definitions.resources import Agent
from wonder_server.core.definitions.specs import PinnedAgent, PinnedWorkflow
from wonder_server.core.errors import Reason, error

PERSONAS: Final = {
    "colleague": "plain",
    "host": "host",
    "thorough": "thorough",
    "forgetful": "forgetful",
    "sliding": "sliding",
    "thrifty": "plain",
}
"""The persona of each agent."""
MAX_TOKENS: Final = 120
"""Budget of the agent ``thrifty``, and of conversations with a budget. A turn uses about 40."""
OWN_WORKFLOWS: Final = ("worked", "far", "hurried")


@dataclass(frozen=True)
class Definitions:
    """Pinned agents and workflows. Implements the ports ``AgentPinning`` and ``WorkflowPinning``."""

    agents: Mapping[str, PinnedAgent]
    """By name and by id."""
    workflows: Mapping[str, PinnedWorkflow]

    async def pin_agent(self, agent: str) -> PinnedAgent:
        found = self.agents.get(agent)
        if found is None:
            raise error(Reason.AGENT_NOT_FOUND, f"There is no agent {agent!r}.")
        return found

    async def pin_workflow(self, reference: str) -> PinnedWorkflow:
        found = self.workflows.get(reference)
        if found is None:
            raise error(Reason.DEFINITION_NOT_FOUND, f"There is no workflow {reference!r}.")
        return found


@cache
def definitions() -> Definitions:
    """Return the definitions, checked and pinned by the catalog's own code."""
    with ids.entropy_from(random.Random(0).randbytes):
        return SeededLoop(random.Random(0)).run(_pin())


async def _pin() -> Definitions:
    library = make(MemoryCatalog())
    await library.ensure_standard(STANDARD)
    await library.definitions.apply("sim", _drafts(AGENTS))
    for name, persona in PERSONAS.items():
        persona_id = f"sim/{persona}"
        budget = Budget(max_tokens=MAX_TOKENS) if name == "thrifty" else NO_BUDGET
        await library.agents.create(
            Agent(id="", name=name, project_ids=(), persona_id=persona_id, budget=budget)
        )
    await library.definitions.apply(corpus.LIBRARY, _drafts(f"{corpus.TASKS}---{corpus.WORKFLOWS}"))
    persona_id = f"{corpus.LIBRARY}/quiet"
    await library.agents.create(Agent(id="", name="quiet", project_ids=(), persona_id=persona_id))
    agents = [await library.pin_agent(name) for name in (*PERSONAS, "quiet")]
    names = [case.workflow for case in corpus.CORPUS]
    workflows = {name: await library.pin_workflow(f"{corpus.LIBRARY}/{name}") for name in names}
    workflows |= {name: await library.pin_workflow(f"sim/{name}") for name in OWN_WORKFLOWS}
    return Definitions(
        {key: agent for agent in agents for key in (agent.name, agent.agent_id)},
        {key: pinned for name, pinned in workflows.items() for key in (name, pinned.pin.definition_id)},
    )


def _drafts(text: str) -> list[object]:
    return [parse_draft(document) for document in yaml.safe_load_all(text)]
