"""The client for programs without asyncio.

An event loop in its own thread runs the asynchronous client. Each method here calls the method of the same
name there and waits for it: arguments, results and errors are the same.

::

    with Client() as client:
        conversation_id = client.create_conversation(agent="assistant")
        with client.converse(conversation_id) as chat:
            for event in chat.send("Hello!"):
                if isinstance(event, TextDelta):
                    print(event.text, end="")

A KeyboardInterrupt ends only the wait. The chat remains usable.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial, wraps
from pathlib import Path
from types import TracebackType
from typing import Any, Concatenate, ParamSpec, Protocol, Self, TypeVar

from wonder_sdk import client as asynchronous
from wonder_sdk._proto.wonder import v1
from wonder_sdk.conversation import chat as async_chat
from wonder_sdk.conversation import reply, turn_stream
from wonder_sdk.conversation.event_cursor import Item
from wonder_sdk.methods import runs
from wonder_sdk.transport.loop_thread import LoopThread, SyncIterator
from wonder_sdk.transport.reconnect import ReconnectPolicy

T = TypeVar("T")
Made = TypeVar("Made")
Async = TypeVar("Async")
Async_co = TypeVar("Async_co", covariant=True)
P = ParamSpec("P")


class _Blocking(Protocol[Async_co]):
    """An object here, with the asynchronous object that does its work."""

    @property
    def _loop_thread(self) -> LoopThread: ...

    @property
    def _async(self) -> Async_co: ...


def _blocking(
    method: Callable[Concatenate[Async, P], Awaitable[T]],
) -> Callable[Concatenate[_Blocking[Async], P], T]:
    """Return a blocking form of the asynchronous object's method."""

    @wraps(method)
    def call(here: _Blocking[Async], /, *arguments: P.args, **options: P.kwargs) -> T:
        return here._loop_thread.run(lambda: method(here._async, *arguments, **options))

    return call


def _blocking_iterator(
    method: Callable[Concatenate[Async, P], AsyncIterator[T]],
) -> Callable[Concatenate[_Blocking[Async], P], SyncIterator[T]]:
    """Return a form of the asynchronous object's method that returns a blocking iterator."""
    return _blocking_object(method, SyncIterator)


def _blocking_object(
    method: Callable[Concatenate[Async, P], T], wrap: Callable[[LoopThread, T], Made]
) -> Callable[Concatenate[_Blocking[Async], P], Made]:
    """Return a form of the asynchronous object's method that returns a blocking object."""

    @wraps(method)
    def call(here: _Blocking[Async], /, *arguments: P.args, **options: P.kwargs) -> Made:
        make = partial(method, here._async, *arguments, **options)
        return wrap(here._loop_thread, here._loop_thread.call(make))

    return call


class Reply(SyncIterator[Item]):
    """See `wonder_sdk.Reply`."""

    def __init__(self, loop_thread: LoopThread, awaited: reply.Reply) -> None:
        super().__init__(loop_thread, awaited)
        self._reply = awaited

    @property
    def request_id(self) -> str:
        return self._reply.request_id

    @property
    def turn_id(self) -> str:
        return self._reply.turn_id

    @property
    def turn(self) -> v1.Turn | None:
        return self._reply.turn

    def started(self) -> str:
        return self._loop_thread.run(self._reply.started)

    def cancel(self) -> None:
        self._loop_thread.run(self._reply.cancel)

    def give_up(self) -> None:
        self._loop_thread.submit(self._reply.give_up)

    def text(self) -> str:
        return self._loop_thread.run(self._reply.text)


class TurnStream(SyncIterator[Item]):
    """See `wonder_sdk.TurnStream`."""

    def __init__(self, loop_thread: LoopThread, awaited: turn_stream.TurnStream) -> None:
        super().__init__(loop_thread, awaited)
        self._stream = awaited

    @property
    def request_id(self) -> str:
        return self._stream.request_id

    @property
    def conversation_id(self) -> str:
        return self._stream.conversation_id

    @property
    def turn_id(self) -> str:
        return self._stream.turn_id

    @property
    def turn(self) -> v1.Turn | None:
        return self._stream.turn

    @property
    def cursor(self) -> int:
        return self._stream.cursor

    def close(self) -> None:
        super().close()
        self._loop_thread.run(self._stream.aclose)

    def text(self) -> str:
        return self._loop_thread.run(self._stream.text)


class Chat:
    """See `wonder_sdk.Chat`."""

    def __init__(self, loop_thread: LoopThread, chat: async_chat.Chat) -> None:
        self._loop_thread, self._async = loop_thread, chat

    @property
    def conversation(self) -> v1.Conversation:
        return self._async.conversation

    @property
    def cursor(self) -> int:
        return self._loop_thread.call(lambda: self._async.cursor)

    @property
    def disconnected_seconds(self) -> float:
        return self._async.disconnected_seconds

    def __enter__(self) -> Self:
        self._loop_thread.run(self._async.__aenter__)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._loop_thread.run(lambda: self._async.__aexit__(kind, problem, trace))

    send = _blocking_object(async_chat.Chat.send, Reply)
    cancel = _blocking(async_chat.Chat.cancel)
    events = _blocking_iterator(async_chat.Chat.events)


class Run:
    """See `wonder_sdk.Run`."""

    def __init__(self, loop_thread: LoopThread, run: runs.Run) -> None:
        self._loop_thread, self._async = loop_thread, run

    def __repr__(self) -> str:
        return repr(self._async)

    @property
    def id(self) -> str:
        return self._async.id

    @property
    def record(self) -> v1.Run | None:
        return self._async.record

    @property
    def has_ended(self) -> bool:
        return self._async.has_ended

    result = _blocking(runs.Run.result)
    wait = _blocking(runs.Run.wait)
    refresh = _blocking(runs.Run.refresh)
    watch = _blocking_iterator(runs.Run.watch)
    cancel = _blocking(runs.Run.cancel)
    signal = _blocking(runs.Run.signal)
    gates = _blocking_iterator(runs.Run.gates)


def _blocking_run(
    method: Callable[Concatenate[Async, P], Awaitable[runs.Run]],
) -> Callable[Concatenate[_Blocking[Async], P], Run]:
    """Return a blocking form of the asynchronous object's method that starts a run."""

    @wraps(method)
    def call(here: _Blocking[Async], /, *arguments: P.args, **options: P.kwargs) -> Run:
        start = partial(method, here._async, *arguments, **options)
        return Run(here._loop_thread, here._loop_thread.run(start))

    return call


class Service:
    """The RPCs of one service. A call returns the response, or an iterator for a server stream."""

    def __init__(self, loop_thread: LoopThread, stub: object) -> None:
        self._loop_thread, self._stub = loop_thread, stub

    def __getattr__(self, name: str) -> Callable[..., Any]:
        method = getattr(self._stub, name)

        def call(*request: object, **options: object) -> object:
            answer = self._loop_thread.call(lambda: method(*request, **options))
            if hasattr(answer, "__anext__"):
                return SyncIterator(self._loop_thread, answer)
            return self._loop_thread.run(lambda: answer)

        return call


class Client:
    """See `wonder_sdk.Client`, which takes the same arguments."""

    def __init__(
        self,
        target: str | None = None,
        *,
        token: str | None = None,
        tls_root: Path | str | bytes | None = None,
        tls: bool = False,
        reconnect: ReconnectPolicy | None = None,
    ) -> None:
        make = partial(
            asynchronous.Client, target, token=token, tls_root=tls_root, tls=tls, reconnect=reconnect
        )
        self._loop_thread = LoopThread()
        try:
            self._async = self._loop_thread.call(make)
        except BaseException:
            self._loop_thread.close()
            raise
        self.conversations = Service(self._loop_thread, self._async.conversations)
        self.library = Service(self._loop_thread, self._async.library)
        self.coordinator = Service(self._loop_thread, self._async.coordinator)
        self.executor = Service(self._loop_thread, self._async.executor)
        self.memory = Service(self._loop_thread, self._async.memory)
        self.files = Service(self._loop_thread, self._async.files)
        self.backups = Service(self._loop_thread, self._async.backups)
        self.identity = Service(self._loop_thread, self._async.identity)

    @property
    def target(self) -> str:
        return self._async.target

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection and end the thread."""
        try:
            self._loop_thread.run(self._async.close)
        finally:
            self._loop_thread.close()

    converse = _blocking_object(asynchronous.Client.converse, Chat)
    stream_turn = _blocking_object(asynchronous.Client.stream_turn, TurnStream)
    start_run = _blocking_run(asynchronous.Client.start_run)
    attach_run = _blocking_object(asynchronous.Client.attach_run, Run)
    fork_run = _blocking_run(asynchronous.Client.fork_run)
    create_conversation = _blocking(asynchronous.Client.create_conversation)
    preview_context = _blocking(asynchronous.Client.preview_context)
    subscribe = _blocking_iterator(asynchronous.Client.subscribe)
    run = _blocking(asynchronous.Client.run)
    get_run = _blocking(asynchronous.Client.get_run)
    list_runs = _blocking_iterator(asynchronous.Client.list_runs)
    cancel_run = _blocking(asynchronous.Client.cancel_run)
    signal_run = _blocking(asynchronous.Client.signal_run)
    watch_run = _blocking_iterator(asynchronous.Client.watch_run)
    list_gates = _blocking_iterator(asynchronous.Client.list_gates)
    find_gate = _blocking(asynchronous.Client.find_gate)
    approve = _blocking(asynchronous.Client.approve)
    reject = _blocking(asynchronous.Client.reject)
    replay_run = _blocking(asynchronous.Client.replay_run)
    remember = _blocking(asynchronous.Client.remember)
    recall = _blocking(asynchronous.Client.recall)
    list_memories = _blocking_iterator(asynchronous.Client.list_memories)
    post = _blocking(asynchronous.Client.post)
    fork_conversation = _blocking(asynchronous.Client.fork_conversation)
    export_transcript = _blocking(asynchronous.Client.export_transcript)
    search_messages = _blocking_iterator(asynchronous.Client.search_messages)
    decisions = _blocking_iterator(asynchronous.Client.decisions)
    get_memory = _blocking(asynchronous.Client.get_memory)
    supersede = _blocking(asynchronous.Client.supersede)
    forget = _blocking(asynchronous.Client.forget)
    list_memory_blocks = _blocking_iterator(asynchronous.Client.list_memory_blocks)
    get_memory_block = _blocking(asynchronous.Client.get_memory_block)
    set_memory_block = _blocking(asynchronous.Client.set_memory_block)
    delete_memory_block = _blocking(asynchronous.Client.delete_memory_block)
    list_memory_block_changes = _blocking_iterator(asynchronous.Client.list_memory_block_changes)
    read_artifact = _blocking(asynchronous.Client.read_artifact)
    write_artifact = _blocking(asynchronous.Client.write_artifact)
    delete_artifact = _blocking(asynchronous.Client.delete_artifact)
    list_artifacts = _blocking_iterator(asynchronous.Client.list_artifacts)
    search_artifacts = _blocking(asynchronous.Client.search_artifacts)
    list_artifact_revisions = _blocking_iterator(asynchronous.Client.list_artifact_revisions)
    merge_artifacts = _blocking(asynchronous.Client.merge_artifacts)
    diff_branch = _blocking(asynchronous.Client.diff_branch)
    merge_branch = _blocking(asynchronous.Client.merge_branch)
    upload = _blocking(asynchronous.Client.upload)
    attach = _blocking(asynchronous.Client.attach)
    download = _blocking(asynchronous.Client.download)
    describe_file = _blocking(asynchronous.Client.describe_file)
    list_files = _blocking_iterator(asynchronous.Client.list_files)
    delete_file = _blocking(asynchronous.Client.delete_file)
    health = _blocking(asynchronous.Client.health)
