"""Spans of committed events: what they name, and what they never contain."""

from __future__ import annotations

from typing import Any

import pytest

from tests.actors.usage.test_work_counters import ended, event
from wonder_server.actors.usage.spans import SpanRecorder
from wonder_server.core.actor.commands import Scope
from wonder_server.core.actor.trace import root_trace_id, span_id
from wonder_server.core.conversation.model.state import ConversationState
from wonder_server.core.conversation.model.values import Invocation, ToolResult
from wonder_server.core.coordinator.model.state import RunState
from wonder_server.core.coordinator.model.values import NodeExecution, Run
from wonder_server.core.ids import random_id
from wonder_server.core.model import ToolCall
from wonder_server.ports.journal import Event
from wonder_server.ports.traces import Span

TRACE = "0af7651916cd43dd8448eb211c80319c"


class Recorded:
    """Takes spans, or samples none."""

    def __init__(self, *, samples: bool = True) -> None:
        self.samples = samples
        self.spans: list[Span] = []

    def wants(self, trace_id: str) -> bool:
        assert len(trace_id) == 32
        return self.samples

    def add(self, span: Span) -> None:
        self.spans.append(span)


class Now:
    def now_ms(self) -> int:
        return 100


def publish(recorded: Recorded, actor_id: str, found: Event, state: Any = None) -> list[Event]:
    seen: list[Event] = []
    recorder = SpanRecorder(recorded, lambda _: state, Now())
    recorder.before(lambda _, events: seen.extend(events))(actor_id, [found])
    return seen


def invocation(**fields: Any) -> Invocation:
    result = ToolResult(tool_call_id="1", success=False, message="secret", created_ms=50, duration_ms=20)
    call = ToolCall(id="call_1", name="words of a model", arguments={"text": "secret"})
    return Invocation(call=call, operation_id="op_1", result=result, **fields)


@pytest.mark.parametrize(
    ("tool_id", "name"), [("a/b/c@1", "execute_tool words of a model"), ("", "execute_tool")]
)
def test_a_tool_that_does_not_exist_has_no_name(tool_id: str, name: str) -> None:
    recorded, state = Recorded(), ConversationState()
    turn = ended(trace_id=TRACE)
    state.turns[turn.id] = turn
    found = event("tool.failed", invocation(tool_id=tool_id))
    found.emit = type(found.emit)("tool.failed", found.emit.value, turn.id)
    assert publish(recorded, "conv_1", found, state) == [found]
    (span,) = recorded.spans
    assert span.name == name and "secret" not in str(span)
    assert ("words" in str(span)) is bool(tool_id)
    assert (span.start_ms, span.end_ms, span.trace_id) == (30, 50, TRACE)
    assert (span.span_id, span.parent_id) == (span_id("op_1"), span_id(turn.id))


def test_a_run_and_its_nodes_are_in_the_trace_of_its_scope() -> None:
    recorded, run_id = Recorded(), random_id("run", 1)
    run = Run(id=run_id, workflow_ref="a/b/c@1", workflow_id="def_1", scope=Scope(run_id=run_id))
    node = NodeExecution(id="op_1", run_id=run_id, ordinal=1, node_id="ask", started_ms=1, completed_ms=2)
    publish(recorded, run_id, event("node.completed", node), RunState(run=run))
    publish(recorded, run_id, event("workflow_completed", run))
    first, second = recorded.spans
    assert first.trace_id == second.trace_id == root_trace_id(run_id)
    assert first.parent_id == second.span_id and second.parent_id == ""


def test_what_is_not_sampled_or_not_in_memory_has_no_span_and_is_published() -> None:
    recorded = Recorded(samples=False)
    found = event("turn.completed", ended(trace_id=TRACE))
    assert publish(recorded, "conv_1", found) == [found]
    assert publish(Recorded(), "run_1", event("node.failed", None))
    assert publish(recorded, "conv_1", event("tool.failed", invocation()))
    assert recorded.spans == []
