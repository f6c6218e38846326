"""Dependencies in the catalog: the definitions to which a definition refers, and those that refer to it."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Final

from wonder_server.core.definitions.index import DefinitionIndex, leads_to
from wonder_server.core.definitions.references import Reference, agent_mentions, mentions
from wonder_server.core.definitions.resources import Agent, Definition, Library
from wonder_server.core.definitions.specs import Kind, Spec
from wonder_server.core.errors import Reason, error
from wonder_server.ports.catalog import DefinitionQuery
from wonder_server.ports.scoped import ScopedCatalog

NO_LIMIT: Final = 1_000_000
"""A limit above the number of definitions or agents of any catalog."""

_MAX_SINGLE_READS: Final = 8


async def load_dependencies(
    index: DefinitionIndex, catalog: ScopedCatalog, starts: Iterable[tuple[Spec, str]]
) -> set[str]:
    """Load into ``index`` all definitions to which the given specs refer, directly or not. Each spec has the
    library to which its references are relative. References without a definition are recorded as unknown.

    Return the ids and names of the agents that the specs and definitions call."""
    agents: set[str] = set()
    pending = list(starts)
    visited: set[tuple[str, int]] = set()
    while pending:
        spec, library = pending.pop()
        agents.update(agent for _, agent in agent_mentions(spec))
        for reference in list(index.unknown(spec, library)):
            index.put(reference, await catalog.definition(reference))
        for mention in mentions(spec):
            found = index.find(mention.text, library)
            if found is not None and (found.id, found.revision) not in visited:
                visited.add((found.id, found.revision))
                pending.append((found.spec, found.library))
    return agents


async def latest_revisions(
    catalog: ScopedCatalog, library: Library, names: Sequence[str], *, everything: bool
) -> dict[str, Definition]:
    """Return the latest revisions of a library by name: at least those of ``names``, or all."""
    if everything or len(names) > _MAX_SINGLE_READS:
        definitions = await catalog.definitions(DefinitionQuery(library_id=library.id, limit=NO_LIMIT))
        return {definition.name: definition for definition in definitions}
    found = {name: await catalog.definition(Reference(library=library.name, name=name)) for name in names}
    return {name: definition for name, definition in found.items() if definition is not None}


async def refuse_if_used(
    catalog: ScopedCatalog, removed: Collection[Definition], replaced: Collection[Definition]
) -> None:
    """Raise RESOURCE_IN_USE if a remaining definition or agent refers to one of ``removed``.

    ``replaced`` are revisions that the same change saves; they count instead of the stored ones. Older
    revisions do not count."""
    if not removed:
        return
    remaining = {
        definition.id: definition for definition in await catalog.definitions(DefinitionQuery(limit=NO_LIMIT))
    }
    remaining.update({definition.id: definition for definition in replaced})
    for definition in removed:
        remaining.pop(definition.id, None)
    for user in remaining.values():
        for mention in mentions(user.spec):
            _refuse_reference(removed, mention.text, user.library, f"{user.kind} {user.library}/{user.name}")
    for agent in await catalog.agents("", "", NO_LIMIT):
        for text in agent_references(agent):
            _refuse_reference(removed, text, "", f"agent {agent.name}")


async def refuse_if_agent_used(catalog: ScopedCatalog, *keys: str) -> None:
    """Raise RESOURCE_IN_USE if a tool or workflow calls the agent by one of these keys (its id, its name)."""
    kinds = (Kind.TOOL, Kind.WORKFLOW)
    for definition in await catalog.definitions(DefinitionQuery(kinds=kinds, limit=NO_LIMIT)):
        user = f"{definition.kind} {definition.library}/{definition.name}"
        for _, agent in agent_mentions(definition.spec):
            if agent in keys:
                raise error(
                    Reason.RESOURCE_IN_USE,
                    f"The {user} calls the agent '{agent}'. Change or delete the {user} first.",
                )


def agent_references(agent: Agent) -> list[str]:
    """Return the references of an agent to definitions, including those of an inline persona."""
    if agent.persona is not None:
        return [mention.text for mention in mentions(agent.persona)]
    return [agent.persona_id]


def _refuse_reference(removed: Collection[Definition], text: str, library: str, user: str) -> None:
    for definition in removed:
        if leads_to(text, library, definition):
            raise error(
                Reason.RESOURCE_IN_USE,
                f"The {user.replace('_', ' ')} uses {definition.library}/{definition.name}. Change it first.",
            )
