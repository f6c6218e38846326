"""Methods of the client for runs and gates."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any

import pytest

from tests.sdk.fake_coordinator import GATE, RUN, FakeCoordinator, Script, a_gate
from tests.sdk.fake_server import serving
from wonder.v1 import coordinator_service_pb2 as service
from wonder.v1 import run_pb2 as run
from wonder_sdk import (
    CallCancelledError,
    Client,
    DeadlineExceededError,
    FailedPreconditionError,
    NotFoundError,
    ReconnectPolicy,
    RequestError,
    Run,
    UnavailableError,
    WonderError,
    sync,
    v1,
)
from wonder_sdk.methods.options import to_milliseconds

NO_BACKOFF = ReconnectPolicy(initial_ms=0, max_ms=0, timeout_ms=600_000)
OUTPUT = {"released": "1.2", "count": 2}


@asynccontextmanager
async def talking(fake: FakeCoordinator) -> AsyncIterator[Client]:
    async with serving(coordinator=fake) as address, Client(address, reconnect=NO_BACKOFF) as client:
        yield client


def failing(reason: str) -> list[run.RunEvent]:
    script = Script()
    script.start()
    script.end(20, "FAILED", reason)
    return script.events


async def test_a_run_that_ends_at_once_costs_one_call() -> None:
    fake = FakeCoordinator()
    async with talking(fake) as client:
        output = await client.run(
            "acme/flows/release",
            {"version": "1.2"},
            project="shop",
            agent="assistant",
            conversation="conv_1",
            metadata={"ticket": 7},
            timeout=1.5,
        )
    assert output == OUTPUT
    assert isinstance(output["count"], int)
    (request,) = fake.requests
    assert request.workflow_id == "acme/flows/release"
    assert dict(request.input) == {"version": "1.2"}
    assert (request.context.project_id, request.context.agent_id) == ("shop", "assistant")
    assert request.context.conversation_id == "conv_1"
    assert dict(request.metadata) == {"ticket": 7}
    assert request.timeout_ms == 1500
    assert request.wait_ms == 30_000


async def test_a_run_that_takes_longer_is_watched_to_its_end() -> None:
    fake = FakeCoordinator(held=5)
    async with talking(fake) as client:
        waiting = asyncio.create_task(client.run("acme/flows/release"))
        await fake.watched()
        await client.signal_run(RUN, "hurry", {"now": True})
        assert await waiting == OUTPUT
    assert [each.after_sequence for each in fake.requests if isinstance(each, service.WatchRunRequest)] == [5]


@pytest.mark.parametrize("cuts", [1, 3])
async def test_a_start_with_a_lost_response_starts_one_run(cuts: int) -> None:
    fake = FakeCoordinator(cut_starts=cuts)
    async with talking(fake) as client:
        assert await client.run("acme/flows/release") == OUTPUT
    assert len(fake.requests) == cuts + 1
    assert len(fake.started) == 1 and fake.started[0]


async def test_the_client_waits_for_a_server_that_is_unavailable_after_the_start() -> None:
    fake = FakeCoordinator(cut_starts=1)
    async with serving(coordinator=fake) as address, fake.changed:
        client = Client(address, reconnect=ReconnectPolicy(initial_ms=10, max_ms=10, timeout_ms=600_000))
        running = asyncio.create_task(client.run("acme/flows/release"))
        await fake.changed.wait_for(lambda: fake.started)
    with pytest.raises(UnavailableError, match="no server answers"):
        await client.get_run(RUN)
    async with serving(coordinator=fake, address=address), client:
        assert await running == OUTPUT
    assert len(fake.started) == 1


async def test_a_start_without_a_server_fails_at_once() -> None:
    patient = ReconnectPolicy(initial_ms=60_000, max_ms=60_000, timeout_ms=600_000)
    async with Client("127.0.0.1:1", reconnect=patient) as client:
        with pytest.raises(UnavailableError, match="no server answers"):
            await client.start_run("acme/flows/release")


async def test_invalid_arguments_raise_at_once() -> None:
    async with talking(FakeCoordinator()) as client:
        with pytest.raises(NotFoundError) as refused:
            await client.run("nothing")
        assert refused.value.reason is v1.ErrorReason.DEFINITION_NOT_FOUND
        with pytest.raises(ValueError, match=r"input\.bad: JSON cannot hold"):
            await client.start_run("acme/flows/release", {"bad": {1, 2}})
        with pytest.raises(ValueError, match="Pass exactly one of before"):
            await client.fork_run(RUN)
        with pytest.raises(ValueError, match="Pass exactly one of before"):
            await client.fork_run(RUN, before=1, after_sequence=1)


async def test_a_run_that_fails_raises_its_error() -> None:
    async with talking(FakeCoordinator(failing("The disk is full."))) as client:
        with pytest.raises(WonderError, match="The disk is full") as failed:
            await client.run("acme/flows/release")
        assert failed.value.reason is v1.ErrorReason.RUN_FAILED
        run = await client.start_run("acme/flows/release")
        record = await run.wait()
        assert record.status is v1.RunStatus.FAILED
        assert run.has_ended and run.record is record
        assert repr(run) == "Run(run_1, failed)"


async def test_a_wait_has_a_timeout_and_the_run_continues() -> None:
    fake = FakeCoordinator(held=5)
    async with talking(fake) as client:
        with pytest.raises(DeadlineExceededError) as late:
            await client.run("acme/flows/release", wait=0.01)
        assert late.value.metadata == {"run_id": RUN}
        assert fake.requests[0].wait_ms == 10
        run = client.attach_run(RUN)
        assert not run.has_ended and run.record is None
        with pytest.raises(DeadlineExceededError):
            await run.result(timeout=0.01)
        assert (await run.refresh()).status is v1.RunStatus.RUNNING
        await run.signal("hurry")
        assert await run.result(timeout=10) == OUTPUT


async def test_a_cancelled_run_has_a_reason() -> None:
    fake = FakeCoordinator(held=5)
    async with talking(fake) as client:
        run = await client.start_run("acme/flows/release")
        assert isinstance(run, Run)
        await run.cancel("wrong version")
        with pytest.raises(CallCancelledError, match="wrong version"):
            await run.result()
        with pytest.raises(FailedPreconditionError):
            await client.cancel_run(RUN)
        with pytest.raises(NotFoundError):
            await client.get_run("run_9")


async def test_runs_are_listed_over_all_pages_with_filters() -> None:
    fake = FakeCoordinator()
    day = datetime(2026, 11, 22, tzinfo=UTC)
    async with talking(fake) as client:
        listed = client.list_runs(
            workflow="acme/flows/release@3",
            project="shop",
            statuses=[v1.RunStatus.RUNNING],
            parent=RUN,
            include_children=True,
            since=day,
        )
        assert [each.id async for each in listed] == [f"run_{n}" for n in range(5)]
    assert [each.page_token for each in fake.requests] == ["", "2", "4"]
    first = fake.requests[0]
    assert (first.workflow_id, first.project_id, first.parent_run_id) == ("acme/flows/release@3", "shop", RUN)
    assert list(first.statuses) == [run.RUN_STATUS_RUNNING]
    assert first.include_children
    assert first.start_time.ToDatetime(UTC) == day
    assert not first.HasField("end_time")


async def test_a_gate_is_approved_with_its_shown_hash_and_only_once() -> None:
    fake = FakeCoordinator(held=5)
    fake.gates += [a_gate(), a_gate()]
    for number, gate in enumerate(fake.gates):
        gate.id = f"gate_{number}"
    async with talking(fake) as client:
        gates = [gate async for gate in client.attach_run(RUN).gates()]
        assert [gate.id for gate in gates] == ["gate_0", "gate_1", "gate_2"]
        assert fake.requests[0].run_id == RUN
        gates[0].shown_hash = "something else"
        with pytest.raises(FailedPreconditionError) as refused:
            await client.approve(gates[0])
        assert refused.value.reason is v1.ErrorReason.GATE_RESOLVED
        approved = await client.approve(gates[1], {"notes": "ok"}, comment="fine", user="mia")
        assert approved.status is v1.GateStatus.APPROVED
        output = fake.requests[-1]
        assert (output.shown_hash, output.comment, output.user_id) == ("abc", "fine", "mia")
        assert dict(output.answer) == {"notes": "ok"}
        rejected = await client.reject("gate_2")
        assert rejected.status is v1.GateStatus.REJECTED
        assert not fake.requests[-1].HasField("answer")
        assert (await client.find_gate("gate_2")).status is v1.GateStatus.REJECTED
        with pytest.raises(NotFoundError) as missing:
            await client.approve("gate_9")
        assert missing.value.reason is v1.ErrorReason.GATE_NOT_FOUND


async def test_a_fork_starts_at_a_point_and_a_replay_reports_differences() -> None:
    fake = FakeCoordinator()
    async with talking(fake) as client:
        forked = await client.fork_run(RUN, before=0, state={"tries": 0}, revision=2)
        assert forked.id == "run_2"
        assert forked.record is not None and forked.record.forked_from_run_id == RUN
        await client.fork_run(RUN, after_sequence=4, input={})
        replayed = await client.replay_run(RUN)
    first, second = (each for each in fake.requests if isinstance(each, service.ForkRunRequest))
    assert first.WhichOneof("point") == "before_node_execution"
    assert dict(first.state) == {"tries": 0} and not first.HasField("input")
    assert second.after_sequence == 4 and second.HasField("input")
    assert replayed.identical and replayed.step_count == 12


@pytest.fixture
def held() -> FakeCoordinator:
    return FakeCoordinator(held=5)


@pytest.fixture
def address(held: FakeCoordinator) -> Iterator[str]:
    """Serve the fake from an event loop in another thread, as another process would."""
    ready: list[str] = []
    started, loop = threading.Event(), asyncio.new_event_loop()
    stop = asyncio.Event()

    async def serve() -> None:
        held.changed = asyncio.Condition()
        async with serving(coordinator=held) as at:
            ready.append(at)
            started.set()
            await stop.wait()

    thread = threading.Thread(target=lambda: loop.run_until_complete(serve()))
    thread.start()
    assert started.wait(10)
    yield ready[0]
    loop.call_soon_threadsafe(stop.set)
    thread.join()
    loop.close()


def test_the_sync_client_has_the_same_run_methods(address: str) -> None:
    with sync.Client(address, reconnect=NO_BACKOFF) as client:
        started = client.start_run("acme/flows/release", {"version": "1.2"})
        assert started.id == RUN and not started.has_ended
        with pytest.raises(DeadlineExceededError):
            started.wait(0.01)
        (gate,) = started.gates()
        assert gate.id == GATE and client.find_gate(GATE).id == GATE
        client.approve(gate, comment="fine")
        assert started.result(10) == client.run("acme/flows/release") == OUTPUT
        assert repr(started) == "Run(run_1, completed)" and started.record is not None
        events = [each for each in started.watch(after_sequence=20) if isinstance(each, v1.RunEvent)]
        assert events[0].sequence == 21 and events[-1].workflow_completed is not None
        assert [each.id for each in client.list_runs()] == [f"run_{n}" for n in range(5)]
        assert client.fork_run(RUN, before=2).id == "run_2"
        assert client.replay_run(RUN).identical
        assert client.attach_run(RUN).refresh().status is v1.RunStatus.COMPLETED
        with pytest.raises(FailedPreconditionError):
            started.cancel()
        assert client.signal_run(RUN, "again") == 7


@pytest.mark.parametrize("given", [[1, 2], "text", 7])
async def test_an_input_that_is_not_a_mapping_is_refused_and_not_sent(given: Any) -> None:
    async with Client("127.0.0.1:1") as client:
        for start in (client.start_run, client.run):
            with pytest.raises(RequestError) as refused:
                await start("acme/x", given)
            assert refused.value.field == "input" and str(refused.value).startswith("input: must be")
        with pytest.raises(RequestError) as refused:
            await client.start_run("acme/x", {"a": [object()]})
        assert refused.value.field == "input.a[0]"


@pytest.mark.parametrize("given", [float("inf"), float("nan"), -1, 10**9 + 1, 10**400, "1", True])
async def test_a_duration_that_is_no_number_of_seconds_is_refused_and_not_sent(given: Any) -> None:
    async with Client("127.0.0.1:1") as client:
        for option, start in (("timeout", client.start_run), ("timeout", client.run), ("wait", client.run)):
            with pytest.raises(RequestError, match="must be a number of seconds from 0 to") as refused:
                await start("acme/x", {}, **{option: given})
            assert refused.value.field == option and str(refused.value).startswith(f"{option}: ")
        for wait in (client.attach_run(RUN).wait, client.attach_run(RUN).result):
            with pytest.raises(ValueError, match="timeout: must be a number of seconds from 0 to"):
                await wait(given)


def test_a_positive_duration_is_never_sent_as_zero() -> None:
    """A timeout of 0 is none."""
    given = (0, 0.0, 0.0001, 1, 1.5, 10**9)
    assert [to_milliseconds(each, "timeout") for each in given] == [0, 0, 1, 1000, 1500, 10**12]
