"""ExecutorService through a real server and the real executor."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import pytest
from google.protobuf.json_format import MessageToDict
from google.protobuf.message import Message
from google.protobuf.struct_pb2 import Struct
from grpc import aio

from tests.rpc.rpc_kit import FakeNameResolver, deep_struct, rejected, serving
from tests.rpc.rpc_kit import field as wire
from tests.views import ForAll
from wonder.v1 import errors_pb2, task_pb2
from wonder.v1 import executor_service_pb2 as pb
from wonder.v1.executor_service_pb2_grpc import ExecutorServiceStub
from wonder_server.core.definitions.specs import (
    Action,
    ModelProfile,
    OnFailure,
    Pin,
    PinnedTask,
    Retry,
    Step,
    Task,
)
from wonder_server.core.errors import Reason, error
from wonder_server.core.ids import random_id
from wonder_server.core.json_types import JsonDict, JsonValue
from wonder_server.core.memory.records import Draft, Memory
from wonder_server.rpc.executor import servicer as rpc
from wonder_server.rpc.executor.executions import MAX_BACKLOG, Execution
from wonder_server.services.actions import (
    ACTIONS,
    ActionCall,
    ActionKind,
    ModelAccess,
    NetworkAccess,
    Services,
)
from wonder_server.services.tasks.executor import Executor, Progress, StepProgress, StepTrace

SERVICE = "wonder.v1.ExecutorService"
CONVERSATION = random_id("conv", 1)


class TickingClock:
    def __init__(self) -> None:
        self.now = 1_000_000

    def now_ms(self) -> int:
        self.now += 1
        return self.now


class Gate:
    """An action kind that reports its start and completes when the test opens it."""

    def __init__(self) -> None:
        self.runs = 0
        self.begun, self.opened, self.cancelled = asyncio.Event(), asyncio.Event(), asyncio.Event()
        self.contexts: list[Any] = []

    async def run(self, call: ActionCall) -> JsonDict:
        self.runs += 1
        self.contexts.append(call.context)
        self.begun.set()
        call.progress("waiting", 0.5, "knock\n")
        try:
            await self.opened.wait()
        except asyncio.CancelledError:
            self.cancelled.set()
            raise
        return {"through": True}

    def kind(self) -> ActionKind:
        return ActionKind(name="gate", description="", input_schema={}, output_schema={}, run=self.run)


class Recorded:
    """A memory service that records each write."""

    def __init__(self) -> None:
        self.written: list[tuple[str, Draft]] = []

    async def write(self, agent_id: str, draft: Draft) -> Memory:
        self.written.append((agent_id, draft))
        values = {
            name: getattr(draft, name) for name in ("type", "content", "significance", "metadata", "source")
        }
        return Memory(
            id="mem_1", agent_id=agent_id, created_ms=1, updated_ms=1, said_ms=1, version=1, **values
        )

    async def get(self, agent_id: str, memory_id: str) -> Memory:
        raise error(Reason.MEMORY_NOT_FOUND, "The agent has no memory with this id.")

    async def search(self, agent_id: str, query: str, **_: object) -> list[Any]:
        return []


class Nothing:
    """A service that no task of these tests uses."""


class NoModel:
    def stream(self, *_: object, **__: object) -> Any:
        raise AssertionError("no task of these tests calls a model")


def pinned(name: str, *steps: Step, **more: object) -> PinnedTask:
    pin = Pin(definition_id="def_1", library="acme/tools", name=name, revision=2)
    return PinnedTask(pin=pin, spec=Task(steps=steps, **more))


def step(id: str, kind: str, config: JsonDict | None = None, **more: object) -> Step:
    return Step(id=id, action=Action(kind=kind, config=config or {}), **more)


GREETING = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
TASKS = {
    task.pin.name: task
    for task in (
        pinned(
            "greet",
            step("skip", "context", condition="false"),
            step(
                "make",
                "context",
                input_mapping={"text": "'Hello ' + input.name"},
                output_mapping={"output.text": "result.text"},
            ),
            input_schema=GREETING,
        ),
        pinned("fail", step("check", "assert", {"condition": False, "message": "The file is empty."})),
        pinned(
            "stubborn",
            step("check", "assert", {"condition": False}, on_failure=OnFailure.RETRY),
            retry=Retry(max_attempts=2, backoff_ms=0),
        ),
        pinned("gate", step("wait", "gate", output_mapping={"output.through": "result.through"})),
        pinned("remember", step("write", "memory.write", {"content": "tea"})),
    )
}


class Library:
    async def pin_task(self, ref: str) -> PinnedTask:
        name = ref.removeprefix("acme/tools/").removesuffix("@2")
        if name not in TASKS:
            raise error(Reason.DEFINITION_NOT_FOUND, f"There is no task '{ref}'.")
        return TASKS[name]


class Conversations:
    async def get(self, conversation_id: str) -> object:
        if conversation_id != CONVERSATION:
            raise error(
                Reason.CONVERSATION_NOT_FOUND, "No conversation has this id.", field="conversation_id"
            )
        return object()


@dataclass
class ExecutorKit:
    """The parts of the server that tests inspect."""

    servicer: rpc.ExecutorServicer
    gate: Gate
    memory: Recorded


async def missing() -> dict[str, str]:
    return {"shell": "Install something."}


@pytest.fixture
def executor_kit() -> ExecutorKit:
    gate, memory, clock = Gate(), Recorded(), TickingClock()
    kinds = {**ACTIONS, "gate": gate.kind()}
    services = Services(
        models=ModelAccess(
            model=NoModel(),  # type: ignore[arg-type]
            default_profile=ModelProfile(provider="offline"),
        ),
        memory=memory,
        history=Nothing(),  # type: ignore[arg-type]
        network=NetworkAccess(
            web=Nothing(),  # type: ignore[arg-type]
            mcp=Nothing(),  # type: ignore[arg-type]
            policies=Nothing(),  # type: ignore[arg-type]
        ),
        clock=clock,
    )
    servicer = rpc.ExecutorServicer(
        Executor(ForAll(services), clock, kinds=kinds),
        ForAll(rpc.RequestLookups(Library(), FakeNameResolver(), Conversations())),
        clock=clock,
        local_kinds=rpc.LocalKinds(kinds, missing),
    )
    return ExecutorKit(servicer, gate, memory)


@pytest.fixture
async def channel(executor_kit: ExecutorKit) -> AsyncIterator[aio.Channel]:
    async with serving({SERVICE: executor_kit.servicer}) as channel:
        yield channel
    await executor_kit.servicer.close()


@pytest.fixture
def stub(channel: aio.Channel) -> ExecutorServiceStub:
    return ExecutorServiceStub(channel)


def struct(**values: JsonValue) -> Struct:
    made = Struct()
    made.update(values)
    return made


def asking(task: str = "acme/tools/greet", **more: object) -> pb.ExecuteTaskRequest:
    return pb.ExecuteTaskRequest(**{"task_id": task, "input": struct(name="Ada"), **more})


def streaming(task: str = "acme/tools/greet", **more: object) -> pb.StreamTaskRequest:
    return pb.StreamTaskRequest(**{"task_id": task, "input": struct(name="Ada"), **more})


async def answer_of(call: Any) -> Any:
    return await call


async def rest(call: Any) -> list[pb.StreamTaskResponse]:
    """Return the remaining messages of a stream."""
    answers = []
    while (answer := await call.read()) is not aio.EOF:
        answers.append(answer)
    return answers


# --- what it does ---------------------------------------------------------------------------------


async def test_a_task_gives_its_output_and_the_trace_of_its_steps(stub: ExecutorServiceStub) -> None:
    result = (await stub.ExecuteTask(asking())).result
    assert MessageToDict(result.output) == {"text": "Hello Ada"}
    assert not result.HasField("error")
    assert (result.task, result.attempts) == ("acme/tools/greet@2", 1)
    skipped, made = result.steps
    assert (skipped.step_id, skipped.status, skipped.attempts) == ("skip", task_pb2.STEP_STATUS_SKIPPED, 0)
    assert (made.step_id, made.status, made.attempts) == ("make", task_pb2.STEP_STATUS_COMPLETED, 1)
    assert (made.task_attempt, made.action_kind, made.duration_ms) == (1, "context", 1)
    assert made.start_time.seconds == 1000 and result.duration_ms > 0


async def test_an_empty_output_is_an_output(stub: ExecutorServiceStub) -> None:
    result = (await stub.ExecuteTask(asking("remember", context={"agent_id": "ada"}))).result
    assert result.HasField("output") and not result.HasField("error")


async def test_a_task_that_fails_is_answered_with_its_error_and_trace(stub: ExecutorServiceStub) -> None:
    result = (await stub.ExecuteTask(asking("fail"))).result
    assert not result.HasField("output")
    assert result.error.reason == errors_pb2.ERROR_REASON_ASSERTION_FAILED
    assert result.error.message == "The file is empty."
    [failed] = result.steps
    assert (failed.status, failed.error) == (task_pb2.STEP_STATUS_FAILED, result.error)


async def test_every_attempt_is_in_the_trace(stub: ExecutorServiceStub) -> None:
    result = (await stub.ExecuteTask(asking("stubborn"))).result
    assert result.attempts == 2
    assert [each.task_attempt for each in result.steps] == [1, 2]


async def test_a_task_ends_at_its_timeout(stub: ExecutorServiceStub, executor_kit: ExecutorKit) -> None:
    result = (await stub.ExecuteTask(asking("gate", timeout_ms=300))).result
    # A gate may not be opened twice.
    assert result.error.reason == errors_pb2.ERROR_REASON_OUTCOME_UNKNOWN
    assert result.error.message.startswith("The task took longer than 300 ms.")
    assert executor_kit.gate.cancelled.is_set()


async def test_validate_only_checks_and_runs_nothing(
    stub: ExecutorServiceStub, executor_kit: ExecutorKit
) -> None:
    result = (await stub.ExecuteTask(asking("gate", validate_only=True))).result
    assert result == task_pb2.TaskResult(task="acme/tools/gate@2")
    bad = asking(input=struct(), validate_only=True)
    assert await rejected(stub.ExecuteTask(bad)) == ("INPUT_INVALID", ["input"])
    assert executor_kit.gate.runs == 0


async def test_the_context_reaches_the_action_with_ids_for_names(
    stub: ExecutorServiceStub, executor_kit: ExecutorKit
) -> None:
    executor_kit.gate.opened.set()
    turn, run = random_id("turn", 1), random_id("run", 1)
    context = task_pb2.ExecutionContext(
        agent_id="ada", conversation_id=CONVERSATION, turn_id=turn, run_id=run
    )
    await stub.ExecuteTask(asking("gate", context=context))
    [seen] = executor_kit.gate.contexts
    assert (seen.project_id, seen.agent_id, seen.conversation_id) == ("proj_default", "agt_ada", CONVERSATION)
    assert (seen.turn_id, seen.run_id) == (turn, run)


async def test_every_execution_has_its_own_key_and_a_repeated_request_keeps_it(
    executor_kit: ExecutorKit,
) -> None:
    context = task_pb2.ExecutionContext(agent_id="ada")
    for request_id in ("", "", "r-1", "r-1"):
        # A new server each time: nothing but the key is left to recognise the request by.
        executor_kit.servicer = rpc.ExecutorServicer(
            executor_kit.servicer._executor,
            ForAll(rpc.RequestLookups(Library(), FakeNameResolver(), Conversations())),
            clock=TickingClock(),
        )
        async with serving({SERVICE: executor_kit.servicer}) as channel:
            stub = ExecutorServiceStub(channel)
            await stub.ExecuteTask(asking("remember", context=context, request_id=request_id))
    keys = [draft.idempotency_key for _, draft in executor_kit.memory.written]
    assert len(set(keys)) == 3 and keys[2] == keys[3]


async def test_a_stream_shows_each_step_as_it_begins_and_ends_and_then_the_result(
    stub: ExecutorServiceStub, executor_kit: ExecutorKit
) -> None:
    call = stub.StreamTask(streaming("gate"))
    began = (await call.read()).step
    assert (began.step_id, began.status) == ("wait", task_pb2.STEP_STATUS_RUNNING)
    waiting = (await call.read()).progress
    assert waiting.step_id == "wait"
    assert waiting.progress == task_pb2.Progress(message="waiting", fraction=0.5, output="knock\n")
    executor_kit.gate.opened.set()
    ended, result = (await call.read()).step, (await call.read()).result
    assert ended.status == task_pb2.STEP_STATUS_COMPLETED
    assert list(result.steps) == [ended] and MessageToDict(result.output) == {"through": True}
    assert await call.read() is aio.EOF


async def test_a_stream_of_a_failing_task_ends_with_its_result(stub: ExecutorServiceStub) -> None:
    *_, last = await rest(stub.StreamTask(streaming("fail")))
    assert last.result.error.reason == errors_pb2.ERROR_REASON_ASSERTION_FAILED


async def test_a_slow_reader_misses_progress_but_no_steps() -> None:
    flood = asyncio.Event()

    async def run(tell: Progress) -> task_pb2.TaskResult:
        trace = StepTrace(step_id="one", kind="test", position=0, attempt=1, status="running")
        tell(trace)
        await flood.wait()
        for number in range(5_000):
            tell(StepProgress(step_id="one", message=str(number)))
        tell(trace)
        return task_pb2.TaskResult()

    execution = Execution(run, outlives_callers=False)
    slow = execution.steps()
    assert isinstance(await anext(slow), StepTrace)
    flood.set()
    await execution.result()
    received = [item async for item in slow]
    assert len(received) == MAX_BACKLOG + 1 and isinstance(received[-1], StepTrace)
    late = [item async for item in execution.steps()]
    assert [type(item) for item in late] == [StepTrace, StepTrace]


@pytest.mark.parametrize("method", ["ExecuteTask", "StreamTask"])
async def test_a_caller_that_disconnects_cancels_the_task(
    stub: ExecutorServiceStub, executor_kit: ExecutorKit, method: str
) -> None:
    kind = pb.ExecuteTaskRequest if method == "ExecuteTask" else pb.StreamTaskRequest
    call = getattr(stub, method)(kind(task_id="gate"))
    reading = asyncio.ensure_future(rest(call) if method == "StreamTask" else answer_of(call))
    await executor_kit.gate.begun.wait()
    call.cancel()
    await executor_kit.gate.cancelled.wait()
    await asyncio.gather(reading, return_exceptions=True)


async def test_the_kinds_are_listed_by_name_with_their_schemas(
    stub: ExecutorServiceStub, executor_kit: ExecutorKit
) -> None:
    request, kinds = pb.ListActionKindsRequest(page_size=2), []
    while True:
        answer = await stub.ListActionKinds(request)
        kinds += answer.action_kinds
        if not answer.next_page_token:
            break
        request.page_token = answer.next_page_token
    assert [kind.name for kind in kinds] == sorted([*ACTIONS, "gate"])
    by_name = {kind.name: kind for kind in kinds}
    search = by_name["memory.search"]
    assert search.description and search.available and search.idempotent and not search.requires_commit
    assert MessageToDict(search.input_schema) == ACTIONS["memory.search"].input_schema
    assert search.HasField("output_schema")
    assert by_name["gate"].requires_commit and not by_name["gate"].idempotent
    assert not by_name["shell"].available and by_name["shell"].unavailable_reason == "Install something."


# --- request_id -----------------------------------------------------------------------------------


async def test_a_repeated_request_joins_the_execution_and_gets_its_result(
    stub: ExecutorServiceStub, executor_kit: ExecutorKit
) -> None:
    requests = [asking("gate", request_id="r-1")] * 5
    calls = [asyncio.ensure_future(answer_of(stub.ExecuteTask(request))) for request in requests]
    await executor_kit.gate.begun.wait()
    executor_kit.gate.opened.set()
    answers = await asyncio.gather(*calls)
    assert all(answer == answers[0] for answer in answers)
    assert await stub.ExecuteTask(requests[0]) == answers[0]
    assert executor_kit.gate.runs == 1


async def test_a_task_with_a_request_id_continues_and_keeps_its_result(
    stub: ExecutorServiceStub, executor_kit: ExecutorKit
) -> None:
    request = streaming("gate", request_id="r-1")
    first = stub.StreamTask(request)
    await first.read()
    first.cancel()
    again = stub.StreamTask(request)
    shown = [await again.read()]
    executor_kit.gate.opened.set()
    shown += await rest(again)
    assert [answer.WhichOneof("item") for answer in shown] == ["step", "step", "result"]
    assert executor_kit.gate.runs == 1 and not executor_kit.gate.cancelled.is_set()


async def test_a_request_id_for_another_request_is_refused(stub: ExecutorServiceStub) -> None:
    await stub.ExecuteTask(asking(request_id="r-1"))
    reused = ("REQUEST_ID_REUSED", ["request_id"])
    assert await rejected(stub.ExecuteTask(asking("fail", request_id="r-1"))) == reused
    assert await rejected(stub.StreamTask(streaming(request_id="r-1")).read()) == reused


async def test_a_refused_request_can_be_repeated_with_its_id(stub: ExecutorServiceStub) -> None:
    await rejected(stub.ExecuteTask(asking(input=struct(), request_id="r-1")))
    assert (await stub.ExecuteTask(asking(request_id="r-1"))).result.HasField("output")


async def test_closing_stops_tasks_without_a_caller(
    stub: ExecutorServiceStub, executor_kit: ExecutorKit
) -> None:
    call = stub.StreamTask(streaming("gate", request_id="r-1"))
    await call.read()
    call.cancel()
    await executor_kit.servicer.close()
    assert executor_kit.gate.cancelled.is_set()


# --- bad input ------------------------------------------------------------------------------------

EXECUTE, STREAM, KINDS = "ExecuteTask", "StreamTask", "ListActionKinds"
DEEP, NOT_UTF8 = deep_struct(40), b"\xff\xfe"
GREET = wire(1, b"greet")


def context(**fields: object) -> JsonDict:
    return {"context": task_pb2.ExecutionContext(**fields)}


BAD: list[tuple[str, Message, str, list[str]]] = [
    *(
        (method, data, reason, fields)
        for method in (EXECUTE, STREAM)
        for data, reason, fields in (
            (wire(1, NOT_UTF8), "MALFORMED_REQUEST", ["task_id"]),
            (b"\xff\xff\xff", "MALFORMED_REQUEST", []),
            (b"", "FIELD_INVALID", ["task_id"]),
            (wire(1, b"x" * 5_000_000), "PAYLOAD_TOO_LARGE", []),
            (wire(1, b"x" * 1_000), "FIELD_INVALID", ["task_id"]),
            (wire(1, b"acme/tools/none"), "DEFINITION_NOT_FOUND", ["task_id"]),
            (wire(1, b"\xf0\x9f\x8d\xb5@@"), "DEFINITION_NOT_FOUND", ["task_id"]),
            (GREET + wire(2, DEEP), "PAYLOAD_TOO_DEEP", ["input"]),
            (GREET + wire(3, wire(2, NOT_UTF8)), "MALFORMED_REQUEST", ["context.agent_id"]),
            (GREET, "INPUT_INVALID", ["input"]),
        )
    ),
    *(
        (method, kind(**fields), reason, [place])
        for method, kind in ((EXECUTE, asking), (STREAM, streaming))
        for fields, reason, place in (
            ({"input": struct(name=1)}, "INPUT_INVALID", "input"),
            ({"input": struct(name=float("nan"))}, "NUMBER_OUT_OF_RANGE", "input.name"),
            ({"timeout_ms": -1}, "FIELD_INVALID", "timeout_ms"),
            ({"request_id": "r" * 129}, "FIELD_INVALID", "request_id"),
            (context(project_id="nowhere"), "PROJECT_NOT_FOUND", "context.project_id"),
            (context(project_id="x" * 1000), "FIELD_INVALID", "context.project_id"),
            (context(agent_id="eve"), "AGENT_NOT_FOUND", "context.agent_id"),
            (context(conversation_id="conv_1"), "CONVERSATION_NOT_FOUND", "context.conversation_id"),
            (context(turn_id="turn_1"), "FIELD_INVALID", "context.turn_id"),
            (context(run_id=CONVERSATION), "FIELD_INVALID", "context.run_id"),
            (context(branch="a..b"), "FIELD_INVALID", "context.branch"),
        )
    ),
    (KINDS, b"\xff", "MALFORMED_REQUEST", []),
    (KINDS, wire(2, NOT_UTF8), "MALFORMED_REQUEST", ["page_token"]),
    (KINDS, wire(2, b"x" * 5_000_000), "PAYLOAD_TOO_LARGE", []),
    (KINDS, pb.ListActionKindsRequest(page_size=-1), "FIELD_INVALID", ["page_size"]),
    *(
        (KINDS, pb.ListActionKindsRequest(page_token=token), "PAGE_TOKEN_INVALID", ["page_token"])
        for token in ("garbage", "🍵", "W10")
    ),
]


@pytest.mark.parametrize(
    ("method", "request_", "reason", "fields"),
    BAD,
    ids=[f"{bad[0]}-{bad[2]}-{at}" for at, bad in enumerate(BAD)],
)
async def test_bad_input_gets_the_documented_reason_and_has_no_effect(
    channel: aio.Channel,
    stub: ExecutorServiceStub,
    method: str,
    request_: Message,
    reason: str,
    fields: list[str],
) -> None:
    data = request_ if isinstance(request_, bytes) else request_.SerializeToString()
    if method == STREAM:
        assert await rejected(channel.unary_stream(f"/{SERVICE}/{method}")(data).read()) == (reason, fields)
    else:
        assert await rejected(channel.unary_unary(f"/{SERVICE}/{method}")(data)) == (reason, fields)
    assert (await stub.ExecuteTask(asking())).result.HasField("output")
