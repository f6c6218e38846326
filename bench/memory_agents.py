"""The resident memory of a process in which every one of COUNT agents, of 1,000 memories each, was searched:
``python bench/memory_agents.py COUNT`` prints it in bytes."""

from __future__ import annotations

import asyncio
import os
import sys
import tempfile
from pathlib import Path

from measure import rss_bytes
from memory_house import MemorySetup, questions, sentences

EACH = 1_000


async def main(count: int) -> None:
    contents = sentences(EACH, 2_000)
    with tempfile.TemporaryDirectory(prefix="wonder-bench-") as folder:
        house = await MemorySetup.open(Path(folder))
        vectors = await house.embedder.embed(contents)
        for number in range(count):
            await house.put(f"agt_{number:04}", contents, vectors)
        asked = questions(contents, 3)
        for number in range(count):
            for question in asked:
                if len(await house.service.search(f"agt_{number:04}", question, limit=8)) != 8:
                    raise RuntimeError("hits are missing")
        print(rss_bytes(os.getpid()))
        await house.close()


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1])))
