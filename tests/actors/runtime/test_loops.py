"""Loops of several shards: epochs, shards that come and go, and what callers and readers learn of it."""

from __future__ import annotations

import asyncio

import pytest

from tests.actors.kit import LIMITS, FakeClock, TestJournal, error_reason, run_ready_tasks
from tests.core.conversation.conversation_kit import new_conversation, send
from wonder_server.actors.directory import Directory
from wonder_server.actors.runtime.loop import LoopPorts
from wonder_server.actors.streaming.attachment import StreamSource, attach
from wonder_server.actors.streaming.hub import StreamHub
from wonder_server.actors.streaming.items import Closed
from wonder_server.adapters.in_memory.journal import MemoryJournal, MemoryShards
from wonder_server.adapters.placement.local import LocalPlacement
from wonder_server.core.actor.commands import Command, Stop
from wonder_server.core.conversation.planner import CONVERSATION
from wonder_server.core.coordinator.planner import RUN
from wonder_server.core.errors import Reason, WonderError
from wonder_server.core.ids import shard_of
from wonder_server.ports.placement import Owner, PlacementListener

HERE, THERE = "conv_01HF7YAT0000000000000000A0", "conv_01HF7YAT0000000000000000AZ"


class MovingPlacement:
    """A placement under the control of the test, over the epochs of one store."""

    def __init__(self, store: MemoryJournal) -> None:
        self._store = store
        self.held_epochs: dict[int, int] = {}
        self.surrendered: list[tuple[int, int]] = []
        self._listeners: list[PlacementListener] = []

    async def gain(self, *shards: int) -> None:
        raised = await self._store.raise_epochs(shards)
        self.held_epochs |= raised
        for shard, epoch in raised.items():
            for listener in self._listeners:
                listener.gained(shard, epoch)

    def lose(self, shard: int) -> None:
        self.held_epochs.pop(shard, None)
        for listener in self._listeners:
            listener.lost(shard)

    def owner(self, shard: int) -> Owner:
        return Owner("test", self.held_epochs[shard]) if shard in self.held_epochs else Owner("", 0)

    def held(self) -> dict[int, int]:
        return dict(self.held_epochs)

    def watch(self, listener: PlacementListener) -> None:
        self._listeners.append(listener)

    def surrender(self, shard: int, epoch: int) -> None:
        self.surrendered.append((shard, epoch))


class Node:
    """One process: a directory with its loops, over a store that nodes share."""

    def __init__(self, store: TestJournal, placement: MovingPlacement) -> None:
        self.store, self.placement = store, placement
        self.streams = StreamHub(1000, 1 << 20)
        self.commands: list[Command] = []
        self.directory = Directory(self.streams, MemoryShards(store))
        self.loops = self.directory.start_loops(
            (CONVERSATION, RUN),
            LoopPorts(
                journal_of=lambda _: store,
                clock=FakeClock(),
                dispatch=lambda _, command: self.commands.append(command),
                publish=self.streams.publish,
                on_stale=placement.surrender,
                on_left=self.streams.leave,
            ),
            LIMITS,
            placement,
        )


async def two_nodes() -> tuple[TestJournal, Node, Node]:
    """Return a store and two nodes. The first owns both shards of the tests."""
    store = TestJournal()
    first, second = Node(store, MovingPlacement(store)), Node(store, MovingPlacement(store))
    await first.placement.gain(shard_of(HERE), shard_of(THERE))
    await run_ready_tasks()
    return store, first, second


async def test_every_entry_keeps_the_epoch_of_its_owner() -> None:
    store, first, second = await two_nodes()
    await first.directory.ask(HERE, new_conversation(HERE))
    await first.directory.ask(HERE, send("one"))
    first.placement.lose(shard_of(HERE))
    await second.placement.gain(shard_of(HERE))
    await run_ready_tasks()
    await second.directory.ask(HERE, send("two"))
    assert store.actors[HERE].epochs == [1, 1, 2, 2], "the next owner repeats the pending operation"
    assert second.directory.owns(HERE)
    assert not first.directory.owns(HERE) and first.directory.owns(THERE)


async def test_a_shard_that_is_not_here_is_answered_with_owner_moved() -> None:
    _, _, second = await two_nodes()
    with pytest.raises(WonderError) as refused:
        await second.directory.ask(HERE, new_conversation(HERE))
    fault = refused.value.fault
    assert (fault.reason, fault.transient, fault.metadata) == (Reason.OWNER_MOVED, True, {"shard": "0"})
    second.directory.tell(HERE, send("lost"))
    assert second.loops.actor_count == 0


async def test_readers_attach_only_where_their_shard_is() -> None:
    """A reader that waits at a node which gains the shard later would miss the events in between."""
    _, first, second = await two_nodes()
    await first.directory.ask(HERE, new_conversation(HERE))
    attached = await first.directory.attach(HERE, after=0)
    assert attached is not None
    attached.close()
    with pytest.raises(WonderError) as refused:
        await second.directory.attach(HERE, after=0)
    assert refused.value.fault.reason is Reason.OWNER_MOVED
    assert not second.streams.count


async def test_a_stale_commit_ends_the_loop_of_its_shard_alone() -> None:
    store, first, second = await two_nodes()
    for actor in (HERE, THERE):
        await first.directory.ask(actor, new_conversation(actor))
    store.hold()
    late = asyncio.ensure_future(first.directory.ask(HERE, send("late")))
    await run_ready_tasks()
    waiting = asyncio.ensure_future(first.directory.ask(HERE, send("waiting")))
    await run_ready_tasks()
    await second.placement.gain(shard_of(HERE))  # The first does not learn of it.
    store.release()
    assert await error_reason(late) is await error_reason(waiting) is Reason.OWNER_MOVED
    assert first.placement.surrendered == [(shard_of(HERE), 1)]
    await run_ready_tasks()
    assert first.loops.peek(HERE) is None and first.loops.peek(THERE) is not None
    loads = store.loads
    await run_ready_tasks()
    assert store.loads == loads, "nothing is loaded again"
    await first.directory.ask(THERE, send("other"))
    await second.directory.ask(HERE, send("new"))
    assert store.actors[HERE].epochs == [1, 2]


async def test_the_next_owner_resumes_the_work_and_the_last_one_stops_it() -> None:
    _, first, second = await two_nodes()
    await first.directory.ask(HERE, new_conversation(HERE))
    await first.directory.ask(HERE, send("one"))
    begun = [command for command in first.commands if not isinstance(command, Stop)]
    first.placement.lose(shard_of(HERE))
    stopped = [command.operation_id for command in first.commands if isinstance(command, Stop)]
    assert stopped == [command.operation_id for command in begun]
    await second.placement.gain(shard_of(HERE))
    await run_ready_tasks()
    assert [command.operation_id for command in second.commands] == stopped
    assert not first.loops.timer_count and first.loops.is_idle


async def test_a_commit_that_succeeded_is_answered_although_the_shard_has_gone() -> None:
    store, first, _ = await two_nodes()
    store.hold()
    asked = asyncio.ensure_future(first.directory.ask(HERE, new_conversation(HERE)))
    await run_ready_tasks()
    first.placement.lose(shard_of(HERE))
    store.release()
    assert (await asked).decisions
    await run_ready_tasks()
    assert first.loops.peek(HERE) is None and not first.loops.actor_count


async def test_a_shard_lost_while_its_actors_are_read_is_not_taken_over() -> None:
    _, _, second = await two_nodes()
    await second.placement.gain(shard_of(HERE))
    second.placement.lose(shard_of(HERE))
    await run_ready_tasks()
    with pytest.raises(WonderError):
        await second.directory.ask(HERE, new_conversation(HERE))


async def test_readers_of_a_shard_that_moves_end_with_their_cursor() -> None:
    store, first, second = await two_nodes()
    for actor in (HERE, THERE):
        await first.directory.ask(actor, new_conversation(actor))
    shards = MemoryShards(store)

    def source(node: Node, actor: str) -> StreamSource:
        return StreamSource(actor, store, shards, node.streams)

    moved, stays = [await attach(source(first, actor), after=0) for actor in (HERE, THERE)]
    assert moved is not None and stays is not None
    await moved.take(), await moved.take()
    end = first.streams.wait_for_end("run_01HF7YAT0000000000000000A0")
    first.placement.lose(shard_of(HERE))
    assert list(await moved.take()) == [Closed("moved")] and end.result() is None
    assert not stays.subscription.closed
    await second.placement.gain(shard_of(HERE))
    await run_ready_tasks()
    await second.directory.ask(HERE, send("more"))
    again = await attach(source(second, HERE), after=moved.sequence)
    assert again is not None
    assert next(event.sequence for event in await again.take()) == moved.sequence + 1
    for attachment in (moved, stays, again):
        attachment.close()


async def test_the_local_placement_owns_everything_and_raises_each_epoch_at_each_start() -> None:
    store = MemoryJournal()
    lost: list[int] = []

    class Listener:
        def gained(self, shard: int, epoch: int) -> None:
            raise AssertionError

        def lost(self, shard: int) -> None:
            lost.append(shard)

    for start in (1, 2):
        placement = await LocalPlacement.open(store)
        assert placement.held() == dict.fromkeys(range(32), start)
    placement.watch(Listener())
    placement.surrender(5, 1)
    assert placement.owner(5) == Owner("local", 2) and not lost
    placement.surrender(5, 2)
    assert placement.owner(5) == Owner("", 0) and lost == [5]
