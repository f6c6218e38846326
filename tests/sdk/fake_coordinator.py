"""A fake CoordinatorService that plays a scripted run over a real socket.

It keeps to the contract of `CoordinatorService` where clients can tell: a ``request_id`` starts one run, a
watcher gets each event after its cursor and ``end`` after the last, lists come in pages of two, a gate is
resolved once and only by who has seen what it shows.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass, field
from typing import Any, NoReturn, TypeAlias

import grpc.aio
from google.protobuf.message import Message
from google.protobuf.timestamp_pb2 import Timestamp

from wonder.v1 import conversation_service_pb2 as conversation
from wonder.v1 import coordinator_service_pb2 as service
from wonder.v1 import coordinator_service_pb2_grpc as rpc
from wonder.v1 import errors_pb2 as errors
from wonder.v1 import run_pb2 as run
from wonder_server.core.errors import Fault, Reason, WonderError
from wonder_server.core.json_types import JsonValue
from wonder_server.rpc.server.error_codes import to_rpc_status

Context: TypeAlias = grpc.aio.ServicerContext[Any, Any]

RUN = "run_1"
GATE = "gate_1"
WORKFLOW = "acme/flows/release@3"
BEGIN_MS = 1_700_000_000_000
PAGE = 2
_ENDED = (run.RUN_STATUS_COMPLETED, run.RUN_STATUS_FAILED, run.RUN_STATUS_CANCELLED)


def at(ms: int) -> Timestamp:
    stamp = Timestamp()
    stamp.FromMilliseconds(BEGIN_MS + ms)
    return stamp


class Script:
    """Writes a run's events down, one method a kind. Times are milliseconds since its start."""

    def __init__(self) -> None:
        self.events: list[run.RunEvent] = []
        self._ordinals: dict[str, int] = {}
        self._began: dict[str, int] = {}

    def add(self, ms: int, name: str, **payload: object) -> None:
        self.events.append(
            run.RunEvent(sequence=len(self.events) + 1, run_id=RUN, create_time=at(ms), name=name, **payload)
        )

    def start(self, **given: JsonValue) -> None:
        started = run.Run(id=RUN, workflow=WORKFLOW, status=run.RUN_STATUS_RUNNING, create_time=at(0))
        started.input.update(given)
        self.add(0, "workflow_started", workflow_started=started)

    def token(self, ms: int, token_id: str, node: str, status: str = "PENDING", **more: object) -> None:
        value = run.TokenStatus.Value(f"TOKEN_STATUS_{status}")
        self.add(ms, "token.moved", token_moved=run.Token(id=token_id, node_id=node, status=value, **more))

    def begin(self, ms: int, node: str, token_id: str = "t", target: str = "acme/flows/work@1") -> None:
        self._ordinals[f"{token_id}/{node}"] = ordinal = len(self._ordinals) + 1
        self._began[f"{token_id}/{node}"] = ms
        self.add(ms, "node.started", node_started=self._execution(node, token_id, ordinal, ms, target))

    def done(self, ms: int, node: str, token_id: str = "t", **output: JsonValue) -> None:
        execution = self._again(ms, node, token_id, run.NODE_EXECUTION_STATUS_COMPLETED)
        execution.output.struct_value.update(output)
        self.add(ms, "node.completed", node_completed=execution)

    def failed(self, ms: int, node: str, reason: str, token_id: str = "t", *, again: bool = False) -> None:
        status = run.NODE_EXECUTION_STATUS_RUNNING if again else run.NODE_EXECUTION_STATUS_FAILED
        execution = self._again(ms, node, token_id, status)
        execution.error.CopyFrom(errors.Fault(reason=errors.ERROR_REASON_TASK_FAILED, message=reason))
        self.add(ms, "node.failed", node_failed=execution)

    def gone(self, ms: int, node: str, token_id: str = "t") -> None:
        execution = self._again(ms, node, token_id, run.NODE_EXECUTION_STATUS_CANCELLED)
        self.add(ms, "node.cancelled", node_cancelled=execution)

    def end(self, ms: int, status: str = "COMPLETED", message: str = "", **output: JsonValue) -> None:
        ended = run.Run(id=RUN, workflow=WORKFLOW, create_time=at(0), complete_time=at(ms))
        ended.status = run.RunStatus.Value(f"RUN_STATUS_{status}")
        ended.node_execution_count = len(self._ordinals)
        if status == "COMPLETED":
            ended.output.update(output)
        else:
            reason = (
                errors.ERROR_REASON_CANCELLED if status == "CANCELLED" else errors.ERROR_REASON_RUN_FAILED
            )
            ended.error.CopyFrom(errors.Fault(reason=reason, message=message))
        name = "workflow.cancelled" if status == "CANCELLED" else f"workflow_{status.lower()}"
        self.add(ms, name, **{name.replace(".", "_"): ended})

    def _execution(self, node: str, token_id: str, ordinal: int, ms: int, target: str) -> run.NodeExecution:
        return run.NodeExecution(
            id=f"op_{ordinal}", run_id=RUN, ordinal=ordinal, node_id=node, token_id=token_id, attempts=1,
            status=run.NODE_EXECUTION_STATUS_RUNNING, target=target, create_time=at(ms),
        )  # fmt: skip

    def _again(self, ms: int, node: str, token_id: str, status: run.NodeExecutionStatus) -> run.NodeExecution:
        key = f"{token_id}/{node}"
        execution = self._execution(node, token_id, self._ordinals[key], self._began[key], "")
        failures = sum(event.node_failed.id == execution.id for event in self.events)
        # As the server has it: where a node is tried again, the attempt that follows is counted.
        execution.attempts = 1 + failures + (status == run.NODE_EXECUTION_STATUS_RUNNING)
        execution.status = status
        if status != run.NODE_EXECUTION_STATUS_RUNNING:
            execution.complete_time.CopyFrom(at(ms))
        return execution


def a_gate(status: run.GateStatus = run.GATE_STATUS_PENDING) -> run.Gate:
    gate = run.Gate(
        id=GATE, run_id=RUN, node_id="agree", workflow=WORKFLOW, status=status, shown_hash="abc",
        prompt="Shall this\nbe released?", create_time=at(400),
    )  # fmt: skip
    gate.shown.update({"version": "1.2"})
    gate.answer_schema.update({"type": "object", "properties": {"notes": {"type": "string"}}})
    return gate


def a_run() -> list[run.RunEvent]:
    """A run with everything in it: branches, a retry, a fan-in, a gate, a signal, an event."""
    script = Script()
    script.start(version="1.2")
    script.token(0, "t", "build", "WAITING_FOR_TASK")
    script.begin(1, "build")
    script.done(30, "build", size=3.0)
    script.token(30, "t", "build", "FORKED")
    for index, branch in enumerate(("lint", "unit")):
        more = {"parent_token_id": "t", "fan_out_node_id": "build", "branch": branch}
        script.token(31, f"t.1.{index}", branch, branch_index=index, branch_count=2, **more)
    script.begin(32, "lint", "t.1.0")
    script.begin(32, "unit", "t.1.1")
    script.failed(50, "unit", "The machine\nis busy.", "t.1.1", again=True)
    script.done(60, "lint", "t.1.0")
    both = {"parent_token_id": "t", "fan_out_node_id": "build", "branch_count": 2}
    script.token(60, "t.1.0", "agree", "WAITING_FOR_SIBLINGS", branch="lint", **both)
    script.add(62, "event.emitted", event_emitted=run.EmittedEvent(name="coverage", node_id="unit"))
    script.done(300, "unit", "t.1.1")
    script.begin(301, "report", "t.1.1")
    script.done(350, "report", "t.1.1")
    for index, branch in enumerate(("lint", "unit")):
        script.token(350, f"t.1.{index}", "agree", "COMPLETED", branch=branch, branch_index=index, **both)
    script.token(390, "t", "agree", "WAITING_FOR_HUMAN", waits_for_id=GATE)
    script.begin(400, "agree", target="gate")
    script.add(400, "gate.opened", gate_opened=a_gate())
    script.add(500, "signal.received", signal_received=run.Signal(name="hurry"))
    resolved = a_gate(run.GATE_STATUS_APPROVED)
    resolved.resolution.user_id, resolved.resolution.comment = "mia", "fine"
    script.add(1400, "gate.resolved", gate_resolved=resolved)
    script.done(1400, "agree", decision="approved")
    script.end(1500, released="1.2", count=2.0)
    return script.events


async def refuse(context: Context, reason: Reason, message: str, **more: object) -> NoReturn:
    output = to_rpc_status(WonderError(Fault(reason=reason, message=message, **more)))
    await context.abort(output.code, output.message, output.trailers)
    raise AssertionError("abort raises")


@dataclass
class FakeCoordinator(rpc.CoordinatorServiceServicer):
    """``cut_starts``: how many StartRuns take effect and are not answered. ``held``: events from this
    index on happen only when something (a signal, an answer, a cancel) lets them."""

    script: Iterable[run.RunEvent] = field(default_factory=a_run)
    cut_starts: int = 0
    held: int | None = None

    def __post_init__(self) -> None:
        self.events = list(self.script)
        self.requests: list[Message] = []
        self.started: list[str] = []
        self.gates = [a_gate()]
        self.changed = asyncio.Condition()

    async def watched(self) -> None:
        """Wait until a client calls WatchRun."""
        async with self.changed:
            await self.changed.wait_for(
                lambda: any(isinstance(each, service.WatchRunRequest) for each in self.requests)
            )

    @property
    def past(self) -> list[run.RunEvent]:
        return self.events if self.held is None else self.events[: self.held]

    def run(self) -> run.Run:
        """Return the run after its recorded events."""
        output = run.Run(id=RUN, workflow=WORKFLOW, status=run.RUN_STATUS_RUNNING, create_time=at(0))
        for event in self.past:
            if event.WhichOneof("payload") in ("workflow_completed", "workflow_failed", "workflow_cancelled"):
                output = getattr(event, event.WhichOneof("payload"))
        output.last_sequence = len(self.past)
        return output

    async def StartRun(self, request: service.StartRunRequest, context: Context) -> service.StartRunResponse:
        self.requests.append(request)
        if request.workflow_id == "nothing":
            await refuse(context, Reason.DEFINITION_NOT_FOUND, "There is no workflow `nothing`.")
        if request.request_id not in self.started:
            self.started.append(request.request_id)
        if self.cut_starts:
            self.cut_starts -= 1
            async with self.changed:
                self.changed.notify_all()
            await context.abort(grpc.StatusCode.UNAVAILABLE, "the line is cut")
        output = self.run()
        if not request.wait_ms:
            output = run.Run(id=RUN, workflow=WORKFLOW, status=run.RUN_STATUS_RUNNING)
        return service.StartRunResponse(run=output)

    async def GetRun(self, request: service.GetRunRequest, context: Context) -> service.GetRunResponse:
        if request.run_id != RUN:
            await refuse(context, Reason.RUN_NOT_FOUND, f"There is no run {request.run_id}.")
        output = self.run()
        output.state.update({"size": 3})
        for event in self.past:
            for name in ("node_started", "node_completed", "node_failed", "node_cancelled"):
                if event.HasField(name):
                    execution = getattr(event, name)
                    others = [each for each in output.node_executions if each.id != execution.id]
                    del output.node_executions[:]
                    output.node_executions.extend(sorted([*others, execution], key=lambda each: each.ordinal))
        if output.status not in _ENDED:
            output.pending_gates.append(self.gates[0])
        return service.GetRunResponse(run=output)

    async def ListRuns(self, request: service.ListRunsRequest, context: Context) -> service.ListRunsResponse:
        kept = service.ListRunsRequest.FromString(request.SerializeToString())
        self.requests.append(kept)
        first = int(request.page_token or 0)
        runs = [
            run.Run(id=f"run_{n}", workflow=WORKFLOW, status=n % 5 + 1, create_time=at(n)) for n in range(5)
        ]
        more = str(first + PAGE) if first + PAGE < len(runs) else ""
        return service.ListRunsResponse(runs=runs[first : first + PAGE], next_page_token=more)

    async def CancelRun(
        self, request: service.CancelRunRequest, context: Context
    ) -> service.CancelRunResponse:
        self.requests.append(request)
        if self.run().status in _ENDED:
            await refuse(context, Reason.RUN_NOT_ACTIVE, "The run has ended.")
        script = Script()
        script.events = self.past
        script.end(600, "CANCELLED", request.reason)
        await self._happen(script.events)
        return service.CancelRunResponse(run=self.run())

    async def SignalRun(
        self, request: service.SignalRunRequest, context: Context
    ) -> service.SignalRunResponse:
        self.requests.append(request)
        await self._happen(self.events)
        return service.SignalRunResponse(sequence=7)

    async def WatchRun(
        self, request: service.WatchRunRequest, context: Context
    ) -> AsyncIterator[service.WatchRunResponse]:
        self.requests.append(request)
        if request.run_id != RUN:
            await refuse(context, Reason.RUN_NOT_FOUND, f"There is no run {request.run_id}.")
        async with self.changed:
            self.changed.notify_all()
        cursor = request.after_sequence
        while True:
            while cursor < len(self.past):
                cursor += 1
                yield service.WatchRunResponse(event=self.past[cursor - 1])
            if self.run().status in _ENDED:
                break
            async with self.changed:
                await self.changed.wait()
        yield service.WatchRunResponse(
            end=conversation.StreamEnd(reason=conversation.STREAM_END_REASON_COMPLETED)
        )

    async def ListGates(
        self, request: service.ListGatesRequest, context: Context
    ) -> service.ListGatesResponse:
        self.requests.append(request)
        wanted = set(request.statuses) or {run.GATE_STATUS_PENDING}
        found = [gate for gate in self.gates if gate.status in wanted]
        first = int(request.page_token or 0)
        more = str(first + PAGE) if first + PAGE < len(found) else ""
        return service.ListGatesResponse(gates=found[first : first + PAGE], next_page_token=more)

    async def ResolveGate(
        self, request: service.ResolveGateRequest, context: Context
    ) -> service.ResolveGateResponse:
        self.requests.append(request)
        gate = next(each for each in self.gates if each.id == request.gate_id)
        if gate.status != run.GATE_STATUS_PENDING or request.shown_hash != gate.shown_hash:
            await refuse(context, Reason.GATE_RESOLVED, "The gate was approved by mia already.")
        approves = request.decision == service.GATE_DECISION_APPROVE
        gate.status = run.GATE_STATUS_APPROVED if approves else run.GATE_STATUS_REJECTED
        await self._happen(self.events)
        return service.ResolveGateResponse(gate=gate)

    async def ReplayRun(
        self, request: service.ReplayRunRequest, context: Context
    ) -> service.ReplayRunResponse:
        answer = service.ReplayRunResponse(identical=request.run_id == RUN, step_count=12)
        if not answer.identical:
            answer.first_difference.step, answer.first_difference.input = 4, "TaskDone"
            answer.first_difference.recorded.append({"kind": "EndRun"})
            answer.first_difference.planned.append({"kind": "MoveToken"})
        return answer

    async def ForkRun(self, request: service.ForkRunRequest, context: Context) -> service.ForkRunResponse:
        self.requests.append(request)
        return service.ForkRunResponse(run=run.Run(id="run_2", forked_from_run_id=request.run_id))

    async def _happen(self, events: Iterable[run.RunEvent]) -> None:
        async with self.changed:
            self.events, self.held = list(events), None
            self.changed.notify_all()
