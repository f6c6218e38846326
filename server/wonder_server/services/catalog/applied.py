"""Agents and projects that are saved together with the definitions of a library."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Final, TypeVar, cast

from wonder_server.core.definitions.diff import diff_of
from wonder_server.core.definitions.parse import to_json
from wonder_server.core.definitions.references import Reference, parse_reference
from wonder_server.core.definitions.resources import Agent, Definition, Project
from wonder_server.core.errors import Reason, WonderError, error
from wonder_server.core.json_types import JsonDict
from wonder_server.core.paths import hide_passwords
from wonder_server.ports.catalog import Change, DefinitionQuery, Put
from wonder_server.ports.scoped import ScopedCatalog
from wonder_server.services.catalog.agents import Agents
from wonder_server.services.catalog.called_agents import check_called_agents, may_call_others
from wonder_server.services.catalog.projects import Projects
from wonder_server.services.catalog.transactions import Stamp

MAX_RESOURCES: Final = 100
"""Maximum number of agents, and of projects, of one request."""

_SET_BY_SERVER: Final = ("id", "version", "created_ms", "updated_ms", "updated_by")

R = TypeVar("R", Agent, Project)


@dataclass(frozen=True, slots=True, kw_only=True)
class WantedResources:
    """Agents and projects to save, each by its name with the function that edits the stored one."""

    agents: Sequence[tuple[str, Callable[[Agent], Agent]]] = ()
    projects: Sequence[tuple[str, Callable[[Project], Project]]] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourceChange:
    """The effect on one agent or project. ``action`` is ``created``, ``updated`` or ``unchanged``; ``type``
    is ``agent`` or ``project``."""

    action: str
    type: str
    name: str
    id: str
    diff: tuple[str, ...] = ()


class AppliedResources:
    """Plans the agents and projects of a request, as they are after its definitions."""

    def __init__(self, catalog: ScopedCatalog, agents: Agents, projects: Projects) -> None:
        self._catalog = catalog
        self._agents = agents
        self._projects = projects

    async def plan(
        self,
        wanted: WantedResources,
        library: str,
        saved: Sequence[Definition],
        removed: Sequence[Definition],
        stamp: Stamp,
    ) -> tuple[list[Change], list[ResourceChange]]:
        """Return the changes to commit, and what they mean. ``saved`` and ``removed`` are the definitions of
        the same request.

        Raises the errors of creating and updating agents and projects, with fields such as
        ``agents[2].persona_id``."""
        check_names("projects", [name for name, _ in wanted.projects])
        check_names("agents", [name for name, _ in wanted.agents])
        changes: list[Change] = []
        reported: list[ResourceChange] = []
        overlay = _Overlay(self._catalog, saved, removed)
        before_and_after: list[tuple[Agent | None, Agent]] = []
        for index, (name, edit) in enumerate(wanted.projects):
            with placed("project", f"projects[{index}]"):
                before, after = await self._projects.planned(name, edit, stamp)
            overlay.projects_of_request[name] = overlay.projects_of_request[after.id] = after
            _add(changes, reported, "project", before, after)
        for index, (name, edit_agent) in enumerate(wanted.agents):
            with placed("agent", f"agents[{index}]"):
                known, made = await self._agents.planned(
                    name, _in_library(edit_agent, library), cast("ScopedCatalog", overlay), stamp
                )
            overlay.agents_of_request[name] = overlay.agents_of_request[made.id] = made
            before_and_after.append((known, made))
            _add(changes, reported, "agent", known, made)
        # Last, since agents of the request may call each other.
        for index, (known, made) in enumerate(before_and_after):
            if saved or may_call_others(made, known):
                with placed("agent", f"agents[{index}]"):
                    await check_called_agents(cast("ScopedCatalog", overlay), made)
        return changes, reported


class _Overlay:
    """The catalog as it will be after the request: what checks of agents read of `ScopedCatalog`."""

    def __init__(
        self, catalog: ScopedCatalog, saved: Sequence[Definition], removed: Sequence[Definition]
    ) -> None:
        self._catalog = catalog
        self._saved = {key: each for each in saved for key in (each.id, (each.library, each.name))}
        self._removed: Collection[str] = {each.id for each in removed}
        self.projects_of_request: dict[str, Project] = {}
        self.agents_of_request: dict[str, Agent] = {}

    async def definition(self, reference: Reference) -> Definition | None:
        found = self._saved.get(reference.definition_id or (reference.library, reference.name))
        if found is not None and reference.revision in (0, found.revision):
            return found
        stored = await self._catalog.definition(reference)
        return None if stored is not None and stored.id in self._removed else stored

    async def definitions(self, query: DefinitionQuery) -> Sequence[Definition]:
        return await self._catalog.definitions(query)

    async def agent(self, key: str) -> Agent | None:
        return self.agents_of_request.get(key) or await self._catalog.agent(key)

    async def project(self, key: str) -> Project | None:
        return self.projects_of_request.get(key) or await self._catalog.project(key)

    async def projects(self, before: str, limit: int) -> Sequence[Project]:
        return await self._catalog.projects(before, limit)


def check_names(field: str, names: Sequence[str]) -> None:
    """Raise LIMIT_EXCEEDED for too many names, and FIELD_INVALID for a name that occurs twice."""
    if len(names) > MAX_RESOURCES:
        message = f"The request has {len(names)} {field}; the maximum is {MAX_RESOURCES}."
        raise error(Reason.LIMIT_EXCEEDED, message, field=field)
    for index, name in enumerate(names):
        if name in names[:index]:
            message = f"Two {field} have the name '{name[:100]}'. Each is saved once."
            raise error(Reason.FIELD_INVALID, message, field=f"{field}[{index}].name")


@contextmanager
def placed(field: str, place: str) -> Iterator[None]:
    """Give the fields of errors their place in the request: ``agent.name`` becomes ``agents[1].name``."""
    try:
        yield
    except WonderError as problem:
        faults = [
            replace(fault, field=f"{place}{fault.field.removeprefix(field)}")
            if fault.field.startswith(field)
            else replace(fault, field=fault.field or place)
            for fault in problem.faults
        ]
        raise WonderError(faults[0], faults=tuple(faults)) from None


def _in_library(edit: Callable[[Agent], Agent], library: str) -> Callable[[Agent], Agent]:
    """Return the edit with a persona of ``library`` if it names none."""

    def edited(stored: Agent) -> Agent:
        agent = edit(stored)
        reference = parse_reference(agent.persona_id)
        if reference is None or reference.library or reference.definition_id:
            return agent
        return replace(agent, persona_id=f"{library}/{agent.persona_id}")

    return edited


def _add(
    changes: list[Change], reported: list[ResourceChange], kind: str, before: R | None, after: R
) -> None:
    action = "created" if before is None else "updated"
    if after is before:
        action = "unchanged"
    else:
        changes.append(Put(after))
    shown = None if before is None else _document(before)
    lines = () if after is before else tuple(diff_of(shown, _document(after)).splitlines())
    reported.append(ResourceChange(action=action, type=kind, name=after.name, id=after.id, diff=lines))


def _document(resource: Agent | Project) -> JsonDict:
    document = {key: value for key, value in to_json(resource).items() if key not in _SET_BY_SERVER}
    for repository in document.get("repositories", ()):
        repository["url"] = hide_passwords(repository["url"])
    return document
