"""Messages to an agent whose turn in the conversation is not over (feature M11).

The policy is the conversation's, else that of the agent's persona, else ``parallel``. It counts for each
agent by itself, and only for messages of people: a turn that a run or another turn waits for starts at once,
since the first turn may itself wait for that caller.

    queue       the turn has the status ``queued`` until no turn of the agent runs; then the oldest begins
    interrupt   the running and the queued turns of the agent are cancelled, and the message starts its turn
    steer       the message becomes one of the running turn, whose next request contains it; if the turn ends
                before, a turn starts for it. A message with files waits, as with ``queue``, and so do all
                messages behind it: requests in progress take text alone

Turns of other agents, and turns that callers wait for, neither wait nor make others wait.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from wonder_server.core.conversation.context.history import select_history
from wonder_server.core.conversation.context.meanwhile import untaken
from wonder_server.core.conversation.model.decisions import (
    AppendMessage,
    BeginTurn,
    CompleteTurn,
    Decision,
    DispatchWorkflow,
    EndTurnByCancel,
    FailTurn,
    MarkWaiting,
    MoveMessage,
    Refuse,
    StartTurn,
    SteerTurn,
)
from wonder_server.core.conversation.model.inputs import Send
from wonder_server.core.conversation.model.operations import Decisions, fail_turn
from wonder_server.core.conversation.model.state import ConversationState
from wonder_server.core.conversation.model.status import OPEN
from wonder_server.core.conversation.model.turn_progress import progress_of
from wonder_server.core.conversation.model.values import (
    TOOL_KINDS,
    Conversation,
    Steer,
    Turn,
    TurnStatus,
    TurnWork,
)
from wonder_server.core.conversation.planning import assembly
from wonder_server.core.conversation.planning.lifecycle import cancel_turns, reactivate
from wonder_server.core.conversation.planning.limits import unaffordable
from wonder_server.core.conversation.planning.start_turn import (
    first_message,
    join,
    new_turn,
    refusal_of,
    start_turn,
    work_of,
)
from wonder_server.core.conversation.planning.summarization import (
    RULES_OF_RESTING_SUMMARIES,
    assembly_hook,
    first_hook,
    was_tried,
)
from wonder_server.core.definitions.specs import ConcurrentTurns
from wonder_server.core.errors import Fault, Reason
from wonder_server.core.frozen import replace
from wonder_server.core.ids import Minter

RULES_OF_CONCURRENCY = 4
"""Version of `TURN_RULES` from which on messages follow the policy."""

INTERRUPTED = Fault(
    reason=Reason.CANCELLED,
    message="A newer message interrupted the turn.",
    metadata={"interrupted": "true"},
)

After = Callable[[ConversationState, Sequence[Decision]], ConversationState]
"""Returns the state after decisions (`output.provisional`)."""


def receive(state: ConversationState, event: Send, now: int, after: After) -> Decisions:
    """Return the decisions for a message, by the policy of its conversation or agent."""
    policy = policy_for(state.conversation, event)
    if policy is ConcurrentTurns.PARALLEL:
        return start_turn(state, event, now)
    running, queued = _running(state, event.agent.agent_id), _queued(state, event.agent.agent_id)
    if not running and not queued:
        return start_turn(state, event, now)
    refusal = refusal_of(state, event)
    if refusal is not None:
        return (Refuse(fault=refusal),)
    if policy is ConcurrentTurns.INTERRUPT:
        return _interrupt(state, event, [*running, *queued], now, after)
    steers = not event.parts and event.overrides is None
    if policy is ConcurrentTurns.STEER and steers and running and not queued:
        return _steer(state, event, running[-1], now, after)
    return _queue(state, event, len(queued), now)


def policy_for(conversation: Conversation | None, event: Send) -> ConcurrentTurns:
    """Return the policy for a message."""
    if event.rules < RULES_OF_CONCURRENCY or event.parent is not None or conversation is None:
        return ConcurrentTurns.PARALLEL
    own = conversation.concurrent_turns
    return ConcurrentTurns(own) if own else event.agent.persona.concurrent_turns


def _running(state: ConversationState, agent_id: str) -> list[Turn]:
    """Return the active turns of the agent that messages of people started, by ordinal."""
    return [turn for turn in state.active_turns() if turn.agent_id == agent_id and turn.parent is None]


def _queued(state: ConversationState, agent_id: str) -> list[Turn]:
    """Return the queued turns of the agent in the order in which their messages arrived."""
    queued = [turn for turn in state.queued_turns() if turn.agent_id == agent_id]
    return sorted(queued, key=lambda turn: state.messages[turn.id][0].ordinal)


def _interrupt(state: ConversationState, event: Send, turns: list[Turn], now: int, after: After) -> Decisions:
    cancelled = [replace(turn, cancelled_by=event.principal) for turn in turns]
    ended = cancel_turns(state, cancelled, INTERRUPTED, event.partial_texts, now)
    return (*ended, *start_turn(after(state, ended), event, now))


def _queue(state: ConversationState, event: Send, waiting: int, now: int) -> Decisions:
    if waiting >= event.max_waiting:
        return _too_many(waiting)
    conversation = state.conversation
    assert conversation is not None, "a message to a missing conversation is rejected"
    reactivated, conversation = reactivate(conversation, now)
    ids = Minter(event.seed, now)
    turn = replace(new_turn(conversation, event, ids, now), status=TurnStatus.QUEUED)
    return (
        *reactivated,
        *join(conversation, event, now),
        StartTurn(turn=turn, work=work_of(turn, event)),
        AppendMessage(message=first_message(conversation, event, turn.id, ids.new("msg"), now)),
    )


def _steer(state: ConversationState, event: Send, turn: Turn, now: int, after: After) -> Decisions:
    waiting = untaken(state, turn.id)
    if len(waiting) >= event.max_waiting:
        return _too_many(len(waiting))
    conversation = state.conversation
    assert conversation is not None, "a message to a missing conversation is rejected"
    reactivated, conversation = reactivate(conversation, now)
    ids = Minter(event.seed, now)
    message = first_message(conversation, event, turn.id, ids.new("msg"), now)
    steer = Steer(
        message_id=message.id,
        ordinal=message.ordinal,
        agent=event.agent,
        caller=event.caller,
        metadata=event.metadata,
        trace_id=event.trace_id,
        principal=event.principal,
        quote=event.quote,
    )
    work = replace(state.turn_work[turn.id], steers=(*waiting, steer))
    decisions = (*reactivated, *join(conversation, event, now), SteerTurn(work=work, message=message))
    if not _is_idle(state, turn):
        return decisions
    resumed = assembly.assemble_again(after(state, decisions), turn, work.agent, ids, now)
    return (*decisions, *resumed)


def _is_idle(state: ConversationState, turn: Turn) -> bool:
    """Return True if the turn waits only for background tools, so that no request of it is due."""
    return all(each.is_async and each.kind in TOOL_KINDS for each in state.pending(turn.id))


def _too_many(waiting: int) -> Decisions:
    message = (
        f"{waiting} messages to this agent wait in the conversation already, which is the most that "
        "`max_waiting_messages` allows. Wait for a turn to end, or cancel one."
    )
    return (Refuse(fault=Fault(reason=Reason.LIMIT_EXCEEDED, message=message, field="conversation_id")),)


# --- after the end of a turn ------------------------------------------------------------------------


def begin_waiting(state: ConversationState, decisions: Decisions, now: int, after: After) -> Decisions:
    """Return the decisions with the turns that begin because they end others: for messages that such a turn
    did not take, and of the queue.
    """
    if not _has_waiting(state):
        return decisions
    ends = [each for each in decisions if isinstance(each, CompleteTurn | FailTurn | EndTurnByCancel)]
    if not ends:
        return decisions
    changed = after(state, decisions)
    conversation = changed.conversation
    if conversation is None or conversation.deleted_ms or conversation.status not in OPEN:
        return decisions
    begun: list[Decision] = []
    for end in ends:
        # A cancel ends what the turn was given, too. The messages stay in the history.
        work = None if isinstance(end, EndTurnByCancel) else state.turn_work.get(end.turn.id)
        steers = untaken(state, end.turn.id) if work is not None else ()
        if work is not None and steers:
            more = _turn_of_steers(changed, state.turns[end.turn.id], steers, work.rules, now)
            begun, changed = [*begun, *more], after(changed, more)
    for agent_id in dict.fromkeys(end.turn.agent_id for end in ends):
        for turn in _queued(changed, agent_id):
            if _running(changed, agent_id):
                break
            more = _begin(changed, turn, now)
            begun, changed = [*begun, *more], after(changed, more)
    return (*decisions, *begun)


def _has_waiting(state: ConversationState) -> bool:
    return any(
        work.steers or state.turns[work.turn_id].status is TurnStatus.QUEUED
        for work in state.turn_work.values()
    )


def _turn_of_steers(
    state: ConversationState, ended: Turn, steers: Sequence[Steer], rules: int, now: int
) -> Decisions:
    """Queue a turn for the first of the messages. It takes the others with its first request."""
    conversation = state.conversation
    assert conversation is not None, "a turn has a conversation"
    first = steers[0]
    messages = {each.id: each for each in state.messages.get(ended.id, ())}
    message = messages[first.message_id]
    event = Send(
        seed=message.id,
        agent=first.agent,
        caller=first.caller,
        content=message.content,
        reply_to_message_id=message.reply_to_message_id,
        metadata=first.metadata,
        trace_id=first.trace_id,
        principal=first.principal,
        quote=first.quote,
        rules=rules,
    )
    queued = new_turn(conversation, event, Minter(message.id, now), now)
    turn = replace(queued, status=TurnStatus.QUEUED)
    work = TurnWork(turn_id=turn.id, agent=first.agent, rules=rules, steers=tuple(steers[1:]))
    moved = [
        MoveMessage(message=replace(messages[each.message_id], turn_id=turn.id), from_turn_id=ended.id)
        for each in steers
    ]
    return (StartTurn(turn=turn, work=work), *moved)


def _begin(state: ConversationState, turn: Turn, now: int) -> Decisions:
    """Begin a queued turn. It fails if the conversation's budget was used up meanwhile."""
    conversation, work = state.conversation, state.turn_work[turn.id]
    assert conversation is not None, "a turn has a conversation"
    fault = unaffordable(conversation)
    if fault is not None:
        return fail_turn(turn, fault, now)
    ids = Minter(turn.id, now)
    begun = replace(turn, status=TurnStatus.ACTIVE, started_ms=now, history_end=conversation.message_count)
    omitted = select_history(state, begun, work.agent)
    begun = replace(begun, history_start=omitted.first_turn if omitted is not None else 0)
    if work.rules >= RULES_OF_RESTING_SUMMARIES and was_tried(state, begun):
        hook = assembly_hook(begun, omitted, ids, now)
    else:
        hook = first_hook(state, begun, work.agent, omitted, ids, now)
    return (
        BeginTurn(
            turn=progress_of(begun),
            started_ms=begun.started_ms,
            history_start=begun.history_start,
            history_end=begun.history_end,
        ),
        DispatchWorkflow(operation=hook),
        MarkWaiting(turn_id=turn.id, operation_id=hook.id),
    )
