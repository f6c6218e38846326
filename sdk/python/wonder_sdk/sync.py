"""The client for programs without asyncio.

A thin bridge, not a second client: an event loop in a thread of its own runs the asyncio one, and each
call here waits for its counterpart there. What the counterparts take, give and raise holds here too.

::

    with Client() as client:
        conversation_id = client.create_conversation(agent="assistant")
        with client.converse(conversation_id) as chat:
            for event in chat.send("Hello!"):
                if isinstance(event, TextDelta):
                    print(event.text, end="")

A KeyboardInterrupt stops the waiting, and nothing else: the chat stays usable.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from functools import partial, wraps
from types import TracebackType
from typing import Any, Concatenate, ParamSpec, Self, TypeVar, Unpack

from wonder_sdk import client as asynchronous
from wonder_sdk import converse, reply, runs
from wonder_sdk._proto.wonder import v1
from wonder_sdk.bridge import Bridge, Items
from wonder_sdk.record import Item
from wonder_sdk.workflows import StartOptions

T = TypeVar("T")
P = ParamSpec("P")


def _awaited(
    method: Callable[Concatenate[Any, P], Awaitable[T]],
) -> Callable[Concatenate[Any, P], T]:
    """The counterpart's coroutine method, as one that waits. ``here`` has ``_there`` beyond ``_bridge``."""

    @wraps(method)
    def call(here: Any, /, *arguments: P.args, **options: P.kwargs) -> T:
        bridge: Bridge = here._bridge
        return bridge.run(lambda: method(here._there, *arguments, **options))

    return call


def _iterated(
    method: Callable[Concatenate[Any, P], AsyncIterator[T]],
) -> Callable[Concatenate[Any, P], Items[T]]:
    """The counterpart's asynchronous iterator, as one that waits."""

    @wraps(method)
    def call(here: Any, /, *arguments: P.args, **options: P.kwargs) -> Items[T]:
        make = partial(method, here._there, *arguments, **options)
        return Items(here._bridge, here._bridge.call(make))

    return call


class Reply(Items[Item]):
    """See `wonder_sdk.Reply`."""

    def __init__(self, bridge: Bridge, awaited: reply.Reply) -> None:
        super().__init__(bridge, awaited)
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
        return self._bridge.run(self._reply.started)

    def cancel(self) -> None:
        self._bridge.run(self._reply.cancel)

    def give_up(self) -> None:
        self._bridge.post(self._reply.give_up)

    def text(self) -> str:
        return self._bridge.run(self._reply.text)


class Chat:
    """See `wonder_sdk.Chat`."""

    def __init__(self, bridge: Bridge, chat: converse.Chat) -> None:
        self._bridge, self._chat = bridge, chat

    @property
    def conversation(self) -> v1.Conversation:
        return self._chat.conversation

    @property
    def cursor(self) -> int:
        return self._bridge.call(lambda: self._chat.cursor)

    @property
    def seconds_away(self) -> float:
        return self._chat.seconds_away

    def __enter__(self) -> Self:
        self._bridge.run(self._chat.__aenter__)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bridge.run(lambda: self._chat.__aexit__(kind, problem, trace))

    def send(self, content: str, **options: Any) -> Reply:
        return Reply(self._bridge, self._bridge.call(lambda: self._chat.send(content, **options)))

    def cancel(self, turn_id: str, **options: Any) -> None:
        self._bridge.run(lambda: self._chat.cancel(turn_id, **options))

    def events(self) -> Items[Item | v1.CaughtUp]:
        return Items(self._bridge, self._bridge.call(self._chat.events))


class Run:
    """See `wonder_sdk.Run`."""

    def __init__(self, bridge: Bridge, run: runs.Run) -> None:
        self._bridge, self._there = bridge, run

    def __repr__(self) -> str:
        return repr(self._there)

    @property
    def id(self) -> str:
        return self._there.id

    @property
    def record(self) -> v1.Run | None:
        return self._there.record

    @property
    def has_ended(self) -> bool:
        return self._there.has_ended

    result = _awaited(runs.Run.result)
    wait = _awaited(runs.Run.wait)
    refresh = _awaited(runs.Run.refresh)
    watch = _iterated(runs.Run.watch)
    cancel = _awaited(runs.Run.cancel)
    signal = _awaited(runs.Run.signal)
    gates = _iterated(runs.Run.gates)


class Service:
    """The RPCs of one service, which give their response, or an iterator where the server streams."""

    def __init__(self, bridge: Bridge, stub: Any) -> None:
        self._bridge, self._stub = bridge, stub

    def __getattr__(self, name: str) -> Callable[..., Any]:
        method = getattr(self._stub, name)

        def call(*request: Any, **options: Any) -> Any:
            answer = self._bridge.call(lambda: method(*request, **options))
            if hasattr(answer, "__anext__"):
                return Items(self._bridge, answer)
            return self._bridge.run(lambda: answer)

        return call


class Client:
    """See `wonder_sdk.Client`, which takes the same arguments."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        self._bridge = Bridge()
        try:
            self._there = self._bridge.call(lambda: asynchronous.Client(*arguments, **options))
        except BaseException:
            self._bridge.close()
            raise
        self.conversations = Service(self._bridge, self._there.conversations)
        self.library = Service(self._bridge, self._there.library)
        self.coordinator = Service(self._bridge, self._there.coordinator)
        self.executor = Service(self._bridge, self._there.executor)
        self.memory = Service(self._bridge, self._there.memory)

    @property
    def target(self) -> str:
        return self._there.target

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection and end the thread."""
        try:
            self._bridge.run(self._there.close)
        finally:
            self._bridge.close()

    def converse(self, conversation_id: str, **options: Any) -> Chat:
        make = partial(self._there.converse, conversation_id, **options)
        return Chat(self._bridge, self._bridge.call(make))

    def start_run(
        self, workflow: str, input: Mapping[str, Any] | None = None, **options: Unpack[StartOptions]
    ) -> Run:
        start = partial(self._there.start_run, workflow, input, **options)
        return Run(self._bridge, self._bridge.run(start))

    def attach_run(self, run_id: str) -> Run:
        return Run(self._bridge, self._there.attach_run(run_id))

    def fork_run(self, run_id: str, **options: Any) -> Run:
        fork = partial(self._there.fork_run, run_id, **options)
        return Run(self._bridge, self._bridge.run(fork))

    create_conversation = _awaited(asynchronous.Client.create_conversation)
    preview_context = _awaited(asynchronous.Client.preview_context)
    subscribe = _iterated(asynchronous.Client.subscribe)
    run = _awaited(asynchronous.Client.run)
    get_run = _awaited(asynchronous.Client.get_run)
    list_runs = _iterated(asynchronous.Client.list_runs)
    cancel_run = _awaited(asynchronous.Client.cancel_run)
    signal_run = _awaited(asynchronous.Client.signal_run)
    watch_run = _iterated(asynchronous.Client.watch_run)
    list_gates = _iterated(asynchronous.Client.list_gates)
    find_gate = _awaited(asynchronous.Client.find_gate)
    approve = _awaited(asynchronous.Client.approve)
    reject = _awaited(asynchronous.Client.reject)
    replay_run = _awaited(asynchronous.Client.replay_run)
    remember = _awaited(asynchronous.Client.remember)
    recall = _awaited(asynchronous.Client.recall)
    list_memories = _iterated(asynchronous.Client.list_memories)
    get_memory = _awaited(asynchronous.Client.get_memory)
    supersede = _awaited(asynchronous.Client.supersede)
    forget = _awaited(asynchronous.Client.forget)
    read_artifact = _awaited(asynchronous.Client.read_artifact)
    write_artifact = _awaited(asynchronous.Client.write_artifact)
    delete_artifact = _awaited(asynchronous.Client.delete_artifact)
    list_artifacts = _iterated(asynchronous.Client.list_artifacts)
    search_artifacts = _awaited(asynchronous.Client.search_artifacts)
    list_artifact_revisions = _iterated(asynchronous.Client.list_artifact_revisions)
    merge_artifacts = _awaited(asynchronous.Client.merge_artifacts)
    diff_branch = _awaited(asynchronous.Client.diff_branch)
    merge_branch = _awaited(asynchronous.Client.merge_branch)
    health = _awaited(asynchronous.Client.health)
