"""Spans of turns, tools, hooks, runs and nodes, from their committed events, and of model calls.

The record has the times and the trace of each piece of work, so a span needs no state of its own: work that a
crash interrupts has one span, in the trace that it began in. Ids follow from the ids of the work. Spans have
names, ids and numbers, and no text that a user, a model or a tool wrote.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from wonder_server.actors.usage import span_names as names
from wonder_server.core.actor.commands import CallModel
from wonder_server.core.actor.trace import root_trace_id, scope_trace_id, span_id
from wonder_server.core.conversation.model.event_payloads import TURN_ENDED, HookOutcome
from wonder_server.core.conversation.model.state import ConversationState
from wonder_server.core.conversation.model.usage import began_ms
from wonder_server.core.conversation.model.values import Invocation, Turn
from wonder_server.core.coordinator.model.state import RunState
from wonder_server.core.coordinator.model.values import NodeExecution, Run
from wonder_server.core.coordinator.output.record import RUN_ENDED
from wonder_server.core.errors import Fault
from wonder_server.core.model import ModelResult
from wonder_server.ports.clock import Clock
from wonder_server.ports.journal import Event
from wonder_server.ports.traces import Span, Spans

_TOOL_ENDED: Final = frozenset({"tool_completed", "tool_failed"})
_NODE_ENDED: Final = frozenset({"node_completed", "node_failed", "node_cancelled"})
_HOOK_ENDED: Final = frozenset(
    f"{hook}_{end}" for hook in ("context_assembly", "memory_extraction") for end in ("completed", "failed")
)


class SpanRecorder:
    """Makes spans and gives them to ``spans``. ``peek`` returns the state of an actor in memory, or None."""

    def __init__(self, spans: Spans, peek: Callable[[str], object | None], clock: Clock) -> None:
        self._spans = spans
        self._peek = peek
        self._clock = clock

    def before(self, publish: Callable[[str, list[Event]], None]) -> Callable[[str, list[Event]], None]:
        """Return a function that makes the spans of committed events and calls ``publish`` with them."""

        def record_and_publish(actor_id: str, events: list[Event]) -> None:
            of = self._of_run if actor_id.startswith("run_") else self._of_conversation
            for event in events:
                span = of(actor_id, event)
                if span is not None:
                    self._spans.add(span)
            publish(actor_id, events)

        return record_and_publish

    def call_ended(
        self, actor_id: str, command: CallModel, result: ModelResult | None, fault: Fault | None, s: float
    ) -> None:
        """Record a model call that took ``s`` seconds. Without result and fault it was cancelled."""
        trace_id = command.trace_id or root_trace_id(command.turn_id)
        if not self._spans.wants(trace_id):
            return
        now, profile = self._clock.now_ms(), command.profile
        attributes: dict[str, str | int] = {
            names.OPERATION: names.CHAT,
            names.PROVIDER: profile.provider,
            names.REQUEST_MODEL: profile.model,
            names.CONVERSATION_ID: actor_id,
            names.TURN_ID: command.turn_id,
            names.ATTEMPTS: command.dispatches,
        }
        if result is not None:
            attributes[names.RESPONSE_MODEL] = result.model
            attributes[names.INPUT_TOKENS] = result.usage.input_tokens or 0
            attributes[names.OUTPUT_TOKENS] = result.usage.output_tokens or 0
        error = fault.reason.value if fault is not None else "CANCELLED"
        self._spans.add(
            Span(
                trace_id=trace_id,
                span_id=span_id(f"{command.operation_id} {now}"),
                parent_id=span_id(command.turn_id),
                name=f"{names.CHAT} {profile.model}".strip(),
                start_ms=now - int(s * 1000),
                end_ms=now,
                attributes=attributes,
                error="" if result is not None else error,
                is_client=True,
            )
        )

    # --- conversations --------------------------------------------------------------------------

    def _of_conversation(self, conversation_id: str, event: Event) -> Span | None:
        kind, value = event.emit.kind, event.emit.value
        if kind in TURN_ENDED:
            return _turn(value) if self._spans.wants(_trace_of(value)) else None
        if kind not in _TOOL_ENDED and kind not in _HOOK_ENDED:
            return None
        state = self._peek(conversation_id)
        turn = state.turns.get(event.emit.turn_id) if isinstance(state, ConversationState) else None
        if turn is None or not self._spans.wants(_trace_of(turn)):
            return None
        if kind in _TOOL_ENDED:
            return _tool(turn, value, event.at_ms)
        return _hook(turn, kind.rpartition("_")[0], value, event.at_ms)

    # --- runs -----------------------------------------------------------------------------------

    def _of_run(self, run_id: str, event: Event) -> Span | None:
        kind, value = event.emit.kind, event.emit.value
        if kind in RUN_ENDED:
            return _run(value) if self._spans.wants(scope_trace_id(value.scope)) else None
        if kind not in _NODE_ENDED or not isinstance(value, NodeExecution) or not value.completed_ms:
            return None
        state = self._peek(run_id)
        run = state.run if isinstance(state, RunState) else None
        if run is None or not self._spans.wants(scope_trace_id(run.scope)):
            return None
        return _node(run, value)


def _trace_of(turn: Turn) -> str:
    return turn.trace_id or root_trace_id(turn.id)


def _turn(turn: Turn) -> Span:
    return Span(
        trace_id=_trace_of(turn),
        span_id=span_id(turn.id),
        parent_id=span_id(turn.parent.operation_id) if turn.parent is not None else "",
        name=f"{names.INVOKE_AGENT} {turn.agent_name}",
        start_ms=began_ms(turn),
        end_ms=turn.completed_ms,
        attributes={
            names.OPERATION: names.INVOKE_AGENT,
            names.AGENT_ID: turn.agent_id,
            names.AGENT_NAME: turn.agent_name,
            names.CONVERSATION_ID: turn.conversation_id,
            names.TURN_ID: turn.id,
            names.INPUT_TOKENS: turn.input_tokens,
            names.OUTPUT_TOKENS: turn.output_tokens,
            names.COST_MICROS: turn.cost_micros,
        },
        error=_error(turn.fault, turn.status.value),
    )


def _tool(turn: Turn, invocation: Invocation, at_ms: int) -> Span:
    result = invocation.result
    end_ms = (result.created_ms if result is not None else 0) or at_ms
    failed = result is None or not result.success
    # Without a tool the name is whatever the model wrote.
    name = invocation.call.name if invocation.tool_id else ""
    code = result.code.value if result is not None and result.code is not None else "failed"
    return Span(
        trace_id=_trace_of(turn),
        span_id=span_id(invocation.operation_id or invocation.call.id),
        parent_id=span_id(turn.id),
        name=f"{names.EXECUTE_TOOL} {name}".strip(),
        start_ms=end_ms - (result.duration_ms if result is not None else 0),
        end_ms=end_ms,
        attributes={
            names.OPERATION: names.EXECUTE_TOOL,
            names.TOOL_NAME: name,
            names.TOOL_CALL_ID: invocation.call.id,
            names.TARGET: invocation.tool_id,
            names.CONVERSATION_ID: turn.conversation_id,
            names.ATTEMPTS: result.attempts if result is not None else 0,
        },
        error=str(code) if failed else "",
    )


def _hook(turn: Turn, hook: str, outcome: HookOutcome, at_ms: int) -> Span:
    return Span(
        trace_id=_trace_of(turn),
        span_id=span_id(f"hook {outcome.run_id or turn.id} {hook}"),
        parent_id=span_id(turn.id),
        name=f"hook {hook}",
        start_ms=at_ms - outcome.duration_ms,
        end_ms=at_ms,
        attributes={
            names.HOOK: hook,
            names.WORKFLOW: outcome.workflow,
            names.RUN_ID: outcome.run_id,
            names.ATTEMPTS: outcome.attempts,
        },
        error=_error(outcome.fault),
    )


def _run(run: Run) -> Span:
    return Span(
        trace_id=scope_trace_id(run.scope),
        span_id=span_id(run.id),
        parent_id=span_id(run.parent.operation_id) if run.parent is not None else "",
        name=f"{names.INVOKE_WORKFLOW} {run.workflow_ref}",
        start_ms=run.created_ms,
        end_ms=run.completed_ms or run.updated_ms,
        attributes={
            names.OPERATION: names.INVOKE_WORKFLOW,
            names.WORKFLOW: run.workflow_ref,
            names.RUN_ID: run.id,
            names.PROJECT_ID: run.scope.project_id,
        },
        error=_error(run.fault, run.status.value),
    )


def _node(run: Run, execution: NodeExecution) -> Span:
    return Span(
        trace_id=scope_trace_id(run.scope),
        span_id=span_id(execution.id),
        parent_id=span_id(run.id),
        name=f"node {execution.node_id}",
        start_ms=execution.started_ms,
        end_ms=execution.completed_ms,
        attributes={
            names.NODE_ID: execution.node_id,
            names.TARGET: execution.target,
            names.RUN_ID: run.id,
            names.ATTEMPTS: execution.attempts,
        },
        error=_error(execution.fault),
    )


def _error(fault: Fault | None, status: str = "") -> str:
    if fault is not None:
        return fault.reason.value
    return "CANCELLED" if status == "cancelled" else ""
