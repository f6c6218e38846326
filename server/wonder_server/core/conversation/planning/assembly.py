"""The context of a model call after a turn's first one (features C4, D1).

The first model call of a turn has the request of its context assembly. Later calls extend that request at its
end, so that the caches of providers hold its beginning::

    the assistant's message, the results of its calls, what others said meanwhile, asynchronous results

An asynchronous result may arrive much later, while the turn waits for nothing else. It gets an assembly of
its own: the workflow builds the request up to the turn's message from the present memories, history and work
in progress, and `continued` adds the turn's moves to it, in the provider's format, as the model gave them.

A turn whose provider is unavailable goes on with a fallback of its model profile, until it ends. Its context
is assembled again, for the format and the window of the other model, and its moves so far are written in the
neutral form: the own messages of a provider are valid only there. The next answer has the message id of the
failed call and counts its dispatches on, so that readers of a stream drop the text that had arrived.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from wonder_server.core.conversation.context.dialects import Dialect, Request, dialect_of
from wonder_server.core.conversation.context.history import select_history
from wonder_server.core.conversation.context.meanwhile import Said, said_since, steering_messages
from wonder_server.core.conversation.context.notices import askers, said_notice, steering_text
from wonder_server.core.conversation.context.transcript import notice, running_result, transcript_of_move
from wonder_server.core.conversation.context.window import last_known
from wonder_server.core.conversation.model.decisions import (
    CancelOperation,
    DispatchWorkflow,
    MarkWaiting,
    SwitchModel,
)
from wonder_server.core.conversation.model.event_payloads import HistoryTruncation
from wonder_server.core.conversation.model.operations import Decisions, hook_operation
from wonder_server.core.conversation.model.state import ConversationState
from wonder_server.core.conversation.model.values import Message, Move, Operation, OperationKind, Turn
from wonder_server.core.conversation.planning import async_tools
from wonder_server.core.conversation.planning.hooks.side_models import is_worth_another, switch_between
from wonder_server.core.conversation.planning.model_requests import PreparedRequest
from wonder_server.core.conversation.planning.summarization import truncation_input
from wonder_server.core.definitions.specs import PinnedAgent
from wonder_server.core.errors import Fault
from wonder_server.core.frozen import replace
from wonder_server.core.ids import Minter


def assemble_again(
    state: ConversationState, turn: Turn, agent: PinnedAgent, ids: Minter, now: int
) -> Decisions:
    """Dispatch a further assembly of the turn. A summary was made before the first one if it was needed."""
    run_id = ids.child("run", turn.conversation_id)
    assembly = hook_operation(ids.new("op"), turn, OperationKind.ASSEMBLY, run_id, now)
    truncation = select_history(state, turn, agent)
    if truncation is not None:
        assembly = replace(assembly, input=truncation_input(truncation))
    assembly = replace(assembly, through=message_count(state))
    return (DispatchWorkflow(operation=assembly), MarkWaiting(turn_id=turn.id, operation_id=assembly.id))


def message_count(state: ConversationState) -> int:
    """Return the ordinal of the newest message of the conversation; 0 without one."""
    return 0 if state.conversation is None else state.conversation.message_count


def extended(
    state: ConversationState, turn: Turn, agent: PinnedAgent, moves: Sequence[Move], rules: int
) -> PreparedRequest:
    """Return the turn's last request with the last of ``moves``, and all that is new since that request."""
    dialect, request = dialect_of(agent.profile.spec.format), state.requests[turn.id]
    body = _with_move(dialect, request.body, moves[-1])
    if not rules:
        return _with_results(dialect, PreparedRequest(body, rules), moves, "")
    said = said_since(state, turn, agent, request.through)
    body = _with_said(dialect, body, state, turn, said)
    body = _with_steering(dialect, body, state, turn, steering_messages(state, turn, request.through))
    prepared = PreparedRequest(body, rules, through=message_count(state))
    return _with_results(dialect, prepared, moves, askers(state, turn, prepared.through))


def continued(
    state: ConversationState,
    turn: Turn,
    agent: PinnedAgent,
    body: Request,
    truncation: HistoryTruncation | None,
) -> PreparedRequest:
    """Return an assembled request with the turn's moves and with what others said since its message, in the
    order of time.
    """
    rules = state.turn_work[turn.id].rules
    if not rules:
        return PreparedRequest(body, rules, truncation)
    dialect, moves = dialect_of(agent.profile.spec.format), state.moves[turn.id]
    said = said_since(state, turn, agent, last_known(state, turn))
    steering = steering_messages(state, turn, 0)
    for place, move in enumerate(moves):
        earlier = [each for each in said.messages if each.created_ms <= move.created_ms]
        body = _with_said(dialect, body, state, turn, Said(tuple(earlier), said.missing))
        said = Said(said.messages[len(earlier) :])
        given = [each for each in steering if each.created_ms <= move.created_ms]
        body, steering = _with_steering(dialect, body, state, turn, given), steering[len(given) :]
        if move.reported:
            still = async_tools.unknown(moves[: place + 1])
            body = dialect.notice(body, notice(move.reported, still, move.asker))
        if place < state.turn_work[turn.id].foreign_moves:
            body = with_foreign_move(dialect, body, move)
        else:
            body = _with_move(dialect, body, move)
    body = _with_said(dialect, body, state, turn, said)
    body = _with_steering(dialect, body, state, turn, steering)
    prepared = PreparedRequest(body, rules, truncation, through=message_count(state))
    return _with_results(dialect, prepared, moves, askers(state, turn, prepared.through))


def _with_move(dialect: Dialect, body: Request, move: Move) -> Request:
    """Return the request with the model's message and the results of its calls."""
    results = [running_result(entry) if entry.is_async else entry.result for entry in move.invocations]
    return dialect.resume(body, move.raw, [each for each in results if each is not None])


def with_foreign_move(dialect: Dialect, body: Request, move: Move) -> Request:
    """Return the request with a move of another model, whose own message its provider alone understands."""
    written = dialect.format.write_messages(transcript_of_move(move))
    return {**body, dialect.messages: [*body[dialect.messages], *written]}


def _with_said(dialect: Dialect, body: Request, state: ConversationState, turn: Turn, said: Said) -> Request:
    text = said_notice(state, turn, said)
    return dialect.notice(body, text) if text else body


def _with_steering(
    dialect: Dialect, body: Request, state: ConversationState, turn: Turn, messages: Sequence[Message]
) -> Request:
    """Return the request with messages that people sent to the turn itself."""
    for message in messages:
        body = dialect.notice(body, steering_text(state, turn, message))
    return body


def _with_results(
    dialect: Dialect, prepared: PreparedRequest, moves: Sequence[Move], asker: str
) -> PreparedRequest:
    """Return the request with the notice about asynchronous results that no request contains yet."""
    news = async_tools.unreported(moves)
    if not news:
        return prepared
    body = dialect.notice(prepared.body, notice(news, async_tools.running(moves), asker))
    reports = tuple(entry.operation_id for entry in news)
    return dataclasses.replace(prepared, body=body, reports=reports)


# --- fallbacks --------------------------------------------------------------------------------------


def switch_model(
    state: ConversationState, operation: Operation, fault: Fault, ids: Minter, now: int
) -> Decisions:
    """Go on with the next fallback of the turn's profile after a model call has failed finally.

    Returns no decisions if there is none, or if another provider would not help.
    """
    turn, work = state.turns[operation.turn_id], state.turn_work[operation.turn_id]
    if not work.agent.fallbacks or not is_worth_another(fault):
        return ()
    used, (following, *others) = work.agent.profile, work.agent.fallbacks
    switched = replace(
        work,
        agent=dataclasses.replace(work.agent, profile=following, fallbacks=tuple(others)),
        foreign_moves=len(state.moves[turn.id]),
        message_id=operation.message_id,
        dispatches=operation.dispatches,
    )
    switch = switch_between(used, following, fault)
    return (
        CancelOperation(operation=operation),
        SwitchModel(turn_id=turn.id, work=switched, switch=switch),
        *assemble_again(state, turn, switched.agent, ids, now),
    )
