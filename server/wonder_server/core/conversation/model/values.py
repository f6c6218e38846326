"""Rows of a conversation's record, as frozen values.

Times are milliseconds since 1970 UTC; 0 means "not yet". Defaults never change (`wonder_server.core.frozen`).
"""

from __future__ import annotations

from enum import StrEnum

from wonder_server.core.actor.commands import MAX_DEPTH, Parent
from wonder_server.core.actor.gates import Gate
from wonder_server.core.budget import NO_BUDGET, Budget, BudgetLevel
from wonder_server.core.content.parts import Parts
from wonder_server.core.conversation.model.event_payloads import ResultExcerpt
from wonder_server.core.conversation.model.exchange import PromptSnapshot, Quote, Summary
from wonder_server.core.conversation.model.histories.origin import ConversationOrigin
from wonder_server.core.definitions.overrides import TurnOverrides
from wonder_server.core.definitions.specs import PinnedAgent
from wonder_server.core.errors import Fault
from wonder_server.core.frozen import Value, field
from wonder_server.core.json_types import JsonDict, JsonValue
from wonder_server.core.model import ToolCall, Usage


class ConversationStatus(StrEnum):
    """Status of a conversation. ``waiting``: every active turn waits for tools, agents or people."""

    ACTIVE = "active"
    WAITING = "waiting"
    COMPLETED = "completed"
    FAILED = "failed"


class TurnStatus(StrEnum):
    """Status of a turn. ``cancelled`` differs from ``failed``: its cause needs no investigation (B9).
    ``queued``: it starts when the earlier turns of its agent have ended.
    """

    ACTIVE = "active"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"
    QUEUED = "queued"


class Role(StrEnum):
    """Author of a message: a user or an agent."""

    USER = "user"
    AGENT = "agent"


class ToolErrorCode(StrEnum):
    """The seven error codes that a model can receive."""

    EXECUTION_FAILED = "EXECUTION_FAILED"
    TIMEOUT = "TIMEOUT"
    NOT_FOUND = "NOT_FOUND"
    PERMISSION_DENIED = "PERMISSION_DENIED"
    INVALID_INPUT = "INVALID_INPUT"
    AGENT_DECLINED = "AGENT_DECLINED"
    INTERNAL_ERROR = "INTERNAL_ERROR"


class Participant(Value, frozen=True, kw_only=True):
    """A user or an agent in the conversation. ``type`` is ``user`` or ``agent``.

    ``origin`` is ``created`` (with the conversation), ``added`` or ``looped_in``. ``added_by`` is the
    caller that added it; None if it joined by itself.
    """

    type: str
    id: str
    name: str = ""
    joined_ms: int = 0
    origin: str = "created"
    added_by: Caller | None = None


class Conversation(Value, frozen=True, kw_only=True):
    """A conversation.

    ``called_by`` is set if the conversation was created for one delegated turn: the id of the calling run,
    conversation or user. Lists omit such a conversation. ``branch`` is then the caller's branch.

    ``expire_ms`` is the time of archiving; 0 for never. Each turn sets it to ``expire_after_ms`` after its
    start. ``archived_ms`` is the time at which archiving began. Once ``archive_key`` names the object that
    holds the record, only this row remains. ``stale_archive`` is an object to remove, such as the one that
    the conversation was restored from. ``deleted_ms`` is the time at which deletion began; reads no longer
    find the conversation.

    Agents do not see turns up to ``reset_ordinal``, which have ``reset_messages`` messages. ``prompts``
    replace their personas' system messages since that reset.

    ``created_by`` and ``updated_by`` are the principals that created the conversation and changed it last, as
    in `Scope`; "" in records of earlier versions. Messages are no changes.

    ``concurrent_turns`` is the policy for messages while an agent works (`ConcurrentTurns`); "" for the
    persona's. ``former_external_ref`` is the external reference that the conversation had until it expired
    and a new one took it. ``origin`` is None if it began without a history.

    ``budget`` limits the sum of all turns. ``busy_ms`` is the time in which turns were active, and
    ``busy_since_ms`` the start of the current active time (0: no turn is active). Both are counted only if
    the budget limits time.
    """

    id: str
    project_id: str
    title: str = ""
    participants: tuple[Participant, ...] = ()
    status: ConversationStatus = ConversationStatus.ACTIVE
    external_ref: str = ""
    metadata: JsonDict = field(default_factory=dict)
    turn_count: int = 0
    message_count: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cost_micros: int = 0
    model_calls: int = 0
    unpriced_calls: int = 0
    budget: Budget = NO_BUDGET
    busy_ms: int = 0
    busy_since_ms: int = 0
    version: int = 1
    created_ms: int = 0
    updated_ms: int = 0
    called_by: str = ""
    expire_ms: int = 0
    expire_after_ms: int = 0
    archived_ms: int = 0
    archive_key: str = field(default="", name="archive")
    stale_archive: str = field(default="", name="spent")
    deleted_ms: int = 0
    reset_ordinal: int = 0
    reset_messages: int = 0
    prompts: tuple[PromptSnapshot, ...] = ()
    summary: Summary | None = None
    branch: str = ""
    created_by: str = ""
    updated_by: str = ""
    former_external_ref: str = ""
    cached_input_tokens: int = 0
    cache_write_input_tokens: int = 0
    reasoning_tokens: int = 0
    concurrent_turns: str = ""
    origin: ConversationOrigin | None = None


class HistoryReset(Value, frozen=True, kw_only=True):
    """A reset: agents no longer see turns up to ``last_turn_ordinal``."""

    keep_system_message: bool
    last_turn_ordinal: int


class BranchMerge(Value, frozen=True, kw_only=True):
    """A merge of ``branch`` of ``repository`` into ``target_branch``, as ``commit``."""

    repository: str
    branch: str
    target_branch: str
    commit: str
    user_id: str = ""


class Caller(Value, frozen=True, kw_only=True):
    """The caller that started a turn. ``type`` is ``user``, ``workflow`` or ``agent`` and determines which
    ids are set.
    """

    type: str = "user"
    user_id: str = ""
    run_id: str = ""
    agent_id: str = ""
    turn_id: str = ""


class Turn(Value, frozen=True, kw_only=True):
    """One unit of agent work: an input, the agent's moves, an outcome.

    ``parent`` is the actor that waits for the turn; None without one. ``depth`` counts the nested agent
    calls, and ``max_depth`` is their limit. ``call_chain`` lists the calling agents, outermost first.
    ``output`` is the answer of a delegated turn to its caller, as text. With an output schema it is the
    parsed answer of any turn. ``output_schema`` is the schema that the caller set; empty for that of the
    persona.
    ``quote`` is the message with the id ``reply_to_message_id``; None if agents no longer see it, and in
    records of earlier versions. ``history_start`` is the ordinal of the first turn in the history of the
    turn's requests; 0 for all of the recent turns.

    Tokens, calls and the known part of the cost are the turn's usage
    (`wonder_server.core.conversation.model.usage`). ``budget`` is the caller's limit. ``trace_id`` is the
    caller's trace; "" for the turn's own (`wonder_server.core.actor.trace`). ``principal`` is the
    authenticated caller that started the turn or the work around it, as in `Scope`. ``caller`` is what that
    caller said about itself. ``cancelled_by`` is the principal that cancelled the turn, or "". ``itemized``:
    the usage counts cached and reasoning tokens, as turns of earlier rules do not (`TURN_RULES`).
    ``waited_ms`` is the time of waiting for people, known up to ``waited_until_ms``; no limit counts it.
    ``started_ms`` is the start of a turn that was queued; 0 for any other, which starts at ``created_ms``.
    ``history_end`` is the ordinal of the last message in its history if that is newer than its own, else 0.
    ``root_id`` is the root run above the calling run, or "". ``overrides`` are the settings of its message;
    the pinned agent has those of model and instructions.
    """

    id: str
    conversation_id: str
    ordinal: int
    caller: Caller
    agent_id: str
    agent_name: str
    persona: str
    input: str
    reply_to_message_id: str = ""
    status: TurnStatus = TurnStatus.ACTIVE
    fault: Fault | None = None
    context_assembly_run_id: str = ""
    memory_extraction_run_id: str = ""
    memory_extraction_failed: bool = False
    tool_failures: int = 0
    metadata: JsonDict = field(default_factory=dict)
    moves: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cost_micros: int = 0
    model_calls: int = 0
    unpriced_calls: int = 0
    budget: Budget | None = None
    created_ms: int = 0
    completed_ms: int = 0
    parent: Parent | None = None
    depth: int = 0
    max_depth: int = MAX_DEPTH
    call_chain: tuple[str, ...] = field(default=(), name="callers")
    output: JsonValue = None
    trace_id: str = ""
    principal: str = ""
    cancelled_by: str = ""
    output_schema: JsonDict = field(default_factory=dict)
    quote: Quote | None = None
    cached_input_tokens: int = 0
    cache_write_input_tokens: int = 0
    reasoning_tokens: int = 0
    itemized: bool = False
    history_start: int = 0
    started_ms: int = 0
    history_end: int = 0
    waited_ms: int = 0
    waited_until_ms: int = 0
    root_id: str = ""
    overrides: TurnOverrides | None = None


class Message(Value, frozen=True, kw_only=True):
    """A message of a user or an agent: a text, or ``parts`` with the text of the text parts as ``content``.

    ``partial``: a cancel or a limit cut the text off. ``whole_bytes`` is the size of the uncut text; 0 if
    ``content`` is complete.
    """

    id: str
    conversation_id: str
    turn_id: str
    ordinal: int
    role: Role
    author: str
    content: str
    reply_to_message_id: str = ""
    partial: bool = False
    created_ms: int = 0
    whole_bytes: int = 0
    parts: Parts = ()


class ToolResult(Value, frozen=True, kw_only=True):
    """Result of a tool call: ``result`` on success, else ``code`` and ``message``.

    ``created_ms`` is the time of the result, ``attempts`` and ``duration_ms`` its effort; all are 0 if
    nothing ran. ``fault`` is the complete fault behind ``code`` and ``message``; the model does not see it.
    ``excerpt`` is set if the model gets only a part of the result. The record has all of it. ``note`` is a
    sentence that the model gets after the result; "" for none. ``hidden`` are the members of ``result``
    that only the record has.
    """

    tool_call_id: str
    success: bool
    result: JsonValue = None
    code: ToolErrorCode | None = None
    message: str = ""
    retriable: bool = False
    created_ms: int = 0
    attempts: int = 0
    duration_ms: int = 0
    fault: Fault | None = None
    excerpt: ResultExcerpt | None = None
    note: str = ""
    hidden: tuple[str, ...] = ()


class Invocation(Value, frozen=True, kw_only=True):
    """A tool call of a move with its result. ``result`` is None while it runs.

    ``is_async``: the move does not wait for the result. A later notice reports it to the model.
    ``tool_id`` is the pin of the tool, ``library/name@revision``; before `TURN_RULES` 3 the id of its
    definition. ``gate_id`` is the gate at which the call waited for a person; "" without one. ``edited`` are
    the arguments with which the person let it run; None for those of the call.
    """

    call: ToolCall
    tool_id: str = ""
    operation_id: str = ""
    result: ToolResult | None = None
    is_async: bool = False
    gate_id: str = ""
    edited: JsonDict | None = None


class Move(Value, frozen=True, kw_only=True):
    """One iteration of the agent loop: the model's answer, its tool calls, their results.

    ``reported`` are the asynchronous invocations of earlier moves whose results this move's request
    contained. ``completed_ms`` is the time of the last result, without asynchronous ones. ``provider`` and
    ``model_profile`` (``library/name@revision``) are those that answered; "" before `TURN_RULES` 4.
    ``asker`` is the label of the people whom the results of ``reported`` serve; "" for the only one.
    """

    id: str
    conversation_id: str
    turn_id: str
    sequence: int
    message_id: str
    reasoning: str = ""
    invocations: tuple[Invocation, ...] = ()
    reported: tuple[Invocation, ...] = field(default=(), name="told")
    raw: JsonDict = field(default_factory=dict)
    model: str = ""
    stop_reason: str = "end"
    usage: Usage = field(default_factory=Usage)
    created_ms: int = 0
    completed_ms: int = 0
    provider: str = ""
    model_profile: str = ""
    asker: str = ""


class OperationKind(StrEnum):
    """Kinds of work that a turn dispatches."""

    ASSEMBLY = "assembly"
    MODEL = "model"
    TASK = "task"
    WORKFLOW = "workflow"
    AGENT = "agent"
    EXTRACTION = "extraction"
    MEMORY = "memory"
    SUMMARY = "summary"


TOOL_KINDS = frozenset({OperationKind.TASK, OperationKind.WORKFLOW, OperationKind.AGENT})
"""Kinds of operation that execute a tool call."""


class OperationStatus(StrEnum):
    """Status of an operation. ``approval``: a tool call waits for a person at a gate."""

    APPROVAL = "approval"
    DISPATCHED = "dispatched"
    BACKOFF = "backoff"
    DONE = "done"


class Operation(Value, frozen=True, kw_only=True):
    """Dispatched work whose result arrives later as an input. The outbox is the set of these.
    ``wake_ms`` is the deadline while dispatched, and the time of the next attempt during backoff.
    ``attempt`` counts up to ``max_attempts``. ``dispatches`` counts all, including those after restarts.

    ``message_id`` is the message of a model call. ``tool_call_id`` and ``tool_name`` identify the tool
    call, and ``tool_id`` is the pin of its tool, as in `Invocation`. ``target`` is the pin or agent id that
    the tool is bound to. ``mode`` is the mode of an agent call. ``run_id`` is the run or delegated
    conversation that executes the attempt: a new one for each. A looped-in agent has that of the turn.

    ``is_async``: the turn does not wait for the operation. ``reports`` are the asynchronous operations
    whose results a model call's request contains. ``repeatable``: the operation can be executed again after
    a crash (feature I4). ``metered``: a hook's usage was charged as it occurred, so the usage in its output
    does not count. ``through``: the assembly is not the turn's first, and its input contains the messages up
    to this ordinal.

    ``gate_id`` is the gate at which a tool call waits, or waited, for approval; "" without one. ``held_ms``
    is the time in which the work of a tool call waited for people, as far as its deadline was moved by it.
    ``due_ms`` is that deadline while ``wake_ms`` is the time of a question about waits; 0 otherwise.
    ``held_at_ms`` is the time of the last answer that the work waits; 0 if it did not. ``gates_below`` are
    open gates of that work which the conversation shows.
    """

    id: str
    turn_id: str
    kind: OperationKind
    input: JsonValue = None
    message_id: str = ""
    tool_call_id: str = ""
    tool_name: str = ""
    target: str = ""
    mode: str = ""
    is_async: bool = False
    reports: tuple[str, ...] = field(default=(), name="tells")
    run_id: str = ""
    status: OperationStatus = OperationStatus.DISPATCHED
    attempt: int = 1
    dispatches: int = 1
    max_attempts: int = 1
    backoff_ms: int = 1000
    timeout_ms: int = 60_000
    wake_ms: int = 0
    repeatable: bool = True
    metered: bool = False
    created_ms: int = 0
    through: int = 0
    tool_id: str = ""
    gate_id: str = ""
    due_ms: int = 0
    held_ms: int = 0
    held_at_ms: int = 0
    gates_below: tuple[Gate, ...] = ()


TURN_RULES = 6
"""Version of the rules that new turns follow.

    1   requests have a stable beginning, tool calls in their history, and grow by what others say meanwhile
    2   turns count cached and reasoning tokens
    3   tool calls name the pinned revision of their tool
    4   replies in the history say what they answer; moves name the provider and the profile that answered;
        called agents are offered the tool `decline`; messages follow the policy for concurrent turns;
        waits for people do not count against the timeout of a tool; failed summaries rest
    5   hooks go on with fallbacks and know limits of cost; notices are true of messages without a turn
    6   a message's tool choice keeps the model profile's other settings of tools; a call that a restart
        interrupted counts the tokens of its request; notices of results name who asked; models get the
        answers of called agents without ids
"""


class Steer(Value, frozen=True, kw_only=True):
    """A message that a running turn takes: what a turn of its own would need if that turn ends before.

    ``ordinal`` is that of the message; the other fields are those of the `Send`.
    """

    message_id: str
    ordinal: int
    agent: PinnedAgent
    caller: Caller
    metadata: JsonDict = field(default_factory=dict)
    trace_id: str = ""
    principal: str = ""
    quote: Quote | None = None


class TurnWork(Value, frozen=True, kw_only=True):
    """Data of an unfinished turn beyond its row: the agent, pinned at the start of the turn.

    ``levels`` are the turns above it whose budgets limit its model calls, outermost first.

    ``steers`` are the messages that people sent to the turn itself (`ConcurrentTurns`); requests up to their
    ordinal contain them.

    ``rules`` is the version of the planner's rules that the turn follows (`TURN_RULES`), so that a turn of an
    earlier build goes on and replays as that build decided; 0 before rules had versions.

    After a switch to a fallback of the model profile (`planning.assembly`), ``foreign_moves`` is the number
    of moves of other models, and the first answer continues the message ``message_id``, which had
    ``dispatches``.
    """

    turn_id: str
    agent: PinnedAgent
    rules: int = 0
    foreign_moves: int = 0
    message_id: str = ""
    dispatches: int = 0
    steers: tuple[Steer, ...] = ()
    levels: tuple[BudgetLevel, ...] = ()


class Request(Value, frozen=True, kw_only=True):
    """The request of an unfinished turn in the provider's format. It grows with each move.

    The store keeps each of its messages once, however many requests repeat it. ``wrap_up`` is the limit
    because of which the request asks the model to finish; None if it does not. ``shortened``: the provider
    rejected the request once as too long. ``repair``: it asks for a valid answer after an invalid one.
    ``through`` is the ordinal of the newest message of the conversation that the request contains, as history
    or in a notice; later messages of other turns come with the next request. 0 in turns with the rules 0.
    """

    turn_id: str
    body: JsonDict
    wrap_up: Fault | None = None
    shortened: bool = False
    repair: bool = False
    through: int = 0
