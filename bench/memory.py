"""Memory search: SearchMemories over the 1,000 memories of one agent, beside FAISS alone.

What lies between the two is gRPC, embedding the query, the full-text search and reading the records;
a unary call to a bare server and the embedding are shown apart.
"""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Callable

import faiss
import numpy
from client import Bare, Client
from google.protobuf import json_format
from measure import Effort, Load, Number, load
from servers import bare, wonder

from wonder.v1 import memory_service_pb2 as memory_pb
from wonder_server.adapters.embedders.hashing import HashingEmbedder

MEMORIES = 1000
LIMIT = 8
WORDS = 2000
"""Words that the memories are made of, the second half as often as the first, and so on (Zipf's law)."""
MOST_OVER_EMBEDDING_MS = 1.0


def contents() -> list[str]:
    """Sentences of twelve words, the same in every run."""
    chance = random.Random(7)
    words = ["".join(chance.choices("abdegiklmnoprstu", k=chance.randint(2, 9))) for _ in range(WORDS)]
    frequencies = [1 / rank for rank in range(1, WORDS + 1)]
    return [" ".join(chance.choices(words, frequencies, k=12)) for _ in range(MEMORIES)]


CONTENTS = contents()
QUERY = " ".join(CONTENTS[417].split()[2:9])
"""Seven words in a row of one of them."""


async def measure(effort: Effort) -> list[Number]:
    ours = await _search(effort.rounds * 20)
    unary = await _unary(effort.rounds * 20)
    embedding = await _embedding_ms()
    flat = await _flat_ms()
    return [
        Number(name="search p50, over gRPC", value=ours.p50_ms, unit="ms",
               floor=flat, floor_is="FAISS flat, alone"),
        Number(name="search p99, over gRPC", value=ours.p99_ms, unit="ms"),
        Number(name="embedding of the query", value=embedding, unit="ms"),
        Number(name="unary call p50, bare grpc.aio", value=unary.p50_ms, unit="ms"),
        Number(name="search p50 without its embedding", value=ours.p50_ms - embedding, unit="ms",
               aim=MOST_OVER_EMBEDDING_MS),
        Number(name="server CPU per search", value=ours.cpu_ms, unit="ms",
               floor=unary.cpu_ms, floor_is="bare unary call"),
    ]  # fmt: skip


async def _search(rounds: int) -> Load:
    with wonder() as server:
        async with Client(server.address) as client:
            agent = await client.agent("rememberer")
            for start in range(0, MEMORIES, 500):
                some = [{"type": "fact", "content": text} for text in CONTENTS[start : start + 500]]
                await client.memory.BatchWriteMemories(
                    json_format.ParseDict(
                        {"agent_id": agent, "memories": some}, memory_pb.BatchWriteMemoriesRequest()
                    )
                )
            request = memory_pb.SearchMemoriesRequest(agent_id=agent, query=QUERY, limit=LIMIT)

            async def search(_worker: int) -> float:
                began = time.perf_counter()
                found = await client.memory.SearchMemories(request)
                if len(found.hits) != LIMIT:
                    raise RuntimeError(f"{len(found.hits)} hits")
                return time.perf_counter() - began

            await load(server.pid, 1, 10, search)
            return await load(server.pid, 1, rounds, search)


async def _unary(rounds: int) -> Load:
    with bare() as server:
        async with Bare(server.address) as client:
            await client.unary(100)
            return await load(server.pid, 1, rounds, lambda _: client.unary(100))


async def _embedding_ms() -> float:
    embedder = HashingEmbedder()
    times = []
    for _ in range(200):
        began = time.perf_counter()
        await embedder.embed([QUERY])
        times.append(time.perf_counter() - began)
    return statistics.median(times) * 1000


async def _flat_ms() -> float:
    embedder = HashingEmbedder()

    def matrix(vectors: list[bytes]) -> numpy.ndarray:
        return numpy.frombuffer(b"".join(vectors), dtype="<f4").reshape(len(vectors), embedder.dimensions)

    faiss.omp_set_num_threads(1)
    index = faiss.IndexFlatIP(embedder.dimensions)
    index.add(matrix(await embedder.embed(CONTENTS)))
    query = matrix(await embedder.embed([QUERY]))
    return _median_ms(lambda: index.search(query, LIMIT))


def _median_ms(work: Callable[[], object]) -> float:
    times = []
    for _ in range(200):
        began = time.perf_counter()
        work()
        times.append(time.perf_counter() - began)
    return statistics.median(times) * 1000
