"""A client that sends as much as it can until it is killed: ``flood.py ADDRESS KIND COUNT``.

The file COUNT has one byte for each answered call.
"""

from __future__ import annotations

import asyncio
import itertools
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

from client import LIBRARY, Client

from wonder.v1 import memory_pb2
from wonder.v1 import memory_service_pb2 as memory_pb

AT_ONCE = {"runs": 5_000, "long runs": 1_000, "memories": 500, "batches": 8}
WORDS = (
    "tea",
    "green",
    "likes",
    "Tuesday",
    "harbour",
    "letter",
    "quiet",
    "seven",
    "window",
    "road",
    "sister",
)
AGENT = "flooded"


def text(number: int) -> str:
    """Return twelve words that depend on the number."""
    return " ".join(f"{WORDS[number // step % len(WORDS)]}{number % 97}" for step in range(1, 13))


async def main(address: str, kind: str, count: Path) -> None:
    numbers = itertools.count()
    async with Client(address) as client:
        answers = count.open("ab", buffering=0)

        async def runs(index: int) -> None:
            await client.run(f"{LIBRARY}/one_step", index)

        async def long_runs(index: int) -> None:
            await client.run(f"{LIBRARY}/ten_nodes", index)

        def fact() -> memory_pb2.Memory:
            return memory_pb2.Memory(type="fact", content=text(next(numbers)))

        async def memories(_index: int) -> None:
            await client.memory.WriteMemory(memory_pb.WriteMemoryRequest(agent_id=AGENT, memory=fact()))

        async def batches(_index: int) -> None:
            many = [fact() for _ in range(1_000)]
            await client.memory.BatchWriteMemories(
                memory_pb.BatchWriteMemoriesRequest(agent_id=AGENT, memories=many)
            )

        acts: dict[str, Callable[[int], Awaitable[None]]] = {
            "runs": runs, "long runs": long_runs, "memories": memories, "batches": batches,
        }  # fmt: skip

        async def worker(index: int) -> None:
            while True:
                await acts[kind](index)
                answers.write(b".")

        async with asyncio.TaskGroup() as group:
            for index in range(AT_ONCE[kind]):
                group.create_task(worker(index))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], Path(sys.argv[3])))
