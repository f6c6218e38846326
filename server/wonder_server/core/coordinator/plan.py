"""The planner of workflow runs: how tokens move over the graph (document 5).

The theory. A *token* is a place in the graph that a run has reached. It begins at the first node; at each
node the node's target is carried out, and its result written into the run's context; then the token takes
the first transition, by ascending priority, whose condition holds, and ends where none does. The run ends
with its last token.

A node that *fans out* takes every transition that holds, and a transition *for each* item of a list is
taken once for every item. Each of these branches is a token of its own, a child of the one that fanned out,
with values of its own (``branch``, ``item``, ``index``). So tokens form a tree, whose leaves do the work:

========================  ===================================================================================
token                     means
========================  ===================================================================================
pending                   its node's attempt failed; the next one comes when the backoff is over
waiting_for_task          the executor runs its node's task
waiting_for_subworkflow   its node's workflow runs as a child
waiting_for_agent         an agent works on a turn for its node
waiting_for_human         a person has to answer at its node's gate
waiting_for_signal        its node waits for a signal, or for a time
waiting_for_siblings      it stands at the fan-in where its branches meet
forked                    its branches are under way; it goes on where they meet, or ends when they all have
completed                 it ended, or was joined with others
failed, cancelled         it, or what is around it, could not go on; nobody needed it any more
========================  ===================================================================================

How branches meet, and what their failures mean, is told in ``branches.py``; what nodes do in ``nodes.py``.

Laws (``tests/core/test_coordinator_laws.py``, with generated graphs): same state, input and time, same
decisions; `plan` never raises; no token is lost or doubled (each live one is the root or has a live parent
that is forked; a forked one has live children or a fan-in to come); every live leaf has an operation in the
outbox or stands at a fan-in that waits for others, so that a run which has not ended always waits for
something that can happen; a result of an operation that is not in the outbox changes nothing, so that a
node's result is recorded once however often it is delivered (feature G7).
"""

from __future__ import annotations

from typing import assert_never

from wonder_server.core import schemas
from wonder_server.core.commands import Parent
from wonder_server.core.coordinator import branches, forks, gates, nodes
from wonder_server.core.coordinator.course import course_of
from wonder_server.core.coordinator.decisions import AnswerAgain, RecordEvent, RefuseRun, StartRun
from wonder_server.core.coordinator.draft import ROOT, Decisions, Draft
from wonder_server.core.coordinator.inputs import (
    CancelRun,
    EventEmitted,
    Input,
    NodeFailed,
    NodeRestarted,
    NodeSucceeded,
    NodeWoken,
    ReceiveSignal,
    ResolveGate,
    Start,
    StartFork,
)
from wonder_server.core.coordinator.state import RunState
from wonder_server.core.coordinator.values import (
    CARRIED_OUT,
    Emitted,
    Operation,
    OperationKind,
    Pinned,
    Run,
    RunStatus,
    Signal,
    Token,
)
from wonder_server.core.definitions.specs import PinnedWorkflow
from wonder_server.core.errors import Fault, Reason
from wonder_server.core.frozen import replace

MAX_SIGNALS = 100
"""Names of signals that one run remembers, beside those that its nodes wait for."""

MAX_MISSED = 1_000
"""Signals of one name that stand in line for nodes that will wait for them."""

MAX_EVENTS_OF_A_NODE = 1_000
"""Events that one execution of a node may emit; more of them are dropped."""


def plan(state: RunState, event: Input, now_ms: int) -> Decisions:
    """What to do about ``event``. Pure; never raises."""
    if type(event) is Start:
        return _start(state, event, now_ms)
    match event:
        case NodeSucceeded() | NodeFailed() | NodeWoken() | NodeRestarted() | EventEmitted():
            run, pinned = state.run, state.pinned
            operation = state.operations.get(event.operation_id)
            if operation is None or run is None or pinned is None:
                return ()
            draft = Draft(state, run, pinned, f"{operation.id}/{operation.dispatches}", now_ms)
            _told(draft, operation, event)
            return _to_the_end(draft)
        case StartFork():
            return _start_fork(state, event, now_ms)
        case CancelRun():
            return _cancel(state, event, now_ms)
        case ReceiveSignal():
            return _hear(state, event, now_ms)
        case ResolveGate():
            return _resolve(state, event, now_ms)
        case _:
            assert_never(event)


def _to_the_end(draft: Draft) -> Decisions:
    """Plan what is on the agenda, which grows meanwhile, until nothing is left that can be decided now."""
    for what, token, node_id in draft.agenda:
        if draft.over:
            break
        match what:
            case "come":
                branches.come(draft, token, node_id)
            case "begin":
                if draft.live(token.id) is not None:  # Else what is around it failed or was joined meanwhile.
                    nodes.begin(draft, token, node_id)
            case "settle":
                branches.settle(draft, token.id)
    return draft.finish()


def _told(
    draft: Draft,
    operation: Operation,
    event: NodeSucceeded | NodeFailed | NodeWoken | NodeRestarted | EventEmitted,
) -> None:
    """Something about an operation of the outbox."""
    match event:
        case NodeSucceeded() if operation.kind in CARRIED_OUT and _is_current(operation, event.run_id):
            nodes.succeeded(draft, operation, event.output)
        case NodeFailed() if not operation.node_id:
            branches.fail(draft, draft.token(operation.token_id or ROOT), event.fault)
        case NodeFailed() if _is_current(operation, event.run_id):
            nodes.failed(draft, operation, event.fault)
        case NodeSucceeded() | NodeFailed():
            pass
        case NodeWoken():
            _woken(draft, operation)
        case NodeRestarted():
            if operation.node_id:
                nodes.restarted(draft, operation)
        case EventEmitted():
            if operation.node_id:
                _emitted(draft, operation, event)
        case _:
            assert_never(event)


def _is_current(operation: Operation, child_id: str) -> bool:
    """Whether a result is of the attempt that the node waits for."""
    return not operation.backing_off and (
        not child_id or child_id == operation.child_id or child_id == operation.attempt_id
    )


def _woken(draft: Draft, operation: Operation) -> None:
    if operation.node_id:
        nodes.woken(draft, operation)
    elif draft.now < operation.until_ms:
        return
    elif operation.kind is OperationKind.JOIN_TIMER:
        branches.late(draft, operation.token_id)
    else:
        seconds = (operation.until_ms - draft.run.created_ms) / 1000
        message = f"The run did not end within {seconds:g} s."
        branches.fail(draft, draft.token(ROOT), Fault(reason=Reason.TIMEOUT, message=message))


def _emitted(draft: Draft, operation: Operation, event: EventEmitted) -> None:
    """An event that a task repeats, because it was tried or handed out again, is recorded once."""
    if event.key in operation.emitted or len(operation.emitted) >= MAX_EVENTS_OF_A_NODE:
        return
    noted = replace(operation, emitted=(*operation.emitted, event.key))
    said = Emitted(name=event.name, payload=event.payload, node_id=operation.node_id)
    draft.decided.append(RecordEvent(emitted=said, operation=noted))


# --- beginning and end ------------------------------------------------------------------------------


def _start(state: RunState, event: Start, now: int) -> Decisions:
    if state.run is not None:
        return _again(state.run, event.parent)
    workflow = event.workflow
    schema = workflow.spec.input_schema
    problems = schemas.validate(schema, event.input) if schema else []
    fault = _unfit(problems) if problems else None
    if fault is not None and event.parent is None:
        return (RefuseRun(fault=fault),)
    limits = [limit for limit in (workflow.spec.timeout_ms, event.timeout_ms) if limit]
    run = Run(
        id=event.run_id,
        workflow_ref=course_of(workflow).ref,
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
    draft = _begun(state, run, workflow, now)
    if fault is not None:
        draft.end(RunStatus.FAILED, fault=fault)
        return _to_the_end(draft)
    first = workflow.spec.initial_node_id or workflow.spec.nodes[0].id
    root = Token(id=ROOT, run_id=run.id, node_id=first, created_ms=now)
    draft.born(root)
    branches.go(draft, root, first)
    return _to_the_end(draft)


def _unfit(problems: list[str]) -> Fault:
    message = f"The input does not match the workflow's schema: {'; '.join(problems[:5])}"
    return Fault(reason=Reason.INPUT_INVALID, message=message, field="input")


def _begun(state: RunState, run: Run, workflow: PinnedWorkflow, now: int) -> Draft:
    pinned = Pinned(run_id=run.id, workflow=workflow)
    draft = Draft(state, run, pinned, run.id, now)
    draft.decided.append(StartRun(run=run, pinned=pinned))
    if run.deadline_ms:
        draft.set_timer(OperationKind.RUN_TIMER, None, run.deadline_ms)
    return draft


def _again(run: Run, parent: Parent | None) -> Decisions:
    """A run is started once. Who asks again, after a crash, is told how it ended, if it has."""
    if parent is not None and run.completed_ms:
        return (AnswerAgain(run=run, parent=parent),)
    return ()


def _start_fork(state: RunState, event: StartFork, now: int) -> Decisions:
    if state.run is not None:
        return ()
    fault = forks.refusal(event.past, event.workflow)
    if fault is not None:
        return (RefuseRun(fault=fault),)
    schema = event.workflow.spec.input_schema
    problems = schemas.validate(schema, event.input) if schema else []
    if problems:
        return (RefuseRun(fault=_unfit(problems)),)
    limit = event.workflow.spec.timeout_ms
    run = Run(
        id=event.run_id,
        workflow_ref=course_of(event.workflow).ref,
        workflow_id=event.workflow.pin.definition_id,
        scope=replace(event.scope, run_id=event.run_id),
        input=event.input,
        metadata=event.metadata,
        forked_from=event.past.run_id,
        deadline_ms=now + limit if limit else 0,
        created_ms=now,
        updated_ms=now,
    )
    draft = _begun(state, run, event.workflow, now)
    forks.take_over(draft, event.past)
    return _to_the_end(draft)


def _cancel(state: RunState, event: CancelRun, now: int) -> Decisions:
    run, pinned = state.run, state.pinned
    if run is None:
        return _refuse(Reason.RUN_NOT_FOUND, "No run has this id.", "run_id")
    if pinned is None:
        message = f"The run is already {run.status.value}; nothing to cancel."
        return _refuse(Reason.RUN_NOT_ACTIVE, message, "run_id")
    draft = Draft(state, run, pinned, f"{run.id}/cancel", now)
    branches.cancel(draft, draft.token(ROOT))
    fault = Fault(reason=Reason.CANCELLED, message=event.reason or "The run was cancelled.")
    draft.end(RunStatus.CANCELLED, fault=fault)
    return _to_the_end(draft)


# --- people -----------------------------------------------------------------------------------------


def _hear(state: RunState, event: ReceiveSignal, now: int) -> Decisions:
    run, pinned = state.run, state.pinned
    if run is None:
        return _refuse(Reason.RUN_NOT_FOUND, "No run has this id.", "run_id")
    if pinned is None:
        message = f"The run is already {run.status.value}; nobody would hear the signal."
        return _refuse(Reason.RUN_NOT_ACTIVE, message, "run_id")
    awaited = course_of(pinned.workflow).graph.signals
    if event.name in awaited:
        if len(state.missed.get(event.name, ())) >= MAX_MISSED:
            message = f"{MAX_MISSED} signals `{event.name}` wait to be taken already."
            return _refuse(Reason.LIMIT_EXCEEDED, message, "signal.name")
    elif event.name not in state.signals and len(state.signals.keys() - awaited) >= MAX_SIGNALS:
        message = f"A run remembers signals of at most {MAX_SIGNALS} names that none of its nodes waits for."
        return _refuse(Reason.LIMIT_EXCEEDED, message, "signal.name")
    heard = state.signals.get(event.name)
    number = heard.number + 1 if heard is not None else 1
    signal = Signal(
        run_id=run.id,
        name=event.name,
        payload=event.payload,
        user_id=event.user_id,
        number=number,
        received_ms=now,
    )
    draft = Draft(state, run, pinned, f"{run.id}/signal/{event.name}/{number}", now)
    draft.hear(signal)
    for operation in draft.waiting_for(event.name):
        if draft.operation(operation.id) is not None:  # What the first one did may have ended the others.
            nodes.hear(draft, operation, signal)
    return _to_the_end(draft)


def _resolve(state: RunState, event: ResolveGate, now: int) -> Decisions:
    run, pinned = state.run, state.pinned
    gate = state.gates.get(event.gate_id)
    fault = gates.refusal(gate, event)
    if fault is not None:
        return (RefuseRun(fault=fault),)
    operation = state.operations.get(gate.operation_id) if gate is not None else None
    if run is None or pinned is None or gate is None or operation is None:
        return _refuse(Reason.GATE_RESOLVED, "The gate is not open any more.", "gate_id")
    draft = Draft(state, run, pinned, operation.id, now)
    nodes.succeeded(draft, operation, gates.resolve(draft, gate, event))
    return _to_the_end(draft)


def _refuse(reason: Reason, message: str, field: str) -> Decisions:
    return (RefuseRun(fault=Fault(reason=reason, message=message, field=field)),)
