"""Lists: many readers of large pages, and pages out of many records.

60 concurrent readers of ListEvents: the memory of the server for them, and the latency of other calls.

Each reader asks for pages of 500, one after the other, of a conversation with many events or with large ones.
Beside them one client repeats GetConversation; the floor is the same client alone. The readers accept answers
of any size and do not decode them, so that their own work does not count.

Then ListRuns in a folder of 24,000 conversations with one turn each, which started 48,000 runs: without
filters, of one project, and with the runs that turns wait for. The floor is ListConversations in the same
folder.
"""

from __future__ import annotations

import asyncio
import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

from client import Client
from copies import copy_actors, open_shards, read_actors
from grpc import aio
from measure import Effort, Number, percentile
from servers import Server, wonder

from wonder.v1 import conversation_service_pb2 as pb
from wonder.v1 import coordinator_service_pb2 as coordinator_pb
from wonder_server.core.actor.changes import Emit
from wonder_server.core.conversation.model.values import Message, Role
from wonder_server.core.ids import shard_of
from wonder_server.ports.journal import Commit

READERS = 60
MB = 1 << 20
MOST_MB = 100.0
CONVERSATIONS, QUICK_CONVERSATIONS = 24_000, 2_000
MOST_MS = 10.0
SHAPES = {"20,000 events of 2 KB": (20_000, 2_000), "400 events of 200 KB": (400, 200_000)}
Request = TypeVar("Request")
_SERVICE = "/wonder.v1.ConversationService"
_BATCH_BYTES = 8 * MB


async def measure(effort: Effort) -> list[Number]:
    numbers: list[Number] = []
    for shape, (count, size) in SHAPES.items():
        with tempfile.TemporaryDirectory() as parent:
            folder = Path(parent) / "data"
            with wonder(folder=folder) as server:
                async with Client(server.address) as client:
                    conversation_id = await client.conversation(await client.agent("speaker"))
            await _fill(folder, conversation_id, count, size)
            with wonder(folder=folder) as server:
                numbers += await _read(server, conversation_id, shape, effort.seconds)
    return numbers + await _many_runs(QUICK_CONVERSATIONS if effort.quick else CONVERSATIONS, effort.rounds)


# --- many runs --------------------------------------------------------------------------------------


async def _many_runs(count: int, rounds: int) -> list[Number]:
    with tempfile.TemporaryDirectory(prefix="wonder-bench-") as name:
        folder = Path(name)
        with wonder(folder=folder) as server:
            async with Client(server.address) as client:
                conversation_id = await client.conversation(await client.agent("speaker"))
                async with client.chat(conversation_id) as chat:
                    await chat.turn("say 10 words")
                started = await client.coordinators[0].ListRuns(
                    coordinator_pb.ListRunsRequest(conversation_id=conversation_id)
                )
        hooks = [run.id for run in started.runs]
        async with open_shards(folder) as shards:
            await copy_actors(shards, await read_actors(shards, [conversation_id]), count - 1)
            await copy_actors(shards, await read_actors(shards, hooks), count - 1, compact=True)
        with wonder(folder=folder) as server:
            async with Client(server.address) as client:
                return await _time_lists(client, count * len(hooks), rounds)


async def _time_lists(client: Client, runs: int, rounds: int) -> list[Number]:
    conversations, coordinator = client.conversations[0], client.coordinators[0]

    async def page(ask: Callable[[Request], Awaitable[object]], request: Request) -> float:
        took = []
        for _ in range(rounds):
            began = time.perf_counter()
            await ask(request)
            took.append((time.perf_counter() - began) * 1000)
        return statistics.median(took)

    project = (await conversations.ListConversations(pb.ListConversationsRequest(page_size=1))).conversations
    floor = await page(conversations.ListConversations, pb.ListConversationsRequest())
    lists = {
        "": coordinator_pb.ListRunsRequest(),
        " of one project": coordinator_pb.ListRunsRequest(project_id=project[0].project_id),
        " with those of turns": coordinator_pb.ListRunsRequest(include_children=True),
    }
    return [
        Number(name=f"ListRuns{which}, {runs:,} runs", value=await page(coordinator.ListRuns, asked),
               unit="ms", floor=floor, floor_is="ListConversations", aim=MOST_MS if not which else None,
               aim_is="value")
        for which, asked in lists.items()
    ]  # fmt: skip


# --- many readers -----------------------------------------------------------------------------------


async def _fill(folder: Path, conversation_id: str, count: int, size: int) -> None:
    async with open_shards(folder) as shards:
        journal = shards.of(conversation_id)
        # A server has written to this folder before, and the store refuses commits of earlier epochs.
        (epoch,) = (await shards.raise_epochs([shard_of(conversation_id)])).values()
        loaded = await journal.load(conversation_id)
        assert loaded is not None
        head, each = loaded.event_head, max(1, _BATCH_BYTES // size)
        for start in range(0, count, each):
            commit = Commit(
                conversation_id,
                entry_head=loaded.entry_head,
                event_head=head,
                root=conversation_id,
                epoch=epoch,
            )
            for number in range(start, min(start + each, count)):
                message = Message(
                    id=f"msg_{number}", conversation_id=conversation_id, turn_id="turn_0", ordinal=number,
                    role=Role.USER, author="mia", content="word " * (size // 5), created_ms=1,
                )  # fmt: skip
                commit.add([Emit("message.appended", message)], 1)
            head = commit.event_head
            await journal.commit([commit])


async def _read(server: Server, conversation_id: str, shape: str, seconds: float) -> list[Number]:
    options = [("grpc.max_receive_message_length", -1), ("grpc.use_local_subchannel_pool", 1)]
    async with aio.insecure_channel(server.address, options) as channel:
        await _asking(channel, conversation_id, 0.5)
        quiet = await _asking(channel, conversation_id, seconds)
        before, peak = server.rss, [server.rss]
        watching = asyncio.create_task(_watch(server, peak))
        pages = [0]
        channels = [aio.insecure_channel(server.address, options) for _ in range(READERS)]
        readers = [asyncio.create_task(_page(each, conversation_id, pages)) for each in channels]
        busy = await _asking(channel, conversation_id, seconds)
        for task in (*readers, watching):
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task
        for each in channels:
            await each.close()
    floor = {"floor": percentile(quiet, 0.99) * 1000, "floor_is": "without readers"}
    return [
        Number(name=f"{shape}: memory for {READERS} readers", value=(max(peak) - before) / MB, unit="MB",
               aim=MOST_MB, aim_is="value"),
        Number(name=f"{shape}: another call p99", value=percentile(busy, 0.99) * 1000, unit="ms", **floor),
        Number(name=f"{shape}: another call at most", value=max(busy) * 1000, unit="ms",
               floor=max(quiet) * 1000, floor_is="without readers"),
        Number(name=f"{shape}: pages", value=pages[0] / seconds, unit="/s"),
    ]  # fmt: skip


async def _page(channel: aio.Channel, conversation_id: str, pages: list[int]) -> None:
    """Read page after page. Start again after the last."""
    ask = channel.unary_unary(f"{_SERVICE}/ListEvents")
    token = ""
    while True:
        request = pb.ListEventsRequest(conversation_id=conversation_id, page_size=500, page_token=token)
        answer: bytes = await ask(request.SerializeToString())
        pages[0] += 1
        token = _token(answer)


def _token(answer: bytes) -> str:
    """Return the token of the next page. It is the last field: a tag, a length and ASCII text."""
    at = answer.rfind(b"\x12", max(0, len(answer) - 120))
    tail = answer[at + 2 :] if at >= 0 and answer[at + 1] == len(answer) - at - 2 else b""
    return tail.decode("ascii", "replace")


async def _asking(channel: aio.Channel, conversation_id: str, seconds: float) -> list[float]:
    """Return the seconds of each call of another client."""
    ask = channel.unary_unary(f"{_SERVICE}/GetConversation")
    request = pb.GetConversationRequest(conversation_id=conversation_id).SerializeToString()
    took: list[float] = []
    until = time.perf_counter() + seconds
    while (began := time.perf_counter()) < until:
        await ask(request)
        took.append(time.perf_counter() - began)
        await asyncio.sleep(0.005)
    return took


async def _watch(server: Server, peak: list[int]) -> None:
    while True:
        peak.append(server.rss)
        await asyncio.sleep(0.02)
