"""Definitions as frozen values: the specs of a library, and the pins that work runs with.

Field names are those of the YAML files and of ``definition.proto``, but ``is_async`` for ``async``. A *spec*
is what an author wrote. A *pin* is a spec with every reference resolved to one revision, so that running work
never sees a change of its definitions (feature A1). It contains everything that a planner needs.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from wonder_server.core.budget import Budget
from wonder_server.core.definitions.tool_specs import ApprovalGate, ToolSource
from wonder_server.core.json_types import JsonDict


class Kind(StrEnum):
    """Kinds of definition."""

    PERSONA = "persona"
    TOOL = "tool"
    WORKFLOW = "workflow"
    TASK = "task"
    ACTION = "action"
    MODEL_PROFILE = "model_profile"


class OnFailure(StrEnum):
    """Effect of a failing step on its task."""

    ABORT = "abort"
    RETRY = "retry"
    CONTINUE = "continue"


class FanInMode(StrEnum):
    """Condition that satisfies a fan-in."""

    ALL = "all"
    ANY = "any"
    M_OF_N = "m_of_n"


class FanInTimeout(StrEnum):
    """Effect of a fan-in's timeout."""

    FAIL = "fail"
    PROCEED = "proceed"


class MergeStrategy(StrEnum):
    """Rule that combines the values of branches."""

    COLLECT = "collect"
    APPEND = "append"
    MERGE_OBJECT = "merge_object"
    KEYED_BY_BRANCH = "keyed_by_branch"
    LAST_WINS = "last_wins"


class GateExpiry(StrEnum):
    """Effect of a gate's expiry."""

    FAIL = "fail"
    APPROVE = "approve"
    REJECT = "reject"


@dataclass(frozen=True, slots=True, kw_only=True)
class Retry:
    """Number of attempts, backoff before the next one, and timeout of each."""

    max_attempts: int = 1
    backoff_ms: int = 1000
    timeout_ms: int = 60_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Constraints:
    """Limits of a persona's turns. 0 is unlimited, but in ``max_delegation_depth`` it forbids calls."""

    max_moves_per_turn: int = 20
    allowed_actions: tuple[str, ...] = ()
    max_tokens_per_turn: int = 0
    max_cost_micros_per_turn: int = 0
    max_turn_ms: int = 0
    max_delegation_depth: int = 5
    max_tool_calls_per_answer: int = 64
    max_tool_calls_per_turn: int = 256


class WindowStrategy(StrEnum):
    """Method that shortens a long conversation."""

    SLIDING_WINDOW = "sliding_window"
    SUMMARIZE = "summarize"


class ConcurrentTurns(StrEnum):
    """Policy for a message to an agent whose turn in the conversation is not over.

    ``parallel``: it starts a turn beside. ``queue``: its turn waits. ``interrupt``: it cancels the turn and
    starts its own. ``steer``: the turn takes it.
    """

    PARALLEL = "parallel"
    QUEUE = "queue"
    INTERRUPT = "interrupt"
    STEER = "steer"


@dataclass(frozen=True, slots=True, kw_only=True)
class ContextWindow:
    """Treatment of a conversation that exceeds ``threshold`` of the model's limit."""

    strategy: WindowStrategy = WindowStrategy.SLIDING_WINDOW
    threshold: float = 0.8
    keep_recent_messages: int = 10


class RetentionAction(StrEnum):
    """Effect of a retention rule on memories."""

    KEEP = "keep"
    CONSOLIDATE = "consolidate"
    DELETE = "delete"


@dataclass(frozen=True, slots=True, kw_only=True)
class RetentionRule:
    """A rule for memories of these types from an age on; without types for all that are in no earlier one."""

    types: tuple[str, ...] = ()
    action: RetentionAction = RetentionAction.KEEP
    older_than_ms: int = 0
    consolidation_workflow_id: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Persona:
    """The role of an agent: its prompt, model, hooks, tools and limits.

    ``output_schema`` is the JSON Schema of the final answer of each of its turns; empty for plain text.
    ``show_reasoning``: clients may see the model's reasoning while it streams. ``concurrent_turns`` is the
    policy of conversations that set none. Without ``extraction_model_profile_id`` and
    ``summary_model_profile_id`` memory extraction and summaries use the persona's own model.
    """

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
    output_schema: JsonDict = field(default_factory=dict)
    show_reasoning: bool = False
    tool_sources: tuple[ToolSource, ...] = ()
    concurrent_turns: ConcurrentTurns = ConcurrentTurns.PARALLEL
    extraction_model_profile_id: str = ""
    summary_model_profile_id: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tool:
    """A function that the model can call, and its target.

    ``target_type`` is ``task``, ``workflow`` or ``agent``; ``invocation_mode`` is ``delegate`` or
    ``loop_in``; ``input_mapping`` maps target input fields to CEL expressions over ``input``.
    ``output_schema`` is the JSON Schema of a called agent's answer; empty for that of its persona.
    ``max_result_bytes`` is the size above which the model gets a part of a result; 0 for the server's.
    ``approval`` says which calls wait for a person: ``never`` or empty, ``always``, or those
    for which a CEL expression over ``input`` is true. ``approval_gate`` says who may answer, and how long.
    """

    name: str
    description: str
    target_type: str
    target_id: str
    input_schema: JsonDict = field(default_factory=dict)
    is_async: bool = False
    invocation_mode: str = "delegate"
    input_mapping: dict[str, str] = field(default_factory=dict)
    retry: Retry = Retry()
    output_schema: JsonDict = field(default_factory=dict)
    max_result_bytes: int = 0
    approval: str = ""
    approval_gate: ApprovalGate = field(default_factory=ApprovalGate)


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelFallback:
    """A model to use when that of a profile is unavailable: another profile, or a provider's model."""

    model_profile_id: str = ""
    provider: str = ""
    model: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelProfile:
    """A model, its request format, parameters and timeouts.

    ``provider`` is ``auto`` (the operator's default), ``offline`` or a provider's name in LiteLLM. ``format``
    is a name in `core.request_formats.FORMATS`; empty for the provider's default. ``parameters`` are copied
    into the request unchanged. ``accepts`` are the parts of messages that the model takes: ``text``,
    ``image``, ``file``; empty for what is known of the model. ``fallbacks`` go on with a turn, in order, when
    the provider is unavailable.
    """

    provider: str
    model: str = ""
    format: str = ""
    parameters: JsonDict = field(default_factory=dict)
    timeout_ms: int = 120_000
    first_token_timeout_ms: int = 60_000
    chunk_timeout_ms: int = 30_000
    max_attempts: int = 3
    context_window_tokens: int = 0
    accepts: tuple[str, ...] = ()
    fallbacks: tuple[ModelFallback, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Action:
    """An atomic operation: a built-in kind with fixed settings.

    ``idempotent``: the action is repeatable; None for the value that the kind declares.
    """

    kind: str
    config: JsonDict = field(default_factory=dict)
    timeout_ms: int = 30_000
    max_attempts: int = 3
    backoff_ms: int = 100
    idempotent: bool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One point of a task: one action, with mapped input and output.

    Exactly one of ``action_id`` (a reference to an action definition) and ``action`` (inline) is set.
    ``condition`` is CEL over ``input``, ``state``, ``output``; false skips the step. ``input_mapping``:
    action input field -> CEL. ``output_mapping``: ``state.x`` or ``output.x`` -> CEL that also sees
    ``result``.
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
    """A list of steps, executed in order with the context {input, state, output} in memory."""

    steps: tuple[Step, ...]
    input_schema: JsonDict = field(default_factory=dict)
    output_schema: JsonDict = field(default_factory=dict)
    retry: Retry = Retry()


@dataclass(frozen=True, slots=True, kw_only=True)
class HumanGate:
    """A gate at which a person approves, rejects or answers. ``expire_after_ms`` 0: it never expires."""

    prompt: str = ""
    answer_schema: JsonDict = field(default_factory=dict)
    user_ids: tuple[str, ...] = ()
    expire_after_ms: int = 0
    on_expire: GateExpiry = GateExpiry.FAIL


@dataclass(frozen=True, slots=True, kw_only=True)
class Wait:
    """A pause until a signal arrives or a time has passed, whichever is first. 0 or empty disables one."""

    signal: str = ""
    duration_ms: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Merge:
    """Combines one value of each arrived branch into one value. ``source`` is CEL over ``branch``, ``item``
    and ``index``; ``target`` is ``state.x``, ``output.x`` or, in an outer branch, ``branch.x``."""

    source: str
    target: str
    strategy: MergeStrategy = MergeStrategy.COLLECT


@dataclass(frozen=True, slots=True, kw_only=True)
class FanIn:
    """The join of a fan-out's branches. ``timeout_ms`` starts with the first arrival."""

    mode: FanInMode = FanInMode.ALL
    count: int = 0
    timeout_ms: int = 0
    on_timeout: FanInTimeout = FanInTimeout.FAIL
    merges: tuple[Merge, ...] = ()
    fan_out_node_id: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """One point of a workflow graph, with exactly one target.

    ``input_mapping``: target input field -> CEL over ``input``, ``state``, ``output``, ``signals``, and in a
    branch ``branch``, ``item``, ``index``. ``output_mapping``: ``state.x``, ``output.x`` or ``branch.x`` ->
    CEL that also sees ``result``. ``timeout_ms`` limits all attempts together, ``retry.timeout_ms`` each.
    ``output_schema`` is the JSON Schema of the called agent's answer; empty for that of its persona.
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
    output_schema: JsonDict = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class ForEach:
    """A fan-out over the list ``items``, with at most ``max_concurrency`` branches at once; 0 is all."""

    items: str
    max_concurrency: int = 0
    max_items: int = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Transition:
    """An edge. A token takes the first transition, by ascending priority, whose condition is true; a node
    that fans out takes all of those. ``loop_limit``: how often a branch may take it; 0 outside of cycles."""

    from_node_id: str
    to_node_id: str
    condition: str = ""
    priority: int = 0
    for_each: ForEach | None = None
    loop_limit: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Workflow:
    """A graph of nodes. A token without a transition to take ends, and the run ends with its last token. The
    run's output is ``output`` of its context, or the result of ``output_mapping`` (field -> CEL). An empty
    ``initial_node_id`` is the first node; a pinned workflow always names it.

    With ``merge_branch_on_completion`` a pinned workflow has an additional node, `MERGE_NODE`, without
    incoming transitions. The first token goes there when it has no other transition.
    """

    nodes: tuple[Node, ...]
    transitions: tuple[Transition, ...] = ()
    initial_node_id: str = ""
    input_schema: JsonDict = field(default_factory=dict)
    output_schema: JsonDict = field(default_factory=dict)
    output_mapping: dict[str, str] = field(default_factory=dict)
    timeout_ms: int = 0
    state_schema: JsonDict = field(default_factory=dict)
    merge_branch_on_completion: bool = False


MERGE_NODE = "(merge)"
"""The node at which a run merges its branch. The name is not valid in definitions."""

Spec = Persona | Tool | Workflow | Task | Action | ModelProfile


# --- pins ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Pin:
    """One revision of one definition."""

    definition_id: str
    library: str
    name: str
    revision: int

    def __str__(self) -> str:
        return f"{self.library}/{self.name}@{self.revision}"


@dataclass(frozen=True, slots=True, kw_only=True)
class PinnedTask:
    """A task with its actions inlined."""

    pin: Pin
    spec: Task


@dataclass(frozen=True, slots=True, kw_only=True)
class PinnedWorkflow:
    """A workflow with everything that its nodes refer to, by reference; for agents, their ids."""

    pin: Pin
    spec: Workflow
    tasks: dict[str, PinnedTask] = field(default_factory=dict)
    workflows: dict[str, PinnedWorkflow] = field(default_factory=dict)
    agents: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class PinnedProfile:
    """A model profile with a resolved ``provider``, ``model`` and ``format`` (never ``auto``)."""

    pin: Pin
    spec: ModelProfile


@dataclass(frozen=True, slots=True, kw_only=True)
class PinnedTool:
    """A tool with its target: one of ``task``, ``workflow`` and ``agent_id`` is set; none if the called agent
    does not exist."""

    pin: Pin
    spec: Tool
    task: PinnedTask | None = None
    workflow: PinnedWorkflow | None = None
    agent_id: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class PinnedSource:
    """The state of one `ToolSource` when a turn began: the number of tools that the turn got, the hash of the
    server's list, and sentences about missing and renamed tools."""

    mcp: str
    tools: int = 0
    digest: str = ""
    notices: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class PinnedAgent:
    """Everything that a turn needs to know of its agent, fixed at the turn's start."""

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
    """The summarization workflow; None for an agent that does not summarize."""
    budget: Budget | None = None
    """The agent's budget for its lifetime; None for unlimited."""
    fallbacks: tuple[PinnedProfile, ...] = ()
    """The profiles that replace ``profile``, in order, when its provider is unavailable."""
    max_result_bytes: int = 0
    """The server's size above which the model gets a part of a tool's result. 0 in turns that an earlier
    version began: their model gets every result whole."""
    sources: tuple[PinnedSource, ...] = ()
    """The tool sources of the persona, as the turn found them. Their tools are in ``tools``."""
    extraction_profiles: tuple[PinnedProfile, ...] = ()
    """The profile of memory extraction, and its fallbacks; empty for ``profile`` and ``fallbacks``."""
    summary_profiles: tuple[PinnedProfile, ...] = ()
    """The same for summaries."""

    def home(self, project_id: str = "") -> str:
        """Return the project in which the agent works: ``project_id`` if the agent belongs to it, else its
        first, or ""."""
        if project_id in self.project_ids:
            return project_id
        return self.project_ids[0] if self.project_ids else ""
