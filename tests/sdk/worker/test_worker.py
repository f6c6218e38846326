"""Python workers against the server's worker pool over a real socket (feature H4)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TypedDict

import pytest

from tests.rpc.executor.test_worker_stream import SCOPE, SERVICE, NoTasks
from tests.rpc.rpc_kit import FakeNameResolver
from tests.services.tasks.executor_kit import SERVICES, Clock
from tests.views import ForAll
from wonder_sdk import ActionError, UnauthenticatedError, WonderError, Worker, WorkerContext, v1
from wonder_sdk.json_types import JsonDict, JsonValue
from wonder_sdk.transport.reconnect import ReconnectPolicy
from wonder_server.core.errors import Fault, Reason, error
from wonder_server.core.errors import WonderError as ServerError
from wonder_server.rpc.executor.servicer import ExecutorServicer, RequestLookups
from wonder_server.rpc.server.server import RpcServer
from wonder_server.services.tasks.executor import Executor
from wonder_server.services.workers import Job, Progress, WorkerPool, WorkerPools
from wonder_server.settings import Settings

QUICKLY = ReconnectPolicy(initial_ms=5, max_ms=20, timeout_ms=600_000)


class Pool(WorkerPool):
    """A worker pool that records heartbeats."""

    def __init__(self) -> None:
        super().__init__(Clock())
        self.beats: list[list[str]] = []
        self.changed = asyncio.Event()

    def extend(self, session: object, lease_ids: object) -> None:
        super().extend(session, lease_ids)
        self.beats.append(list(lease_ids))

    def ask(self, operation_id: str = "op_1", kind: str = "act", **more: object) -> asyncio.Task[JsonDict]:
        fields = {"input": {}, "timeout_ms": 60_000, "context": SCOPE, **more}
        return asyncio.create_task(self.perform(Job(kind=kind, operation_id=operation_id, **fields)))


class WorkerKit:
    """A server with a worker pool at a fixed address."""

    def __init__(self) -> None:
        self.pool = Pool()
        self.address = "127.0.0.1:0"
        self._server: RpcServer | None = None

    async def open(self) -> None:
        servicer = ExecutorServicer(
            Executor(ForAll(SERVICES), Clock()),
            ForAll(RequestLookups(NoTasks(), FakeNameResolver(), NoTasks())),
            clock=Clock(),
            workers=WorkerPools(lambda: self.pool),
        )
        self._server = RpcServer(Settings(listen=self.address))
        self.address = self._server.bind()
        await self._server.start({SERVICE: servicer})

    async def close(self) -> None:
        self.pool.close()
        if self._server is not None:
            await self._server.stop(0)

    def worker(self, handler: Callable[..., Awaitable[object]], **more: object) -> Worker:
        """Return a worker with one action."""
        options = {key: more.pop(key) for key in ("max_concurrency", "drain_seconds") if key in more}
        made = Worker("w", address=self.address, reconnect=QUICKLY, **options)
        made.action("act", **more)(handler)
        return made

    @asynccontextmanager
    async def working(
        self, handler: Callable[..., Awaitable[object]], **more: object
    ) -> AsyncIterator[asyncio.Task[None]]:
        """Run a worker with one action."""
        running = asyncio.create_task(self.worker(handler, **more).run())
        try:
            await self.until(self.pool.kinds)
            yield running
        finally:
            for _ in range(2):
                running.cancel()
                await asyncio.wait({running}, timeout=0.05)
            await asyncio.wait({running})

    async def until(self, condition: Callable[[], object]) -> None:
        async with asyncio.timeout(60):
            while not condition():  # noqa: ASYNC110 - the pool has no event for it
                await asyncio.sleep(0.001)


@pytest.fixture
async def worker_kit() -> AsyncIterator[WorkerKit]:
    opened = WorkerKit()
    await opened.open()
    yield opened
    await opened.close()


async def fault(asked: asyncio.Task[object]) -> Fault:
    with pytest.raises(ServerError) as problem:
        await asyncio.wait_for(asked, 60)
    return problem.value.fault


class Stuck:
    """An action that waits until the test releases it."""

    def __init__(self) -> None:
        self.begun, self.go, self.cancelled = asyncio.Event(), asyncio.Event(), asyncio.Event()
        self.contexts: list[WorkerContext] = []

    async def __call__(self, given: JsonDict, context: WorkerContext) -> JsonDict:
        self.contexts.append(context)
        self.begun.set()
        try:
            await self.go.wait()
        except asyncio.CancelledError:
            self.cancelled.set()
            raise
        return {"done": True}

    def handler(self) -> Callable[..., Awaitable[object]]:
        async def act(given: JsonDict, context: WorkerContext) -> JsonDict:
            return await self(given, context)

        return act


# --- actions ----------------------------------------------------------------------------------------


async def test_an_action_receives_input_and_context_and_returns_its_result(worker_kit: WorkerKit) -> None:
    seen: list[WorkerContext] = []
    received: list[Progress] = []

    async def act(given: JsonDict, context: WorkerContext) -> JsonDict:
        seen.append(context)
        context.progress("halfway", 0.5, output="line\n")
        return {"twice": given["n"] * 2, "given": given}

    async with worker_kit.working(act):
        asked = worker_kit.pool.ask("op_1", input={"n": 4, "half": 0.5}, on_progress=received.append)
        answer = await asked
    assert answer == {"twice": 8, "given": {"n": 4, "half": 0.5}} and type(answer["twice"]) is int
    (context,) = seen
    assert (context.operation_id, context.attempt, context.kind) == ("op_1", 1, "act")
    assert (context.project_id, context.agent_id, context.run_id) == ("proj_default", "agt_ada", "r")
    assert context.deadline is not None and context.deadline.timestamp() == 61
    assert not context.cancelled
    assert received == [Progress(message="halfway", fraction=0.5, output="line\n")]


@dataclass
class Page:
    number: int
    language: str = "en"


class Text(TypedDict):
    text: str


async def test_types_become_schemas_and_the_input_becomes_a_dataclass(worker_kit: WorkerKit) -> None:
    async def ocr(page: Page) -> Text:
        """Reads a page."""
        return {"text": f"{page.language} {page.number}"}

    async with worker_kit.working(ocr, idempotent=True):
        (listed,) = worker_kit.pool.kinds()
        assert listed.kind.description == "Reads a page."
        assert listed.kind.idempotent
        assert listed.kind.input_schema["required"] == ["number"]
        assert listed.kind.output_schema["properties"] == {"text": {"type": "string"}}
        assert await worker_kit.pool.ask(input={"number": 3}) == {"text": "en 3"}
        assert (await fault(worker_kit.pool.ask(input={"number": "x"}))).reason is Reason.INPUT_INVALID


async def test_a_result_is_a_dataclass_or_empty(worker_kit: WorkerKit) -> None:
    async def act(given: JsonDict) -> JsonValue:
        return Page(7, "de") if given else None

    async with worker_kit.working(act, output_schema={"type": "object"}):
        assert await worker_kit.pool.ask(input={"a": 1}) == {"number": 7, "language": "de"}
        assert await worker_kit.pool.ask() == {}


async def test_an_action_reports_its_failure_reason(worker_kit: WorkerKit) -> None:
    async def act(given: JsonDict) -> JsonValue:
        raise ActionError(
            "The scanner is busy.",
            reason=v1.ErrorReason.MODEL_UNAVAILABLE,
            retriable=True,
            retry_after_ms=250,
            metadata={"scanner": "2"},
        )

    async with worker_kit.working(act):
        assert await fault(worker_kit.pool.ask()) == Fault(
            reason=Reason.MODEL_UNAVAILABLE,
            message="The scanner is busy.",
            metadata={"scanner": "2"},
            transient=True,
            retry_after_ms=250,
        )


async def test_an_unexpected_exception_appears_only_in_the_worker_log(
    worker_kit: WorkerKit, caplog: pytest.LogCaptureFixture
) -> None:
    async def act(given: JsonDict) -> JsonValue:
        raise RuntimeError("password=hunter2")

    async with worker_kit.working(act):
        got = await fault(worker_kit.pool.ask())
    assert (got.reason, got.transient) == (Reason.TASK_FAILED, False)
    assert got.message == "The action 'act' failed unexpectedly. See the worker's log."
    assert "hunter2" in caplog.text


@pytest.mark.parametrize(
    ("result", "reason"),
    [
        ([1, 2], Reason.TASK_FAILED),
        ({"when": object()}, Reason.TASK_FAILED),
        ({"half": "\ud800"}, Reason.TASK_FAILED),
        ({"large": "x" * (20 << 20)}, Reason.PAYLOAD_TOO_LARGE),
        ({"number": 2**70}, Reason.NUMBER_OUT_OF_RANGE),
        ({"number": float("inf")}, Reason.NUMBER_OUT_OF_RANGE),
    ],
    ids=["list", "object", "surrogate", "large", "integer", "infinity"],
)
async def test_a_result_that_cannot_be_sent_fails_only_its_assignment(
    worker_kit: WorkerKit, result: object, reason: Reason
) -> None:
    async def act(given: JsonDict) -> JsonValue:
        return result if given else {}

    async with worker_kit.working(act):
        (session,) = worker_kit.pool.sessions
        assert (await fault(worker_kit.pool.ask(input={"bad": True}))).reason is reason
        assert await worker_kit.pool.ask() == {}
        assert not session.is_disconnected


async def test_a_result_that_is_too_deep_fails_only_its_assignment(worker_kit: WorkerKit) -> None:
    deep: JsonDict = {}
    for _ in range(3_000):
        deep = {"a": deep}

    async def act(given: JsonDict) -> JsonValue:
        return deep if given else {}

    async with worker_kit.working(act):
        assert (await fault(worker_kit.pool.ask(input={"bad": True}))).reason is Reason.TASK_FAILED
        assert await worker_kit.pool.ask() == {}


async def test_an_action_that_cancels_itself_fails(worker_kit: WorkerKit) -> None:
    async def act(given: JsonDict) -> JsonValue:
        raise asyncio.CancelledError

    async with worker_kit.working(act):
        assert (await fault(worker_kit.pool.ask())).reason is Reason.TASK_FAILED


async def test_a_cancel_stops_the_action(worker_kit: WorkerKit) -> None:
    stuck = Stuck()
    async with worker_kit.working(stuck.handler()):
        asked = worker_kit.pool.ask()
        await stuck.begun.wait()
        asked.cancel()
        await asyncio.wait_for(stuck.cancelled.wait(), 60)
        assert stuck.contexts[0].cancelled


async def test_concurrent_actions_are_limited(worker_kit: WorkerKit) -> None:
    running = most = 0
    full, go = asyncio.Event(), asyncio.Event()

    async def act(given: JsonDict) -> JsonValue:
        nonlocal running, most
        running += 1
        most = max(most, running)
        if running == 3:
            full.set()
        await go.wait()
        running -= 1

    async with worker_kit.working(act, max_concurrency=3):
        asked = [worker_kit.pool.ask(f"op_{number}") for number in range(8)]
        await asyncio.wait_for(full.wait(), 60)
        go.set()
        await asyncio.gather(*asked)
    assert most == 3


async def test_heartbeats_name_the_running_assignments(worker_kit: WorkerKit) -> None:
    worker_kit.pool.heartbeat_interval_ms = 5
    stuck = Stuck()
    async with worker_kit.working(stuck.handler()):
        await worker_kit.until(lambda: [] in worker_kit.pool.beats)
        asked = worker_kit.pool.ask()
        await stuck.begun.wait()
        (session,) = worker_kit.pool.sessions
        (lease_id,) = session.assignments
        await worker_kit.until(lambda: [lease_id] in worker_kit.pool.beats)
        stuck.go.set()
        await asked


# --- connections ------------------------------------------------------------------------------------


async def test_a_lost_connection_cancels_running_actions_and_the_worker_reconnects(
    worker_kit: WorkerKit,
) -> None:
    stuck = Stuck()
    async with worker_kit.working(stuck.handler(), idempotent=True):
        asked = worker_kit.pool.ask("op_1")
        await stuck.begun.wait()
        stuck.begun.clear()
        (session,) = worker_kit.pool.sessions
        worker_kit.pool.dismiss(session, error(Reason.TIMEOUT, "No heartbeat arrived."))
        await asyncio.wait_for(stuck.cancelled.wait(), 60)
        await asyncio.wait_for(stuck.begun.wait(), 60)
        stuck.go.set()
        assert await asked == {"done": True}
        assert [context.attempt for context in stuck.contexts] == [1, 2]
        assert [context.cancelled for context in stuck.contexts] == [True, False]


async def test_a_worker_outlives_its_server(worker_kit: WorkerKit) -> None:
    async def act(given: JsonDict) -> JsonValue:
        return {"served": True}

    async with worker_kit.working(act):
        await worker_kit.close()
        worker_kit.pool = Pool()
        await worker_kit.open()
        assert await asyncio.wait_for(worker_kit.pool.ask(), 60) == {"served": True}


async def test_a_worker_waits_for_a_server_that_starts_later(worker_kit: WorkerKit) -> None:
    async def act(given: JsonDict) -> JsonValue:
        return {"served": True}

    await worker_kit.close()
    worker_kit.pool = Pool()
    running = asyncio.create_task(worker_kit.worker(act).run())
    await asyncio.sleep(0)
    await worker_kit.open()
    assert await asyncio.wait_for(worker_kit.pool.ask(), 60) == {"served": True}
    running.cancel()
    await asyncio.wait({running})


async def test_a_refused_registration_is_raised(worker_kit: WorkerKit) -> None:
    async def act(given: JsonDict) -> JsonValue: ...

    async with worker_kit.working(act):
        with pytest.raises(WonderError, match="another idempotent") as problem:
            await worker_kit.worker(act, idempotent=True).run()
    assert problem.value.reason is v1.ErrorReason.DEFINITION_INVALID
    assert problem.value.field == "register.kinds[0].idempotent"


@pytest.mark.parametrize(
    ("problem", "said"),
    [
        (UnauthenticatedError("A token is wanted."), "worker w: A token is wanted. Set WONDER_TOKEN."),
        (
            WonderError("It is taken.", reason=v1.ErrorReason.DEFINITION_INVALID),
            "taken. (DEFINITION_INVALID)",
        ),
    ],
)
def test_a_program_whose_worker_is_refused_ends_with_one_line(
    problem: WonderError, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refused(_worker: Worker) -> None:
        raise problem

    monkeypatch.setattr(Worker, "run", refused)
    with pytest.raises(SystemExit) as left:
        Worker("w").run_forever()
    assert str(left.value.code).endswith(said) and left.value.__cause__ is problem


# --- the end ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["stop", "cancel"])
async def test_a_worker_finishes_its_assignments_after_a_stop_signal(worker_kit: WorkerKit, how: str) -> None:
    stuck = Stuck()
    worker = worker_kit.worker(stuck.handler())
    running = asyncio.create_task(worker.run())
    asked, after = worker_kit.pool.ask("op_1"), worker_kit.pool.ask("op_2")
    await asyncio.wait_for(stuck.begun.wait(), 60)
    worker.stop() if how == "stop" else running.cancel()
    (session,) = worker_kit.pool.sessions
    await worker_kit.until(lambda: session.is_closed)
    stuck.go.set()
    assert await asked == {"done": True}
    await asyncio.wait({running}, timeout=10)
    assert running.done() and running.cancelled() == (how == "cancel")
    assert not after.done() and len(stuck.contexts) == 1
    after.cancel()


async def test_a_second_stop_signal_stops_the_worker_at_once(worker_kit: WorkerKit) -> None:
    stuck = Stuck()
    worker = worker_kit.worker(stuck.handler())
    running = asyncio.create_task(worker.run())
    asked = worker_kit.pool.ask()
    await asyncio.wait_for(stuck.begun.wait(), 60)
    worker.stop()
    worker.stop()
    await asyncio.wait_for(running, 60)
    assert stuck.cancelled.is_set()
    assert (await fault(asked)).reason is Reason.OUTCOME_UNKNOWN


async def test_draining_has_a_time_limit(worker_kit: WorkerKit) -> None:
    stuck = Stuck()
    worker = worker_kit.worker(stuck.handler(), drain_seconds=0.01)
    running = asyncio.create_task(worker.run())
    asked = worker_kit.pool.ask()
    await asyncio.wait_for(stuck.begun.wait(), 60)
    worker.stop()
    await asyncio.wait_for(running, 60)
    assert (await fault(asked)).reason is Reason.OUTCOME_UNKNOWN


async def test_a_worker_without_a_connection_can_be_stopped(worker_kit: WorkerKit) -> None:
    async def act(given: JsonDict) -> JsonValue: ...

    await worker_kit.close()
    worker = worker_kit.worker(act)
    running = asyncio.create_task(worker.run())
    await asyncio.sleep(0)
    worker.stop()
    await asyncio.wait_for(running, 60)


# --- mistakes in programs ---------------------------------------------------------------------------


def test_faults_of_an_action_are_raised_at_registration() -> None:
    worker = Worker("w")

    def blocking(given: JsonDict) -> JsonValue: ...
    async def nothing() -> JsonValue: ...
    async def three(a: object, b: object, c: object) -> JsonValue: ...
    async def sets(given: set[int]) -> JsonValue: ...
    async def good(given: JsonDict) -> JsonValue: ...

    for handler, message in (
        (blocking, "async function"),
        (nothing, "has 0 parameters"),
        (three, "has 3 parameters"),
        (sets, "has no JSON Schema"),
    ):
        with pytest.raises(TypeError, match=message):
            worker.action("a")(handler)
    worker.action("a")(good)
    with pytest.raises(ValueError, match="already registered"):
        worker.action("a")(good)


async def test_a_worker_without_actions_is_refused() -> None:
    with pytest.raises(ValueError, match="Register an action"):
        await Worker("w").run()
