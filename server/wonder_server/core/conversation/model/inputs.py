"""Everything that can happen to a conversation: the inputs of its planner, as frozen values.

``Send`` brings the seed that its turn's ids are derived from; a result's ids derive from its operation's.
"""

from __future__ import annotations

from typing import Any

from wonder_server.core.actor.commands import Parent
from wonder_server.core.budget import Budget
from wonder_server.core.conversation.model.lifecycle_inputs import LifecycleInput
from wonder_server.core.conversation.model.values import Caller, Conversation
from wonder_server.core.definitions.specs import PinnedAgent
from wonder_server.core.errors import Fault
from wonder_server.core.frozen import Value, field
from wonder_server.core.model import ModelResult, Usage


class Create(Value, frozen=True, kw_only=True):
    """Open the room."""

    conversation: Conversation


NO_DEPTH_LIMIT = 1_000_000

MAX_CONTENT_BYTES = 1 << 20
"""The maximum size of one message."""


class Send(Value, frozen=True, kw_only=True):
    """A message for an agent: starts a turn. ``seed`` is where the turn's ids come from, ``trace_id`` is the
    trace that its caller brought.

    A ``parent`` waits for the turn's end, and is answered even if there will be no turn. ``loop_in``: the
    agent takes part from now on, if it does not yet. ``depth``, ``callers``, ``budget``: see `Turn`;
    ``max_depth`` is how deep whoever called lets agents call each other. ``poor``: why the agent cannot
    afford another turn.
    """

    seed: str
    agent: PinnedAgent
    caller: Caller
    content: str
    reply_to_message_id: str = ""
    metadata: dict[str, Any] = field(default_factory=dict)
    parent: Parent | None = None
    loop_in: bool = False
    depth: int = 0
    budget: Budget | None = None
    max_depth: int = NO_DEPTH_LIMIT
    call_chain: tuple[str, ...] = field(default=(), name="callers")
    unaffordable: Fault | None = field(default=None, name="poor")
    trace_id: str = ""


class CancelTurn(Value, frozen=True, kw_only=True):
    """Stop a turn. ``spoken`` is what its streaming message had said when the cancel arrived; ``reason`` is a
    sentence for people, if there is more to say than that it was cancelled."""

    turn_id: str
    partial_text: str = field(default="", name="spoken")
    reason: str = ""


class CancelCall(Value, frozen=True, kw_only=True):
    """The parent's operation no longer waits for the turn that it started: stop that. ``spoken`` as above."""

    operation_id: str
    partial_text: str = field(default="", name="spoken")


class ModelAnswered(Value, frozen=True, kw_only=True):
    """A model call came to its end. ``whole`` is the answer as it came, where ``result`` was cut to the
    limits: the journal is where it is kept."""

    operation_id: str
    result: ModelResult
    full_result: ModelResult | None = field(default=None, name="whole")


class Succeeded(Value, frozen=True, kw_only=True):
    """Any other operation came to its end. ``output`` is what the task or run put out; ``run_id`` is the
    run that says so, if one does."""

    operation_id: str
    output: Any
    run_id: str = ""


class Failed(Value, frozen=True, kw_only=True):
    """An operation failed. ``run_id`` is the run that says so, if one does; ``spoken`` is what a model had
    said before it broke off."""

    operation_id: str
    fault: Fault
    run_id: str = ""
    partial_text: str = field(default="", name="spoken")


class BudgetNearlyExhausted(Value, frozen=True, kw_only=True):
    """A model was about to be called, and its agent's budget leaves room for hardly more than that:
    ``fault`` is what the model is to be told. Nothing was called."""

    operation_id: str
    fault: Fault


class ModelUsageReported(Value, frozen=True, kw_only=True):
    """A model was asked in a turn's name: by an ``llm`` action, or by the turn itself without an end that it
    could be charged with. ``run_id`` is the outermost run that it was part of, "" if it was part of none.
    ``calls``: how many calls that is, 0 if they count elsewhere. ``metered``: hooks are charged by this too,
    and no longer by what they say themselves that they have spent. ``settles``: this ends a call that was
    counted when it began, as one whose price is not known."""

    turn_id: str
    run_id: str
    usage: Usage
    calls: int = 1
    metered: bool = False
    settles: bool = False


class TimerFired(Value, frozen=True, kw_only=True):
    """An operation's ``wake_ms`` has come: its deadline, or the time of its next attempt. ``spoken`` is what
    a model has said by then."""

    operation_id: str
    partial_text: str = field(default="", name="spoken")


class Restarted(Value, frozen=True, kw_only=True):
    """The server has started again and found this operation in the conversation's outbox. ``metered``: a call
    of a model that was under way counts, though nobody knows what it has used."""

    operation_id: str
    metered: bool = False


Result = (
    ModelAnswered | ModelUsageReported | Succeeded | Failed | BudgetNearlyExhausted | TimerFired | Restarted
)
Input = Create | Send | CancelTurn | CancelCall | Result | LifecycleInput
