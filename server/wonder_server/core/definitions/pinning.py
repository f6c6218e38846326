"""Specs to pins: every reference resolved, so that running work never sees a change (feature A1).

All functions are pure and take what they need from a `Shelf` that holds the whole closure, and from
``agents``, which maps what tools and nodes call agents (id or name) to their ids. They raise
DEFINITION_NOT_FOUND for a reference that leads nowhere, which checked definitions do not have, and
AGENT_NOT_FOUND for an agent that is not there.
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
from wonder_server.core.errors import Reason, error

DEFAULT_PROFILE = f"{STANDARD_LIBRARY}/default"
DEFAULT_ASSEMBLY = f"{STANDARD_LIBRARY}/assemble_context"
DEFAULT_EXTRACTION = f"{STANDARD_LIBRARY}/extract_memory"

ResolveProfile = Callable[[ModelProfile], ModelProfile]
"""Decides provider, model and format of a profile that leaves them open (``provider: auto``)."""


def with_defaults(persona: Persona) -> Persona:
    """The persona with the hooks and the profile that it left to the platform."""
    return replace(
        persona,
        model_profile_id=persona.model_profile_id or DEFAULT_PROFILE,
        context_assembly_workflow_id=persona.context_assembly_workflow_id or DEFAULT_ASSEMBLY,
        memory_extraction_workflow_id=persona.memory_extraction_workflow_id or DEFAULT_EXTRACTION,
    )


def pin_task(definition: Definition, index: DefinitionIndex) -> PinnedTask:
    """A task whose steps all carry their action."""
    task = definition.spec
    assert isinstance(task, Task)

    def settled(step: Step) -> Step:
        if not step.action_id:
            return step
        action = find(index, step.action_id, definition.library, Kind.ACTION).spec
        assert isinstance(action, Action)
        return replace(step, action_id="", action=action)

    return PinnedTask(pin=definition.pin, spec=replace(task, steps=tuple(map(settled, task.steps))))


MAX_DEPTH = 64
"""How deep workflows may stand in each other when they are pinned; what is saved is held to half of it, but
a change of an inner one does not look at those around it."""


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
    """A workflow with its tasks, sub-workflows and agents, and its first node named.

    Errors: DEFINITION_INVALID where workflows stand in each other too deep, or for ever.
    """
    if depth > MAX_DEPTH:
        raise error(
            Reason.DEFINITION_INVALID,
            f"Workflows stand in each other more than {MAX_DEPTH} deep, down to {definition.pin}.",
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
    """A tool with its target. An agent that is not there is the model's to be told of, not a reason to do
    without the other tools."""
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
    settle: ResolveProfile,
) -> PinnedAgent:
    """All that a turn of ``agent`` needs. ``persona`` has its defaults and stands in ``library``."""
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
        profile=PinnedProfile(pin=profile.pin, spec=settle(profile.spec)),
        tools=tuple(
            pin_tool(find(index, tool, library, Kind.TOOL), index, agents) for tool in persona.tool_ids
        ),
        assembly=pin_workflow(assembly, index, agents),
        extraction=extraction,
        budget=agent.budget if agent.budget != NO_BUDGET else None,
    )


def find(index: DefinitionIndex, text: str, library: str, kind: Kind) -> Definition:
    """The definition of this kind that ``text`` leads to. DEFINITION_NOT_FOUND if there is none."""
    definition = index.find(text, library)
    if definition is None or definition.kind is not kind:
        raise error(Reason.DEFINITION_NOT_FOUND, f"There is no {kind.replace('_', ' ')} '{text}'.")
    return definition


def find_agent(agents: Mapping[str, str], key: str, caller: str) -> str:
    """The id of the agent that ``caller`` (in words) calls by its id or name. AGENT_NOT_FOUND."""
    if key not in agents:
        raise error(
            Reason.AGENT_NOT_FOUND, f"There is no agent '{key}', which the {caller} calls.", agent=key
        )
    return agents[key]
