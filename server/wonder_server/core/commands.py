"""What dispatch carries out after a commit: planners say it, handlers do it.

Each command carries its operation's id; the result comes back to the actor as an input with that id.
A command may be carried out twice (after a crash), so ``Scope.key`` is the idempotency key that reaches
every effect.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from wonder_server.core.definitions.specs import ModelProfile, PinnedTask, PinnedWorkflow
from wonder_server.core.errors import Fault


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """In whose name something runs. ``agent_id`` decides whose memory is touched (feature E5)."""

    project_id: str = ""
    agent_id: str = ""
    conversation_id: str = ""
    turn_id: str = ""
    run_id: str = ""
    key: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Parent:
    """Who waits for a run: the actor and its operation."""

    actor_id: str
    operation_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CallModel:
    """Call a model and stream its answer under ``message_id``.

    ``dispatches`` above 1 means that it may have begun to speak before: clients are told to start over.
    """

    operation_id: str
    turn_id: str
    message_id: str
    dispatches: int
    profile: ModelProfile
    request: dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunTask:
    """Run a task in the executor. ``repeatable``: it may simply be done again, so that it need not wait until
    what led to it is on disk. ``node_id`` says whose task it is, for those who watch a run."""

    operation_id: str
    task: PinnedTask
    input: dict[str, Any]
    scope: Scope
    repeatable: bool = False
    node_id: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunWorkflow:
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


@dataclass(frozen=True, slots=True, kw_only=True)
class ApplyMemory:
    """Carry out one memory operation that an extraction returned."""

    operation_id: str
    operation: dict[str, Any]
    scope: Scope


@dataclass(frozen=True, slots=True, kw_only=True)
class Stop:
    """Stop what is running for an operation; nobody waits for its result any more."""

    operation_id: str
    run_id: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """Tell the parent of a run how it ended. Exactly one of ``output`` and ``fault`` counts."""

    parent: Parent
    run_id: str
    output: dict[str, Any]
    fault: Fault | None = None


Command = CallModel | RunTask | RunWorkflow | ApplyMemory | Stop | Answer
