"""Run subscriptions over connections that break."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import grpc
import grpc.aio
import pytest

from wonder.v1 import conversation_service_pb2 as conversation
from wonder.v1 import coordinator_service_pb2 as service
from wonder.v1 import coordinator_service_pb2_grpc as rpc
from wonder.v1 import run_pb2 as run
from wonder_sdk import Client, NotFoundError, ReconnectPolicy, UnavailableError, v1
from wonder_server.codec.seals import damaged_record
from wonder_server.rpc.server.error_codes import to_rpc_status

NO_BACKOFF = ReconnectPolicy(initial_ms=0, max_ms=0, timeout_ms=600_000)


class FakeRun(rpc.CoordinatorServiceServicer):
    """A run with five events. Each connection is cut after the number of messages in ``cuts``."""

    def __init__(self, *cuts: int, says: str = "the line is cut", together: int = 1) -> None:
        self.cuts, self.says, self.together = list(cuts), says, together
        self.cursors: list[int] = []

    async def WatchRun(self, request: Any, context: object) -> AsyncIterator[service.WatchRunResponse]:
        self.cursors.append(request.after_sequence)
        if request.run_id != "run_1":
            await context.abort(grpc.StatusCode.NOT_FOUND, "There is no such run.")
        cut = self.cuts.pop(0) if self.cuts else None
        assert request.group_events
        events = [
            run.RunEvent(sequence=number, run_id="run_1", name="token.moved")
            for number in range(request.after_sequence + 1, 6)
        ]
        responses = [grouped(events[at : at + self.together]) for at in range(0, len(events), self.together)]
        responses.insert(1, service.WatchRunResponse(heartbeat=conversation.StreamHeartbeat()))
        responses.append(
            service.WatchRunResponse(
                end=conversation.StreamEnd(reason=conversation.STREAM_END_REASON_COMPLETED)
            )
        )
        for count, response in enumerate(responses):
            if count == cut:
                await context.abort(grpc.StatusCode.UNAVAILABLE, self.says)
            yield response


def grouped(events: list[run.RunEvent]) -> service.WatchRunResponse:
    if len(events) == 1:
        return service.WatchRunResponse(event=events[0])
    return service.WatchRunResponse(events=service.RunEventGroup(events=events))


@asynccontextmanager
async def watching(fake: FakeRun) -> AsyncIterator[Client]:
    server = grpc.aio.server(options=[("grpc.so_reuseport", 0)])
    rpc.add_CoordinatorServiceServicer_to_server(fake, server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    async with Client(f"127.0.0.1:{port}", reconnect=NO_BACKOFF) as client:
        yield client
    await server.stop(None)


@pytest.mark.parametrize("cut", range(1, 7))
async def test_a_cut_after_any_event_does_not_end_the_watch(cut: int) -> None:
    fake = FakeRun(cut, 2)
    async with watching(fake) as client:
        items = [item async for item in client.watch_run("run_1")]

    assert [item.sequence for item in items if isinstance(item, v1.RunEvent)] == [1, 2, 3, 4, 5]
    assert len(fake.cursors) > 1


@pytest.mark.parametrize("together", [2, 3, 100])
async def test_grouped_events_are_yielded_one_by_one(together: int) -> None:
    fake = FakeRun(2, together=together)
    async with watching(fake) as client:
        items = [item async for item in client.watch_run("run_1")]

    assert [item.sequence for item in items if isinstance(item, v1.RunEvent)] == [1, 2, 3, 4, 5]
    assert fake.cursors == [0, min(together, 5)]


async def test_an_unknown_run_is_not_found() -> None:
    async with watching(FakeRun()) as client:
        with pytest.raises(NotFoundError):
            await anext(client.watch_run("run_2"))


async def test_a_failed_first_connection_raises_at_once() -> None:
    fake = FakeRun(0)
    async with watching(fake) as client:
        with pytest.raises(UnavailableError):
            await anext(client.watch_run("run_1"))
    assert fake.cursors == [0]


async def test_connection_changes_are_reported() -> None:
    output: list[str] = []
    async with watching(FakeRun(2, 1)) as client:
        async for _ in client.watch_run("run_1", on_connection=lambda problem: output.append(str(problem))):
            pass
    assert output == ["the line is cut", "None", "the line is cut", "None"]


async def test_a_damaged_record_ends_the_watch_with_its_error() -> None:
    class Damaged(FakeRun):
        async def WatchRun(self, request: Any, context: Any) -> AsyncIterator[service.WatchRunResponse]:
            self.cursors.append(request.after_sequence)
            yield grouped([run.RunEvent(sequence=1, run_id="run_1", name="token.moved")])
            status = to_rpc_status(damaged_record("shards/00.db", "events", "run_1/2"))
            context.set_trailing_metadata(status.trailers)
            await context.abort(status.code, status.message)

    fake = Damaged()
    async with watching(fake) as client:
        with pytest.raises(UnavailableError, match=r"The record run_1/2 .* is damaged"):
            async for _ in client.watch_run("run_1"):
                pass
    assert fake.cursors == [0], "damage does not pass, so the client must not ask again"
