"""Conversion of specs to pins: every reference is resolved, so running work never sees a change (feature
A1).

The functions are pure. They read a `DefinitionIndex` that contains all dependencies, and ``agents``, which
maps the id or name of a called agent to its id. They raise DEFINITION_NOT_FOUND for a reference without a
target, which checked definitions do not have, and AGENT_NOT_FOUND for a missing agent.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from wonder_server.core.budget import NO_BUDGET
from wonder_server.core.definitions.graph import initial_node
from wonder_server.core.definitions.index import DefinitionIndex
from wonder_server.core.definitions.references import NO_EXTRACTION
from wonder_server.core.definitions.resources import STANDARD_LIBRARY, Agent, Definition
from wonder_server.core.definitions.specs import (
    MERGE_NODE,
    Action,
    Kind,
    ModelProfile,
    Node,
    Persona,
    Pin,
    PinnedAgent,
    PinnedProfile,
    PinnedTask,
    PinnedTool,
    PinnedWorkflow,
    Step,
    Task,
    Tool,
    Workflow,
)
from wonder_server.core.errors import Reason, WonderError, error, not_found

DEFAULT_PROFILE = f"{STANDARD_LIBRARY}/default"
DEFAULT_ASSEMBLY = f"{STANDARD_LIBRARY}/assemble_context"
DEFAULT_EXTRACTION = f"{STANDARD_LIBRARY}/extract_memory"

ResolveProfile = Callable[[ModelProfile], ModelProfile]
"""Chooses provider, model and format for a profile that leaves them open (``provider: auto``)."""


def with_defaults(persona: Persona) -> Persona:
    """Return the persona with the default hooks and profile in place of empty ones."""
    return replace(
        persona,
        model_profile_id=persona.model_profile_id or DEFAULT_PROFILE,
        context_assembly_workflow_id=persona.context_assembly_workflow_id or DEFAULT_ASSEMBLY,
        memory_extraction_workflow_id=persona.memory_extraction_workflow_id or DEFAULT_EXTRACTION,
    )


def pin_task(definition: Definition, index: DefinitionIndex) -> PinnedTask:
    """Return the task with its actions inlined."""
    task = definition.spec
    assert isinstance(task, Task)

    def with_action(step: Step) -> Step:
        if not step.action_id:
            return step
        action = find(index, step.action_id, definition.library, Kind.ACTION).spec
        assert isinstance(action, Action)
        return replace(step, action_id="", action=action)

    return PinnedTask(pin=definition.pin, spec=replace(task, steps=tuple(map(with_action, task.steps))))


MAX_FALLBACKS = 8
"""Maximum number of fallbacks of a turn, those of fallbacks included."""

MAX_DEPTH = 64
"""Limit of nested workflows when they are pinned. Saved workflows are checked against half of it, but a
change of an inner workflow does not check the workflows that contain it."""


_MERGE = Node(id=MERGE_NODE, task_id=MERGE_NODE, description="Merges the branch that the run worked on.")
_MERGE_TASK = PinnedTask(
    pin=Pin(definition_id="", library=STANDARD_LIBRARY, name="merge_branch", revision=1),
    spec=Task(
        steps=(
            Step(
                id="merge",
                action=Action(kind="repo.merge", config={"every_repository": True}, timeout_ms=600_000),
            ),
        )
    ),
)


def pin_workflow(
    definition: Definition, index: DefinitionIndex, agents: Mapping[str, str], depth: int = 1
) -> PinnedWorkflow:
    """Return the workflow with its tasks, sub-workflows and agents, and its initial node.

    Raises DEFINITION_INVALID if workflows are nested too deep or contain themselves.
    """
    if depth > MAX_DEPTH:
        raise error(
            Reason.DEFINITION_INVALID,
            f"Workflows are nested more than {MAX_DEPTH} deep, down to {definition.pin}.",
        )
    workflow = definition.spec
    assert isinstance(workflow, Workflow)
    library = definition.library
    merging = workflow.merge_branch_on_completion
    nodes = (*workflow.nodes, _MERGE) if merging else workflow.nodes
    return PinnedWorkflow(
        pin=definition.pin,
        spec=replace(workflow, nodes=nodes, initial_node_id=initial_node(workflow)),
        tasks={
            node.task_id: pin_task(find(index, node.task_id, library, Kind.TASK), index)
            for node in workflow.nodes
            if node.task_id
        }
        | ({_MERGE.task_id: _MERGE_TASK} if merging else {}),
        workflows={
            node.workflow_id: pin_workflow(
                find(index, node.workflow_id, library, Kind.WORKFLOW), index, agents, depth + 1
            )
            for node in workflow.nodes
            if node.workflow_id
        },
        agents={
            node.agent_id: find_agent(agents, node.agent_id, f"node '{node.id}' of {definition.pin}")
            for node in workflow.nodes
            if node.agent_id
        },
    )


def pin_tool(definition: Definition, index: DefinitionIndex, agents: Mapping[str, str]) -> PinnedTool:
    """Return the tool with its target. A missing agent leaves ``agent_id`` empty: the model learns of it when
    it calls the tool, and the other tools stay usable."""
    tool = definition.spec
    assert isinstance(tool, Tool)
    if tool.target_type == "agent":
        return PinnedTool(pin=definition.pin, spec=tool, agent_id=agents.get(tool.target_id, ""))
    if tool.target_type == "task":
        task = find(index, tool.target_id, definition.library, Kind.TASK)
        return PinnedTool(pin=definition.pin, spec=tool, task=pin_task(task, index))
    workflow = find(index, tool.target_id, definition.library, Kind.WORKFLOW)
    return PinnedTool(pin=definition.pin, spec=tool, workflow=pin_workflow(workflow, index, agents))


def pin_agent(
    agent: Agent,
    persona: Persona,
    library: str,
    index: DefinitionIndex,
    agents: Mapping[str, str],
    resolve_profile: ResolveProfile,
) -> PinnedAgent:
    """Return everything that a turn of ``agent`` needs. ``persona`` has its defaults and belongs to
    ``library``."""
    profile = find(index, persona.model_profile_id, library, Kind.MODEL_PROFILE)
    assert isinstance(profile.spec, ModelProfile)
    extraction: PinnedWorkflow | None = None
    if persona.memory_extraction_workflow_id != NO_EXTRACTION:
        found = find(index, persona.memory_extraction_workflow_id, library, Kind.WORKFLOW)
        extraction = pin_workflow(found, index, agents)
    assembly = find(index, persona.context_assembly_workflow_id, library, Kind.WORKFLOW)
    return PinnedAgent(
        agent_id=agent.id,
        name=agent.name,
        project_ids=agent.project_ids,
        persona=persona,
        profile=PinnedProfile(pin=profile.pin, spec=resolve_profile(profile.spec)),
        fallbacks=pin_fallbacks(profile, index, resolve_profile),
        extraction_profiles=pin_profiles(
            persona.extraction_model_profile_id, library, index, resolve_profile
        ),
        summary_profiles=pin_profiles(persona.summary_model_profile_id, library, index, resolve_profile),
        tools=tuple(
            pin_tool(find(index, tool, library, Kind.TOOL), index, agents) for tool in persona.tool_ids
        ),
        assembly=pin_workflow(assembly, index, agents),
        extraction=extraction,
        budget=agent.budget if agent.budget != NO_BUDGET else None,
    )


def pin_profiles(
    reference: str, library: str, index: DefinitionIndex, resolve_profile: ResolveProfile
) -> tuple[PinnedProfile, ...]:
    """Return a model profile and its fallbacks; nothing for an empty reference."""
    if not reference:
        return ()
    profile = find(index, reference, library, Kind.MODEL_PROFILE)
    assert isinstance(profile.spec, ModelProfile)
    first = PinnedProfile(pin=profile.pin, spec=resolve_profile(profile.spec))
    return (first, *pin_fallbacks(profile, index, resolve_profile))


def pin_fallbacks(
    profile: Definition, index: DefinitionIndex, resolve_profile: ResolveProfile
) -> tuple[PinnedProfile, ...]:
    """Return the fallbacks of a model profile in order, each followed by its own; at most `MAX_FALLBACKS`.

    A provider's model has the pin, the timeouts and the attempts of the profile that names it, and no
    parameters. A profile that occurs again is left out.
    """
    found: list[PinnedProfile] = []
    seen = {str(profile.pin)}

    def add(definition: Definition) -> None:
        spec = definition.spec
        assert isinstance(spec, ModelProfile)
        for fallback in spec.fallbacks:
            if len(found) >= MAX_FALLBACKS:
                return
            if fallback.provider:
                model = replace(_BARE, provider=fallback.provider, model=fallback.model)
                timed = {name: getattr(spec, name) for name in _TIMES}
                found.append(PinnedProfile(pin=definition.pin, spec=resolve_profile(replace(model, **timed))))
                continue
            other = find(index, fallback.model_profile_id, definition.library, Kind.MODEL_PROFILE)
            if str(other.pin) in seen:
                continue
            seen.add(str(other.pin))
            assert isinstance(other.spec, ModelProfile)
            found.append(
                PinnedProfile(pin=other.pin, spec=resolve_profile(replace(other.spec, fallbacks=())))
            )
            add(other)

    add(profile)
    return tuple(found)


_BARE = ModelProfile(provider="offline")
_TIMES = ("timeout_ms", "first_token_timeout_ms", "chunk_timeout_ms", "max_attempts")


def find(index: DefinitionIndex, text: str, library: str, kind: Kind) -> Definition:
    """Return the definition of this kind that ``text`` refers to. Raises DEFINITION_NOT_FOUND."""
    definition = index.find(text, library)
    if definition is None or definition.kind is not kind:
        raise not_found(Reason.DEFINITION_NOT_FOUND, text, noun=kind.replace("_", " "))
    return definition


def find_agent(agents: Mapping[str, str], key: str, caller: str) -> str:
    """Return the id of the agent that ``caller`` (in words) names by id or name. Raises AGENT_NOT_FOUND."""
    if key not in agents:
        fault = not_found(Reason.AGENT_NOT_FOUND, key, place=f", which the {caller} calls").fault
        raise WonderError(replace(fault, metadata=fault.metadata | {"agent": key}))
    return agents[key]
