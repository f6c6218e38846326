"""Agents and projects as YAML files that another server understands: names in place of ids.

`definition_files.load` reads them, and `wonder apply` saves them with the definitions of their library.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from wonder_sdk._proto.wonder import v1
from wonder_sdk.definitions import documents
from wonder_sdk.definitions.definition_files import to_yaml
from wonder_sdk.json_types import JsonDict

DEFAULT_PROJECT = "default"
"""The project that every server has."""

_PATH = re.compile(r"[a-z][a-z0-9_.-]*\Z")
_AGENT_FIELDS = ("project_ids", "persona_id", "persona", "metadata", "budget")
_PROJECT_FIELDS = ("repositories", "network", "metadata")


@dataclass(frozen=True, slots=True, kw_only=True)
class Resources:
    """The agents and projects of an export, with notices about what another server may refuse."""

    agents: list[v1.Agent] = field(default_factory=list)
    projects: list[v1.Project] = field(default_factory=list)
    notices: list[str] = field(default_factory=list)


def of_library(
    library: v1.Library,
    definitions: Iterable[v1.Definition],
    agents: Iterable[v1.Agent],
    projects: Iterable[v1.Project],
) -> Resources:
    """Return the agents whose persona is one of ``definitions``, and the projects to which they belong.

    They name their projects, and their persona without the library. The project ``default`` is left out
    unless it has a content.
    """
    ids = {each.id: each.name for each in definitions}
    known = {each.id: each for each in projects}
    found = Resources()
    used: dict[str, v1.Project] = {}
    for agent in agents:
        persona, at, revision = (agent.persona_id or "").partition("@")
        home, _, name = persona.rpartition("/")
        name = ids.get(persona, name)
        if persona not in ids and (not name or home != library.name):
            continue
        if at:
            found.notices.append(
                f"agent {agent.name} has revision {revision} of its persona; a server without it refuses it"
            )
        names = [known[each].name if each in known else each for each in agent.project_ids]
        used.update({each: known[each] for each in agent.project_ids if each in known})
        found.agents.append(
            v1.Agent(
                name=agent.name,
                description=agent.description,
                project_ids=names,
                persona_id=f"{name}{at}{revision}",
                metadata=agent.metadata,
                budget=agent.budget,
            )
        )
    found.projects.extend(each for each in used.values() if each.name != DEFAULT_PROJECT or _content(each))
    return found


def dump_agent(agent: v1.Agent) -> str:
    """Return an agent as the text of a file."""
    return _dump("agent", agent, _AGENT_FIELDS)


def dump_project(project: v1.Project) -> str:
    """Return a project as the text of a file."""
    return _dump("project", project, _PROJECT_FIELDS)


def save(folder: Path, resources: Resources) -> list[Path]:
    """Write one file for each agent and project, in subfolders. Return the files; others remain."""
    texts = {("agents", each.name): dump_agent(each) for each in resources.agents}
    texts |= {("projects", each.name): dump_project(each) for each in resources.projects}
    files = []
    for (subfolder, name), text in texts.items():
        if not _PATH.match(name):
            raise ValueError(f"The server's name {name[:100]!r} is no name of a file.")
        # A file `library.yaml` describes a library; no name begins with an underscore.
        file = folder / subfolder / f"{'_library' if name == 'library' else name}.yaml"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
        files.append(file)
    return files


def _content(resource: v1.Project) -> JsonDict:
    return _fields(resource, _PROJECT_FIELDS)


def _dump(kind: str, resource: v1.Agent | v1.Project, names: tuple[str, ...]) -> str:
    head = {"name": resource.name, "description": resource.description}
    return to_yaml({**{key: value for key, value in head.items() if value}, kind: _fields(resource, names)})


def _fields(resource: v1.Agent | v1.Project, names: tuple[str, ...]) -> JsonDict:
    """Return the fields of these names that have a content."""
    document: Mapping[str, object] = documents.write(resource)
    return {name: document[name] for name in names if document.get(name)}
