"""``python bench/memory_agents.py COUNT``: print the resident memory of a process, in bytes.

The process has searched each of COUNT agents, which have 1,000 memories each.
"""

from __future__ import annotations

import asyncio
import os
import sys
import tempfile
from pathlib import Path

from measure import rss_bytes
from memory_setup import MemorySetup, questions, sentences

EACH = 1_000


async def main(count: int) -> None:
    contents = sentences(EACH, 2_000)
    with tempfile.TemporaryDirectory(prefix="wonder-bench-") as folder:
        setup = await MemorySetup.open(Path(folder))
        vectors = await setup.embedder.embed(contents)
        for number in range(count):
            await setup.put(f"agt_{number:04}", contents, vectors)
        asked = questions(contents, 3)
        for number in range(count):
            for question in asked:
                if len(await setup.service.search(f"agt_{number:04}", question, limit=8)) != 8:
                    raise RuntimeError("hits are missing")
        print(rss_bytes(os.getpid()))
        await setup.close()


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1])))
