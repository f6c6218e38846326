"""A conversation of 10,000 turns beside one of 10: the time to open it, to read a page, and to answer.

Both are in one folder. The server is restarted for each measurement, so that neither is in memory. Then both
answer alternately.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from client import Client
from measure import Effort, Number
from servers import Server, wonder

from wonder.v1 import conversation_service_pb2 as pb

LONG, SHORT = 10_000, 10
QUICK_LONG = 1_000
TEXT = "say 10 words"
AT_ONCE = 16
PAGE = 20
MOST = 1.25
"""Maximum ratio to the short conversation; above 1 only for the variation of the measurement."""


@dataclass(frozen=True, slots=True)
class ReadTimes:
    """Measurements of one conversation, in ms."""

    opened: list[float] = field(default_factory=list)
    first_answer: list[float] = field(default_factory=list)
    page: list[float] = field(default_factory=list)
    answer: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)


async def measure(effort: Effort) -> list[Number]:
    turns = QUICK_LONG if effort.quick else LONG
    with tempfile.TemporaryDirectory(prefix="wonder-bench-") as name:
        folder = Path(name)
        with wonder(folder=folder) as server:
            async with Client(server.address) as client:
                agent = await client.agent("speaker")
                long, short, other = [await client.conversation(agent) for _ in range(3)]
                # Ends like the short one, with a full history to assemble.
                await _fill(client, long, turns - SHORT)
                await _fill(client, long, SHORT, at_once=1)
                await _fill(client, short, SHORT, at_once=1)
        looks = {long: ReadTimes(), short: ReadTimes()}
        for number in range(4 if effort.quick else 10):
            with wonder(folder=folder) as server:
                # The first reads of a server are slower and do not count.
                await _measure_reads(server, other, ReadTimes())
                for conversation in (long, short) if number % 2 else (short, long):
                    await _measure_reads(server, conversation, looks[conversation])
        with wonder(folder=folder) as server:
            for number in range(effort.rounds):
                for conversation in (long, short) if number % 2 else (short, long):
                    await _answers(server, conversation, looks[conversation])
    return _numbers(f"{turns:,} turns", looks[long], looks[short])


async def _fill(client: Client, conversation: str, turns: int, *, at_once: int = AT_ONCE) -> None:
    """Add turns, ``at_once`` of them concurrently, and read the events of all on one stream."""
    begun = ended = 0
    async with client.chat(conversation, tail_only=True) as chat:
        while ended < turns:
            while begun < min(turns, ended + at_once):
                begun += 1
                await chat.send(TEXT)
            await chat.end_of_turn()
            ended += 1


async def _measure_reads(server: Server, conversation: str, looks: ReadTimes) -> None:
    """Open the conversation, run one turn and read the newest page."""
    async with Client(server.address) as client:
        began = time.perf_counter()
        async with client.chat(conversation, tail_only=True) as chat:
            looks.opened.append(_ms_since(began))
            looks.first_answer.append(await chat.turn(TEXT) * 1000)
        asked = pb.ListMessagesRequest(conversation_id=conversation, page_size=PAGE)
        for _ in range(5):
            began = time.perf_counter()
            await client.conversations[0].ListMessages(asked)
            looks.page.append(_ms_since(began))


async def _answers(server: Server, conversation: str, looks: ReadTimes, *, count: int = 5) -> None:
    async with Client(server.address) as client, client.chat(conversation, tail_only=True) as chat:
        await chat.turn(TEXT)
        cpu = server.cpu
        for _ in range(count):
            looks.answer.append(await chat.turn(TEXT) * 1000)
        looks.cpu.append((server.cpu - cpu) / count * 1000)


def _ms_since(began: float) -> float:
    return (time.perf_counter() - began) * 1000


def _numbers(at: str, long: ReadTimes, short: ReadTimes) -> list[Number]:
    def number(name: str, ours: Sequence[float], floor: Sequence[float]) -> Number:
        return Number(name=f"{name}, {at}", value=statistics.median(ours), unit="ms",
                      floor=statistics.median(floor), floor_is=f"{SHORT} turns", aim=MOST)  # fmt: skip

    return [
        number("opened after a start", long.opened, short.opened),
        number("first token after a start", long.first_answer, short.first_answer),
        number(f"a page of {PAGE} messages", long.page, short.page),
        number("time to first token", long.answer, short.answer),
        number("server CPU per turn", long.cpu, short.cpu),
    ]
