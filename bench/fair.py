"""A turn of one client while another client floods the server, beside the same turn on the quiet server.

The flood comes from a separate process, which sends the next call after each answer. There are four floods:
5,000 concurrent runs, 1,000 concurrent runs of ten nodes, 500 concurrent memories, and 8 concurrent batches
of 1,000 memories. The floor is the quiet server, in the same run. A turn may take three times the quiet time
plus 200 ms.
"""

from __future__ import annotations

import asyncio
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from client import Chat, Client
from flood import AGENT, AT_ONCE
from measure import Effort, Number, percentile
from runs import DEFINITIONS
from servers import wonder

TEXT = "say 20 words"
SHARE = 0.95
TIMES = 3.0
MORE_MS = 200.0
"""Goal for a turn beside a flood: a multiple of its quiet time, and a number of milliseconds."""


async def measure(effort: Effort) -> list[Number]:
    turns = max(effort.rounds * 2, 20)
    numbers: list[Number] = []
    for kind in AT_ONCE:
        with wonder() as server:
            async with Client(server.address) as client:
                await client.apply(DEFINITIONS)
                await client.agent(AGENT)
                conversation = await client.conversation(await client.agent("speaker"))
                async with client.chat(conversation) as chat:
                    await _turns(chat, 5)
                    quiet = await _turns(chat, turns)
                    with _flood(server.address, kind) as count:
                        while not _answers(count):  # noqa: ASYNC110
                            await asyncio.sleep(0.05)
                        began, before = time.perf_counter(), _answers(count)
                        flooded = await _turns(chat, turns)
                        rate = (_answers(count) - before) / (time.perf_counter() - began)
        numbers += _numbers(kind, quiet, flooded)
        numbers.append(Number(name=f"{kind}: calls of the flood", value=rate, unit="/s"))
    return numbers


def _numbers(kind: str, quiet: list[tuple[float, float]], flooded: list[tuple[float, float]]) -> list[Number]:
    found = []
    for place, part in enumerate(("first token", "turn")):
        floors = [each[place] * 1000 for each in quiet]
        values = [each[place] * 1000 for each in flooded]
        for name, floor, value in (
            ("p50", statistics.median(floors), statistics.median(values)),
            (f"p{SHARE * 100:.0f}", percentile(floors, SHARE), percentile(values, SHARE)),
        ):
            most = TIMES * floor + MORE_MS
            found.append(
                Number(name=f"{kind}: {part} {name}", value=value, unit="ms", floor=floor, floor_is="quiet",
                       aim=most, aim_is="value")
            )  # fmt: skip
    return found


async def _turns(chat: Chat, count: int) -> list[tuple[float, float]]:
    """Run turns one after the other. Return the seconds to the first token and to the end of each."""
    found = []
    for _ in range(count):
        began = time.perf_counter()
        first = await chat.turn(TEXT)
        found.append((first, time.perf_counter() - began))
    return found


@contextmanager
def _flood(address: str, kind: str) -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="wonder-bench-") as folder:
        count = Path(folder) / "answered"
        script = Path(__file__).parent / "flood.py"
        process = subprocess.Popen([sys.executable, str(script), address, kind, str(count)])
        try:
            yield count
        finally:
            process.kill()
            process.wait()


def _answers(count: Path) -> int:
    """Return the number of answered calls of the flood."""
    return count.stat().st_size if count.exists() else 0
