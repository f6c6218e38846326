"""The synchronous client."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from concurrent.futures import Future

import pytest

from tests.sdk.fake_server import CONVERSATION, TURN, FakeConversation, completed, serving
from wonder_sdk import ReconnectPolicy, TextDelta, UnimplementedError, sync, v1

NO_BACKOFF = ReconnectPolicy(initial_ms=0, max_ms=0, timeout_ms=600_000)


@pytest.fixture
def fake() -> FakeConversation:
    return FakeConversation()


@pytest.fixture
def address(fake: FakeConversation) -> Iterator[str]:
    """Serve the fake from an event loop in another thread, as another process would."""
    ready: list[str] = []
    started, loop = threading.Event(), asyncio.new_event_loop()
    stop = asyncio.Event()

    async def serve() -> None:
        async with serving(fake) as at:
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


def test_a_conversation_with_the_sync_client(fake: FakeConversation, address: str) -> None:
    fake.hang_up_after, fake.together = [9], 3
    with sync.Client(address, reconnect=NO_BACKOFF) as client:
        assert client.create_conversation(agent="assistant") == CONVERSATION
        with client.converse(CONVERSATION) as chat:
            reply = chat.send("What is my cat called?")
            words = "".join(item.text for item in reply if isinstance(item, TextDelta))

            assert words.startswith("Let me look") and words.endswith("Mia.")
            assert reply.turn_id == reply.started() == TURN
            assert reply.turn is not None
            assert chat.conversation.participants[0].agent is not None
        assert client.health() == "SERVING"
        assert client.health("wonder.v1.LibraryService") == "SERVING"


def test_events_are_iterated_beside_a_reply(address: str) -> None:
    with sync.Client(address, reconnect=NO_BACKOFF) as client, client.converse(CONVERSATION) as chat:
        events = chat.events()
        assert chat.send("Hello").text().endswith("Mia.")
        sequences = []
        for item in events:
            if isinstance(item, v1.Event):
                sequences.append(item.sequence)
                if item.sequence == 10:
                    break
    assert sequences == list(range(1, 11))


def test_calls_raise_errors_and_streams_are_iterators(fake: FakeConversation, address: str) -> None:
    fake.started = ["elsewhere"]
    with sync.Client(address, reconnect=NO_BACKOFF) as client:
        with pytest.raises(UnimplementedError):
            client.library.get_agent(v1.GetAgentRequest(agent_id="assistant"))
        first = next(iter(client.subscribe(CONVERSATION)))
        raw = client.conversations.subscribe(
            v1.SubscribeRequest(attach=v1.ConverseAttach(conversation_id=CONVERSATION))
        )
        attached = next(raw)
        raw_rest = next(raw)

    assert isinstance(first, v1.Event) and first.sequence == 1
    assert attached.attached is not None
    assert raw_rest.event is not None


def test_an_interrupted_wait_loses_nothing(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with sync.Client(address, reconnect=NO_BACKOFF) as client, client.converse(CONVERSATION) as chat:
        reply = chat.send("Hello")
        wait, calls = sync.LoopThread.wait, []

        def interrupted(bridge: sync.LoopThread, future: Future[object]) -> None:
            calls.append(future)
            if len(calls) % 2:
                raise KeyboardInterrupt
            wait(bridge, future)

        monkeypatch.setattr(sync.LoopThread, "wait", interrupted)
        items, interrupts = [], 0
        while reply.turn is None:
            try:
                for item in reply:
                    items.append(item)
            except KeyboardInterrupt:
                interrupts += 1
        monkeypatch.undo()
        items += list(reply)

    assert len(items) == 15
    assert interrupts > 10


def test_closing_the_client_ends_the_thread(address: str) -> None:
    with sync.Client(address) as client:
        assert client.target == address
        client.health()
    assert not [each for each in threading.enumerate() if each.name == "wonder sdk"]


def test_an_abandoned_step_is_cancelled_and_a_later_loop_works(fake: FakeConversation, address: str) -> None:
    fake.script = fake.script[:1]
    with sync.Client(address, reconnect=NO_BACKOFF) as client, client.converse(CONVERSATION) as chat:
        reply = chat.send("Hello")
        assert isinstance(next(reply), v1.Event)
        step = reply._begin()
        assert not reply.ready(within=0)
        reply.close()
        client._loop_thread.wait(step.future)
        assert step.future.cancelled()

        fake.script.append(completed(3))
        chat.cancel(TURN)
        assert [item.sequence for item in reply if isinstance(item, v1.Event)] == [3]
