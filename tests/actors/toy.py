"""A small planner for tests of the loop: a run that executes its steps one after another.

A step is one of:

- ``("early", name)``: a repeatable task.
- ``("held", name)``: a task that is not repeatable.
- ``("wait", name, wake_ms)``: a wait that the test ends.
- ``("child", name, steps)``: a volatile child run.

A run's output holds its steps' outputs by name. Ids derive from positions alone, so repeated work has the
same ids.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from wonder_server.core.actor.changes import Change, Delete, Emit, Put
from wonder_server.core.actor.commands import Answer, Command, Parent, RunTask, RunWorkflow, Scope
from wonder_server.core.actor.planner import Planner, Reload
from wonder_server.core.errors import Fault, Reason
from wonder_server.core.json_types import JsonDict, JsonValue

Step = tuple[object, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ToyRun:
    """A run. ``scope``, ``workflow_id`` and ``workflow_ref`` fill filter columns of the table ``runs``."""

    id: str
    steps: tuple[Step, ...]
    scope: Scope = Scope()  # noqa: RUF009
    workflow_id: str = ""
    workflow_ref: str = ""
    parent: Parent | None = None
    volatile: bool = False
    output: JsonDict = field(default_factory=dict)
    ended: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Op:
    id: str
    index: int
    dispatches: int = 1
    wake_ms: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class StartRun:
    run_id: str
    steps: tuple[Step, ...]
    parent: Parent | None = None
    volatile: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class OperationSucceeded:
    operation_id: str
    output: JsonValue = None


@dataclass(frozen=True, slots=True, kw_only=True)
class OperationFailed:
    operation_id: str
    fault: Fault


@dataclass(frozen=True, slots=True, kw_only=True)
class TimerFired:
    operation_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Restarted:
    operation_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Note:
    """A client's input. The planner rejects it if ``refuse`` is set."""

    text: str
    refuse: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class RunStarted:
    run: ToyRun


@dataclass(frozen=True, slots=True, kw_only=True)
class Dispatched:
    op: Op


@dataclass(frozen=True, slots=True, kw_only=True)
class Finished:
    op: Op
    name: str
    output: JsonValue


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    run: ToyRun


@dataclass(frozen=True, slots=True, kw_only=True)
class Noted:
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    fault: Fault


@dataclass(frozen=True, slots=True, kw_only=True)
class Repeated:
    run: ToyRun


@dataclass(slots=True)
class ToyState:
    run: ToyRun | None = None
    ops: dict[str, Op] = field(default_factory=dict)


def plan(state: ToyState, event: object, now_ms: int) -> tuple[object, ...]:
    run = state.run
    match event:
        case StartRun():
            if run is not None:
                return (Repeated(run=run),) if run.ended and run.parent else ()
            begun = ToyRun(id=event.run_id, steps=event.steps, parent=event.parent, volatile=event.volatile)
            return (RunStarted(run=begun), _next(begun, 0, {}))
        case OperationSucceeded() | OperationFailed():
            op = state.ops.get(event.operation_id)
            if op is None or run is None:
                return ()
            name = run.steps[op.index][1]
            output = event.output if isinstance(event, OperationSucceeded) else event.fault.reason.value
            return (
                Finished(op=op, name=name, output=output),
                _next(run, op.index + 1, {**run.output, name: output}),
            )
        case Restarted():
            op = state.ops.get(event.operation_id)
            return () if op is None else (Dispatched(op=replace(op, dispatches=op.dispatches + 1)),)
        case Note():
            if event.refuse:
                return (Refused(fault=Fault(reason=Reason.FIELD_INVALID, message=".")),)
            return (Noted(text=event.text),)
        case _:
            return ()


def _next(run: ToyRun, index: int, output: JsonDict) -> Any:
    if index == len(run.steps):
        return Ended(run=replace(run, output=output, ended=True))
    waits = run.steps[index][0] == "wait"
    return Dispatched(
        op=Op(id=f"op_{index}_{run.id}", index=index, wake_ms=int(waits and run.steps[index][2]))
    )


def apply(state: ToyState, decision: object) -> None:
    match decision:
        case RunStarted() | Ended():
            state.run = decision.run
        case Dispatched():
            state.ops[decision.op.id] = decision.op
        case Finished():
            del state.ops[decision.op.id]
            assert state.run is not None
            output = {**state.run.output, decision.name: decision.output}
            state.run = replace(state.run, output=output)


def record(state: ToyState, decision: object) -> Iterator[Change]:
    match decision:
        case RunStarted() | Ended():
            yield Put("runs", decision.run.id, decision.run, live=True)
            yield Emit("workflow_completed" if decision.run.ended else "workflow_started", decision.run)
        case Dispatched():
            op = decision.op
            yield Put("operations", op.id, op, ordinal=op.wake_ms, live=True)
            if op.dispatches == 1:
                yield Emit("node.started", op)
        case Finished():
            assert state.run is not None
            yield Delete("operations", decision.op.id)
            yield Put("runs", state.run.id, state.run, live=True)
            yield Emit("node.completed", decision.op)
        case Noted():
            yield Emit("noted", decision)


def commands(state: ToyState, decision: object) -> Iterator[Command]:
    run = state.run
    assert run is not None or isinstance(decision, Refused)
    if isinstance(decision, Dispatched) and run is not None:
        op = decision.op
        kind, name, *rest = run.steps[op.index]
        scope = Scope(run_id=run.id, key=f"{run.id}/{name}")
        if kind == "child":
            yield RunWorkflow(
                operation_id=op.id,
                run_id=f"run_{name}0",
                workflow=None,  # type: ignore[arg-type]
                input={"steps": rest[0]},
                scope=scope,
                parent=Parent(actor_id=run.id, operation_id=op.id),
                volatile=True,
                fresh=op.dispatches == 1,
            )
        elif kind != "wait":
            yield RunTask(
                operation_id=op.id,
                task=None,  # type: ignore[arg-type]
                input={"name": name},
                scope=scope,
                repeatable=kind == "early",
            )
    elif isinstance(decision, Ended | Repeated) and decision.run.parent is not None:
        yield Answer(parent=decision.run.parent, run_id=decision.run.id, output=decision.run.output)


def must_commit(state: ToyState, decided: Sequence[object]) -> bool:
    run = state.run
    if run is None or not run.volatile:
        return True
    return any(isinstance(each, Dispatched) and run.steps[each.op.index][0] == "held" for each in decided)


def restore(rows: Any) -> ToyState:
    return ToyState(next(iter(rows["runs"]), None), {op.id: op for op in rows["operations"]})


def _root(actor_id: str, state: ToyState) -> str:
    return actor_id


TOY = Planner(
    kind="run",
    prefix="run",
    root=_root,
    reload=Reload(live=("runs", "operations")),
    new_state=ToyState,
    restore=restore,
    plan=plan,
    apply=apply,
    record=record,
    commands=commands,
    commanding=frozenset({RunStarted, Dispatched, Finished, Ended, Noted, Refused, Repeated}),
    rejection=lambda decided: next((each.fault for each in decided if isinstance(each, Refused)), None),
    must_commit=must_commit,
    pending=lambda state: list(state.ops),
    size_bytes=lambda state: 0,
    answer=lambda state, decided: {},
    succeeded=lambda operation_id, output, run_id: OperationSucceeded(operation_id=operation_id,
    output=output),
    failed=lambda operation_id, fault, run_id: OperationFailed(operation_id=operation_id, fault=fault),
    timer_fired=lambda operation_id: TimerFired(operation_id=operation_id),
    restarted=lambda operation_id: Restarted(operation_id=operation_id),
    allows_early_dispatch=lambda command: isinstance(command, RunTask) and command.repeatable,
    can_unload=lambda state: all(
        state.run is not None and state.run.steps[op.index][0] == "wait" for op in state.ops.values()
    ),
    parent=lambda state: state.run.parent.actor_id if state.run and state.run.parent else "",
    row_types={"runs": ToyRun, "operations": Op},
    event_types={
        "workflow_started": ToyRun, "workflow_completed": ToyRun, "node_started": Op, "node_completed": Op,
        "noted": Noted,
    },
    inputs=(StartRun, OperationSucceeded, OperationFailed, TimerFired, Restarted, Note),
    decisions=(RunStarted, Dispatched, Finished, Ended, Noted, Refused, Repeated),
)  # fmt: skip
