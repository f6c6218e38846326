"""A process that writes and deletes memories until it is killed: ``killed_memory.py FOLDER ROUNDS SEED``.

It is its own parent: it imports everything once, then starts one child after another. A child opens the
store, compares every search with the rows, then writes and deletes memories, with its vector indexes saved
repeatedly, until SIGKILL. The exit code is 0 if all searches agreed with the rows. The output is the number
of index files read.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
import sys
import time
from array import array
from pathlib import Path
from typing import Any

from wonder_server.adapters.faiss import index as index_module
from wonder_server.adapters.faiss import vectors as vectors_module
from wonder_server.adapters.faiss.vectors import FaissVectors
from wonder_server.adapters.in_memory.vectors import PlainVectors
from wonder_server.adapters.sqlite.memory.store import SqliteMemories
from wonder_server.core.errors import WonderError
from wonder_server.core.memory.queries import MemoryQuery
from wonder_server.core.memory.records import Draft, Filter, Memory
from wonder_server.ports.memories import Entry, StoredText

# Lists from 60 vectors on, all of them searched, rebuilt and saved often.
index_module.LARGE, index_module._LISTS, index_module._PROBED_LISTS = 60, 4, 4  # type: ignore[misc]
index_module._REBUILD_FACTOR, vectors_module._STALE_SHARE = 1, 0.0  # type: ignore[misc]
DIMENSIONS = 16
AGENTS = ("ada", "bob")
WORDS = [f"word{number}" for number in range(40)]


def unit(chance: random.Random) -> bytes:
    """Return a random unit vector. No two are alike, so the order of results is unique."""
    values = [chance.gauss(0, 1) for _ in range(DIMENSIONS)]
    length = sum(value * value for value in values) ** 0.5
    return array("f", [value / length for value in values]).tobytes()


async def check(store: SqliteMemories, vectors: FaissVectors, chance: random.Random) -> None:
    """Raise if vectors or full text disagree with the rows."""
    plain = PlainVectors(store, "e")
    for agent in AGENTS:
        held = {memory.id: memory for memory in await store.page(agent, Filter(), "", 100_000)}
        for _ in range(4):
            asked = unit(chance)
            expected = await plain.nearest(agent, asked, 10_000)
            found = await vectors.nearest(agent, asked, 10)
            # Compare scores, not keys: two may differ only in the last bit, which depends on the summation.
            scores = dict(expected)
            for (key, score), (_, best) in zip(found, expected[:10], strict=True):
                assert abs(score - best) < 1e-5 and abs(scores[key] - score) < 1e-5, "vectors"
            word = chance.choice(WORDS)
            hits = await store.recall(agent, MemoryQuery(word), {}, Filter(), 100_000)
            says = {id for id, memory in held.items() if word in memory.content.split()}
            assert {hit.id for hit in hits} == says, "full text"


async def child(folder: Path, seed: int, ready: int) -> None:
    chance = random.Random(seed)
    store = await SqliteMemories.open(folder / "memory.db")
    vectors = FaissVectors(store, "e", DIMENSIONS, folder=folder / "vectors", max_bytes=12_000)
    await check(store, vectors, chance)
    os.write(ready, b".")
    number = 0
    while True:
        agent = chance.choice(AGENTS)
        number += 1
        entries = []
        for place in range(chance.randint(1, 8)):
            content = " ".join(chance.choices(WORDS, k=chance.randint(1, 12)))
            own = (unit(chance),)
            entries.append(
                Entry(
                    id=f"mem_{seed:06}{number:08}{place}",
                    draft=Draft(type="t", content=content),
                    text=StoredText(content=content, vectors=own),
                )
            )
        for entry, stored in zip(entries, await store.add(agent, entries, "e", 1), strict=True):
            await vectors.add(agent, list(zip(stored.vector_keys, entry.text.vectors, strict=True)))
        await forget(store, vectors, agent, chance)
        if number % 7 == 0:
            await check(store, vectors, chance)


async def forget(store: SqliteMemories, vectors: FaissVectors, agent: str, chance: random.Random) -> None:
    there: list[Memory] = await store.page(agent, Filter(), "", 300)
    for memory in chance.sample(there, min(len(there), 6 if len(there) > 150 else 1)):
        try:
            gone: Any = await store.remove(agent, memory.id, None, 2)
        except WonderError:
            continue
        await vectors.remove(agent, gone.removed_keys)


def main() -> int:
    folder, rounds, seed = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    chance, files = random.Random(seed), 0
    index_module.libraries()
    for round_ in range(rounds):
        files += bool(list(folder.glob("vectors/*.index")))
        readable, writable = os.pipe()
        process = os.fork()
        if process == 0:
            os.close(readable)
            try:
                asyncio.run(child(folder, seed * 1_000 + round_, writable))
            except BaseException as failure:
                print(f"round {round_}: {failure!r}", file=sys.stderr, flush=True)
            os._exit(1)
        os.close(writable)
        ready = os.read(readable, 1)
        os.close(readable)
        if ready:
            time.sleep(chance.uniform(0.0, 0.4))
            os.kill(process, signal.SIGKILL)
        _, status = os.waitpid(process, 0)
        if not os.WIFSIGNALED(status):
            return 1
    print(files)
    return 0


if __name__ == "__main__":
    sys.exit(main())
