"""Growth of the data folder and of the cost of a turn with the length of the conversations.

400 conversations, 64 turns at once, until each conversation has 60 turns of short messages:

- turns per second and server CPU per turn in windows of ten turns; the floor of the last is the second
- disk space per turn, by table, after the server has stopped; indexes count for their table
- turns 191 to 210 of a few conversations against turns 11 to 30 of the same ones
- values on disk that contain a sentence of a user, after two turns and after 22. Several occurrences in one
  value, such as a run's journal, count once.

An assembly sees at most 20 earlier turns, so the work of a turn grows until then. The second window is
therefore no fixed goal for the first.
"""

from __future__ import annotations

import sqlite3
import tempfile
from collections import Counter, deque
from collections.abc import Iterator, Sequence
from contextlib import AsyncExitStack, closing
from pathlib import Path

from client import Chat, Client
from measure import Effort, Load, Number, load
from servers import Server, wonder

from wonder_server.codec.packing import unpack

CONVERSATIONS, QUICK_CONVERSATIONS = 400, 64
TURNS, WINDOW = 60, 10
AT_ONCE = 64
TEXT = "say 5 words about the weather in the mountains"
LATER, EARLIER, LATEST = 10, 20, 190
"""Turns before the compared windows, and the length of these windows."""
COMPARED = 8
COMPARED_AT_ONCE = 4
SENTENCES = {2: "the keeper of lighthouse 4711 counts gulls", 22: "the pilot of airship 8086 counts clouds"}
"""A sentence of the first message, by the number of turns of its conversation."""

MOST_KB = 15.0
MOST_COPIES = 3
MOST_GROWTH = 1.1
KB = 1024


async def measure(effort: Effort) -> list[Number]:
    conversations = QUICK_CONVERSATIONS if effort.quick else CONVERSATIONS
    return [
        *await _growth(conversations),
        *await _long_conversations(),
        *await _copies(),
    ]


async def _growth(count: int) -> list[Number]:
    with tempfile.TemporaryDirectory(prefix="wonder-bench-") as name:
        folder = Path(name)
        with wonder(folder=folder) as server:
            async with Client(server.address) as client:
                agent = await client.agent("speaker")
                conversations = [await client.conversation(agent) for _ in range(count)]
                windows = await _windows(server, client, conversations)
        used = _folder_bytes(folder)
        tables = Counter[str]()
        for path in sorted((folder / "shards").glob("*.db")):
            tables += _bytes_by_table(path)
    turns = count * TURNS
    numbers = _window_numbers(windows)
    numbers.append(Number(name="disk per turn", value=used / turns / KB, unit="KB", aim=MOST_KB))
    for table, size in tables.most_common():
        if size / turns >= 0.1 * KB:
            numbers.append(Number(name=f"disk per turn, {table}", value=size / turns / KB, unit="KB"))
    return numbers


async def _windows(server: Server, client: Client, conversations: Sequence[str]) -> list[Load]:
    """Run `TURNS` turns of each conversation, each turn in all of them, and return the load per window."""
    async with AsyncExitStack() as streams:
        chats = [
            await streams.enter_async_context(client.chat(conversation, index))
            for index, conversation in enumerate(conversations)
        ]
        return [await _turns(server, chats, WINDOW, AT_ONCE) for _ in range(TURNS // WINDOW)]


def _window_numbers(windows: Sequence[Load]) -> list[Number]:
    numbers = []
    second = windows[1]
    for index, window in enumerate(windows):
        at = f"turns {index * WINDOW + 1} to {(index + 1) * WINDOW}"
        floor_is = f"turns {WINDOW + 1} to {2 * WINDOW}" if index > 1 else ""
        floor = second if index > 1 else None
        numbers += [
            Number(name=f"turns per second, {at}", value=window.per_second, unit="/s",
                   floor=floor and floor.per_second, floor_is=floor_is, better="more"),
            Number(name=f"server CPU per turn, {at}", value=window.cpu_ms, unit="ms",
                   floor=floor and floor.cpu_ms, floor_is=floor_is),
        ]  # fmt: skip
    return numbers


async def _long_conversations() -> list[Number]:
    """Compare late turns of a few conversations with early ones of the same server."""
    with wonder() as server:
        async with Client(server.address) as client, AsyncExitStack() as streams:
            agent = await client.agent("speaker")
            chats = [
                await streams.enter_async_context(client.chat(await client.conversation(agent), index))
                for index in range(COMPARED)
            ]
            await _turns(server, chats, LATER, COMPARED_AT_ONCE)
            early = await _turns(server, chats, EARLIER, COMPARED_AT_ONCE)
            await _turns(server, chats, LATEST - LATER - EARLIER, COMPARED_AT_ONCE)
            late = await _turns(server, chats, EARLIER, COMPARED_AT_ONCE)
    at, floor_is = "around the 200th turn", "around the 20th"
    return [
        Number(name=f"server CPU per turn, {at}", value=late.cpu_ms, unit="ms",
               floor=early.cpu_ms, floor_is=floor_is, aim=MOST_GROWTH),
        Number(name=f"time to first token p50, {at}", value=late.p50_ms, unit="ms",
               floor=early.p50_ms, floor_is=floor_is, aim=MOST_GROWTH),
    ]  # fmt: skip


async def _turns(server: Server, chats: Sequence[Chat], each: int, at_once: int) -> Load:
    """Run ``each`` turns of every chat, ``at_once`` chats at once. The chats take their turns in rotation."""
    waiting = deque(chats)

    async def turn(_: int) -> float:
        chat = waiting.popleft()
        try:
            return await chat.turn(TEXT)
        finally:
            waiting.append(chat)

    return await load(server.pid, at_once, each * len(chats) // at_once, turn)


async def _copies() -> list[Number]:
    with tempfile.TemporaryDirectory(prefix="wonder-bench-") as name:
        folder = Path(name)
        with wonder(folder=folder) as server:
            async with Client(server.address) as client:
                agent = await client.agent("speaker")
                for turns, sentence in SENTENCES.items():
                    async with client.chat(await client.conversation(agent)) as chat:
                        await chat.turn(f"say 5 words: {sentence}")
                        for _ in range(1, turns):
                            await chat.turn(TEXT)
        values = [value for path in sorted((folder / "shards").glob("*.db")) for value in _values(path)]
    return [
        Number(name=f"values with one sentence, after {turns} turns", unit="", aim=MOST_COPIES,
               value=sum(sentence.encode() in value for value in values))
        for turns, sentence in SENTENCES.items()
    ]  # fmt: skip


def _folder_bytes(folder: Path) -> int:
    """Return the size of the shards with their WAL files."""
    return sum(path.stat().st_size for path in (folder / "shards").iterdir())


def _bytes_by_table(path: Path) -> Counter[str]:
    """Return the bytes of the pages of each table and its indexes; empty if SQLite cannot report them."""
    sql = (
        "SELECT tbl_name, sum(pgsize) FROM dbstat JOIN sqlite_master USING (name)"
        " WHERE aggregate = TRUE GROUP BY tbl_name"
    )
    with closing(sqlite3.connect(path)) as connection:
        try:
            return Counter(dict(connection.execute(sql).fetchall()))
        except sqlite3.OperationalError:
            return Counter()


def _values(path: Path) -> Iterator[bytes]:
    """Yield every stored text, and every blob as it was before it was packed."""
    with closing(sqlite3.connect(path)) as connection:
        tables = [row[0] for row in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        for table in tables:
            for row in connection.execute(f"SELECT * FROM {table}"):
                yield from (value.encode() for value in row if isinstance(value, str))
                yield from (unpack(value) for value in row if isinstance(value, bytes))
