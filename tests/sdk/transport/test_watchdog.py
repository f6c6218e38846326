"""A server that stops answering on an open connection: calls fail early, streams reconnect."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import grpc
import pytest

from tests.sdk.fake_coordinator import RUN, FakeCoordinator
from tests.sdk.fake_server import CONVERSATION, FakeConversation, serving
from wonder_sdk import Client, ReconnectPolicy, UnavailableError, cli, v1
from wonder_sdk.transport import watchdog

PATIENT = ReconnectPolicy(initial_ms=1, max_ms=1, timeout_ms=600_000, silent_ms=600_000)
"""Timeout for a live server, large enough for a slow machine."""
SOON = ReconnectPolicy(silent_ms=50)


@pytest.fixture(autouse=True)
def hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watchdog, "UNARY_SILENCE_SECONDS", 0.01)
    monkeypatch.setattr(watchdog, "STREAM_SILENCE_SECONDS", 0.05)
    monkeypatch.setattr("wonder_sdk.transport.channel._Call.silence_seconds", 0.01)
    monkeypatch.setattr("wonder_sdk.transport.channel.StreamCall.silence_seconds", 0.05)


def set_short_timeout(client: Client, is_so: bool = True) -> None:
    """Set a short health check timeout, or restore the long one."""
    client._typed._watchdog._seconds = 0.05 if is_so else 600.0


async def finish_health_check(client: Client) -> None:
    """Wait for a health check that still has the long timeout. On a slow machine the first call needs one."""
    if (check := client._typed._watchdog._health_check) is not None:
        await check


class Line:
    """A proxy between client and server that can stall: no data passes and the connection stays open."""

    def __init__(self) -> None:
        self.address = ""
        self.passes = asyncio.Event()
        self.passes.set()
        self.connections = 0

    @asynccontextmanager
    async def to(self, server: str) -> AsyncIterator[Line]:
        tasks: set[asyncio.Task[None]] = set()

        async def copy(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
            try:
                while data := await source.read(65_536):
                    await self.passes.wait()
                    sink.write(data)
            except OSError:
                pass
            finally:
                sink.close()

        async def take(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            self.connections += 1
            host, port = server.split(":")
            there = await asyncio.open_connection(host, int(port))
            for pair in ((reader, there[1]), (there[0], writer)):
                tasks.add(asyncio.create_task(copy(*pair)))

        front = await asyncio.start_server(take, "127.0.0.1", 0)
        self.address = f"127.0.0.1:{front.sockets[0].getsockname()[1]}"
        try:
            yield self
        finally:
            front.close()
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)


async def test_a_call_to_a_server_that_stops_answering_fails() -> None:
    async with serving(coordinator=FakeCoordinator()) as server, Line().to(server) as line:
        async with Client(line.address, reconnect=PATIENT) as client:
            assert (await client.get_run(RUN)).id == RUN
            await finish_health_check(client)
            line.passes.clear()
            set_short_timeout(client)
            with pytest.raises(UnavailableError, match="does not answer") as problem:
                await client.get_run(RUN)
            assert line.address in str(problem.value) and problem.value.timed_out
            assert not problem.value.not_connected, "it may have had an effect"
            set_short_timeout(client, False)
            line.passes.set()
            assert (await client.get_run(RUN)).id == RUN


async def test_a_long_call_continues_while_the_server_is_alive() -> None:
    asked = asyncio.Event()

    class Slow(FakeCoordinator):
        async def GetRun(self, request: Any, context: object) -> Any:
            await asked.wait()
            return await super().GetRun(request, context)

    async with serving(coordinator=Slow()) as server, Client(server, reconnect=PATIENT) as client:
        running = asyncio.create_task(client.get_run(RUN))
        dog = client._typed._watchdog
        for _ in range(3):  # questions, each answered
            while dog._health_check is None:  # noqa: ASYNC110 - the watchdog has no event for it
                await asyncio.sleep(0.001)
            await asyncio.wait({dog._health_check})
        assert not running.done()
        asked.set()
        assert (await running).id == RUN


async def test_a_stream_over_a_dead_connection_reconnects_and_reports_the_time() -> None:
    fake = FakeConversation()
    async with serving(fake) as server, Line().to(server) as line:
        async with Client(line.address, reconnect=PATIENT) as client, client.converse(CONVERSATION) as chat:
            everything = chat.events()
            assert isinstance(await anext(everything), v1.Event)
            assert chat.disconnected_seconds == 0.0
            set_short_timeout(
                client
            )  # before it is dead, or a question with all the time there is may be under way
            line.passes.clear()
            while not chat.disconnected_seconds:  # noqa: ASYNC110 - the chat has no event for it
                await asyncio.sleep(0.001)
            set_short_timeout(client, False)
            line.passes.set()
            reply = chat.send("What is my cat called?")
            assert [item async for item in reply]
            assert chat.disconnected_seconds == 0.0 and reply.turn is not None


async def test_a_cancelled_caller_raises_no_server_error() -> None:
    async with serving(coordinator=FakeCoordinator()) as server, Line().to(server) as line:
        async with Client(line.address, reconnect=PATIENT) as client:
            await client.get_run(RUN)
            line.passes.clear()
            running = asyncio.create_task(client.get_run(RUN))
            await asyncio.sleep(0)
            running.cancel()
            with pytest.raises(asyncio.CancelledError):
                await running


async def test_no_health_check_runs_without_a_call() -> None:
    async with serving(coordinator=FakeCoordinator()) as server, Client(server) as client:
        await client.get_run(RUN)
        dog = client._typed._watchdog
        while dog._timer is not None or dog._health_check is not None:  # noqa: ASYNC110
            await asyncio.sleep(0.001)


async def test_the_command_names_the_address(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("wonder_sdk.client.ReconnectPolicy", lambda: SOON)
    async with serving(coordinator=FakeCoordinator()) as server, Line().to(server) as line:
        async with Client(line.address, reconnect=PATIENT) as client:
            await client.get_run(RUN)
            # gRPC shares this connection with the command's client.
            line.passes.clear()
            code = await asyncio.to_thread(cli.main, ["runs", "show", RUN, "--server", line.address])
    output = capsys.readouterr().err
    assert code == 1 and output.startswith(f"wonder: {line.address} does not answer")
    assert grpc.StatusCode.UNAVAILABLE.name not in output
