"""References: how one definition names another (feature A1).

::

    def_01J9ZQ3V8M6T0A4C1R5W7E2KXB      by id
    wonder/std/recall                   by library and name; a library's name has one or two segments
    recall                              by name, in the library of the definition that refers

Each may end with ``@3``: that revision, for ever. Without it, the newest revision at the moment when
the work that needs it starts.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from wonder_server.core.definitions.specs import Kind, Persona, Spec, Task, Tool, Workflow
from wonder_server.core.ids import is_id

_SEGMENT = r"[a-z][a-z0-9_.-]{0,99}"
_NAME = re.compile(rf"{_SEGMENT}\Z")
_LIBRARY = re.compile(rf"{_SEGMENT}(/{_SEGMENT})?\Z")
_REVISION = re.compile(r"[1-9][0-9]{0,8}\Z")

NAME_RULE = "1 to 100 of a-z, 0-9, '_', '-' and '.', starting with a letter"
LIBRARY_RULE = f"at most 100 characters: one or two segments joined by '/', each {NAME_RULE}"
MAX_LIBRARY_NAME = 100

NO_EXTRACTION = "none"
"""A persona's extraction workflow: remember nothing, rather than the default."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reference:
    """A parsed reference.

    Either ``definition_id`` is set, or ``name`` is, with ``library`` (empty: the referrer's own).
    ``revision`` 0 means the newest.
    """

    definition_id: str = ""
    library: str = ""
    name: str = ""
    revision: int = 0

    def __str__(self) -> str:
        base = self.definition_id or "/".join(filter(None, (self.library, self.name)))
        return f"{base}@{self.revision}" if self.revision else base

    def within(self, library: str) -> Reference:
        """The same reference, seen from a definition of ``library``."""
        if self.definition_id or self.library or not library:
            return self
        return Reference(library=library, name=self.name, revision=self.revision)


def parse_reference(text: str) -> Reference | None:
    """The reference that ``text`` spells, or None if it spells none."""
    base, at, tail = text.partition("@")
    if at and not _REVISION.match(tail):
        return None
    revision = int(tail) if at else 0
    if is_id("def", base):
        return Reference(definition_id=base, revision=revision)
    library, slash, name = base.rpartition("/")
    if not is_definition_name(name) or (slash and not is_library_name(library)):
        return None
    return Reference(library=library, name=name, revision=revision)


def is_definition_name(text: str) -> bool:
    """Whether ``text`` may name a definition."""
    return _NAME.match(text) is not None


def is_library_name(text: str) -> bool:
    """Whether ``text`` may name a library: ``team`` or ``wonder/std``."""
    return len(text) <= MAX_LIBRARY_NAME and _LIBRARY.match(text) is not None


@dataclass(frozen=True, slots=True)
class Mention:
    """A place in a spec that names another definition, and the kind that must be found there."""

    path: str
    text: str
    kind: Kind


def mentions(spec: Spec) -> Iterator[Mention]:
    """Every definition that ``spec`` names; for agents see `agent_mentions`."""
    match spec:
        case Persona():
            yield from _persona_mentions(spec)
        case Tool(target_type="task"):
            yield Mention("target_id", spec.target_id, Kind.TASK)
        case Tool(target_type="workflow"):
            yield Mention("target_id", spec.target_id, Kind.WORKFLOW)
        case Task():
            for index, step in enumerate(spec.steps):
                if step.action_id:
                    yield Mention(f"steps[{index}].action_id", step.action_id, Kind.ACTION)
        case Workflow():
            for index, node in enumerate(spec.nodes):
                if node.task_id:
                    yield Mention(f"nodes[{index}].task_id", node.task_id, Kind.TASK)
                if node.workflow_id:
                    yield Mention(f"nodes[{index}].workflow_id", node.workflow_id, Kind.WORKFLOW)
        case _:
            pass


def agent_mentions(spec: Spec) -> Iterator[tuple[str, str]]:
    """Every agent that ``spec`` calls, by id or name, each after its place. An agent is no definition and
    need not exist when one that calls it is saved."""
    match spec:
        case Tool(target_type="agent"):
            yield "target_id", spec.target_id
        case Workflow():
            for index, node in enumerate(spec.nodes):
                if node.agent_id:
                    yield f"nodes[{index}].agent_id", node.agent_id
        case _:
            pass


def _persona_mentions(persona: Persona) -> Iterator[Mention]:
    if persona.model_profile_id:
        yield Mention("model_profile_id", persona.model_profile_id, Kind.MODEL_PROFILE)
    if persona.context_assembly_workflow_id:
        yield Mention("context_assembly_workflow_id", persona.context_assembly_workflow_id, Kind.WORKFLOW)
    if persona.memory_extraction_workflow_id not in ("", NO_EXTRACTION):
        yield Mention("memory_extraction_workflow_id", persona.memory_extraction_workflow_id, Kind.WORKFLOW)
    for index, tool in enumerate(persona.tool_ids):
        yield Mention(f"tool_ids[{index}]", tool, Kind.TOOL)
    for index, rule in enumerate(persona.retention):
        if rule.consolidation_workflow_id:
            path = f"retention[{index}].consolidation_workflow_id"
            yield Mention(path, rule.consolidation_workflow_id, Kind.WORKFLOW)
