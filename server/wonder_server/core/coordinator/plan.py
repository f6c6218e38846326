"""The planner of workflow runs: the movement of tokens over the graph.

A *token* is a position in the graph. A run starts with one token at the first node. At each node the node's
target is executed and its result written into the run's context. The token then takes the first transition,
by ascending priority, whose condition is true; if there is none, the token ends. The run ends with its last
token.

A node that *fans out* takes every transition whose condition is true. A transition *for each* item of a list
is taken once per item. Each branch is a token of its own, a child of the token that fanned out, with its own
values (``branch``, ``item``, ``index``). Tokens therefore form a tree. Its leaves execute nodes:

========================  ===================================================================================
status of a token         meaning
========================  ===================================================================================
pending                   an attempt failed; the next attempt starts after its backoff
waiting_for_task          the executor runs the node's task
waiting_for_subworkflow   the node's workflow runs as a child
waiting_for_agent         an agent executes a turn for the node
waiting_for_human         a person has to answer at the node's gate
waiting_for_signal        the node waits for a signal or a time
waiting_for_siblings      the token arrived at the fan-in where its branches meet
forked                    its branches are running; it continues at their fan-in or ends with the last
completed                 the token ended or was joined with others
failed, cancelled         the token or an enclosing branch failed; the token is no longer needed
========================  ===================================================================================

The modules of ``planning`` decide: ``fan_out.py`` about the division into branches, ``token_flow.py`` about
fan-in and failing branches, ``nodes.py`` about the execution of nodes.

Laws (``tests/core/coordinator/test_laws.py``, with generated graphs):

- The same state, input and time lead to the same decisions. `plan` never raises.
- No token is lost or duplicated. A live token is the root or has a live, forked parent. A forked token has
  live children or a fan-in to come.
- Every live leaf has an operation in the outbox or waits at a fan-in. A run that has not ended therefore
  always waits for an input that can happen.
- A result of an operation that is not in the outbox changes nothing. A node's result is recorded once,
  however often it is delivered (feature G7).
"""

from __future__ import annotations

from typing import assert_never

from wonder_server.core.actor.commands import Parent
from wonder_server.core.actor.gates import ResolveGate, refusal
from wonder_server.core.budget import account_of_call
from wonder_server.core.coordinator.model.compiled_graph import compile_graph
from wonder_server.core.coordinator.model.decisions import (
    AnswerAgain,
    ChargeRun,
    RecordEvent,
    RefuseRun,
    StartRun,
)
from wonder_server.core.coordinator.model.inputs import (
    CancelRun,
    EventEmitted,
    Input,
    NodeFailed,
    NodeRestarted,
    NodeSucceeded,
    NodeTimerFired,
    ReceiveSignal,
    RunUsageReported,
    Start,
    StartFork,
)
from wonder_server.core.coordinator.model.state import RunState
from wonder_server.core.coordinator.model.values import (
    EXECUTED_KINDS,
    EmittedEvent,
    Operation,
    OperationKind,
    Pinned,
    Run,
    RunStatus,
    Signal,
    Token,
)
from wonder_server.core.coordinator.planning import gates, nodes, run_fork, token_flow
from wonder_server.core.coordinator.planning.plan_builder import ROOT, Decisions, PlanBuilder
from wonder_server.core.definitions.specs import PinnedWorkflow
from wonder_server.core.errors import Fault, Reason
from wonder_server.core.frozen import replace
from wonder_server.core.schema import schemas

MAX_SIGNALS = 100
"""Limit of signal names that a run stores in addition to those that its nodes wait for."""

MAX_QUEUED_SIGNALS = 1_000
"""Limit of queued signals of one name."""

MAX_EVENTS_OF_A_NODE = 1_000
"""Limit of events of one node execution. Further events are dropped."""


def plan(state: RunState, event: Input, now_ms: int) -> Decisions:
    """Return the decisions for ``event``. Pure; never raises."""
    if type(event) is Start:
        return _start(state, event, now_ms)
    match event:
        case NodeSucceeded() | NodeFailed() | NodeTimerFired() | NodeRestarted() | EventEmitted():
            run, pinned = state.run, state.pinned
            operation = state.operations.get(event.operation_id)
            if operation is None or run is None or pinned is None:
                return ()
            builder = PlanBuilder(state, run, pinned, f"{operation.id}/{operation.dispatches}", now_ms)
            _operation_input(builder, operation, event)
            return _run_agenda(builder)
        case RunUsageReported():
            return _charge(state, event)
        case StartFork():
            return _start_fork(state, event, now_ms)
        case CancelRun():
            return _cancel(state, event, now_ms)
        case ReceiveSignal():
            return _receive_signal(state, event, now_ms)
        case ResolveGate():
            return _resolve(state, event, now_ms)
        case _:
            assert_never(event)


def _run_agenda(builder: PlanBuilder) -> Decisions:
    """Plan the continuations on the agenda until it is empty. Each may append others."""
    for kind, token, node_id in builder.agenda:
        if builder.ended:
            break
        match kind:
            case "arrive":
                token_flow.arrive(builder, token, node_id)
            case "begin":
                # The token may have ended earlier in this step, with an enclosing branch.
                if builder.tokens.live(token.id) is not None:
                    nodes.begin(builder, token, node_id)
            case "resolve":
                token_flow.resolve_fan_in(builder, token.id)
    return builder.finish()


def _operation_input(
    builder: PlanBuilder,
    operation: Operation,
    event: NodeSucceeded | NodeFailed | NodeTimerFired | NodeRestarted | EventEmitted,
) -> None:
    """Plan an input about a pending operation."""
    match event:
        case NodeSucceeded() if operation.kind in EXECUTED_KINDS and _is_current(operation, event.run_id):
            nodes.succeeded(builder, operation, event.output)
        case NodeFailed() if not operation.node_id:
            token_flow.fail(builder, builder.tokens.get(operation.token_id or ROOT), event.fault)
        case NodeFailed() if _is_current(operation, event.run_id):
            nodes.failed(builder, operation, event.fault)
        case NodeSucceeded() | NodeFailed():
            pass
        case NodeTimerFired():
            _timer_fired(builder, operation)
        case NodeRestarted():
            if operation.node_id:
                nodes.restarted(builder, operation)
        case EventEmitted():
            if operation.node_id:
                _emitted(builder, operation, event)
        case _:
            assert_never(event)


def _is_current(operation: Operation, child_id: str) -> bool:
    """Return True if a result belongs to the attempt that the node waits for."""
    return not operation.backing_off and (
        not child_id or child_id == operation.child_id or child_id == operation.attempt_id
    )


def _timer_fired(builder: PlanBuilder, operation: Operation) -> None:
    if operation.node_id:
        nodes.timer_fired(builder, operation)
    elif builder.now < operation.until_ms:
        return
    elif operation.kind is OperationKind.JOIN_TIMER:
        token_flow.fan_in_timeout(builder, operation.token_id)
    else:
        seconds = (operation.until_ms - builder.run.created_ms) / 1000
        message = f"The run did not end within {seconds:g} s."
        token_flow.fail(builder, builder.tokens.get(ROOT), Fault(reason=Reason.TIMEOUT, message=message))


def _emitted(builder: PlanBuilder, operation: Operation, event: EventEmitted) -> None:
    """Record an event once, even if its task emits it again after a retry or a restart."""
    if event.key in operation.emitted or len(operation.emitted) >= MAX_EVENTS_OF_A_NODE:
        return
    updated = replace(operation, emitted=(*operation.emitted, event.key))
    emitted = EmittedEvent(name=event.name, payload=event.payload, node_id=operation.node_id)
    builder.decided.append(RecordEvent(emitted=emitted, operation=updated))


def _charge(state: RunState, event: RunUsageReported) -> Decisions:
    """Charge usage to the run and to the other accounts, also after the run has ended."""
    run = state.run
    if run is None:
        return ()
    amount = account_of_call(event.usage, event.calls, settles=event.settles)
    accounts = tuple(dict.fromkeys((run.id, *event.accounts)))
    return (ChargeRun(charge_id=event.charge_id, accounts=accounts, amount=amount),)


# --- start and end ----------------------------------------------------------------------------------


def _start(state: RunState, event: Start, now: int) -> Decisions:
    if state.run is not None:
        return _repeat_answer(state.run, event.parent)
    workflow = event.workflow
    schema = workflow.spec.input_schema
    problems = schemas.validate(schema, event.input) if schema else []
    fault = _invalid_input(problems) if problems else None
    if fault is not None and event.parent is None:
        return (RefuseRun(fault=fault),)
    limits = [limit for limit in (workflow.spec.timeout_ms, event.timeout_ms) if limit]
    run = Run(
        id=event.run_id,
        workflow_ref=compile_graph(workflow).ref,
        workflow_id=workflow.pin.definition_id,
        scope=replace(event.scope, run_id=event.run_id),
        parent=event.parent,
        volatile=event.volatile,
        input=event.input,
        metadata=event.metadata,
        deadline_ms=now + min(limits) if limits else 0,
        created_ms=now,
        updated_ms=now,
    )
    builder = _new_builder(state, run, workflow, now)
    if fault is not None:
        builder.end(RunStatus.FAILED, fault=fault)
        return _run_agenda(builder)
    first = workflow.spec.initial_node_id or workflow.spec.nodes[0].id
    root = Token(id=ROOT, run_id=run.id, node_id=first, created_ms=now)
    builder.tokens.create(root)
    builder.move_to(root, first)
    return _run_agenda(builder)


def _invalid_input(problems: list[str]) -> Fault:
    message = f"The input does not match the workflow's schema: {'; '.join(problems[:5])}"
    return Fault(reason=Reason.INPUT_INVALID, message=message, field="input")


def _new_builder(state: RunState, run: Run, workflow: PinnedWorkflow, now: int) -> PlanBuilder:
    pinned = Pinned(run_id=run.id, workflow=workflow)
    builder = PlanBuilder(state, run, pinned, run.id, now)
    builder.decided.append(StartRun(run=run, pinned=pinned))
    if run.deadline_ms:
        builder.operations.set_timer(OperationKind.RUN_TIMER, None, run.deadline_ms)
    return builder


def _repeat_answer(run: Run, parent: Parent | None) -> Decisions:
    """Repeat the result of a run that has ended. A parent starts its run again after a crash."""
    if parent is not None and run.completed_ms:
        return (AnswerAgain(run=run, parent=parent),)
    return ()


def _start_fork(state: RunState, event: StartFork, now: int) -> Decisions:
    if state.run is not None:
        return ()
    fault = run_fork.refusal(event.source, event.workflow)
    if fault is not None:
        return (RefuseRun(fault=fault),)
    schema = event.workflow.spec.input_schema
    problems = schemas.validate(schema, event.input) if schema else []
    if problems:
        return (RefuseRun(fault=_invalid_input(problems)),)
    limit = event.workflow.spec.timeout_ms
    run = Run(
        id=event.run_id,
        workflow_ref=compile_graph(event.workflow).ref,
        workflow_id=event.workflow.pin.definition_id,
        scope=replace(event.scope, run_id=event.run_id),
        input=event.input,
        metadata=event.metadata,
        forked_from=event.source.run_id,
        deadline_ms=now + limit if limit else 0,
        created_ms=now,
        updated_ms=now,
    )
    builder = _new_builder(state, run, event.workflow, now)
    run_fork.take_over(builder, event.source)
    return _run_agenda(builder)


def _cancel(state: RunState, event: CancelRun, now: int) -> Decisions:
    run, pinned = state.run, state.pinned
    if run is None:
        return _refuse(Reason.RUN_NOT_FOUND, "The run does not exist or was deleted.", "run_id")
    if pinned is None:
        message = f"The run is already {run.status.value}; it cannot be cancelled."
        return _refuse(Reason.RUN_NOT_ACTIVE, message, "run_id")
    builder = PlanBuilder(state, run, pinned, f"{run.id}/cancel", now)
    token_flow.cancel(builder, builder.tokens.get(ROOT))
    fault = Fault(reason=Reason.CANCELLED, message=event.reason or "The run was cancelled.")
    builder.run = replace(builder.run, cancelled_by=event.principal)
    builder.end(RunStatus.CANCELLED, fault=fault)
    return _run_agenda(builder)


# --- signals and gates ------------------------------------------------------------------------------


def _receive_signal(state: RunState, event: ReceiveSignal, now: int) -> Decisions:
    run, pinned = state.run, state.pinned
    if run is None:
        return _refuse(Reason.RUN_NOT_FOUND, "The run does not exist or was deleted.", "run_id")
    if pinned is None:
        message = f"The run is already {run.status.value}; it takes no signals."
        return _refuse(Reason.RUN_NOT_ACTIVE, message, "run_id")
    awaited = compile_graph(pinned.workflow).graph.signals
    if event.name in awaited:
        if len(state.queued_signals.get(event.name, ())) >= MAX_QUEUED_SIGNALS:
            message = f"The queue of signal `{event.name}` is full: {MAX_QUEUED_SIGNALS} wait to be consumed."
            return _refuse(Reason.LIMIT_EXCEEDED, message, "signal.name")
    elif event.name not in state.signals and len(state.signals.keys() - awaited) >= MAX_SIGNALS:
        message = f"The run has signals of {MAX_SIGNALS} names that no node waits for, which is the maximum."
        return _refuse(Reason.LIMIT_EXCEEDED, message, "signal.name")
    latest = state.signals.get(event.name)
    number = latest.number + 1 if latest is not None else 1
    signal = Signal(
        run_id=run.id,
        name=event.name,
        payload=event.payload,
        user_id=event.user_id,
        number=number,
        received_ms=now,
        principal=event.principal,
    )
    builder = PlanBuilder(state, run, pinned, f"{run.id}/signal/{event.name}/{number}", now)
    builder.signals.receive(signal)
    for operation in builder.operations.waiting_for_signal(event.name, builder.compiled):
        # Completing the first node may have ended the others.
        if builder.operations.get(operation.id) is not None:
            nodes.receive_signal(builder, operation, signal)
    return _run_agenda(builder)


def _resolve(state: RunState, event: ResolveGate, now: int) -> Decisions:
    run, pinned = state.run, state.pinned
    gate = state.gates.get(event.gate_id)
    fault = refusal(gate, event)
    if fault is not None:
        return (RefuseRun(fault=fault),)
    operation = state.operations.get(gate.operation_id) if gate is not None else None
    if run is None or pinned is None or gate is None or operation is None:
        return _refuse(Reason.GATE_RESOLVED, "The gate is no longer open.", "gate_id")
    builder = PlanBuilder(state, run, pinned, operation.id, now)
    nodes.succeeded(builder, operation, gates.resolve(builder, gate, event))
    return _run_agenda(builder)


def _refuse(reason: Reason, message: str, field: str) -> Decisions:
    return (RefuseRun(fault=Fault(reason=reason, message=message, field=field)),)
