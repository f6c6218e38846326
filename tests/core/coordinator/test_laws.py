"""Laws of the run planner with generated graphs and histories (see the docstring of ``plan.py``)."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tests.core.conversation.conversation_kit import (
    BUSINESS,
    NOW,
    TRANSIENT,
    run_without_waiting,
    task,
    workflow,
)
from tests.core.coordinator.coordinator_graphs import Shape, build, limits, shapes
from tests.core.coordinator.coordinator_kit import CONVERSATION_ID, PARENT, Driven
from wonder_server.core.actor.commands import Scope
from wonder_server.core.coordinator.model import inputs
from wonder_server.core.coordinator.model.decisions import DispatchNode, RetryNode
from wonder_server.core.coordinator.model.state import RunState
from wonder_server.core.coordinator.planner import RUN
from wonder_server.core.definitions.check import check_spec
from wonder_server.core.definitions.parse import kind_of
from wonder_server.core.definitions.reference_check import ResolvedReference
from wonder_server.core.definitions.specs import Kind, PinnedWorkflow, Spec
from wonder_server.core.errors import Fault, Reason
from wonder_server.core.frozen import replace
from wonder_server.core.json_types import JsonDict

OTHER = "run_01HF7YAT0000000000000000B0"
LATE = Fault(reason=Reason.MODEL_UNAVAILABLE, message="Busy.", transient=True, retry_after_ms=400)
FAULTS = (TRANSIENT, TRANSIENT, LATE, BUSINESS)
OUTPUTS: tuple[Any, ...] = ({}, {"n": 1}, {"n": 2}, None, [1], "text")

HISTORIES = st.lists(
    st.tuples(
        st.sampled_from(
            "succeed succeed succeed succeed succeed succeed fail fail wake elapse elapse back restart "
            "reload signal gate gate late strange cancel start event".split()
        ),
        st.integers(0, 30),
        st.integers(0, 30),
    ),
    max_size=40,
)


class GraphResolver:
    """The definitions that generated graphs refer to."""

    def __init__(self) -> None:
        self.specs: dict[str, Spec] = {"t": task().spec, "once": task().spec, "w": workflow().spec}
        self.actions: JsonDict = {"context": {}}

    def find(self, reference: str, library: str) -> ResolvedReference | None:
        spec = self.specs[reference]
        return ResolvedReference(key=reference, library=library, kind=kind_of(spec), spec=spec)

    def names(self, kind: Kind, library: str) -> list[str]:
        return list(self.specs)


def begun(flow: PinnedWorkflow, *, parented: bool, run_id: str = "", now: int = NOW) -> Driven:
    driven = Driven(now=now)
    start(driven, flow, parented=parented)
    return driven


def start(driven: Driven, flow: PinnedWorkflow, *, parented: bool) -> None:
    parent = PARENT if parented else None
    scope = Scope(conversation_id=CONVERSATION_ID if parented else "", project_id="proj_1")
    driven.start(flow, {"items": [1, 2, 3]}, scope=scope, parent=parent, timeout_ms=50_000 if parented else 0)


def happen(driven: Driven, flow: PinnedWorkflow, name: str, which: int, what: int, parented: bool) -> None:
    """Apply one event of a history."""
    pending = list(driven.state.operations)
    # Mostly pending operations, sometimes one that has ended or never existed.
    known = [*pending, *pending, *pending, *list(driven.seen)[-2:], "op_0"]
    operation_id = known[which % len(known)]
    if name in ("succeed", "late", "fail", "elapse", "wake", "event"):
        happen_to_operation(driven, name, operation_id, what)
        return
    match name:
        case "back":
            driven.now -= 1_000 * what
        case "restart":
            driven.restart()
        case "reload":
            driven.reload()
        case "signal":
            driven.signal(("go", "stop", "other")[which % 3], OUTPUTS[what % len(OUTPUTS)])
        case "gate":
            driven.step(answered(driven, which, what))
        case "cancel" if what > 27:
            driven.cancel()
        case "start":
            start(driven, flow, parented=parented)
        case _:
            driven.step(inputs.NodeRestarted(operation_id=operation_id))


def happen_to_operation(driven: Driven, name: str, operation_id: str, what: int) -> None:
    """Apply one event of a history that is about an operation."""
    operation = driven.seen.get(operation_id)
    match name:
        case "succeed":
            driven.step(succeeded(operation_id, what))
        case "late" if operation is not None:
            child = ("run_other", operation.child_id, "")[what % 3]
            driven.step(inputs.NodeSucceeded(operation_id=operation_id, output={"late": True}, run_id=child))
        case "fail":
            fault = FAULTS[what % len(FAULTS)]
            driven.step(inputs.NodeFailed(operation_id=operation_id, fault=fault))
        case "elapse" if operation is not None:
            driven.fire_timer(operation)
        case "wake":
            driven.step(inputs.NodeTimerFired(operation_id=operation_id))
        case "event":
            driven.step(
                inputs.EventEmitted(operation_id=operation_id, key=f"{what % 3}", name="e", payload={})
            )
        case _:
            driven.step(inputs.NodeRestarted(operation_id=operation_id))


def succeeded(operation_id: str, what: int) -> inputs.NodeSucceeded:
    return inputs.NodeSucceeded(operation_id=operation_id, output=OUTPUTS[what % len(OUTPUTS)])


def answered(driven: Driven, which: int, what: int) -> inputs.ResolveGate:
    gates = list(driven.state.gates.values())
    if not gates:
        return inputs.ResolveGate(gate_id="gate_0", approve=True, shown_hash="")
    gate = gates[which % len(gates)]
    return inputs.ResolveGate(
        gate_id=gate.id,
        approve=what % 2 == 0,
        shown_hash=gate.shown_hash if what % 7 else "other",
        answer={"x": 1} if what % 11 == 0 else None,
        user_id=("ann", "ann", "eve")[what % 3],
    )


def forked(driven: Driven, flow: PinnedWorkflow, where: str) -> None:
    """Check that a fork from this point also ends."""
    fork = Driven(run_id=OTHER, now=driven.now)
    scope = Scope(conversation_id=driven.run.scope.conversation_id)
    past = driven.fork_source()
    fork.step(
        inputs.StartFork(run_id=OTHER, workflow=flow, input={"items": [1, 2]}, scope=scope, source=past)
    )
    kept = [each for each in past.executions if each.completed_ms]
    assert fork.taken_over == [each.id for each in kept]
    assert len(fork.seen) >= len(driven.operations()) or fork.run.completed_ms
    if where == "later":
        fork.restart()
    fork.finish()
    fork.replayed()


def handed_out(driven: Driven, *, later_ms: int) -> list[tuple[str, str, str]]:
    """Return key and child of every dispatch when the run is planned again ``later_ms`` later with the same
    results."""
    was, state = RunState(), RunState()
    found: list[tuple[str, str, str]] = []
    for entry in run_without_waiting(driven.journal.entries(driven.run_id, 0, 100_000)):
        decided = RUN.plan(state, _same(entry.input, was, state), entry.at_ms + later_ms)
        for decision in entry.decisions:
            RUN.apply(was, decision)
        for decision in decided:
            RUN.apply(state, decision)
            if isinstance(decision, DispatchNode | RetryNode):
                operation = decision.operation
                found.append((operation.kind, operation.key, operation.child_id))
    return found


def _same(event: Any, was: RunState, state: RunState) -> Any:
    """Return the input with the ids of ``state`` in place of those of ``was``: ids of operations contain the
    time."""
    operation_id = getattr(event, "operation_id", "")
    gate = was.gates.get(getattr(event, "gate_id", ""))
    asked = operation_id or (gate.operation_id if gate is not None else "")
    key = was.operations[asked].key if asked else ""
    if not key:
        return event
    (now,) = (each for each in state.operations.values() if each.key == key)
    if gate is not None:
        return replace(event, gate_id=now.child_id)
    return replace(event, operation_id=now.id)


@given(
    shape=shapes,
    limit=limits,
    history=HISTORIES,
    parented=st.booleans(),
    fork=st.sampled_from(("no", "no", "at once", "later")),
)
def test_the_laws_hold_for_every_graph_and_history(
    shape: Shape, limit: JsonDict, history: list[tuple[str, int, int]], parented: bool, fork: str
) -> None:
    flow = build(shape, **limit)
    assert check_spec(flow.spec, "lib", GraphResolver()) == (), "only graphs that may be saved are made up"
    driven = begun(flow, parented=parented)
    for name, which, what in history:
        happen(driven, flow, name, which, what, parented)
    if fork != "no" and not driven.run.completed_ms:
        forked(driven, flow, fork)
    driven.finish()
    driven.replayed()
    assert handed_out(driven, later_ms=0) == handed_out(driven, later_ms=3_600_000)
