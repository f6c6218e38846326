"""The Work stream through a real server: its messages, and the errors that end it (feature H4)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import grpc
import pytest
from google.protobuf.struct_pb2 import Struct
from grpc import aio

from tests.rpc.rpc_kit import FakeNameResolver, deep_struct, rejected, serving
from tests.rpc.rpc_kit import field as wire
from tests.services.tasks.executor_kit import SERVICES, Clock
from tests.views import ForAll
from wonder.v1 import errors_pb2, task_pb2
from wonder.v1 import executor_service_pb2 as pb
from wonder.v1.executor_service_pb2_grpc import ExecutorServiceStub
from wonder_server.core.actor.commands import Scope
from wonder_server.core.errors import Fault, Reason, WonderError
from wonder_server.core.json_types import JsonDict
from wonder_server.rpc.executor import worker_stream as rpc
from wonder_server.rpc.executor.servicer import ExecutorServicer, RequestLookups
from wonder_server.services.actions import ACTIONS
from wonder_server.services.tasks.executor import Executor
from wonder_server.services.workers import Job, Progress, Registration, WorkerKind, WorkerPool, WorkerPools
from wonder_server.services.workers.session import MAX_BACKLOG

SERVICE = "wonder.v1.ExecutorService"
WORK = f"/{SERVICE}/Work"
TEXT = {"type": "object", "properties": {"text": {"type": "string"}}}
SCOPE = Scope(project_id="proj_default", agent_id="agt_ada", conversation_id="c", turn_id="t", run_id="r")


class NoTasks:
    """These tests ask the pool itself."""

    async def pin_task(self, ref: str) -> Any:
        raise AssertionError(ref)

    async def get(self, conversation_id: str) -> Any:
        raise AssertionError(conversation_id)


def struct(**fields: object) -> Struct:
    made = Struct()
    made.update(fields)
    return made


def kind(name: str = "ocr", **more: object) -> pb.WorkerActionKind:
    return pb.WorkerActionKind(name=name, **more)


def registration(*kinds: pb.WorkerActionKind, name: str = "w", **more: object) -> pb.WorkRequest:
    return pb.WorkRequest(register=pb.RegisterWorker(name=name, kinds=kinds or (kind(),), **more))


class Worker:
    """The worker side of a stream."""

    def __init__(self, call: Any) -> None:
        self.call = call

    async def send(self, **item: object) -> None:
        await self.call.write(pb.WorkRequest(**item))

    async def receive(self, item: str) -> Any:
        """Return the next message; fail if it has another type."""
        response = await asyncio.wait_for(self.call.read(), 60)
        assert response is not aio.EOF, await self.call.code()
        assert response.WhichOneof("item") == item, response
        return getattr(response, item)

    async def ended(self) -> grpc.StatusCode:
        assert await asyncio.wait_for(self.call.read(), 60) is aio.EOF
        return await self.call.code()

    async def refused(self) -> tuple[str, list[str]]:
        """Return the reason and the fields of the error that ends the stream."""
        return await asyncio.wait_for(rejected(self._to_the_end()), 60)

    async def _to_the_end(self) -> None:
        while await self.call.read() is not aio.EOF:  # raises what the stream ends with
            pass


class WorkerKit:
    """A server with a worker pool, and callers that request work."""

    def __init__(self, channel: aio.Channel, pool: WorkerPool) -> None:
        self.channel, self.pool = channel, pool
        self.stub = ExecutorServiceStub(channel)
        self._asked: list[asyncio.Task[object]] = []

    def ask(self, operation_id: str = "op_1", **more: object) -> asyncio.Task[JsonDict]:
        fields = {"kind": "ocr", "input": {}, "timeout_ms": 60_000, "context": SCOPE, **more}
        task = asyncio.create_task(self.pool.perform(Job(operation_id=operation_id, **fields)))
        self._asked.append(task)
        return task

    @asynccontextmanager
    async def worker(self, *kinds: pb.WorkerActionKind, **more: object) -> AsyncIterator[Worker]:
        """Yield a registered worker; its name does not matter."""
        call = self.stub.Work()
        try:
            worker = Worker(call)
            await call.write(registration(*kinds, **more))
            await worker.receive("registered")
            yield worker
        finally:
            call.cancel()

    async def until(self, condition: Callable[[], object]) -> None:
        async with asyncio.timeout(60):
            while not condition():  # noqa: ASYNC110 - the pool has no event for it
                await asyncio.sleep(0.001)

    async def close(self) -> None:
        for task in self._asked:
            task.cancel()
        await asyncio.gather(*self._asked, return_exceptions=True)


@pytest.fixture
async def office() -> AsyncIterator[WorkerKit]:
    pool = WorkerPool(Clock(), reserved=ACTIONS)
    servicer = ExecutorServicer(
        Executor(ForAll(SERVICES), Clock()),
        ForAll(RequestLookups(NoTasks(), FakeNameResolver(), NoTasks())),
        clock=Clock(),
        workers=WorkerPools(lambda: pool),
    )
    async with serving({SERVICE: servicer}) as channel:
        opened = WorkerKit(channel, pool)
        try:
            yield opened
        finally:
            await opened.close()
            pool.close()


async def fault(asked: asyncio.Task[object]) -> Fault:
    with pytest.raises(WonderError) as problem:
        await asyncio.wait_for(asked, 60)
    return problem.value.fault


# --- work -------------------------------------------------------------------------------------------


async def test_a_worker_registers_receives_work_and_its_result_is_settled(office: WorkerKit) -> None:
    received: list[Progress] = []
    call = office.stub.Work()
    worker = Worker(call)
    await call.write(registration(kind(input_schema=struct(**TEXT)), max_concurrency=2))
    registered = await worker.receive("registered")
    assert registered.worker_id.startswith("wkr_")
    assert (registered.heartbeat_interval_ms, registered.lease_ms) == (10_000, 30_000)

    asked = office.ask("op_1", input={"text": "hi", "n": 3}, on_progress=received.append)
    given = await worker.receive("assignment")
    assert len(given.traceparent) == 55 and given.traceparent.startswith("00-")
    assert given.lease_id.startswith("lease_")
    assert (given.operation_id, given.attempt, given.kind) == ("op_1", 1, "ocr")
    assert dict(given.input) == {"text": "hi", "n": 3}
    assert given.deadline.ToMilliseconds() == 1_000 + 60_000
    assert given.context == task_pb2.ExecutionContext(
        project_id="proj_default", agent_id="agt_ada", conversation_id="c", turn_id="t", run_id="r"
    )
    await worker.send(heartbeat=pb.WorkHeartbeat(lease_ids=[given.lease_id, "unknown_lease"]))
    for progress in (
        task_pb2.Progress(message="x" * 9_999, fraction=0.5, output="o"),
        task_pb2.Progress(fraction=float("nan")),
        task_pb2.Progress(fraction=7),
    ):
        await worker.send(progress=pb.AssignmentProgress(lease_id=given.lease_id, progress=progress))
    await worker.send(completed=pb.AssignmentCompleted(lease_id=given.lease_id, output=struct(n=3, half=0.5)))
    settled = await worker.receive("settled")
    assert (settled.lease_id, settled.accepted, settled.HasField("error")) == (given.lease_id, True, False)
    answer = await asked
    assert answer == {"n": 3, "half": 0.5} and type(answer["n"]) is int
    assert received == [Progress(message="x" * 2_000, fraction=0.5, output="o"), Progress(), Progress()]
    call.cancel()
    await office.until(lambda: not office.pool.kinds())


async def test_a_failure_keeps_its_reason_and_its_message_is_truncated(office: WorkerKit) -> None:
    async with office.worker() as worker:
        asked = office.ask()
        given = await worker.receive("assignment")
        received = errors_pb2.Fault(
            reason=errors_pb2.ERROR_REASON_MODEL_UNAVAILABLE,
            message="m" * 100_000,
            retriable=True,
            retry_after_ms=10**15,
            metadata={str(n): "v" * 10_000 for n in range(100)},
        )
        await worker.send(failed=pb.AssignmentFailed(lease_id=given.lease_id, error=received))
        assert (await worker.receive("settled")).accepted
        got = await fault(asked)
        assert (got.reason, got.transient, len(got.message)) == (Reason.MODEL_UNAVAILABLE, True, 2_000)
        assert got.retry_after_ms == 3_600_000
        assert len(got.metadata) == 16 and all(len(value) == 2_000 for value in got.metadata.values())


@pytest.mark.parametrize(
    "reason", [errors_pb2.ERROR_REASON_INTERNAL, errors_pb2.ERROR_REASON_STORAGE_UNAVAILABLE]
)
async def test_a_worker_failure_is_not_reported_as_a_server_error(office: WorkerKit, reason: int) -> None:
    async with office.worker() as worker:
        asked = office.ask()
        given = await worker.receive("assignment")
        received = errors_pb2.Fault(reason=reason, message="No\0ne.", metadata={"k\0": "v\0"})  # type: ignore[arg-type]
        await worker.send(failed=pb.AssignmentFailed(lease_id=given.lease_id, error=received))
        got = await fault(asked)
        assert (got.reason, got.message, got.metadata) == (Reason.TASK_FAILED, "None.", {"k": "v"})


async def test_a_failure_without_a_message_fails_the_task(office: WorkerKit) -> None:
    async with office.worker() as worker:
        asked = office.ask()
        given = await worker.receive("assignment")
        await worker.send(failed=pb.AssignmentFailed(lease_id=given.lease_id))
        got = await fault(asked)
        assert (got.reason, got.transient) == (Reason.TASK_FAILED, False)
        assert got.message == "The worker gave no reason."


async def test_a_cancel_reaches_the_worker(office: WorkerKit) -> None:
    async with office.worker() as worker:
        asked = office.ask()
        given = await worker.receive("assignment")
        asked.cancel()
        cancelled = await worker.receive("cancelled")
        assert cancelled.lease_id == given.lease_id
        assert cancelled.error.reason == errors_pb2.ERROR_REASON_CANCELLED
        await worker.send(completed=pb.AssignmentCompleted(lease_id=given.lease_id))
        settled = await worker.receive("settled")
        assert not settled.accepted and settled.error.message


@pytest.mark.parametrize("is_idempotent", [True, False])
@pytest.mark.parametrize("how", ["cancel", "half_close", "nonsense"])
async def test_a_lost_worker_loses_its_assignments(office: WorkerKit, is_idempotent: bool, how: str) -> None:
    async with (
        office.worker(kind(idempotent=is_idempotent)) as lost,
        office.worker(kind(idempotent=is_idempotent)) as other,
    ):
        asked = office.ask("op_1")
        given = await lost.receive("assignment")
        match how:
            case "cancel":
                lost.call.cancel()
            case "half_close":
                await lost.call.done_writing()
                assert await lost.ended() is grpc.StatusCode.OK
            case _:
                await lost.call.write(registration())
        if is_idempotent:
            again = await other.receive("assignment")
            assert (again.operation_id, again.attempt) == ("op_1", 2)
            assert again.lease_id != given.lease_id
        else:
            assert (await fault(asked)).reason is Reason.OUTCOME_UNKNOWN


async def test_a_worker_leaves_when_it_is_done(office: WorkerKit) -> None:
    async with office.worker(max_concurrency=3) as worker:
        asked = office.ask()
        given = await worker.receive("assignment")
        await worker.send(drain=pb.DrainWorker())
        await worker.send(drain=pb.DrainWorker())
        await worker.send(completed=pb.AssignmentCompleted(lease_id=given.lease_id))
        assert (await worker.receive("settled")).accepted
        assert await worker.ended() is grpc.StatusCode.OK
        assert await asked == {}
        await office.until(lambda: not office.pool.kinds())


async def test_a_stopping_server_announces_draining_and_accepts_late_results(office: WorkerKit) -> None:
    async with office.worker() as worker:
        asked = office.ask()
        given = await worker.receive("assignment")
        office.pool.drain(2_000)
        draining = await worker.receive("draining")
        assert (draining.grace_ms, draining.reconnect_after_ms) == (2_000, 1_000)
        await worker.send(completed=pb.AssignmentCompleted(lease_id=given.lease_id))
        assert (await worker.receive("settled")).accepted
        assert await asked == {}
        assert (await worker.refused())[0] == "SERVER_DRAINING"
    late = Worker(office.stub.Work())
    await late.call.write(registration())
    assert (await late.refused())[0] == "SERVER_DRAINING"


# --- answers that cannot be taken -------------------------------------------------------------------


def raw_completed(lease_id: str, output: bytes) -> bytes:
    return wire(4, wire(1, lease_id.encode()) + wire(2, output))


def number(value: float) -> bytes:
    return struct(n=value).SerializeToString()


@pytest.mark.parametrize(
    ("output", "reason"),
    [
        (deep_struct(40), Reason.PAYLOAD_TOO_DEEP),
        (number(float("nan")), Reason.NUMBER_OUT_OF_RANGE),
        (number(1e300), Reason.NUMBER_OUT_OF_RANGE),
        (struct(text="x" * (5 << 20)).SerializeToString(), Reason.PAYLOAD_TOO_LARGE),
    ],
    ids=["deep", "nan", "huge number", "huge"],
)
async def test_an_output_that_breaks_a_limit_fails_its_assignment_and_no_other(
    office: WorkerKit, output: bytes, reason: Reason
) -> None:
    raw = office.channel.stream_stream(WORK, bytes, pb.WorkResponse.FromString)()
    worker = Worker(raw)
    await raw.write(registration(max_concurrency=2).SerializeToString())
    await worker.receive("registered")
    bad, good = office.ask("op_bad"), office.ask("op_good")
    leases = [(await worker.receive("assignment")).lease_id for _ in range(2)]
    await raw.write(raw_completed(leases[0], output))
    settled = await worker.receive("settled")
    assert (settled.lease_id, settled.accepted) == (leases[0], False)
    assert settled.error.reason == getattr(errors_pb2, f"ERROR_REASON_{reason}")
    assert (await fault(bad)).reason is reason
    await raw.write(raw_completed(leases[1], b""))
    assert (await worker.receive("settled")).accepted
    assert await good == {}
    raw.cancel()


async def test_invalid_bytes_end_the_stream(office: WorkerKit) -> None:
    raw = office.channel.stream_stream(WORK, bytes, pb.WorkResponse.FromString)()
    worker = Worker(raw)
    await raw.write(registration().SerializeToString())
    await worker.receive("registered")
    await raw.write(b"\xff\xff\xff")
    assert await worker.refused() == ("MALFORMED_REQUEST", [])
    await office.until(lambda: not office.pool.kinds())


class Flood:
    """A stream of results for leases that do not exist."""

    refused = b""
    read = 0

    async def __anext__(self) -> pb.WorkRequest:
        self.read += 1
        if self.read > 5 * MAX_BACKLOG:
            raise StopAsyncIteration
        return pb.WorkRequest(completed=pb.AssignmentCompleted(lease_id="unknown_lease"))


async def test_the_server_stops_reading_from_a_worker_that_does_not_read() -> None:
    pool, flood = WorkerPool(Clock()), Flood()
    session = pool.join(Registration(name="w", kinds=(WorkerKind(name="ocr"),)))
    reader = asyncio.create_task(rpc._read_messages(pool, session, flood))  # type: ignore[arg-type]
    await asyncio.sleep(0)
    assert flood.read == MAX_BACKLOG
    for _ in range(7):
        await session.next_message()
        await asyncio.sleep(0)
        await asyncio.sleep(0)
    assert flood.read == MAX_BACKLOG + 7
    reader.cancel()
    pool.close()


# --- what ends the stream ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("first", "reason", "field"),
    [
        (pb.WorkRequest(), "FIELD_INVALID", "register"),
        (pb.WorkRequest(drain=pb.DrainWorker()), "FIELD_INVALID", "register"),
        (registration(name=""), "FIELD_INVALID", "register.name"),
        (registration(kind("http.x y")), "FIELD_INVALID", "register.kinds[0].name"),
        (registration(kind("context")), "FIELD_INVALID", "register.kinds[0].name"),
        (registration(max_concurrency=0), "FIELD_INVALID", "register.max_concurrency"),
        (registration(project_ids=["default", "mars"]), "PROJECT_NOT_FOUND", "register.project_ids[1]"),
        (registration(project_ids=[""]), "FIELD_INVALID", "register.project_ids[0]"),
        (registration(project_ids=["default"] * 101), "FIELD_INVALID", "register.project_ids[100]"),
        (
            registration(kind(input_schema=struct(type="nothing"))),
            "DEFINITION_INVALID",
            "register.kinds[0].input_schema.type",
        ),
    ],
)
async def test_an_invalid_registration_is_refused(
    office: WorkerKit, first: pb.WorkRequest, reason: str, field: str
) -> None:
    worker = Worker(office.stub.Work())
    await worker.call.write(first)
    assert await worker.refused() == (reason, [field])


async def test_a_stream_that_ends_before_registration_is_refused(office: WorkerKit) -> None:
    worker = Worker(office.stub.Work())
    await worker.call.done_writing()
    assert await worker.refused() == ("FIELD_INVALID", ["register"])


async def test_a_conflicting_declaration_is_refused_and_the_first_worker_stays(office: WorkerKit) -> None:
    async with office.worker(name="first") as first:
        second = Worker(office.stub.Work())
        await second.call.write(registration(kind(idempotent=True), name="second"))
        assert await second.refused() == ("DEFINITION_INVALID", ["register.kinds[0].idempotent"])
        office.ask()
        await first.receive("assignment")


@pytest.mark.parametrize(
    ("item", "field"),
    [
        ({"register": registration().register}, "register"),
        ({}, "item"),
        ({"heartbeat": pb.WorkHeartbeat(lease_ids=["x"] * 10_001)}, "heartbeat.lease_ids"),
        ({"completed": pb.AssignmentCompleted(lease_id="x" * 101)}, "completed.lease_id"),
        ({"failed": pb.AssignmentFailed(lease_id="x" * 101)}, "failed.lease_id"),
    ],
)
async def test_an_invalid_worker_message_ends_the_stream(
    office: WorkerKit, item: JsonDict, field: str
) -> None:
    async with office.worker() as worker:
        await worker.send(**item)
        assert await worker.refused() == ("FIELD_INVALID", [field])


async def test_a_silent_worker_is_disconnected_with_a_reason(office: WorkerKit) -> None:
    async with office.worker() as worker:
        (session,) = office.pool.sessions
        session.last_seen -= 60
        office.pool._watch_heartbeat(session)
        assert (await worker.refused())[0] == "TIMEOUT"


# --- the list of kinds ------------------------------------------------------------------------------


async def test_kinds_of_connected_workers_are_listed_among_the_others(office: WorkerKit) -> None:
    declared = kind("ocr", description="Reads pages.", input_schema=struct(**TEXT), idempotent=True)
    async with office.worker(declared), office.worker(declared, project_ids=["default"]):
        listed = (await office.stub.ListActionKinds(pb.ListActionKindsRequest(page_size=100))).action_kinds
        names = [each.name for each in listed]
        assert names == sorted([*ACTIONS, "ocr"])
        ocr = listed[names.index("ocr")]
        assert (ocr.remote, ocr.worker_count, ocr.available, ocr.idempotent) == (True, 2, True, True)
        assert ocr.description == "Reads pages."
        assert ocr.input_schema == struct(**TEXT)
        assert not any(each.remote for each in listed if each.name != "ocr")
        first = await office.stub.ListActionKinds(pb.ListActionKindsRequest(page_size=names.index("ocr")))
        second = await office.stub.ListActionKinds(
            pb.ListActionKindsRequest(page_size=1, page_token=first.next_page_token)
        )
        assert [each.name for each in second.action_kinds] == ["ocr"]
    await office.until(lambda: not office.pool.kinds())
    listed = (await office.stub.ListActionKinds(pb.ListActionKindsRequest(page_size=100))).action_kinds
    assert [each.name for each in listed] == sorted(ACTIONS)
