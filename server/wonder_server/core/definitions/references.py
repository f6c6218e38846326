"""References: names by which one definition refers to another (feature A1).

::

    def_01J9ZQ3V8M6T0A4C1R5W7E2KXB      by id
    wonder/std/recall                   by library and name; a library's name has one or two segments
    recall                              by name, in the library of the definition that refers

Each may end with ``@3`` for exactly that revision. Without it, the newest revision is used when the work that
needs it starts.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from wonder_server.core.definitions.specs import Kind, ModelProfile, Persona, Spec, Task, Tool, Workflow
from wonder_server.core.ids import is_id

_SEGMENT = r"[a-z][a-z0-9_.-]{0,99}"
_NAME = re.compile(rf"{_SEGMENT}\Z")
_LIBRARY = re.compile(rf"{_SEGMENT}(/{_SEGMENT})?\Z")
_REVISION = re.compile(r"[1-9][0-9]{0,8}\Z")

NAME_RULE = "1 to 100 of a-z, 0-9, '_', '-' and '.', starting with a letter"
LIBRARY_RULE = f"at most 100 characters: one or two segments joined by '/', each {NAME_RULE}"
MAX_LIBRARY_NAME = 100

NO_EXTRACTION = "none"
"""Value of a persona's extraction workflow that disables extraction."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reference:
    """A parsed reference.

    Either ``definition_id`` or ``name`` is set. ``library`` is empty for the library of the referring
    definition. ``revision`` 0 is the newest.
    """

    definition_id: str = ""
    library: str = ""
    name: str = ""
    revision: int = 0

    def __str__(self) -> str:
        base = self.definition_id or "/".join(filter(None, (self.library, self.name)))
        return f"{base}@{self.revision}" if self.revision else base

    def within(self, library: str) -> Reference:
        """Return the reference with its library, as seen from a definition of ``library``."""
        if self.definition_id or self.library or not library:
            return self
        return Reference(library=library, name=self.name, revision=self.revision)


def parse_reference(text: str) -> Reference | None:
    """Return the parsed reference, or None if ``text`` is not valid."""
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
    """Return True if ``text`` is a valid name of a definition."""
    return _NAME.match(text) is not None


def is_library_name(text: str) -> bool:
    """Return True if ``text`` is a valid name of a library, such as ``team`` or ``wonder/std``."""
    return len(text) <= MAX_LIBRARY_NAME and _LIBRARY.match(text) is not None


@dataclass(frozen=True, slots=True)
class Mention:
    """A reference in a spec: its path, its text, and the kind of definition it must lead to."""

    path: str
    text: str
    kind: Kind


def mentions(spec: Spec) -> Iterator[Mention]:
    """Yield every reference to a definition in ``spec``. `agent_mentions` yields those to agents."""
    match spec:
        case Persona():
            yield from _persona_mentions(spec)
        case Tool(target_type="task"):
            yield Mention("target_id", spec.target_id, Kind.TASK)
        case Tool(target_type="workflow"):
            yield Mention("target_id", spec.target_id, Kind.WORKFLOW)
        case ModelProfile():
            yield from _fallback_mentions(spec)
        case Task():
            for index, step in enumerate(spec.steps):
                if step.action_id:
                    yield Mention(f"steps[{index}].action_id", step.action_id, Kind.ACTION)
        case Workflow():
            yield from _workflow_mentions(spec)
        case _:
            pass


def agent_mentions(spec: Spec) -> Iterator[tuple[str, str]]:
    """Yield the path and the id or name of every agent that ``spec`` calls. The agent need not exist when the
    definition is saved."""
    match spec:
        case Tool(target_type="agent"):
            yield "target_id", spec.target_id
        case Workflow():
            for index, node in enumerate(spec.nodes):
                if node.agent_id:
                    yield f"nodes[{index}].agent_id", node.agent_id
        case _:
            pass


def _workflow_mentions(workflow: Workflow) -> Iterator[Mention]:
    for index, node in enumerate(workflow.nodes):
        if node.task_id:
            yield Mention(f"nodes[{index}].task_id", node.task_id, Kind.TASK)
        if node.workflow_id:
            yield Mention(f"nodes[{index}].workflow_id", node.workflow_id, Kind.WORKFLOW)


def _fallback_mentions(profile: ModelProfile) -> Iterator[Mention]:
    for index, fallback in enumerate(profile.fallbacks):
        if fallback.model_profile_id:
            path = f"fallbacks[{index}].model_profile_id"
            yield Mention(path, fallback.model_profile_id, Kind.MODEL_PROFILE)


def _persona_mentions(persona: Persona) -> Iterator[Mention]:
    for name in ("model_profile_id", "extraction_model_profile_id", "summary_model_profile_id"):
        if getattr(persona, name):
            yield Mention(name, getattr(persona, name), Kind.MODEL_PROFILE)
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
