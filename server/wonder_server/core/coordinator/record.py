"""What a decision writes: rows, and the events that watchers of a run see."""

from __future__ import annotations

from collections.abc import Iterator
from typing import assert_never

from wonder_server.core.coordinator.decisions import (
    AnswerAgain,
    Decision,
    DispatchNode,
    EndRun,
    MoveToken,
    RecordExecution,
    RedispatchNode,
    RefuseRun,
    SetContext,
    StartRun,
    StopNode,
)
from wonder_server.core.coordinator.state import RunState
from wonder_server.core.coordinator.values import (
    Execution,
    NodeOperation,
    Run,
    RunStatus,
    Token,
    TokenStatus,
)
from wonder_server.core.records import Change, Delete, Emit, Put

_ENDS = {
    RunStatus.COMPLETED: "workflow_completed",
    RunStatus.FAILED: "workflow_failed",
    RunStatus.CANCELLED: "workflow_cancelled",
}


def record(state: RunState, decision: Decision) -> Iterator[Change]:
    """The changes that ``decision`` makes, ``state`` being the working set after it was applied."""
    match decision:
        case StartRun():
            yield _run(decision.run)
            yield Put("works", decision.run.id, decision.pinned, live=True)
            yield Emit("workflow_started", "run_started", decision.run)
        case MoveToken():
            yield _token(decision.token)
            yield Emit("token.moved", "token_moved", decision.token)
        case DispatchNode():
            yield _execution(decision.execution)
            yield _operation(decision.operation)
            if state.run is not None:
                yield _run(state.run)  # It counts its executions: their keys come from the count.
            yield Emit("node.started", "node_started", decision.execution)
        case RecordExecution():
            execution = decision.execution
            yield _execution(execution)
            yield Delete("operations", decision.operation_id)
            yield Emit(f"node.{execution.status}", f"node_{execution.status}", execution)
        case SetContext():
            value = decision.value
            yield Put("context", f"{value.section}.{value.key}", value, live=True)
        case RedispatchNode():
            yield _operation(decision.operation)
        case StopNode():
            yield Delete("operations", decision.operation.id)
        case EndRun():
            yield _run(decision.run)
            yield Delete("works", decision.run.id)
            yield Emit(_ENDS[decision.run.status], "run_ended", decision.run)
        case AnswerAgain() | RefuseRun():
            return
        case _:
            assert_never(decision)


def _run(run: Run) -> Put:
    return Put(
        "runs",
        run.id,
        run,
        parent=run.scope.conversation_id,
        status=run.status.value,
        live=True,
        created_ms=run.created_ms,
    )


def _token(token: Token) -> Put:
    ended = token.status in (TokenStatus.COMPLETED, TokenStatus.FAILED, TokenStatus.CANCELLED)
    return Put(
        "tokens",
        token.id,
        token,
        status=token.status.value,
        live=not ended,
        created_ms=token.created_ms,
    )


def _execution(execution: Execution) -> Put:
    return Put(
        "executions",
        execution.id,
        execution,
        parent=execution.node_id,
        ordinal=execution.ordinal,
        status=execution.status,
        live=execution.status == "running",
        created_ms=execution.started_ms,
    )


def _operation(operation: NodeOperation) -> Put:
    return Put(
        "operations",
        operation.id,
        operation,
        parent=operation.token_id,
        ordinal=operation.wake_ms,
        status="dispatched",
        live=True,
        created_ms=operation.created_ms,
    )
