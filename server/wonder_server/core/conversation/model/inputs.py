"""Inputs of the conversation planner, as frozen values.

``Send`` carries the seed of its turn's ids. The ids that a result leads to derive from its operation's id.
"""

from __future__ import annotations

from wonder_server.core.actor.commands import Parent
from wonder_server.core.actor.gates import Gate, ResolveGate
from wonder_server.core.budget import Budget, BudgetLevel
from wonder_server.core.content.parts import Parts
from wonder_server.core.conversation.model.exchange import Quote
from wonder_server.core.conversation.model.histories.staging import AddHistory, Discard
from wonder_server.core.conversation.model.lifecycle_inputs import LifecycleInput
from wonder_server.core.conversation.model.values import Caller, Conversation
from wonder_server.core.definitions.overrides import TurnOverrides
from wonder_server.core.definitions.specs import PinnedAgent
from wonder_server.core.errors import Fault
from wonder_server.core.frozen import Value, field
from wonder_server.core.json_types import JsonDict, JsonValue
from wonder_server.core.model import ModelResult, Usage


class Create(Value, frozen=True, kw_only=True):
    """Create the conversation."""

    conversation: Conversation


NO_DEPTH_LIMIT = 1_000_000
"""Limit of nested agent calls for a caller that sets none."""

MAX_CONTENT_BYTES = 1 << 20
"""The maximum size of one message."""


class Send(Value, frozen=True, kw_only=True):
    """A message for an agent, which starts a turn.

    ``seed`` is the seed of the turn's ids. ``trace_id`` is the caller's trace. ``principal`` is the
    authenticated caller, or the principal of the work that calls the agent; as in `Scope`.

    A ``parent`` waits for the turn's end, and gets an answer even if the turn is rejected. ``loop_in``: the
    agent joins the conversation unless it participates already. ``quote`` is the message with the id
    ``reply_to_message_id``, which the state may no longer hold. ``depth``, ``call_chain``, ``budget`` and
    ``output_schema`` are those of `Turn`. ``max_depth`` is the caller's limit of nested agent calls.
    ``parts`` are those of the message; empty for a text.
    ``unaffordable`` is the reason why the agent's budget allows no further turn. ``rules`` are those of
    `TurnWork`. ``max_waiting`` is the number of messages that may wait for the agent. ``partial_texts`` as in
    `lifecycle_inputs`, for a message that interrupts turns.
    ``root_id`` is the root run of the run that calls the agent; "" without one.
    ``overrides`` are those of `Turn`, ``levels`` those of `TurnWork`.
    """

    seed: str
    agent: PinnedAgent
    caller: Caller
    content: str
    reply_to_message_id: str = ""
    metadata: JsonDict = field(default_factory=dict)
    parent: Parent | None = None
    loop_in: bool = False
    depth: int = 0
    budget: Budget | None = None
    max_depth: int = NO_DEPTH_LIMIT
    call_chain: tuple[str, ...] = field(default=(), name="callers")
    unaffordable: Fault | None = field(default=None, name="poor")
    trace_id: str = ""
    principal: str = ""
    output_schema: JsonDict = field(default_factory=dict)
    quote: Quote | None = None
    rules: int = 0
    parts: Parts = ()
    max_waiting: int = 0
    partial_texts: dict[str, str] = field(default_factory=dict)
    root_id: str = ""
    overrides: TurnOverrides | None = None
    levels: tuple[BudgetLevel, ...] = ()


class Post(Value, frozen=True, kw_only=True):
    """A message that starts no turn. ``seed``, ``principal``, ``quote`` and ``parts`` as in `Send`."""

    seed: str
    caller: Caller
    content: str
    reply_to_message_id: str = ""
    metadata: JsonDict = field(default_factory=dict)
    principal: str = ""
    quote: Quote | None = None
    parts: Parts = ()


class Publish(Value, frozen=True, kw_only=True):
    """Make a staged conversation visible as ``conversation``, and send its first new message, if there is
    one. The counts of turns and messages are those of the history that was added."""

    conversation: Conversation
    send: Send | None = None


class CancelTurn(Value, frozen=True, kw_only=True):
    """Cancel a turn.

    ``partial_text`` is the text that its message has streamed. The loop adds it as it plans the input.
    ``reason`` is a sentence for people; empty for the default. ``principal`` is the authenticated caller that
    cancels it, as in `Scope`.
    """

    turn_id: str
    partial_text: str = field(default="", name="spoken")
    reason: str = ""
    principal: str = ""


class CancelCall(Value, frozen=True, kw_only=True):
    """Cancel the turn that a parent's operation started, since the parent no longer waits for it.

    ``partial_text`` and ``principal`` as in `CancelTurn`.
    """

    operation_id: str
    partial_text: str = field(default="", name="spoken")
    principal: str = ""


class ModelAnswered(Value, frozen=True, kw_only=True):
    """A model call has ended.

    ``full_result`` is the uncut answer if ``result`` was cut to the limits. Only the journal keeps it.
    ``parts`` are the texts and stored images of an answer with an image.
    """

    operation_id: str
    result: ModelResult
    full_result: ModelResult | None = field(default=None, name="whole")
    parts: Parts = ()


class Succeeded(Value, frozen=True, kw_only=True):
    """An operation other than a model call has succeeded.

    ``output`` is the output of the task or run. ``run_id`` is the reporting run; "" if no run executed the
    operation.
    """

    operation_id: str
    output: JsonValue
    run_id: str = ""


class Failed(Value, frozen=True, kw_only=True):
    """An operation has failed.

    ``run_id`` is the reporting run; "" if no run executed the operation. ``partial_text`` is the text that
    a model had streamed before it failed. ``jitter`` is a random number from 0 to `JITTER`, which chooses
    the pause before the next attempt; None for a pause without chance.
    """

    operation_id: str
    fault: Fault
    run_id: str = ""
    partial_text: str = field(default="", name="spoken")
    jitter: int | None = None


JITTER = 1_000
"""The largest value of `Failed.jitter`."""


class BudgetNearlyExhausted(Value, frozen=True, kw_only=True):
    """The agent's budget allows only one more model call. The handler has made no call.

    ``fault`` is the text for the model.
    """

    operation_id: str
    fault: Fault


class ModelUsageReported(Value, frozen=True, kw_only=True):
    """Usage of a model call that no `ModelAnswered` reports: a call by an ``llm`` action, or a call of the
    turn that ended without an answer.

    ``run_id`` is the outermost run of the call; "" without one. ``calls`` is the number of calls; 0 if they
    are counted elsewhere. ``metered``: this input charges hooks, so the usage in their output no longer
    counts. ``settles``: the call was counted at its start as a call without a known price.
    ``account`` is the run whose account is charged too; "" without one, and in records of earlier versions.
    """

    turn_id: str
    run_id: str
    usage: Usage
    calls: int = 1
    metered: bool = False
    settles: bool = False
    account: str = ""


class WaitsMeasured(Value, frozen=True, kw_only=True):
    """The work of a tool call has waited ``waited_ms`` for people. ``waits``: it waits at a gate now."""

    operation_id: str
    waited_ms: int
    waits: bool = False


class GateReported(Value, frozen=True, kw_only=True):
    """A gate of the work of an operation has opened or closed: of a called agent, or of a run below a tool. A
    report may arrive twice.
    """

    gate: Gate
    operation_id: str


class TimerFired(Value, frozen=True, kw_only=True):
    """An operation's ``wake_ms`` has passed: its deadline, or the time of its next attempt.

    ``partial_text`` as in `CancelTurn`, for the operation of a model.
    """

    operation_id: str
    partial_text: str = field(default="", name="spoken")


class Restarted(Value, frozen=True, kw_only=True):
    """The server has restarted and found this operation in the outbox.

    ``metered``: an interrupted model call counts as a call with unknown usage.
    """

    operation_id: str
    metered: bool = False


Result = (
    ModelAnswered | ModelUsageReported | Succeeded | Failed | BudgetNearlyExhausted | TimerFired | Restarted
)
OfGates = ResolveGate | WaitsMeasured | GateReported
Staging = AddHistory | Publish | Discard
Input = Create | Send | Post | CancelTurn | CancelCall | OfGates | Result | Staging | LifecycleInput
