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

import asyncio
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from concurrent.futures import Future, wait
from functools import partial
from types import TracebackType
from typing import Any, Generic, Self, TypeVar

from wonder_sdk import client as asynchronous
from wonder_sdk import converse, reply
from wonder_sdk._proto.wonder import v1
from wonder_sdk.record import Item
from wonder_sdk.watch import RunItem

T = TypeVar("T")

_LOOK_UP_SECONDS = 0.5
# For how long closing waits for the thread; it ends by itself, and with the process.
_CLOSE_SECONDS = 1.0


class Bridge:
    """An event loop in a thread of its own."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._serve, name="wonder sdk", daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        # The thread tidies up by itself: whoever closes it may be interrupted while they wait.
        try:
            self._loop.run_forever()
            self._loop.run_until_complete(_cancel_others())
            self._loop.run_until_complete(self._loop.shutdown_asyncgens())
        finally:
            self._loop.close()

    def run(self, start: Callable[[], Awaitable[T]]) -> T:
        """Call ``start`` on the loop, and wait for what it gives. Interrupted, it is cancelled there."""

        async def work() -> T:
            return await start()

        future = asyncio.run_coroutine_threadsafe(work(), self._loop)
        try:
            self.wait(future)
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def post(self, begin: Callable[[], None]) -> None:
        """Call ``begin`` on the loop, some time soon."""
        self._loop.call_soon_threadsafe(begin)

    def wait(self, future: Future[Any]) -> None:
        """Wait until ``future`` is done."""
        # A signal that comes just before Python begins to wait is only noticed when the wait is over.
        while not future.done():
            self.wait_briefly(future, _LOOK_UP_SECONDS)

    def wait_briefly(self, future: Future[Any], seconds: float) -> bool:
        """Wait until ``future`` is done, so long at most; whether it is."""
        if not future.done():
            wait([future], timeout=seconds)
        return future.done()

    def call(self, make: Callable[[], T]) -> T:
        """Call ``make``, which does not wait, on the loop."""

        async def work() -> T:
            return make()

        return self.run(work)

    def close(self) -> None:
        """Cancel what still runs, and end the thread."""
        if self._loop.is_closed():
            return
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(_CLOSE_SECONDS)


async def _cancel_others() -> None:
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)


class _Step(Generic[T]):
    """One step of an asynchronous iterator, taken once however often it is begun."""

    def __init__(self, items: AsyncIterator[T]) -> None:
        self.future: Future[T] = Future()
        self._items = items
        self._task: asyncio.Task[None] | None = None

    def begin(self) -> None:
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._take())

    def cancel(self) -> None:
        self.future.cancel()
        if self._task is not None:
            self._task.cancel()

    async def _take(self) -> None:
        try:
            self.future.set_result(await anext(self._items))
        except asyncio.CancelledError:
            self.future.cancel()
            raise
        except BaseException as problem:
            self.future.set_exception(problem)


class Items(Generic[T]):
    """An asynchronous iterator, one step at a time.

    A KeyboardInterrupt loses no item: the step that it meets, wherever it meets it, goes on in the next.
    """

    def __init__(self, bridge: Bridge, items: AsyncIterator[T]) -> None:
        self._bridge, self._items = bridge, items
        self._step: _Step[T] | None = None

    def __iter__(self) -> Iterator[T]:
        return self

    def ready(self, *, within: float) -> bool:
        """Wait for the next item, ``within`` seconds at most; whether `next` would not have to."""
        return self._bridge.wait_briefly(self._begin().future, within)

    def close(self) -> None:
        """Stop waiting for the next item, which may be lost. Nothing else ends by this."""
        if self._step is not None:
            self._bridge.post(self._step.cancel)
            self._step = None

    def _begin(self) -> _Step[T]:
        step = self._step = self._step or _Step(self._items)
        self._bridge.post(step.begin)
        return step

    def __next__(self) -> T:
        step = self._begin()
        self._bridge.wait(step.future)
        self._step = None
        try:
            return step.future.result()
        except StopAsyncIteration:
            raise StopIteration from None


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
        return self._chat.cursor

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
            self._client = self._bridge.call(lambda: asynchronous.Client(*arguments, **options))
        except BaseException:
            self._bridge.close()
            raise
        self.conversations = Service(self._bridge, self._client.conversations)
        self.library = Service(self._bridge, self._client.library)
        self.coordinator = Service(self._bridge, self._client.coordinator)
        self.executor = Service(self._bridge, self._client.executor)
        self.memory = Service(self._bridge, self._client.memory)

    @property
    def target(self) -> str:
        return self._client.target

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection and end the thread."""
        try:
            self._bridge.run(self._client.close)
        finally:
            self._bridge.close()

    def create_conversation(self, **options: Any) -> str:
        return self._bridge.run(lambda: self._client.create_conversation(**options))

    def converse(self, conversation_id: str, **options: Any) -> Chat:
        make = partial(self._client.converse, conversation_id, **options)
        return Chat(self._bridge, self._bridge.call(make))

    def subscribe(self, conversation_id: str, **options: Any) -> Items[Item | v1.CaughtUp]:
        return Items(self._bridge, self._client.subscribe(conversation_id, **options))

    def watch_run(self, run_id: str, **options: Any) -> Items[RunItem]:
        return Items(self._bridge, self._client.watch_run(run_id, **options))

    def health(self, service: str = "", *, timeout: float | None = None) -> str:
        return self._bridge.run(lambda: self._client.health(service, timeout=timeout))
