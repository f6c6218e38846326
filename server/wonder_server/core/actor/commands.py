"""Commands that planners decide and handlers execute after the commit.

Each command carries the id of its operation. The handler reports the result to the actor as an input with
that id. A command may be executed twice (after a crash), so ``Scope.key`` is the idempotency key of every
effect.
"""

from __future__ import annotations

from wonder_server.core.actor.gates import Gate
from wonder_server.core.budget import Budget, BudgetLevel
from wonder_server.core.definitions.specs import ModelProfile, PinnedTask, PinnedWorkflow
from wonder_server.core.errors import Fault
from wonder_server.core.frozen import Value, field
from wonder_server.core.json_types import JsonDict

MAX_DEPTH = 5
"""Default limit of nested agent calls, for personas that set none."""


class Scope(Value, frozen=True, kw_only=True):
    """Identity, budget and place of the work that a command starts.

    ``agent_id`` is the agent whose memory the work uses (feature E5). ``move_id`` is the move whose tool
    call started the work; "" without a tool call. ``depth`` counts the nested agent calls, and
    ``max_depth`` is their limit. ``call_chain`` lists the agents whose turns wait for the work, outermost
    first. ``budget`` limits the agents that the work calls; None is unlimited. ``cost_limited``: a budget
    limits the cost of the work's own model calls, so that the operator may refuse unknown prices. ``levels``
    are the turns whose budgets limit the model calls of the work, outermost first; empty without a budget.

    ``root_id`` is the root run of a tree of runs and turns; "" for the root itself. ``trace_id`` is the
    trace of the work; "" for the trace of its turn or root run (`wonder_server.core.actor.trace`).
    ``branch`` is the branch in the project's repositories; see `branch_of` (features F3, F5).
    ``principal`` is the principal for whom the work is done: the one that started the turn or root run
    (`wonder_server.core.identity.Principal.text`); "" in records of earlier versions. ``user_id`` is the user
    whose message started the turn; "" if an agent or a workflow did, and outside of turns.
    """

    project_id: str = ""
    agent_id: str = ""
    conversation_id: str = ""
    turn_id: str = ""
    move_id: str = ""
    run_id: str = ""
    key: str = ""
    depth: int = 0
    budget: Budget | None = None
    max_depth: int = MAX_DEPTH
    call_chain: tuple[str, ...] = field(default=(), name="callers")
    root_id: str = ""
    trace_id: str = ""
    branch: str = ""
    principal: str = ""
    user_id: str = ""
    cost_limited: bool = False
    levels: tuple[BudgetLevel, ...] = ()


NO_BRANCH = "/"
"""Branch of work that may not touch repositories. Git allows no branch of this name."""


def branch_of(scope: Scope) -> str:
    """Return the branch of the work: that of its scope, else its conversation's, else its root run's.

    Returns "" if the scope names none of them.
    """
    if scope.branch:
        return scope.branch
    if scope.conversation_id:
        return "wonder/conv-" + scope.conversation_id.removeprefix("conv_")
    run_id = scope.root_id or scope.run_id
    return "wonder/run-" + run_id.removeprefix("run_") if run_id else ""


class Parent(Value, frozen=True, kw_only=True):
    """Actor and operation that wait for a run or a turn.

    ``child_id`` identifies the child in its answer, if the id of the run or conversation is ambiguous: a
    looped-in agent answers each attempt in the same conversation.
    """

    actor_id: str
    operation_id: str
    child_id: str = ""


class CallModel(Value, frozen=True, kw_only=True):
    """Call a model and stream its answer under ``message_id``.

    ``dispatches`` above 1: the model may have streamed text before, so clients discard it. ``levels`` are
    the turns whose budgets limit the call, its own last; empty without a budget. The handler checks them
    just before the call. ``is_last``: the request forbids tools already, or the agent has none.
    ``shows_reasoning``: stream the model's reasoning to clients that ask for it. The request may name files
    of the project ``project_id``, and images of the answer become files of it. ``principal`` is that of
    `Scope`. ``cost_limited``: a budget of the turn, the conversation or the agent limits the cost.
    """

    operation_id: str
    turn_id: str
    message_id: str
    dispatches: int
    profile: ModelProfile
    request: JsonDict
    agent_id: str = ""
    levels: tuple[BudgetLevel, ...] = ()
    is_last: bool = False
    trace_id: str = ""
    shows_reasoning: bool = False
    project_id: str = ""
    principal: str = ""
    cost_limited: bool = False


class RunTask(Value, frozen=True, kw_only=True):
    """Run a task in the executor.

    ``repeatable``: the task can be executed again without a visible effect, so it may start before its
    commit. ``node_id`` is the node that the task belongs to, for watchers of a run.
    """

    operation_id: str
    task: PinnedTask
    input: JsonDict
    scope: Scope
    repeatable: bool = False
    node_id: str = ""


class CallAgent(Value, frozen=True, kw_only=True):
    """Start a turn of an agent with explicit input, for ``parent`` (features C8 to C10).

    ``mode`` is ``delegate`` or ``loop_in``. A delegate works in ``conversation_id``, a new conversation of
    its own. A looped-in agent joins the conversation of ``scope``. ``dispatches`` above 1: the agent may
    have been called before. ``output_schema`` is the JSON Schema of its answer; empty for that of its
    persona.
    """

    operation_id: str
    agent_id: str
    mode: str
    conversation_id: str
    input: JsonDict
    scope: Scope
    parent: Parent
    dispatches: int = 1
    output_schema: JsonDict = field(default_factory=dict)


class RunWorkflow(Value, frozen=True, kw_only=True):
    """Start a child run.

    ``volatile``: the run is not written before it ends or waits, since all its work until then is safe to
    execute again. ``fresh``: this is the first dispatch, so no earlier record of the run exists.
    """

    operation_id: str
    run_id: str
    workflow: PinnedWorkflow
    input: JsonDict
    scope: Scope
    parent: Parent
    volatile: bool
    fresh: bool


class ApplyMemory(Value, frozen=True, kw_only=True):
    """Execute one memory operation that an extraction returned."""

    operation_id: str
    operation: JsonDict
    scope: Scope


class Stop(Value, frozen=True, kw_only=True):
    """Stop the work of an operation whose result is no longer needed.

    ``child_id`` is the run or conversation that executes it, if there is one.
    """

    operation_id: str
    child_id: str = ""


class MeasureWaits(Value, frozen=True, kw_only=True):
    """Measure how long the run or conversation ``child_id``, with all work that it started since
    ``since_ms``, has waited for people. It changes nothing.
    """

    operation_id: str
    child_id: str
    since_ms: int


class ReportGate(Value, frozen=True, kw_only=True):
    """Report a gate that has opened or closed to the nearest conversation above, of which a turn waits for
    the work. ``parent`` waits for the turn or run with the gate.
    """

    gate: Gate
    parent: Parent


class Answer(Value, frozen=True, kw_only=True):
    """Report the end of a run to its parent. ``fault`` is set if the run failed, else ``output``."""

    parent: Parent
    run_id: str
    output: JsonDict
    fault: Fault | None = None


Command = (
    CallModel | RunTask | RunWorkflow | CallAgent | ApplyMemory | Stop | MeasureWaits | ReportGate | Answer
)
