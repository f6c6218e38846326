"""Requests to the model: the first one of a turn, later ones, and repeated ones after a failure."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

from wonder_server.core.conversation.context.dialects import (
    dialect_of,
    kept_settings,
    wrap_up_by_system_message,
)
from wonder_server.core.conversation.context.fitting import fit_request
from wonder_server.core.conversation.context.output_requests import ask_for_output, output_schema_of
from wonder_server.core.conversation.context.window import (
    RETRY_SHARE,
    TrimmedRequest,
    context_limit,
    is_too_long,
)
from wonder_server.core.conversation.model.decisions import (
    Decision,
    DispatchModel,
    LimitReached,
    ReduceContext,
)
from wonder_server.core.conversation.model.event_payloads import ContextReduction, HistoryTruncation, Limit
from wonder_server.core.conversation.model.operations import Decisions
from wonder_server.core.conversation.model.state import ConversationState
from wonder_server.core.conversation.model.values import (
    TURN_RULES,
    Operation,
    OperationKind,
    Request,
    Turn,
)
from wonder_server.core.conversation.planning import limits
from wonder_server.core.definitions.specs import PinnedAgent
from wonder_server.core.errors import Fault, Reason
from wonder_server.core.frozen import replace
from wonder_server.core.ids import Minter
from wonder_server.core.json_types import JsonDict, JsonValue
from wonder_server.core.request_formats.neutral import ASIDE
from wonder_server.core.token_estimates import json_tokens

MODEL_BACKOFF_MS = 500

RULES_OF_KEPT_SETTINGS = 6
"""Version of `TURN_RULES` from which on a message's tool choice keeps the other settings of tools."""

WRAP_UP = (
    "You have reached the limit of moves for this turn. Do not call tools any more: "
    "answer now with what you have, and say what is missing."
)
"""Note for the model with the last move of a turn."""


@dataclass(frozen=True, slots=True)
class PreparedRequest:
    """A request body, the history that its assembly omitted, and the asynchronous operations in it.

    ``rules`` are those of `TurnWork`, ``through`` is that of `Request`. ``repair``: it asks for a valid
    answer after an invalid one, and forbids tools.
    """

    body: JsonDict
    rules: int
    truncation: HistoryTruncation | None = None
    reports: tuple[str, ...] = ()
    repair: bool = False
    through: int = 0


def call_model(
    state: ConversationState, turn: Turn, agent: PinnedAgent, prepared: PreparedRequest, ids: Minter, now: int
) -> Decisions:
    """Call the model with the request, trimmed to fit the model.

    The request forbids tools if a limit allows only this call.
    """
    if turn.overrides is not None and not prepared.repair:
        prepared = dataclasses.replace(prepared, body=_with_tool_choice(turn, agent, prepared))
    reduced, body = _within_window(state, turn, agent, prepared.body, prepared.truncation)
    if prepared.repair:
        repair = Request(turn_id=turn.id, body=body, repair=True, through=prepared.through)
        return (*reduced, _dispatch_model(agent, repair, ids, now, ()))
    limited, request = _within_limits(state, turn, agent, prepared, body, now)
    dispatched = _dispatch_model(agent, request, ids, now, prepared.reports)
    return (*reduced, *limited, _continuing_message(state, dispatched))


def _with_tool_choice(turn: Turn, agent: PinnedAgent, prepared: PreparedRequest) -> JsonDict:
    """Return the body of the request with the tool choice of the turn's message.

    A forced call is of the first answer only: else the turn could not end.
    """
    choice = turn.overrides.tool_choice if turn.overrides is not None else ""
    body = prepared.body
    if not choice:
        return body
    if turn.moves and choice != "none":
        choice = "auto"
    chosen = dialect_of(agent.profile.spec.format).choose_tool(body, choice)
    return kept_settings(body, chosen) if prepared.rules >= RULES_OF_KEPT_SETTINGS else chosen


def _continuing_message(state: ConversationState, dispatched: DispatchModel) -> DispatchModel:
    """Return the first call after a switch to another model under the message of the failed call.

    Its dispatches are counted on, so that readers of the stream begin the message again.
    """
    work = state.turn_work.get(dispatched.request.turn_id)
    if work is None or not work.message_id or len(state.moves[work.turn_id]) != work.foreign_moves:
        return dispatched
    operation = replace(dispatched.operation, message_id=work.message_id, dispatches=work.dispatches + 1)
    return replace(dispatched, operation=operation)


def request_of(output: JsonValue, turn: Turn, agent: PinnedAgent) -> JsonDict | Fault:
    """Return the request in an assembly's output, with the turn's output schema; a fault if the request is
    invalid in the agent's format.
    """
    request = output.get("request") if isinstance(output, dict) else None
    dialect = dialect_of(agent.profile.spec.format)
    if isinstance(request, dict) and dialect.fits(request):
        schema = output_schema_of(turn, agent)
        return ask_for_output(request, agent, schema) if schema else request
    return Fault(
        reason=Reason.CONTEXT_ASSEMBLY_FAILED,
        message="The output of the context-assembly workflow has no `request` object with a list of "
        f"`{dialect.messages}`.",
    )


def first_request(
    state: ConversationState, turn: Turn, agent: PinnedAgent, output: JsonValue, now: int
) -> JsonDict | Fault:
    """Return the first request of ``turn`` to the model, for the assembly's ``output``; a fault if it is
    invalid.
    """
    request = request_of(output, turn, agent)
    if isinstance(request, Fault):
        return request
    prepared = PreparedRequest(request, TURN_RULES)
    decided = call_model(state, turn, agent, prepared, Minter(turn.id, now), now)
    return next((each.request.body for each in decided if isinstance(each, DispatchModel)), request)


def retry_shortened(
    state: ConversationState, operation: Operation, fault: Fault, ids: Minter, now: int
) -> Decisions:
    """Call the model with a shorter request, if the provider rejected this one as too long for the first
    time.

    Returns no decisions if the request cannot be retried or shortened.
    """
    turn, request = state.turns[operation.turn_id], state.requests[operation.turn_id]
    agent = state.turn_work[turn.id].agent
    if request.shortened or not is_too_long(fault):
        return ()
    limit = max(1, int(json_tokens(request.body) * RETRY_SHARE))
    smaller = fit_request(state, turn, agent, request.body, limit)
    if smaller is None:
        return ()
    request = replace(request, body=smaller.body, shortened=True)
    return (_reduction(turn, smaller, None), _dispatch_model(agent, request, ids, now, operation.reports))


def retry_wrap_up(state: ConversationState, operation: Operation, fault: Fault, now: int) -> Decisions:
    """Request an answer without tools by the same operation, since the agent's budget allows only one more
    call.
    """
    turn, request = state.turns[operation.turn_id], state.requests[operation.turn_id]
    work = state.turn_work[turn.id]
    if request.wrap_up is not None:
        return ()
    body = _wrap_up(work.agent, work.rules, request.body, limits.wrap_up_note(fault))
    request = replace(request, body=body, wrap_up=fault)
    later = replace(operation, wake_ms=now + operation.timeout_ms)
    return (
        LimitReached(turn_id=turn.id, limit=Limit(fault=fault, enforced=False)),
        DispatchModel(operation=later, request=request),
    )


def _within_limits(
    state: ConversationState,
    turn: Turn,
    agent: PinnedAgent,
    prepared: PreparedRequest,
    body: JsonDict,
    now: int,
) -> tuple[Decisions, Request]:
    rules = prepared.rules
    limit = agent.persona.constraints.max_moves_per_turn
    decisions: list[Decision] = []
    last = limits.check_last_call(state, turn, agent, body, now) if agent.tools else None
    if limit and turn.moves + 1 >= limit and agent.tools:
        body = _wrap_up(agent, rules, body, WRAP_UP)
        if turn.moves:
            message = f"Move {limit} of {limit}: the model is asked to answer without tools."
            fault = Fault(reason=Reason.MAX_MOVES_REACHED, message=message)
            limited = Limit(fault=fault, enforced=False)
            decisions.append(LimitReached(turn_id=turn.id, limit=limited))
    elif last is not None:
        body = _wrap_up(agent, rules, body, last.note)
        limited = Limit(fault=last.fault, enforced=False)
        decisions.append(LimitReached(turn_id=turn.id, limit=limited))
    wrap_up = last.fault if last is not None else None
    return tuple(decisions), Request(turn_id=turn.id, body=body, wrap_up=wrap_up, through=prepared.through)


def _wrap_up(agent: PinnedAgent, rules: int, body: JsonDict, note: str) -> JsonDict:
    """Return the request with tools forbidden and with a note that asks the model to finish."""
    request_format = agent.profile.spec.format
    if not rules:
        return wrap_up_by_system_message(body, request_format, note)
    return dialect_of(request_format).wrap_up(body, f"{ASIDE}\n\n{note}")


def _dispatch_model(
    agent: PinnedAgent, request: Request, ids: Minter, now: int, reports: tuple[str, ...]
) -> DispatchModel:
    profile = agent.profile.spec
    operation = Operation(
        id=ids.new("op"),
        turn_id=request.turn_id,
        kind=OperationKind.MODEL,
        message_id=ids.new("msg"),
        reports=reports,
        max_attempts=profile.max_attempts,
        backoff_ms=MODEL_BACKOFF_MS,
        timeout_ms=profile.timeout_ms,
        wake_ms=now + profile.timeout_ms,
        created_ms=now,
    )
    return DispatchModel(operation=operation, request=request)


def _within_window(
    state: ConversationState,
    turn: Turn,
    agent: PinnedAgent,
    body: JsonDict,
    truncation: HistoryTruncation | None,
) -> tuple[Decisions, JsonDict]:
    """Return the request within the model's context window, and the decision that records its reduction.

    ``truncation`` is what the assembly omitted. What it omitted only for the number of turns is no reduction.
    """
    smaller = fit_request(state, turn, agent, body, context_limit(agent))
    if smaller is None and (truncation is None or not (truncation.tokens or truncation.summarized)):
        return (), body
    if smaller is None:
        tokens = json_tokens(body)
        smaller = TrimmedRequest(body, 0, tokens, tokens)
    return (_reduction(turn, smaller, truncation),), smaller.body


def _reduction(turn: Turn, smaller: TrimmedRequest, truncation: HistoryTruncation | None) -> ReduceContext:
    """Return the decision that records the reduction of a request."""
    reduced = ContextReduction(
        messages_left_out=smaller.omitted_messages
        + (truncation.omitted_messages if truncation is not None else 0),
        summarized=truncation is not None and truncation.summarized,
        tokens_before=smaller.tokens_before + (truncation.tokens if truncation is not None else 0),
        tokens_after=smaller.tokens_after,
    )
    return ReduceContext(turn_id=turn.id, reduction=reduced)
