"""Definitions as frozen values: what a library holds, and the pinned closures that work runs with.

Field names are those of the YAML files and of ``definition.proto`` (its JSON form with snake_case
names), except ``async``, which Python reserves: here it is ``is_async``. Source: documents 1 and 5.

A *spec* is what an author wrote. A *pin* is a spec with every reference resolved to one revision, so
that running work never sees a change of its definitions (feature A1). Pins are self-contained values:
a planner needs nothing else.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from wonder_server.core.budget import Budget


class Kind(StrEnum):
    """The kinds of definition a library holds."""

    PERSONA = "persona"
    TOOL = "tool"
    WORKFLOW = "workflow"
    TASK = "task"
    ACTION = "action"
    MODEL_PROFILE = "model_profile"


class OnFailure(StrEnum):
    """What a failing step does to its task (document 5)."""

    ABORT = "abort"
    RETRY = "retry"
    CONTINUE = "continue"


class FanInMode(StrEnum):
    """When a fan-in is satisfied."""

    ALL = "all"
    ANY = "any"
    M_OF_N = "m_of_n"


class FanInTimeout(StrEnum):
    """What a fan-in does when branches are late."""

    FAIL = "fail"
    PROCEED = "proceed"


class MergeStrategy(StrEnum):
    """How the values of branches are joined."""

    COLLECT = "collect"
    APPEND = "append"
    MERGE_OBJECT = "merge_object"
    KEYED_BY_BRANCH = "keyed_by_branch"
    LAST_WINS = "last_wins"


class GateExpiry(StrEnum):
    """What happens at a gate that nobody has answered in time."""

    FAIL = "fail"
    APPROVE = "approve"
    REJECT = "reject"


@dataclass(frozen=True, slots=True, kw_only=True)
class Retry:
    """How often and how patiently something is tried again."""

    max_attempts: int = 1
    backoff_ms: int = 1000
    timeout_ms: int = 60_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Constraints:
    """What a persona's turns may spend. 0 means: no limit of that kind, but for ``max_delegation_depth``,
    how deep agents may call agents from one of its turns: 0 means that it calls none."""

    max_moves_per_turn: int = 20
    allowed_actions: tuple[str, ...] = ()
    max_tokens_per_turn: int = 0
    max_cost_micros_per_turn: int = 0
    max_turn_ms: int = 0
    max_delegation_depth: int = 5
    max_tool_calls_per_answer: int = 64
    max_tool_calls_per_turn: int = 256


class WindowStrategy(StrEnum):
    """How a long conversation is made to fit."""

    SLIDING_WINDOW = "sliding_window"
    SUMMARIZE = "summarize"


@dataclass(frozen=True, slots=True, kw_only=True)
class ContextWindow:
    """What is done when a conversation outgrows the model: from ``threshold`` of its limit on."""

    strategy: WindowStrategy = WindowStrategy.SLIDING_WINDOW
    threshold: float = 0.8
    keep_recent_messages: int = 10


class RetentionAction(StrEnum):
    """What is done with memories that a retention rule is about."""

    KEEP = "keep"
    CONSOLIDATE = "consolidate"
    DELETE = "delete"


@dataclass(frozen=True, slots=True, kw_only=True)
class RetentionRule:
    """What becomes of memories of these types (none: all that no earlier rule is about) from an age on."""

    types: tuple[str, ...] = ()
    action: RetentionAction = RetentionAction.KEEP
    older_than_ms: int = 0
    consolidation_workflow_id: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Persona:
    """Who the model is, what it remembers and what it may use."""

    system_prompt: str
    instructions: tuple[str, ...] = ()
    model_profile_id: str = ""
    context_assembly_workflow_id: str = ""
    memory_extraction_workflow_id: str = ""
    recent_turns_limit: int = 20
    tool_ids: tuple[str, ...] = ()
    constraints: Constraints = Constraints()
    context_window: ContextWindow = ContextWindow()
    retention: tuple[RetentionRule, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Tool:
    """What the model sees, and what it is bound to.

    ``target_type`` is ``task``, ``workflow`` or ``agent``; ``invocation_mode`` is ``delegate`` or
    ``loop_in``; ``input_mapping`` maps target input fields to CEL expressions over ``input``.
    """

    name: str
    description: str
    target_type: str
    target_id: str
    input_schema: dict[str, Any] = field(default_factory=dict)
    is_async: bool = False
    invocation_mode: str = "delegate"
    input_mapping: dict[str, str] = field(default_factory=dict)
    retry: Retry = Retry()


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelProfile:
    """Which model, in which request format, with which parameters and patience.

    ``provider`` is ``auto`` (the operator's default), ``offline`` or a provider's name as LiteLLM
    knows it; ``format`` is ``openai_chat``, ``openai_responses``, ``anthropic_messages`` or
    ``gemini``, empty for the provider's usual one. ``parameters`` go into the request unchanged.
    """

    provider: str
    model: str = ""
    format: str = ""
    parameters: dict[str, Any] = field(default_factory=dict)
    timeout_ms: int = 120_000
    first_token_timeout_ms: int = 60_000
    chunk_timeout_ms: int = 30_000
    max_attempts: int = 3
    context_window_tokens: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Action:
    """An atomic operation: a built-in kind with fixed settings (document 5, ActionDef).

    ``idempotent``: doing it twice is as good as doing it once; None for what the kind declares.
    """

    kind: str
    config: dict[str, Any] = field(default_factory=dict)
    timeout_ms: int = 30_000
    max_attempts: int = 3
    backoff_ms: int = 100
    idempotent: bool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One point of a task: one action, with data mapped in and out.

    Exactly one of ``action_id`` (a reference to an action definition) and ``action`` (inline) is set.
    ``condition`` is CEL over ``input``, ``state``, ``output``; false skips the step.
    ``input_mapping``: action input field -> CEL. ``output_mapping``: ``state.x`` or ``output.x`` ->
    CEL that also sees ``result``.
    """

    id: str
    action_id: str = ""
    action: Action | None = None
    condition: str = ""
    input_mapping: dict[str, str] = field(default_factory=dict)
    output_mapping: dict[str, str] = field(default_factory=dict)
    on_failure: OnFailure = OnFailure.ABORT


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """Linear steps, run in one go with in-memory context {input, state, output}."""

    steps: tuple[Step, ...]
    input_schema: dict[str, Any] = field(default_factory=dict)
    output_schema: dict[str, Any] = field(default_factory=dict)
    retry: Retry = Retry()


@dataclass(frozen=True, slots=True, kw_only=True)
class HumanGate:
    """A person who must approve, reject or answer. ``on_expire`` counts if ``expire_after_ms`` is set."""

    prompt: str = ""
    answer_schema: dict[str, Any] = field(default_factory=dict)
    user_ids: tuple[str, ...] = ()
    expire_after_ms: int = 0
    on_expire: GateExpiry = GateExpiry.FAIL


@dataclass(frozen=True, slots=True, kw_only=True)
class Wait:
    """A pause: until the signal comes or the time is over, whichever is first; 0 and empty for not."""

    signal: str = ""
    duration_ms: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Merge:
    """How one value of each arrived branch becomes one value: ``source`` is CEL over ``branch``, ``item``
    and ``index``; ``target`` is ``state.x``, ``output.x`` or, in an outer branch, ``branch.x``."""

    source: str
    target: str
    strategy: MergeStrategy = MergeStrategy.COLLECT


@dataclass(frozen=True, slots=True, kw_only=True)
class FanIn:
    """Where the branches of a fan-out meet. ``timeout_ms`` counts from the first arrival."""

    mode: FanInMode = FanInMode.ALL
    count: int = 0
    timeout_ms: int = 0
    on_timeout: FanInTimeout = FanInTimeout.FAIL
    merges: tuple[Merge, ...] = ()
    fan_out_node_id: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """One point of a workflow graph: exactly one target.

    ``input_mapping``: target input field -> CEL over ``input``, ``state``, ``output``, ``signals``, and in a
    branch ``branch``, ``item``, ``index``. ``output_mapping``: ``state.x``, ``output.x`` or ``branch.x`` ->
    CEL that also sees ``result``. ``timeout_ms`` bounds all attempts together, ``retry.timeout_ms`` each.
    """

    id: str
    task_id: str = ""
    workflow_id: str = ""
    agent_id: str = ""
    human_gate: HumanGate | None = None
    wait: Wait | None = None
    input_mapping: dict[str, str] = field(default_factory=dict)
    output_mapping: dict[str, str] = field(default_factory=dict)
    timeout_ms: int = 0
    description: str = ""
    invocation_mode: str = "delegate"
    retry: Retry | None = None
    fan_out: bool = False
    fan_in: FanIn | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ForEach:
    """A fan-out over the list that ``items`` gives; at most ``max_concurrency`` branches at once, 0: all."""

    items: str
    max_concurrency: int = 0
    max_items: int = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Transition:
    """An edge. Of a node's transitions the first, by ascending priority, whose condition holds is taken; all
    of those if the node fans out. ``loop_limit``: how often a branch may take it; 0 outside of cycles."""

    from_node_id: str
    to_node_id: str
    condition: str = ""
    priority: int = 0
    for_each: ForEach | None = None
    loop_limit: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Workflow:
    """A graph of nodes. A token that finds no transition to take ends there, the run with its last token;
    its output is ``output`` of its context, or what ``output_mapping`` (field -> CEL) makes of it. An empty
    ``initial_node_id`` means the first node; a pinned workflow always names it.

    With ``merge_branch_on_completion`` a pinned workflow has one more node, `MERGE_NODE`, which no transition
    leads to: the first token goes there when it has nowhere else to go."""

    nodes: tuple[Node, ...]
    transitions: tuple[Transition, ...] = ()
    initial_node_id: str = ""
    input_schema: dict[str, Any] = field(default_factory=dict)
    output_schema: dict[str, Any] = field(default_factory=dict)
    output_mapping: dict[str, str] = field(default_factory=dict)
    timeout_ms: int = 0
    state_schema: dict[str, Any] = field(default_factory=dict)
    merge_branch_on_completion: bool = False


MERGE_NODE = "(merge)"
"""The node at which a run merges the branch that it worked on. No definition can have one of this name."""

Spec = Persona | Tool | Workflow | Task | Action | ModelProfile


# --- pins ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Pin:
    """Which revision of which definition."""

    definition_id: str
    library: str
    name: str
    revision: int

    def __str__(self) -> str:
        return f"{self.library}/{self.name}@{self.revision}"


@dataclass(frozen=True, slots=True, kw_only=True)
class PinnedTask:
    """A task whose steps all carry their action inline."""

    pin: Pin
    spec: Task


@dataclass(frozen=True, slots=True, kw_only=True)
class PinnedWorkflow:
    """A workflow with everything its nodes refer to, by the reference its nodes use; of agents, the ids."""

    pin: Pin
    spec: Workflow
    tasks: dict[str, PinnedTask] = field(default_factory=dict)
    workflows: dict[str, PinnedWorkflow] = field(default_factory=dict)
    agents: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class PinnedProfile:
    """A model profile with ``provider``, ``model`` and ``format`` settled (never ``auto``)."""

    pin: Pin
    spec: ModelProfile


@dataclass(frozen=True, slots=True, kw_only=True)
class PinnedTool:
    """A tool with its target: one of ``task``, ``workflow``, ``agent_id`` is set, none if it is to call an
    agent that is not there."""

    pin: Pin
    spec: Tool
    task: PinnedTask | None = None
    workflow: PinnedWorkflow | None = None
    agent_id: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class PinnedAgent:
    """All that a turn needs to know of its agent, fixed at the turn's start."""

    agent_id: str
    name: str
    project_ids: tuple[str, ...]
    persona: Persona
    persona_ref: str = ""
    """``library/name@revision``, or empty for an inline persona."""
    profile: PinnedProfile
    tools: tuple[PinnedTool, ...] = ()
    assembly: PinnedWorkflow
    extraction: PinnedWorkflow | None = None
    summary: PinnedWorkflow | None = None
    """Only of an agent that sums up."""
    budget: Budget | None = None
    """What the agent may spend in its life, None for as much as it likes."""

    def home(self, project_id: str = "") -> str:
        """The project that it works in: this one if it belongs to it, else its first; "" if it has none."""
        if project_id in self.project_ids:
            return project_id
        return self.project_ids[0] if self.project_ids else ""
