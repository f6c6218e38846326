"""What a conversation is made of: the rows of its record, as frozen values (document 1).

Times are milliseconds since 1970 UTC; 0 means "not yet". What has its default is not written down, so that a
default never changes (`wonder_server.core.frozen`).
"""

from __future__ import annotations

from enum import StrEnum
from typing import Any

from wonder_server.core.actor.commands import MAX_DEPTH, Parent
from wonder_server.core.budget import NO_BUDGET, Budget
from wonder_server.core.definitions.specs import PinnedAgent
from wonder_server.core.errors import Fault
from wonder_server.core.frozen import Value, field
from wonder_server.core.model import ToolCall, Usage


class ConversationStatus(StrEnum):
    ACTIVE = "active"
    WAITING = "waiting"
    COMPLETED = "completed"
    FAILED = "failed"


class TurnStatus(StrEnum):
    """``cancelled`` is document 1's ``failed`` with the one cause that nobody has to look into (B9)."""

    ACTIVE = "active"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"


class Role(StrEnum):
    USER = "user"
    AGENT = "agent"


class ToolErrorCode(StrEnum):
    """The seven error codes that a model can see (document 1)."""

    EXECUTION_FAILED = "EXECUTION_FAILED"
    TIMEOUT = "TIMEOUT"
    NOT_FOUND = "NOT_FOUND"
    PERMISSION_DENIED = "PERMISSION_DENIED"
    INVALID_INPUT = "INVALID_INPUT"
    AGENT_DECLINED = "AGENT_DECLINED"
    INTERNAL_ERROR = "INTERNAL_ERROR"


class Participant(Value, frozen=True, kw_only=True):
    """A user or an agent in the room. ``type`` is ``user`` or ``agent``.

    ``origin`` is ``created`` (there from the beginning), ``added`` or ``looped_in``; ``added_by`` is who did
    that, if somebody else did.
    """

    type: str
    id: str
    name: str = ""
    joined_ms: int = 0
    origin: str = "created"
    added_by: Caller | None = None


class Conversation(Value, frozen=True, kw_only=True):
    """The room. ``called_by`` is set if it was made for one delegated turn: the id of the run, conversation
    or user that called. Lists leave such a room out. ``branch`` is the branch of that one's work then.

    ``expire_ms`` is when it is archived, 0 for never; each turn moves it on by ``expire_after_ms``.
    ``archived_ms`` is when that was decided; once ``archive`` names the object that holds its record, nothing
    else is left here. ``spent`` is the object that it was brought back from, until that is removed.
    ``deleted_ms``: it is being deleted, and nobody finds it any more. Agents do not see
    turns up to ``reset_ordinal``; ``prompts`` stand in for their personas' system messages since then.

    ``budget`` is what its turns may spend altogether. For how long turns were active is ``busy_ms``, and
    since when ``busy_since_ms`` (0: none is); they are counted if the budget asks.
    """

    id: str
    project_id: str
    title: str = ""
    participants: tuple[Participant, ...] = ()
    status: ConversationStatus = ConversationStatus.ACTIVE
    external_ref: str = ""
    metadata: dict[str, Any] = field(default_factory=dict)
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
    prompts: tuple[PromptSnapshot, ...] = ()
    summary: Summary | None = None
    branch: str = ""


class Summary(Value, frozen=True, kw_only=True):
    """What stands in for the messages up to ``last_ordinal``, ``messages`` of them, for agents that sum up.
    It counts until the conversation begins anew after a later turn than ``after_turn``."""

    text: str
    last_ordinal: int
    messages: int
    after_turn: int = 0


class PromptSnapshot(Value, frozen=True, kw_only=True):
    """An agent's system message as it was when the conversation began."""

    agent_id: str
    system_prompt: str
    instructions: tuple[str, ...] = ()


class HistoryReset(Value, frozen=True, kw_only=True):
    """A conversation begins anew: agents do not see turns up to ``last_turn_ordinal`` any more."""

    keep_system_message: bool
    last_turn_ordinal: int


class BranchMerge(Value, frozen=True, kw_only=True):
    """What was done on ``branch`` of ``repository`` is in ``target_branch`` now, as ``commit``."""

    repository: str
    branch: str
    target_branch: str
    commit: str
    user_id: str = ""


class Caller(Value, frozen=True, kw_only=True):
    """Who started a turn. ``type`` is ``user``, ``workflow`` or ``agent`` and says which ids are set."""

    type: str = "user"
    user_id: str = ""
    run_id: str = ""
    agent_id: str = ""
    turn_id: str = ""


class Turn(Value, frozen=True, kw_only=True):
    """One unit of agent work: an input, what the agent did with it, how it ended.

    ``parent`` is who waits for it, if an actor does; ``depth`` counts the calls from agent to agent that led
    to it, ``max_depth`` is how deep they may go, and ``callers`` are the agents who made them; ``output`` is
    what a delegated turn gave to its caller. Tokens, calls and the known part of the cost are what it has
    spent (`spending`), ``budget`` is what its caller lets it spend. ``trace_id`` is the trace of who called,
    "" if it began here (`wonder_server.core.actor.trace`).
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
    metadata: dict[str, Any] = field(default_factory=dict)
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
    output: str | None = None
    trace_id: str = ""


class Message(Value, frozen=True, kw_only=True):
    """An utterance. ``partial``: it was cut off by a cancel. ``whole_bytes``: the bytes of the text that
    ``content`` was cut from; 0 if it is all there."""

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


class ToolResult(Value, frozen=True, kw_only=True):
    """What a tool call came to: ``result`` if it succeeded, else ``code`` and ``message``.

    ``created_ms`` is when it was there, ``attempts`` and ``duration_ms`` what it took; all 0 if nothing ran.
    ``fault`` is what became ``code`` and ``message``, with all that is known of it; the model is not told.
    """

    tool_call_id: str
    success: bool
    result: Any = None
    code: ToolErrorCode | None = None
    message: str = ""
    retriable: bool = False
    created_ms: int = 0
    attempts: int = 0
    duration_ms: int = 0
    fault: Fault | None = None


class Invocation(Value, frozen=True, kw_only=True):
    """A tool call of a move, with what became of it. ``result`` is None while it runs.

    ``is_async``: the move does not wait for it; the model is told of the result by a notice, later.
    """

    call: ToolCall
    tool_id: str = ""
    operation_id: str = ""
    result: ToolResult | None = None
    is_async: bool = False


class Move(Value, frozen=True, kw_only=True):
    """One iteration of the loop: what the model said, what it called, what came back.

    ``told`` are the invocations of earlier moves, in the background, whose results the model was told of
    before it answered. ``completed_ms`` is when its last result was there, those in the background aside.
    """

    id: str
    conversation_id: str
    turn_id: str
    sequence: int
    message_id: str
    reasoning: str = ""
    invocations: tuple[Invocation, ...] = ()
    reported: tuple[Invocation, ...] = field(default=(), name="told")
    raw: dict[str, Any] = field(default_factory=dict)
    model: str = ""
    stop_reason: str = "end"
    usage: Usage = field(default_factory=Usage)
    created_ms: int = 0
    completed_ms: int = 0


class OperationKind(StrEnum):
    """What a turn can be waiting for."""

    ASSEMBLY = "assembly"
    MODEL = "model"
    TASK = "task"
    WORKFLOW = "workflow"
    AGENT = "agent"
    EXTRACTION = "extraction"
    MEMORY = "memory"
    SUMMARY = "summary"


TOOL_KINDS = frozenset({OperationKind.TASK, OperationKind.WORKFLOW, OperationKind.AGENT})
"""What a model's tool calls become."""


class OperationStatus(StrEnum):
    DISPATCHED = "dispatched"
    BACKOFF = "backoff"
    DONE = "done"


class Operation(Value, frozen=True, kw_only=True):
    """Something dispatched whose result will come back as an input: the outbox.

    ``wake_ms`` is the deadline while dispatched, the time of the next attempt while backing off.
    ``attempt`` counts against ``max_attempts``; ``dispatches`` counts how often it was handed out, restarts
    of the server included. ``message_id`` is what a model call speaks under; ``tool_call_id`` and
    ``tool_name`` say which call of the move it is, ``target`` what it is bound to: a pin, or an agent's id.
    ``run_id`` is what carries it out, a new one for each attempt: a run, or the conversation of a delegated
    turn; that of one that is looped in is the turn's own. ``mode`` is how an agent is called.
    ``is_async``: the turn does not wait for it. ``tells`` are the operations whose results, which came while
    the turn went on, a model call tells of. ``repeatable``: it may simply be done again after a crash
    (feature I4). ``metered``: what a hook has spent was charged as it was spent, not by what it puts out.
    """

    id: str
    turn_id: str
    kind: OperationKind
    input: Any = None
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


class TurnWork(Value, frozen=True, kw_only=True):
    """What an unfinished turn needs beyond its row: the agent, pinned when the turn began."""

    turn_id: str
    agent: PinnedAgent


class Request(Value, frozen=True, kw_only=True):
    """The request of an unfinished turn, in the provider's own format; it grows with each move.

    The store keeps each of its messages once, however many requests repeat it. ``wrap_up``: the limit for
    which it asks the model to wrap up, if it does. ``shortened``: the provider has refused it once since it
    was too long.
    """

    turn_id: str
    body: dict[str, Any]
    wrap_up: Fault | None = None
    shortened: bool = False


class HistoryTruncation(Value, frozen=True, kw_only=True):
    """What is left out of a turn's history: messages before the ordinal ``first``, ``left_out`` of them with
    ``tokens``. ``summarized``: they stand in the conversation's summary."""

    first: int
    omitted_messages: int = 0
    tokens: int = 0
    summarized: bool = False


class ContextReduction(Value, frozen=True, kw_only=True):
    """How a request was made smaller; tokens are estimates."""

    messages_left_out: int
    summarized: bool
    tokens_before: int
    tokens_after: int


class HookOutcome(Value, frozen=True, kw_only=True):
    """How a hook of a turn ended: what the events ``context_assembly.*`` and ``memory_extraction.*`` say."""

    run_id: str
    workflow: str
    attempts: int
    duration_ms: int
    fault: Fault | None = None


class AgentCall(Value, frozen=True, kw_only=True):
    """A call of another agent: what the events ``agent_call_*`` say. ``turn_id`` is the turn that it led to,
    empty at its beginning, and where it led to none."""

    agent_id: str
    mode: str
    operation_id: str
    turn_id: str = ""
    fault: Fault | None = None
    duration_ms: int = 0


class WorkflowRun(Value, frozen=True, kw_only=True):
    """A run that a tool call started: what the events ``workflow_*`` say. ``duration_ms`` is 0 at its
    beginning, and counts all attempts of the call; each of them is a run of its own."""

    run_id: str
    workflow: str
    operation_id: str
    fault: Fault | None = None
    duration_ms: int = 0


class Limit(Value, frozen=True, kw_only=True):
    """A limit that was reached. ``enforced``: the turn ends; else the model is asked to wrap up."""

    fault: Fault
    enforced: bool
