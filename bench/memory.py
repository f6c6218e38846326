"""Search of memories, beside raw FAISS and FTS5 on the same texts.

- over gRPC among 1,000 memories of one agent
- in the process among 1,000 and 100,000 memories
- the first search after a restart
- the resident memory of a thousand agents

The cost of a search above its embedding is that of the memory service: FAISS, the postings of full text, the
merge of both, and the read of the records. ``make bench-memory`` measures the quality of the results.
"""

from __future__ import annotations

import asyncio
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

import faiss
import numpy
from client import Bare, Client
from google.protobuf import json_format
from measure import Effort, Number, load
from memory_setup import MemorySetup, full_text, full_text_search, questions, sentences
from servers import bare, wonder

from wonder.v1 import memory_service_pb2 as memory_pb
from wonder_server.adapters.embedders.hashing import HashingEmbedder

SMALL, LARGE, LARGE_QUICK = 1_000, 100_000, 25_000
SMALL_WORDS, LARGE_WORDS = 2_000, 30_000
AGENTS, AGENTS_QUICK = 1_000, 10
LIMIT = 8
MOST_SMALL_MS, MOST_LARGE_MS = 1.0, 5.0
MOST_RESTART_S = 2.0
MOST_MEGABYTES = 3 * 1024


async def measure(effort: Effort) -> list[Number]:
    return [
        *await _over_grpc(effort.rounds * 20),
        *await _within(SMALL, SMALL_WORDS, MOST_SMALL_MS, effort),
        *await _within(LARGE_QUICK if effort.quick else LARGE, LARGE_WORDS, MOST_LARGE_MS, effort),
        await _agents(AGENTS_QUICK if effort.quick else AGENTS),
    ]


async def _over_grpc(rounds: int) -> list[Number]:
    contents = sentences(SMALL, SMALL_WORDS)
    asked = questions(contents, 100)
    with wonder() as server:
        async with Client(server.address) as client:
            agent = await client.agent("rememberer")
            await _write(client, agent, contents)
            searches = [
                memory_pb.SearchMemoriesRequest(agent_id=agent, query=each, limit=LIMIT) for each in asked
            ]
            turn = 0

            async def search(_worker: int) -> float:
                nonlocal turn
                turn += 1
                began = time.perf_counter()
                found = await client.memory.SearchMemories(searches[turn % len(searches)])
                if len(found.hits) != LIMIT:
                    raise RuntimeError(f"{len(found.hits)} hits")
                return time.perf_counter() - began

            await load(server.pid, 1, len(searches), search)
            ours = await load(server.pid, 1, rounds, search)
    with bare() as server:
        async with Bare(server.address) as floor:
            unary = await load(server.pid, 1, rounds, lambda _: floor.unary(100))
    return [
        Number(name="search among 1,000, p50, over gRPC", value=ours.p50_ms, unit="ms",
               floor=unary.p50_ms, floor_is="bare unary call"),
        Number(name="the same, p99", value=ours.p99_ms, unit="ms",
               floor=unary.p99_ms, floor_is="bare unary call"),
        Number(name="server CPU per search", value=ours.cpu_ms, unit="ms",
               floor=unary.cpu_ms, floor_is="bare unary call"),
    ]  # fmt: skip


async def _write(client: Client, agent: str, contents: Sequence[str]) -> None:
    for start in range(0, len(contents), 500):
        some = [{"type": "fact", "content": text} for text in contents[start : start + 500]]
        await client.memory.BatchWriteMemories(
            json_format.ParseDict(
                {"agent_id": agent, "memories": some}, memory_pb.BatchWriteMemoriesRequest()
            )
        )


async def _within(count: int, words: int, most_ms: float, effort: Effort) -> list[Number]:
    """Measure the memory service in this process without gRPC, and FAISS and FTS5 on the same texts."""
    contents = sentences(count, words)
    asked = questions(contents, effort.rounds * 10)
    with tempfile.TemporaryDirectory(prefix="wonder-bench-") as folder:
        setup = await MemorySetup.open(Path(folder))
        await setup.write("agt_1", contents)
        await setup.service.search("agt_1", asked[0], limit=LIMIT)
        await setup.vectors.wait_until_idle()
        # The first search of a word reads its postings. Later searches are measured.
        await _median_ms(asked, lambda each: setup.service.search("agt_1", each, limit=LIMIT))
        ours = await _median_ms(asked, lambda each: setup.service.search("agt_1", each, limit=LIMIT))
        embedding = await _median_ms(asked, lambda each: setup.embedder.embed([each]))
        await setup.close()
        began = time.perf_counter()
        setup = await MemorySetup.open(Path(folder))
        await setup.service.search("agt_1", asked[0], limit=LIMIT)
        restart = time.perf_counter() - began
        await setup.close()
    flat, text = await _floors(contents, asked)
    label = f"among {count:,}"
    return [
        Number(name=f"search {label}, p50, above embedding", value=ours - embedding, unit="ms",
               floor=flat, floor_is="FAISS flat, alone", aim=most_ms, aim_is="value"),
        Number(name="  and beside", value=ours - embedding, unit="ms", floor=text,
               floor_is="FTS5, alone"),
        Number(name="  embedding of the query", value=embedding, unit="ms"),
        Number(name=f"opened again, first search {label}", value=restart, unit="s", aim=MOST_RESTART_S),
    ]  # fmt: skip


async def _floors(contents: Sequence[str], asked: Sequence[str]) -> tuple[float, float]:
    """Return the p50 of a search of a flat FAISS index and of an FTS5 table, in milliseconds."""
    embedder = HashingEmbedder()

    def matrix(vectors: Sequence[bytes]) -> numpy.ndarray:
        return numpy.frombuffer(b"".join(vectors), dtype="<f4").reshape(len(vectors), embedder.dimensions)

    faiss.omp_set_num_threads(1)
    index = faiss.IndexFlatIP(embedder.dimensions)
    for start in range(0, len(contents), 5_000):
        index.add(matrix(await embedder.embed(contents[start : start + 5_000])))
    vectors = dict(zip(asked, await embedder.embed(asked), strict=True))

    async def flat(question: str) -> None:
        index.search(matrix([vectors[question]]), LIMIT)

    connection = full_text(contents)

    async def text(question: str) -> None:
        full_text_search(connection, question, LIMIT)

    few = asked[:40]
    floors = await _median_ms(few, flat), await _median_ms(few, text)
    connection.close()
    return floors


async def _agents(count: int) -> Number:
    """Measure in a separate process, since this one has allocated memory."""
    script = Path(__file__).parent / "memory_agents.py"
    done = await asyncio.to_thread(
        subprocess.run, [sys.executable, str(script), str(count)], check=True, capture_output=True, text=True
    )
    megabytes = int(done.stdout.split()[-1]) / 2**20
    name = f"memory, {count:,} agents of 1,000, all searched"
    return Number(name=name, value=megabytes, unit="MB", aim=MOST_MEGABYTES)


async def _median_ms(asked: Sequence[str], work: Callable[[str], Awaitable[object]]) -> float:
    times = []
    for each in asked:
        began = time.perf_counter()
        await work(each)
        times.append(time.perf_counter() - began)
    return statistics.median(times) * 1000
