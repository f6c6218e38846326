"""The check of an agent's projects against the agents that its tools call, when it is saved (feature A5).

A persona of a library belongs to no project, so its tools are checked for each agent that has it. An agent
that does not exist yet is no fault: it may be created later. Each call checks the projects again.
"""

from __future__ import annotations

from wonder_server.core.definitions.index import DefinitionIndex
from wonder_server.core.definitions.references import parse_reference
from wonder_server.core.definitions.resources import Agent
from wonder_server.core.definitions.specs import Persona, Tool
from wonder_server.core.errors import Reason, error
from wonder_server.ports.scoped import ScopedCatalog
from wonder_server.services.catalog.dependencies import load_dependencies


def may_call_others(agent: Agent, stored: Agent | None) -> bool:
    """Return True if an agent that is saved has another persona or other projects than before."""
    if stored is None:
        return True
    before = (stored.persona_id, stored.persona, set(stored.project_ids))
    return (agent.persona_id, agent.persona, set(agent.project_ids)) != before


async def check_called_agents(catalog: ScopedCatalog, agent: Agent) -> None:
    """Raise FIELD_INVALID if a tool of the agent calls an existing agent that shares no project with it.

    ``project_ids`` of the agent are ids. Workflows behind tools count too.
    """
    persona, library = await _persona(catalog, agent)
    index = DefinitionIndex()
    if persona is None or not await load_dependencies(index, catalog, [(persona, library)]):
        return
    for reference in persona.tool_ids:
        tool = index.find(reference, library)
        if tool is None or not isinstance(tool.spec, Tool):
            continue
        for key in sorted(await load_dependencies(DefinitionIndex(), catalog, [(tool.spec, tool.library)])):
            called = await catalog.agent(key)
            if called is None or called.id == agent.id or set(called.project_ids) & set(agent.project_ids):
                continue
            raise error(
                Reason.FIELD_INVALID,
                f"The tool '{reference}' of its persona calls the agent '{called.name}', which belongs to no "
                "project of this agent. An agent calls only agents with which it shares a project.",
                field="agent.project_ids",
                agent_id=called.id,
            )


async def _persona(catalog: ScopedCatalog, agent: Agent) -> tuple[Persona | None, str]:
    """Return the persona of an agent, and the library to which its references are relative."""
    if agent.persona is not None:
        return agent.persona, ""
    reference = parse_reference(agent.persona_id)
    found = None if reference is None else await catalog.definition(reference)
    if found is None or not isinstance(found.spec, Persona):
        return None, ""
    return found.spec, found.library
