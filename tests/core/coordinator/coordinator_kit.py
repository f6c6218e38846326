"""Shared parts of the run planner's tests: graphs, results, and a run driven by hand.

`Driven` does what the loop does (plan, apply, record, commands) with a journal in memory that keeps copies,
as a disk would, and checks the laws of ``coordinator_laws`` after every step.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from tests.core.conversation.conversation_kit import NOW, pin, run_without_waiting, task, workflow
from tests.core.coordinator.coordinator_laws import check_run
from wonder_server.actors.runs.replay import replay
from wonder_server.adapters.in_memory.journal import MemoryJournal
from wonder_server.core.actor.changes import Emit, Put
from wonder_server.core.actor.commands import CallAgent, Parent, RunTask, RunWorkflow, Scope
from wonder_server.core.actor.gates import Gate
from wonder_server.core.coordinator.model import inputs
from wonder_server.core.coordinator.model.decisions import (
    AnswerAgain,
    ChargeRun,
    Decision,
    DispatchNode,
    EndRun,
    KeepExecution,
    RecordExecution,
)
from wonder_server.core.coordinator.model.state import RunState
from wonder_server.core.coordinator.model.values import (
    NodeExecution,
    Operation,
    OperationKind,
    Pinned,
    Run,
    RunStatus,
    Token,
)
from wonder_server.core.coordinator.planner import RUN
from wonder_server.core.definitions.specs import (
    FanIn,
    FanInMode,
    ForEach,
    HumanGate,
    Node,
    PinnedWorkflow,
    Transition,
    Wait,
    Workflow,
)
from wonder_server.core.errors import Fault
from wonder_server.core.json_types import JsonDict
from wonder_server.ports.journal import Commit, Entry, Event

RUN_ID = "run_01HF7YAT0000000000000000A0"
PARENT = Parent(actor_id="conv_01HF7YAT0000000000000000A0", operation_id="op_1")
CONVERSATION_ID = "conv_01HF7YAT0000000000000000A0"

# --- graphs -----------------------------------------------------------------------------------------


def graph(*nodes: Node, transitions: Sequence[Transition] = (), **spec: Any) -> PinnedWorkflow:
    """Return a pinned workflow; nodes name task ``t`` or ``once`` (not repeatable), workflow ``w``, agent
    ``a``."""
    return PinnedWorkflow(
        pin=pin("graph"),
        spec=Workflow(nodes=nodes, transitions=tuple(transitions), initial_node_id=nodes[0].id, **spec),
        tasks={"t": task(), "once": task("once", "shell")},
        workflows={"w": workflow()},
        agents={"a": "agt_1"},
    )


def node(name: str, **fields: Any) -> Node:
    """Return a node, of task ``t`` unless another target is given."""
    targets = ("task_id", "workflow_id", "agent_id", "human_gate", "wait")
    if not any(target in fields for target in targets):
        fields["task_id"] = "t"
    return Node(id=name, **fields)


def gate(name: str, *, input_mapping: dict[str, str] | None = None, **fields: Any) -> Node:
    return Node(id=name, human_gate=HumanGate(**fields), input_mapping=input_mapping or {})


def wait(name: str, signal: str = "", duration_ms: int = 0, **fields: Any) -> Node:
    return Node(id=name, wait=Wait(signal=signal, duration_ms=duration_ms), **fields)


def transition(there: str, condition: str = "", **fields: Any) -> Transition:
    """Return a transition, written ``a>b``."""
    from_node, to_node = there.split(">")
    return Transition(from_node_id=from_node, to_node_id=to_node, condition=condition, **fields)


def each(there: str, items: str = "input.items", **fields: Any) -> Transition:
    """Return a transition for each item."""
    return transition(there, for_each=ForEach(items=items, **fields))


def diamond(*branches: str, join: FanIn | None = None, **spec: Any) -> PinnedWorkflow:
    """Return a workflow whose node ``a`` fans out to nodes that meet at ``z``."""
    return graph(
        node("a", fan_out=True),
        *(node(name) for name in branches),
        node("z", fan_in=join or FanIn()),
        transitions=[
            transition(f"{here}>{there}") for name in branches for here, there in (("a", name), (name, "z"))
        ],
        **spec,
    )


def fan(join: FanIn | None = None, *, limit: int = 0, most: int = 1_000, **fields: Any) -> PinnedWorkflow:
    """Return a workflow whose node ``a`` fans out over ``input.items`` to ``b``; the branches meet at
    ``z``."""
    return graph(
        node("a"),
        node("b", **fields),
        node("z", fan_in=join or FanIn()),
        transitions=(each("a>b", max_concurrency=limit, max_items=most), transition("b>z")),
    )


ALL = FanIn()
ANY = FanIn(mode=FanInMode.ANY)
TWO = FanIn(mode=FanInMode.M_OF_N, count=2)

# --- driving ----------------------------------------------------------------------------------------


def reloaded(value: Any) -> Any:
    """Return the value as a disk would return it: equal, and sharing nothing."""
    if isinstance(value, Pinned):
        return value  # large, and nothing changes it
    return msgspec.convert(msgspec.to_builtins(value), type(value))


class RunView:
    """Read access to a run: its state and its stored rows."""

    def __init__(self, run_id: str) -> None:
        self.run_id = run_id
        self.state = RunState()
        self.journal = MemoryJournal()

    @property
    def run(self) -> Run:
        assert self.state.run is not None
        return self.state.run

    @property
    def status(self) -> RunStatus:
        return self.run.status

    @property
    def fault(self) -> Fault:
        assert self.run.fault is not None
        return self.run.fault

    @property
    def gate(self) -> Gate:
        (found,) = self.state.gates.values()
        return found

    @property
    def timer(self) -> Operation:
        """The one timer that belongs to no node."""
        (found,) = (each for each in self.state.operations.values() if not each.node_id)
        return found

    def operation(self, at: str = "") -> Operation:
        """Return the operation of a node: ``b``, ``b[1]`` in the branch of that index, or the only one."""
        found = self.operations(at)
        assert len(found) == 1, [each.node_id for each in self.state.operations.values()]
        return found[0]

    def operations(self, at: str = "") -> list[Operation]:
        name, _, index = at.rstrip("]").partition("[")
        return [
            each
            for each in self.state.operations.values()
            if each.node_id
            and name in ("", each.node_id)
            and index in ("", str(self.state.tokens[each.token_id].branch_index))
        ]

    @property
    def at(self) -> list[str]:
        """The nodes that wait for an operation, in order."""
        return sorted(each.node_id for each in self.operations())

    @property
    def tokens(self) -> dict[str, str]:
        """The statuses of live tokens by id."""
        return {each.id: each.status.value for each in self.state.tokens.values()}

    def input(self, at: str = "") -> JsonDict:
        return self.state.executions[self.operation(at).id].input

    def row(self, table: str, row_id: str) -> Any:
        return self.journal.actors[self.run_id].table(table)[row_id].value

    def ended_tokens(self) -> dict[str, str]:
        """Return the statuses of ended tokens by id."""
        rows: list[Token] = [put.value for put in self.journal.actors[self.run_id].table("tokens").values()]
        return {each.id: each.status.value for each in rows if each.id not in self.state.tokens}

    def workflow_node(self, operation: Operation) -> Node:
        assert self.state.pinned is not None
        return next(each for each in self.state.pinned.workflow.spec.nodes if each.id == operation.node_id)

    def fork_source(self) -> inputs.ForkSource:
        """Return the record that a fork from here copies."""
        rows = {
            name: [put.value for put in table.values() if put.live or name in ("executions", "context")]
            for name, table in self.journal.actors[self.run_id].rows.items()
        }
        return inputs.ForkSource(
            run_id=self.run_id,
            tokens=tuple(rows.get("tokens", ())),
            fan_outs=tuple(rows.get("forks", ())),
            executions=tuple(rows.get("executions", ())),
            context=tuple(
                entry for entry in rows.get("context", ()) if entry.token_id in ("", *self.state.tokens)
            ),
            signals=tuple(sorted(rows.get("signals", ()), key=lambda each: each.number)),
        )


class Driven(RunView):
    """A run driven by hand and recorded as the loop would record it. It checks the laws after each step."""

    def __init__(self, run_id: str = RUN_ID, now: int = NOW) -> None:
        super().__init__(run_id)
        self.now = now
        self.entries = self.events = self.ends = 0
        self.seen: dict[str, Operation] = {}
        """The last version of every operation."""
        self.recorded: dict[str, NodeExecution] = {}
        """Node executions that have ended."""
        self.taken_over: list[str] = []
        """Node executions that a fork copied from its source."""
        self.ordinal = 0
        self.keys: dict[str, str] = {}
        """The execution of each key."""
        self.commands: list[Any] = []
        self.must_commit = False

    def step(self, event: inputs.Input, *, after_ms: int = 1) -> list[str]:
        """Apply an input and return the names of its decisions."""
        self.now += after_ms
        decided = RUN.plan(self.state, event, self.now)
        assert RUN.plan(self.state, event, self.now) == decided
        if RUN.rejection(decided) is not None:
            assert len(decided) == 1, "a refusal changes nothing"
        elif decided:
            self._apply(event, decided)
        self.must_commit = RUN.must_commit(self.state, decided)
        self.check()
        return [type(decision).__name__ for decision in decided]

    def _apply(self, event: inputs.Input, decided: tuple[Decision, ...]) -> None:
        commit = Commit(self.run_id)
        for decision in decided:
            again = isinstance(decision, AnswerAgain)
            charges = isinstance(decision, ChargeRun)
            assert charges or self.ends == again, "only charges are decided about a run that has ended"
            RUN.apply(self.state, decision)
            self._note(decision)
            for change in RUN.record(self.state, decision):
                if isinstance(change, Emit):
                    assert isinstance(change.value, RUN.event_types[change.kind])
                    self.events += 1
                    commit.events.append(Event(self.events, self.now, self.run_id, change))
                elif isinstance(change, Put):
                    commit.changes.append(msgspec.structs.replace(change, value=reloaded(change.value)))
                else:
                    commit.changes.append(change)
        assert RUN.event_count(decided) == len(commit.events)
        self.commands = [c for decision in decided for c in RUN.commands(self.state, decision)]
        for command in self.commands:
            if isinstance(command, RunTask | RunWorkflow | CallAgent):
                assert self.keys[command.scope.key] == command.operation_id
        self.entries += 1
        commit.entries.append(Entry(self.entries, self.now, event, tuple(reloaded(each) for each in decided)))
        commit.entry_head, commit.event_head = self.entries, self.events
        run_without_waiting(self.journal.commit([commit]))
        self.seen.update(self.state.operations)

    def _note(self, decision: Decision) -> None:
        if isinstance(decision, EndRun):
            self.ends += 1
        elif isinstance(decision, DispatchNode):
            execution, key = decision.execution, decision.operation.key
            assert execution.ordinal == self.ordinal + 1, "ordinals go up by one"
            self.ordinal += 1
            assert key not in self.keys, "two executions never share a key"
            self.keys[key] = execution.id
        elif isinstance(decision, KeepExecution):
            self.ordinal = max(self.ordinal, decision.execution.ordinal)
            self.taken_over.append(decision.execution.id)
        elif isinstance(decision, RecordExecution):
            execution = self.state.ended_execution
            assert execution is not None and execution.id == decision.execution.id
            assert execution.id not in self.recorded, "an execution is recorded once"
            self.recorded[execution.id] = execution

    # --- laws -------------------------------------------------------------------------------------

    def check(self) -> None:
        if self.state.run is None:
            return
        check_run(self.state)
        assert self.ends == (1 if self.state.run.completed_ms else 0)
        running = self.state.executions.keys()
        assert {*self.keys.values()} == {*self.recorded, *running}
        assert self.restored() == self.state

    def restored(self) -> RunState:
        loaded = run_without_waiting(self.journal.load(self.run_id))
        assert loaded is not None
        state = RUN.restore(loaded.rows)
        assert isinstance(state, RunState)
        return state

    def replayed(self) -> None:
        """Check that a replay of the journal leads to the same decisions, without the restarts."""
        verdict = replay(RUN, run_without_waiting(self.journal.entries(self.run_id, 0, 100_000)))
        assert verdict.difference is None, verdict.difference

    # --- inputs -----------------------------------------------------------------------------------

    def start(self, flow: PinnedWorkflow, given: JsonDict | None = None, **fields: Any) -> list[str]:
        fields.setdefault("scope", Scope())
        return self.step(inputs.Start(run_id=self.run_id, workflow=flow, input=given or {}, **fields))

    def succeed(self, at: str = "", output: Any = None) -> list[str]:
        """Complete the node ``at`` (see `operation`) with a result."""
        output = {} if output is None else output
        return self.step(inputs.NodeSucceeded(operation_id=self.operation(at).id, output=output))

    def fail(self, at: str, fault: Fault) -> list[str]:
        return self.step(inputs.NodeFailed(operation_id=self.operation(at).id, fault=fault))

    def fire_timer(self, operation: Operation) -> list[str]:
        """Advance the time to the operation's wake time and fire its timer."""
        self.now = max(self.now, operation.wake_ms)
        return self.step(inputs.NodeTimerFired(operation_id=operation.id), after_ms=0)

    def wait_for_timer(self, at: str = "") -> list[str]:
        return self.fire_timer(self.operation(at))

    def signal(self, name: str, payload: Any = None) -> list[str]:
        return self.step(inputs.ReceiveSignal(name=name, payload=payload, user_id="ann"))

    def answer(self, *, approve: bool = True, **fields: Any) -> list[str]:
        """Resolve the one open gate."""
        (gate,) = self.state.gates.values()
        fields.setdefault("shown_hash", gate.shown_hash)
        return self.step(inputs.ResolveGate(gate_id=gate.id, approve=approve, **fields))

    def cancel(self) -> list[str]:
        return self.step(inputs.CancelRun(reason="Enough."))

    def reload(self) -> None:
        self.state = self.restored()

    def restart(self) -> list[list[str]]:
        """Restart the server."""
        self.reload()
        return [self.step(inputs.NodeRestarted(operation_id=each)) for each in RUN.pending(self.state)]

    def finish(self, output: Callable[[Operation], Any] = lambda operation: {}, *, most: int = 5_000) -> None:
        """Let everything happen that can happen. The run must end."""
        for _ in range(most):
            operations = list(self.state.operations.values())
            if not operations:
                break
            # Timers last: results usually arrive before them.
            operation = min(operations, key=lambda each: (not each.node_id, each.wake_ms))
            if operation.backing_off or not operation.node_id:
                self.fire_timer(operation)
            elif operation.kind is OperationKind.GATE:
                gate = self.state.gates[operation.child_id]
                user = gate.user_ids[0] if gate.user_ids else "ann"
                self.step(
                    inputs.ResolveGate(
                        gate_id=gate.id, approve=True, shown_hash=gate.shown_hash, user_id=user
                    )
                )
            elif operation.kind is OperationKind.WAIT and operation.wake_ms:
                self.fire_timer(operation)
            elif operation.kind is OperationKind.WAIT:
                self.signal(self.workflow_node(operation).wait.signal)  # type: ignore[union-attr]
            else:
                self.step(inputs.NodeSucceeded(operation_id=operation.id, output=output(operation)))
        assert self.status.value not in ("running", "waiting"), "every run ends"


def forked(flow: PinnedWorkflow, given: JsonDict | None = None) -> Driven:
    """Return a run whose node ``a`` has fanned out."""
    driven = Driven()
    driven.start(flow, given)
    driven.succeed("a")
    return driven
