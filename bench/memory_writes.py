"""Memory writes over gRPC: single writes by 64 writers, and batches; short, long, of a conversation.

Every answered write is on disk, with full text and vector. A memory of a conversation has a place in it, so
that the index entries of its neighbours change as well. Long memories are objects.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable

from client import Client
from measure import Effort, Load, Number, load
from servers import Server, wonder

from wonder.v1 import memory_pb2
from wonder.v1 import memory_service_pb2 as pb

AT_ONCE = 64
BATCH = 500
LEAST_SINGLE = 200
LEAST_BATCHED = 2_000

_CHANCE = random.Random(5)
_WORDS = ["".join(_CHANCE.choices("abdegiklmnoprstu", k=_CHANCE.randint(2, 9))) for _ in range(2000)]


def short(_place: int) -> memory_pb2.Memory:
    return memory_pb2.Memory(type="fact", content=" ".join(_CHANCE.choices(_WORDS, k=12)))


def message_text(place: int) -> memory_pb2.Memory:
    memory = short(place)
    memory.source.conversation_id, memory.source.ordinal, memory.source.speaker = "conv_1", place, "Anna"
    return memory


def long(_place: int) -> memory_pb2.Memory:
    return memory_pb2.Memory(type="fact", content=" ".join(_CHANCE.choices(_WORDS, k=1500)))


async def measure(effort: Effort) -> list[Number]:
    numbers: list[Number] = []
    with wonder() as server:
        async with Client(server.address) as client:
            for name, make, rounds, aim in (
                ("short", short, 5, LEAST_SINGLE),
                ("of 8 KB, objects", long, 1, None),
            ):
                singles = await _singles(server, client, name, make, effort.rounds * rounds)
                numbers += [
                    Number(name=f"single {name}, {AT_ONCE} at once", value=singles.per_second, unit="/s",
                           better="more", aim=aim),
                    Number(name=f"single {name}, p99", value=singles.p99_ms, unit="ms"),
                    Number(name=f"single {name}, server CPU", value=singles.cpu_ms, unit="ms"),
                ]  # fmt: skip
            for name, make in (("short", short), ("of a conversation", message_text)):
                batches = await _batches(server, client, name, make, effort.rounds)
                numbers += [
                    Number(name=f"batches of {BATCH}, {name}", value=batches.per_second * BATCH, unit="/s",
                           better="more", aim=LEAST_BATCHED),
                    Number(name=f"batches of {BATCH}, {name}, server CPU each", value=batches.cpu_ms / BATCH,
                           unit="ms"),
                ]  # fmt: skip
    return numbers


async def _singles(
    server: Server, client: Client, name: str, make: Callable[[int], memory_pb2.Memory], rounds: int
) -> Load:
    agent = await client.agent(f"single-{len(name)}")
    waiting = [pb.WriteMemoryRequest(agent_id=agent, memory=make(0)) for _ in range(AT_ONCE * (rounds + 2))]

    async def write(_worker: int) -> float:
        request, began = waiting.pop(), time.perf_counter()
        await client.memory.WriteMemory(request)
        return time.perf_counter() - began

    await load(server.pid, AT_ONCE, 2, write)
    return await load(server.pid, AT_ONCE, rounds, write)


async def _batches(
    server: Server, client: Client, name: str, make: Callable[[int], memory_pb2.Memory], rounds: int
) -> Load:
    agent = await client.agent(f"batch-{len(name)}")
    waiting = [
        pb.BatchWriteMemoriesRequest(
            agent_id=agent, memories=[make(number * BATCH + place + 1) for place in range(BATCH)]
        )
        for number in reversed(range(rounds + 1))
    ]

    async def write(_worker: int) -> float:
        request, began = waiting.pop(), time.perf_counter()
        await client.memory.BatchWriteMemories(request)
        return time.perf_counter() - began

    await load(server.pid, 1, 1, write)
    return await load(server.pid, 1, rounds, write)
