"""What hangs together in the catalog: all that a definition leads to, and all that leads to it."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Final

from wonder_server.core.definitions.index import DefinitionIndex, leads_to
from wonder_server.core.definitions.references import Reference, agent_mentions, mentions
from wonder_server.core.definitions.resources import Agent, Definition, Library
from wonder_server.core.definitions.specs import Kind, Spec
from wonder_server.core.errors import Reason, error
from wonder_server.ports.catalog import Catalog, DefinitionQuery, Definitions

NO_LIMIT: Final = 1_000_000
"""A limit for "everything": more definitions or agents than one catalog holds."""

_MAX_SINGLE_READS: Final = 8


async def load_dependencies(
    shelf: DefinitionIndex, catalog: Definitions, starts: Iterable[tuple[Spec, str]]
) -> set[str]:
    """Put on the shelf all that the given specs lead to, directly or not. Each comes with the library
    that its references start from. What leads nowhere is noted as such.

    The answer is the ids and names of the agents that any of them calls.
    """
    agents: set[str] = set()
    pending = list(starts)
    visited: set[tuple[str, int]] = set()
    while pending:
        spec, library = pending.pop()
        agents.update(agent for _, agent in agent_mentions(spec))
        for reference in list(shelf.unknown(spec, library)):
            shelf.put(reference, await catalog.definition(reference))
        for mention in mentions(spec):
            found = shelf.find(mention.text, library)
            if found is not None and (found.id, found.revision) not in visited:
                visited.add((found.id, found.revision))
                pending.append((found.spec, found.library))
    return agents


async def latest_revisions(
    catalog: Definitions, library: Library, names: Sequence[str], *, everything: bool
) -> dict[str, Definition]:
    """The newest revisions in a library by name: at least those named, or everything."""
    if everything or len(names) > _MAX_SINGLE_READS:
        definitions = await catalog.definitions(DefinitionQuery(library_id=library.id, limit=NO_LIMIT))
        return {definition.name: definition for definition in definitions}
    found = {name: await catalog.definition(Reference(library=library.name, name=name)) for name in names}
    return {name: definition for name, definition in found.items() if definition is not None}


async def refuse_if_used(
    catalog: Catalog, removed: Collection[Definition], replaced: Collection[Definition]
) -> None:
    """RESOURCE_IN_USE if anything that stays refers to one of ``gone``.

    ``replaced`` are revisions that are being saved at the same time; they count instead of those that
    the catalog still holds. Older revisions do not count.
    """
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


async def refuse_if_agent_used(catalog: Catalog, *keys: str) -> None:
    """RESOURCE_IN_USE if a tool or a workflow calls the agent of one of these keys (its id, its name)."""
    kinds = (Kind.TOOL, Kind.WORKFLOW)
    for definition in await catalog.definitions(DefinitionQuery(kinds=kinds, limit=NO_LIMIT)):
        user = f"{definition.kind} {definition.library}/{definition.name}"
        for _, agent in agent_mentions(definition.spec):
            if agent in keys:
                raise error(Reason.RESOURCE_IN_USE, f"The {user} calls the agent '{agent}'.")


def agent_references(agent: Agent) -> list[str]:
    """The references to definitions that an agent holds, inline persona included."""
    if agent.persona is not None:
        return [mention.text for mention in mentions(agent.persona)]
    return [agent.persona_id]


def _refuse_reference(removed: Collection[Definition], text: str, library: str, user: str) -> None:
    for definition in removed:
        if leads_to(text, library, definition):
            raise error(
                Reason.RESOURCE_IN_USE,
                f"{definition.library}/{definition.name} is used by the {user.replace('_', ' ')}.",
            )
