"""Records as large as no server writes them any more, put into a folder behind the server's back."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from tests.sqlite_journals import SqliteJournals
from wonder_server.core.actor import gates
from wonder_server.core.actor.changes import Emit, Put
from wonder_server.core.conversation.model import event_payloads as events
from wonder_server.core.conversation.model import values as said
from wonder_server.core.conversation.output.record import put_message, put_move, put_turn
from wonder_server.core.conversation.planner import CONVERSATION
from wonder_server.core.coordinator.model import values as run
from wonder_server.core.coordinator.output import record as run_record
from wonder_server.core.coordinator.planner import RUN
from wonder_server.core.errors import Fault, Reason
from wonder_server.core.frozen import replace
from wonder_server.core.ids import Minter, shard_of
from wonder_server.core.model import ToolCall
from wonder_server.ports.journal import Commit

LONG = "漢字 and ASCII, ü. " * 185_000
"""More than 4 MiB in UTF-8."""
NUMBERS = list(range(100)) * 2_000
"""0.6 MB as JSON, 2.6 MB as a Struct."""
NESTED: dict[str, Any] = {"numbers": NUMBERS, "rows": [{"n": n, "text": "ü" * 40} for n in range(3_000)]}
FAULT = Fault(reason=Reason.INTERNAL, message=LONG)


async def fill(folder: Path, conv: said.Conversation, run_id: str) -> None:
    """Give a conversation and a run rows and events of every kind, as large as they come."""
    shards = await SqliteJournals.open(folder / "shards", 1)
    try:
        await _commit(shards, conv.id, conv.id, _conversation(conv))
        found = await shards.get("runs", run_id, run_id)
        assert found is not None
        await _commit(shards, run_id, conv.id, _run(found))
    finally:
        await shards.close()


async def _commit(shards: SqliteJournals, actor_id: str, root: str, changes: Iterable[Put | Emit]) -> None:
    journal = shards.of(actor_id)
    loaded = await journal.load(actor_id)
    assert loaded is not None
    commit = Commit(actor_id, event_head=loaded.event_head, entry_head=loaded.entry_head, root=root)
    commit.add(changes, 2_000_000_000_000)
    # A server has written to this folder before, and the store refuses commits of earlier epochs.
    (commit.epoch,) = (await shards.raise_epochs([shard_of(actor_id)])).values()
    await journal.commit([commit])


def _conversation(conv: said.Conversation) -> Iterable[Put | Emit]:
    ids = Minter(conv.id, 2_000_000_000_000)
    turn = said.Turn(
        id=ids.new("turn"),
        conversation_id=conv.id,
        ordinal=1_000,
        caller=said.Caller(user_id="mia"),
        agent_id="agt_x",
        agent_name="x",
        persona="a/b@1",
        input=LONG,
        output=LONG,
        status=said.TurnStatus.FAILED,
        fault=FAULT,
        created_ms=2_000_000_000_000,
        completed_ms=2_000_000_000_000,
    )
    message = said.Message(
        id=ids.new("msg"),
        conversation_id=conv.id,
        turn_id=turn.id,
        ordinal=1_000,
        role=said.Role.AGENT,
        author="agt_x",
        content=LONG,
        created_ms=2_000_000_000_000,
    )
    large, failed = _large()
    move = said.Move(
        id=ids.new("move"),
        conversation_id=conv.id,
        turn_id=turn.id,
        sequence=1,
        message_id=message.id,
        reasoning=LONG,
        invocations=(*_many(), large, failed),
        raw={"role": "assistant", "content": LONG, **NESTED},
        created_ms=2_000_000_000_000,
        completed_ms=2_000_000_000_000,
    )
    operation = said.Operation(
        id=ids.new("op"),
        turn_id=turn.id,
        kind=said.OperationKind.TASK,
        input={"text": LONG, **NESTED},
        tool_name="large",
    )
    wide = replace(conv, title=LONG)
    outcome = events.HookOutcome(run_id="run_x", workflow="a/b@1", attempts=1, duration_ms=1, fault=FAULT)
    values: dict[type, Any] = {
        said.Conversation: wide,
        said.HistoryReset: said.HistoryReset(keep_system_message=True, last_turn_ordinal=1),
        said.BranchMerge: said.BranchMerge(repository="r", branch="b", target_branch="t", commit="c"),
        said.Participant: said.Participant(type="user", id="mia", name=LONG),
        said.Turn: turn,
        said.Message: message,
        said.Move: move,
        said.Operation: operation,
        said.Invocation: large,
        events.WorkflowRun: events.WorkflowRun(run_id="run_x", workflow="w", operation_id="op", fault=FAULT),
        events.AgentCall: events.AgentCall(agent_id="agt_x", mode="delegate", operation_id="op", fault=FAULT),
        events.Limit: events.Limit(fault=FAULT, enforced=True),
        events.ModelSwitch: _switch(),
        gates.Gate: _call_gate(turn.id),
        events.ContextReduction: events.ContextReduction(
            messages_left_out=1, summarized=False, tokens_before=1, tokens_after=1
        ),
        events.HookOutcome: outcome,
        events.OutputRejection: events.OutputRejection(
            message_id=message.id, problems=(LONG,) * 3, repairing=True
        ),
        events.MemoryRefusal: events.MemoryRefusal(run_id="run_x", reasons=(LONG,) * 3),
    }
    yield put_turn(turn)
    yield put_message(message)
    yield put_move(move)
    for kind, value_type in CONVERSATION.event_types.items():
        # The end of a turn would count as the end of a message that is still streaming.
        yield Emit(kind, values[value_type], turn.id)
    yield Emit("tool.failed", failed, turn.id)


def _switch() -> events.ModelSwitch:
    names = {"from_provider": "a", "from_model": "one", "to_provider": "b", "to_model": "two"}
    return events.ModelSwitch(from_profile="a/one@1", to_profile="a/two@1", fault=FAULT, **names)


def _call_gate(turn_id: str) -> gates.Gate:
    """Return the gate of a tool call with large arguments."""
    return gates.Gate(
        id="gate_x",
        run_id="",
        operation_id="op",
        node_id="",
        project_id="",
        workflow_ref="",
        prompt=LONG,
        shown={"text": LONG, **NESTED},
        shown_hash="x",
        turn_id=turn_id,
        tool_name="large",
        problem=LONG,
    )


def _many() -> list[said.Invocation]:
    return [_invocation(str(number), {"text": "ü" * 800}, {"n": NUMBERS[:100]}) for number in range(1_500)]


def _large() -> tuple[said.Invocation, said.Invocation]:
    """Return an invocation that succeeded and one that failed."""
    large = _invocation("large", {"text": LONG, **NESTED}, {"text": LONG, "numbers": NUMBERS})
    failed = said.Invocation(
        call=ToolCall(id="f", name="f", arguments=None, malformed=LONG),
        result=said.ToolResult(
            tool_call_id="f",
            success=False,
            code=said.ToolErrorCode.INTERNAL_ERROR,
            message=LONG,
            fault=FAULT,
        ),
    )
    return large, failed


def _invocation(name: str, arguments: dict[str, Any], result: Any) -> said.Invocation:
    return said.Invocation(
        call=ToolCall(id=f"call_{name}", name="large", arguments=arguments),
        result=said.ToolResult(tool_call_id=f"call_{name}", success=True, result=result),
    )


def _run(row: run.Run) -> Iterable[Put | Emit]:
    ids = Minter(row.id, 2_000_000_000_000)
    payload = {"text": LONG, **NESTED}
    wide = replace(row, input={"text": LONG}, output=payload, metadata={"text": LONG}, fault=FAULT)
    executions = [
        run.NodeExecution(
            id=ids.new("nodex"),
            run_id=row.id,
            ordinal=1_000 + number,
            node_id="n",
            input={"text": LONG},
            output=payload,
            status=status,
            fault=FAULT if status is not run.ExecutionStatus.COMPLETED else None,
        )
        for number, status in enumerate(run.ExecutionStatus)
    ]
    gate = gates.Gate(
        id=ids.child("gate", row.id),
        run_id=row.id,
        operation_id="op",
        node_id="n",
        project_id=row.scope.project_id,
        workflow_ref=row.workflow_ref,
        prompt=LONG,
        shown={"text": LONG},
        shown_hash="h",
        answer_schema={"enum": NUMBERS},
        status=gates.GateStatus.APPROVED,
        answer={"text": LONG},
        comment=LONG,
        created_ms=2_000_000_000_000,
    )
    by_kind: dict[type, Any] = {
        run.Run: wide,
        run.Token: run.Token(id="t", run_id=row.id, node_id="n"),
        gates.Gate: gate,
        run.Signal: run.Signal(run_id=row.id, name="s", payload=payload),
        run.EmittedEvent: run.EmittedEvent(name="e", payload=payload, node_id="n"),
    }
    yield run_record._run(wide)
    for execution in executions:
        yield run_record._execution(execution)
    yield run_record._gate(gate)
    yield run_record._gate(
        replace(gate, id=ids.child("gate", row.id), status=gates.GateStatus.PENDING, answer=None)
    )
    yield run_record._context(run.ContextValue(run_id=row.id, section="state", key="k", value=payload))
    for kind, value_type in RUN.event_types.items():
        if kind in run_record.RUN_ENDED:
            continue
        value = by_kind.get(value_type) or executions[0]
        yield Emit(kind, value)
    yield Emit("workflow_completed", wide)
