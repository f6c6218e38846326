"""What dispatch carries out after a commit: planners say it, handlers do it.

Each command carries its operation's id; the result comes back to the actor as an input with that id.
A command may be carried out twice (after a crash), so ``Scope.key`` is the idempotency key that reaches
every effect.
"""

from __future__ import annotations

from typing import Any

from wonder_server.core.budget import Budget
from wonder_server.core.definitions.specs import ModelProfile, PinnedTask, PinnedWorkflow
from wonder_server.core.errors import Fault
from wonder_server.core.frozen import Value, field

MAX_DEPTH = 5
"""How often an agent's turn may lead to another agent's, unless its persona says otherwise."""


class Scope(Value, frozen=True, kw_only=True):
    """In whose name something runs. ``agent_id`` decides whose memory is touched (feature E5); ``move_id`` is
    the move whose tool call led to it, "" for what no tool call did; ``depth``
    counts the calls of agents that led to it, ``max_depth`` is how deep they may go, ``callers`` are the
    agents whose turns wait for it, the outermost first; ``budget`` is what agents that it calls may spend,
    None for as much as they like; ``root_id`` is the run that all runs and turns below it are counted with,
    "" for that run itself. ``trace_id`` is the trace that it is part of, "" for that of its turn, or of its
    root run (`wonder_server.core.actor.trace`). ``branch`` is the one of the project's repositories that it
    works
    on, see `branch_of` (features F3, F5)."""

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


NO_BRANCH = "/"
"""The branch of work that is not to touch repositories: no branch can be called so."""


def branch_of(scope: Scope) -> str:
    """The branch that work is done on: the one it names, its conversation's, or that of the run at the root
    of it; empty if there is none."""
    if scope.branch:
        return scope.branch
    if scope.conversation_id:
        return "wonder/conv-" + scope.conversation_id.removeprefix("conv_")
    run_id = scope.root_id or scope.run_id
    return "wonder/run-" + run_id.removeprefix("run_") if run_id else ""


class Parent(Value, frozen=True, kw_only=True):
    """Who waits for a run or a turn: the actor and its operation. ``child_id`` is what the result names as
    what carried the operation out, where that is not the run or the room itself: an agent that is looped in
    answers each attempt in the same room."""

    actor_id: str
    operation_id: str
    child_id: str = ""


class CallModel(Value, frozen=True, kw_only=True):
    """Call a model and stream its answer under ``message_id``.

    ``dispatches`` above 1 means that it may have begun to speak before: clients are told to start over.
    ``budget`` is that of the agent, None if it has none: it is looked at just before the call. ``is_last``:
    the model is asked to answer without tools already, or has none.
    """

    operation_id: str
    turn_id: str
    message_id: str
    dispatches: int
    profile: ModelProfile
    request: dict[str, Any]
    agent_id: str = ""
    budget: Budget | None = None
    is_last: bool = False
    trace_id: str = ""


class RunTask(Value, frozen=True, kw_only=True):
    """Run a task in the executor. ``repeatable``: it may simply be done again, without anybody being able to
    tell, so that it need not wait until what led to it is on disk. ``node_id`` says whose task it is, for
    those who watch a run."""

    operation_id: str
    task: PinnedTask
    input: dict[str, Any]
    scope: Scope
    repeatable: bool = False
    node_id: str = ""


class CallAgent(Value, frozen=True, kw_only=True):
    """Give an agent one turn with explicit input, for ``parent`` (features C8 to C10).

    ``mode`` is ``delegate``: in the conversation ``conversation_id``, which is its own and new; or
    ``loop_in``: in the conversation of ``scope``, which the agent joins. ``dispatches`` above 1: it may have
    been called before.
    """

    operation_id: str
    agent_id: str
    mode: str
    conversation_id: str
    input: dict[str, Any]
    scope: Scope
    parent: Parent
    dispatches: int = 1


class RunWorkflow(Value, frozen=True, kw_only=True):
    """Start a run as a child. ``volatile``: it need not be recorded before it ends or waits, since all
    it does until then may simply be done again. ``fresh``: it is handed out for the first time, so that it
    cannot have been recorded."""

    operation_id: str
    run_id: str
    workflow: PinnedWorkflow
    input: dict[str, Any]
    scope: Scope
    parent: Parent
    volatile: bool
    fresh: bool


class ApplyMemory(Value, frozen=True, kw_only=True):
    """Carry out one memory operation that an extraction returned."""

    operation_id: str
    operation: dict[str, Any]
    scope: Scope


class Stop(Value, frozen=True, kw_only=True):
    """Stop what is running for an operation; nobody waits for its result any more. ``child_id`` is the run
    or the conversation that carries it out, if one does."""

    operation_id: str
    child_id: str = ""


class Answer(Value, frozen=True, kw_only=True):
    """Tell the parent of a run how it ended. Exactly one of ``output`` and ``fault`` counts."""

    parent: Parent
    run_id: str
    output: dict[str, Any]
    fault: Fault | None = None


Command = CallModel | RunTask | RunWorkflow | CallAgent | ApplyMemory | Stop | Answer
