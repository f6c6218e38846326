"""The standard library, project and agent of every server (feature K1)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import yaml

from wonder_server.core.definitions.document import DefinitionDraft, parse_draft
from wonder_server.core.definitions.fault_list import under
from wonder_server.core.definitions.resources import DEFAULT_PROJECT, STANDARD_LIBRARY, Agent, Project
from wonder_server.core.errors import Fault, Reason, WonderError, error
from wonder_server.core.json_types import JsonDict
from wonder_server.services.catalog.agents import Agents
from wonder_server.services.catalog.definitions import Definitions
from wonder_server.services.catalog.projects import Projects

STANDARD_DESCRIPTION = "Definitions that every server has: an assistant, its tools and its two hooks."
DEFAULT_PROJECT_DESCRIPTION = "The project of agents, conversations and runs that name no other."
STANDARD_AGENT = "assistant"
LIBRARY_FILE = "library.yaml"
STANDARD_PERSONA = f"{STANDARD_LIBRARY}/assistant"


async def ensure_standard(folder: Path, definitions: Definitions, agents: Agents, projects: Projects) -> None:
    """Apply the definitions in ``folder`` to the standard library, and create what every tenant has.
    Definitions without changes keep their revision."""
    with _ignore_existing():
        await definitions.create_library(STANDARD_LIBRARY, STANDARD_DESCRIPTION)
    await definitions.apply(STANDARD_LIBRARY, read_folder(folder))
    await ensure_default_project(projects)
    await ensure_default_agent(agents)


async def ensure_default_project(projects: Projects) -> None:
    """Create the project ``default`` of a tenant if it does not exist."""
    with _ignore_existing():
        await projects.create(Project(id="", name=DEFAULT_PROJECT, description=DEFAULT_PROJECT_DESCRIPTION))


async def ensure_default_agent(agents: Agents) -> None:
    """Create the agent ``assistant`` of a tenant, in its project ``default``, if it does not exist."""
    with _ignore_existing():
        await agents.create(Agent(id="", name=STANDARD_AGENT, project_ids=(), persona_id=STANDARD_PERSONA))


@contextmanager
def _ignore_existing() -> Iterator[None]:
    try:
        yield
    except WonderError as problem:
        if problem.fault.reason is not Reason.ALREADY_EXISTS:
            raise


def read_folder(folder: Path) -> list[DefinitionDraft]:
    """Return the definitions in the ``*.yaml`` files of a folder and its subfolders, by file name, without
    ``library.yaml``, which names the library for the command line.

    Raises DEFINITION_INVALID; the field of each fault starts with the file name."""
    drafts: list[DefinitionDraft] = []
    faults: list[Fault] = []
    for path in sorted(folder.rglob("*.yaml")):
        name = path.relative_to(folder).as_posix()
        if path.name == LIBRARY_FILE:
            continue
        for document in _documents(path, name):
            try:
                drafts.append(parse_draft(document))
            except WonderError as problem:
                faults.extend(under(name, problem.faults))
    if faults:
        raise WonderError(faults[0], faults=tuple(faults))
    return drafts


def _documents(path: Path, name: str) -> Iterator[JsonDict]:
    try:
        for document in yaml.load_all(path.read_bytes(), Loader=_Loader):
            if not isinstance(document, dict):
                raise error(
                    Reason.DEFINITION_INVALID,
                    f"The file has a document that is not an object: {document!r:.100}.",
                    field=name,
                )
            yield document
    except yaml.YAMLError as fault:
        mark = getattr(fault, "problem_mark", None)
        place = f"{name}:{mark.line + 1}:{mark.column + 1}" if mark else name
        problem = getattr(fault, "problem", None) or "the file is unreadable"
        raise error(
            Reason.DEFINITION_INVALID, f"The file is not valid YAML: {problem}.", field=place
        ) from None


_Loader: Final = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
