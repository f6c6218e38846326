"""The reader of gRPC's events: called once for all bytes that wait, and added where the server expects it."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator

import pytest

from wonder_server.rpc.server.event_pipe import drain_and_call, drained_event_pipes
from wonder_server.rpc.server.server import RpcServer
from wonder_server.settings import Settings

Pair = tuple[socket.socket, socket.socket]


@pytest.fixture
def pair() -> Iterator[Pair]:
    reading, writing = socket.socketpair()
    with reading, writing:
        yield reading, writing


async def test_one_call_reads_all_bytes_that_wait(pair: Pair) -> None:
    reading, writing = pair
    loop, called = asyncio.get_running_loop(), asyncio.Event()
    calls = list[bytes]()

    def read() -> None:
        calls.append(reading.recv(1))
        called.set()

    with drained_event_pipes():
        loop.add_reader(reading, read)
    try:
        for _ in range(2):
            for _ in range(200):
                writing.send(b"1")
            await called.wait()
            called.clear()
            with pytest.raises(BlockingIOError):
                reading.recv(1, socket.MSG_DONTWAIT)
        assert calls == [b"1"] * 2
    finally:
        loop.remove_reader(reading)


async def test_readers_that_are_added_later_are_not_changed(pair: Pair) -> None:
    reading, writing = pair
    loop, read = asyncio.get_running_loop(), list[bytes]()
    done = asyncio.Event()

    def take() -> None:
        read.append(reading.recv(1))
        if len(read) == 3:
            done.set()

    with drained_event_pipes():
        pass
    loop.add_reader(reading, take)
    try:
        writing.send(b"123")
        await done.wait()
        assert read == [b"1", b"2", b"3"]
    finally:
        loop.remove_reader(reading)


def test_without_a_byte_the_reader_is_not_called(pair: Pair) -> None:
    reading, _ = pair
    drain_and_call(reading, lambda: pytest.fail("the reader would wait for a byte"))


def test_after_the_end_of_the_socket_the_reader_is_called(pair: Pair) -> None:
    reading, writing = pair
    writing.close()
    ends = list[bytes]()
    drain_and_call(reading, lambda: ends.append(reading.recv(1)))
    assert ends == [b""]


async def test_grpc_adds_its_reader_while_the_server_is_created(monkeypatch: pytest.MonkeyPatch) -> None:
    """A new version of gRPC may read its events in another way. This test then fails."""
    loop, added = asyncio.get_running_loop(), list[object]()
    add_reader = loop.add_reader

    def record(source: socket.socket, callback: object, *arguments: object) -> None:
        added.append(callback)
        add_reader(source, callback, *arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(loop, "add_reader", record)
    server = RpcServer(Settings(listen="127.0.0.1:0"), [])
    await server.stop(0)
    assert added == [drain_and_call]
