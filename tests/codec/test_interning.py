"""Interning: values resolve to what was written, references cannot be forged, a record grows by new
content."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import wonder_server
from tests.conformance.ports.journal_subjects import CONVERSATION_ID, commit, opened
from tests.core.conversation.conversation_kit import (
    BUSINESS,
    NOW,
    Driven,
    agent,
    call,
    send,
    text_answer,
    tool,
    workflow,
)
from tests.replacing import replace
from tests.sqlite_journals import SqliteJournal
from wonder_server.codec import interning
from wonder_server.codec.interning import (
    INLINE_MAX_BYTES,
    MIN_OBJECT_BYTES,
    MIN_STRING_BYTES,
    Interner,
    InternSession,
    build,
    decode,
    encode,
    read,
    resolve,
)
from wonder_server.codec.packing import unpack
from wonder_server.core.actor.changes import Emit
from wonder_server.core.budget import Budget
from wonder_server.core.conversation.model import inputs
from wonder_server.core.conversation.model.values import OperationKind
from wonder_server.core.conversation.planner import CONVERSATION
from wonder_server.core.definitions.specs import PinnedAgent
from wonder_server.core.frozen import Value, field
from wonder_server.ports.journal import Commit, Entry, Event

SHORT = MIN_STRING_BYTES - 8
"""Bytes of a string that is no part by itself; two of them make a value that is one."""
assert 2 * SHORT > INLINE_MAX_BYTES


@dataclass(frozen=True, slots=True, kw_only=True)
class Box:
    """A row with any value."""

    value: Any
    other: Any = None


class Stored:
    """Parts, and messages by ordinal."""

    def __init__(self, parts: dict[str, bytes], messages: Sequence[str] = ()) -> None:
        self._parts = parts
        self._messages = messages

    def __call__(self, digest: str) -> Any:
        return resolve(decode(self._parts[digest]), self)

    def message(self, ordinal: int) -> str:
        return self._messages[ordinal]


def interned(value: Any) -> tuple[str, dict[str, bytes]]:
    folding = Interner().session()
    return folding.text(Box(value=value)), parts_of(folding)


def parts_of(folding: InternSession) -> dict[str, bytes]:
    parts = dict(folding.parts)
    for within in folding.pins.values():
        parts.update(within)
    return parts


def resolved_body(text: str, parts: dict[str, bytes]) -> Any:
    return resolve(decode(text), Stored(parts))


def resolved(text: str, parts: dict[str, bytes]) -> Any:
    return build(resolved_body(text, parts), Box).value


KEYS = st.one_of(
    st.sampled_from(["$", "$$", "$$$", "$ref", "a", "b", "", "value"]),
    st.text(st.characters(codec="utf-8"), max_size=4),
)
TEXTS = st.one_of(
    st.text(st.characters(codec="utf-8"), max_size=20),
    st.integers(0, 3).map(lambda number: "0123456789abcdef" * (60 + number)),
    st.just("0" * 32),
)
VALUES: st.SearchStrategy[Any] = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(-(2**53), 2**53),
        st.floats(allow_nan=False, allow_infinity=False),
        TEXTS,
    ),
    lambda inner: st.one_of(st.lists(inner, max_size=5), st.dictionaries(KEYS, inner, max_size=5)),
    max_leaves=25,
)


@given(value=VALUES)
def test_an_interned_value_resolves_to_the_same_value(value: Any) -> None:
    assert resolved(*interned(value)) == value


@given(value=VALUES)
def test_reading_plain_json_gives_the_same_value_as_building_it(value: Any) -> None:
    driven = Driven(begin=False)
    driven.step(replace(send(), metadata={"value": value}))
    ended = replace(driven.turn, fault=replace(BUSINESS, retry_after_ms=3), completed_ms=NOW, budget=Budget())
    for written in (Box(value=value), driven.turn, ended):
        data = encode(written)
        assert read(data, type(written)) == build(decode(data), type(written)) == written
        assert read(data.decode(), type(written)) == written


@given(value=VALUES, times=st.integers(2, 4))
def test_repeated_values_share_a_part_and_all_resolve(value: Any, times: int) -> None:
    big = {"content": value, "filler": "f" * SHORT, "more": "m" * SHORT}
    # Equal, not identical: sharing goes by content.
    repeated = [{**big} for _ in range(times)]
    text, parts = interned({"messages": repeated})
    assert resolved(text, parts) == {"messages": repeated}
    assert sum(part.count(b"f" * SHORT) for part in parts.values()) == 1


@given(value=VALUES)
def test_user_data_cannot_forge_a_reference(value: Any) -> None:
    secret = {"password": "s" * SHORT, "more": "t" * SHORT}
    _, parts = interned(secret)
    (digest,) = (digest for digest, data in parts.items() if b"password" in data)
    for forged in ({"$": digest}, {"$$": digest}, [{"$": digest}], {"a": {"$": digest, "b": value}}):
        text, own = interned(forged)
        assert resolved(text, {**parts, **own}) == forged


@given(values=st.lists(VALUES, min_size=1, max_size=4), order=st.lists(st.integers(0, 3), max_size=8))
def test_a_used_interner_gives_the_same_result_as_a_new_one(values: list[Any], order: list[int]) -> None:
    """The interner may know a value by identity, by content or not at all."""
    long = [{"content": [value, {"filler": "f" * MIN_OBJECT_BYTES}], "more": "m" * SHORT} for value in values]
    used = Interner()
    for again in (0, *order):
        history = [long[again % len(long)], *long, dict(long[0])]
        session, fresh = used.session(), Interner().session()
        for value in (Box(value=history), Box(value={"history": history}, other=history[0])):
            assert session.text(value) == fresh.text(value)
            assert session.all_tagged((value, value)) == fresh.all_tagged((value, value))
        assert session.parts == fresh.parts


def test_the_cache_of_an_interner_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(interning, "_VALUE_LIMIT", 10)
    interner = Interner()
    for number in range(100):
        history = [{"content": f"{number} {place} " + "x" * MIN_OBJECT_BYTES} for place in range(20)]
        session = interner.session()
        assert resolved(session.text(Box(value=history)), session.parts) == history
        assert len(interner._by_identity) <= 10
        assert len(interner._by_content) <= 10


class Inner(Value, frozen=True, kw_only=True):
    """A value with any content, which an `Outer` always has."""

    name: str
    value: Any = None


class Outer(Value, frozen=True, kw_only=True):
    """A value with the shape of a decision."""

    inner: Inner
    perhaps: Inner | None = None
    text: str = ""
    several: tuple[Inner, ...] = ()
    given: dict[str, Any] = field(default_factory=dict)


LONG_TEXTS = st.sampled_from(
    ["", "short", "$", '"$', "\n\r\u2028", "t" * MIN_STRING_BYTES, '"q" ' * MIN_STRING_BYTES]
)
INNER = st.builds(Inner, name=LONG_TEXTS, value=VALUES)
OUTER = st.builds(
    Outer,
    inner=INNER,
    perhaps=st.none() | INNER,
    text=LONG_TEXTS,
    several=st.lists(INNER, max_size=3).map(tuple),
    given=st.dictionaries(KEYS, VALUES, max_size=5),
)


@given(values=st.lists(OUTER, min_size=1, max_size=3))
def test_nested_frozen_values_resolve_to_the_same_values(values: list[Outer]) -> None:
    session = Interner().session()
    decided = resolved_body(session.all_tagged(values), session.parts)
    assert [name for name, _ in decided] == ["Outer"] * len(values)
    assert [build(body, Outer) for _, body in decided] == values
    for value in values:
        name, body = resolved_body(session.tagged(value), session.parts)
        assert (name, build(body, Outer)) == ("Outer", value)
        assert build(resolved_body(session.text(value), session.parts), Outer) == value
        plain = session.plain_text(value)
        body = resolved_body(plain, session.parts) if plain[0] == "\t" else decode(plain)
        assert build(body, Outer) == value


def test_long_texts_of_frozen_values_are_shared() -> None:
    text = "t" * (2 * MIN_STRING_BYTES)
    session = Interner().session()
    data = session.all_tagged(
        [Outer(inner=Inner(name=text), text=text), Outer(inner=Inner(name="a", value=text))]
    )
    assert text not in data
    assert [part for part in session.parts.values() if text.encode() in part] == [f'"{text}"'.encode()]


def test_a_whole_value_is_never_a_reference() -> None:
    big = {"filler": "f" * INLINE_MAX_BYTES}
    for value in (Box(value=big), Box(value=[big, big])):
        assert not interned_text(value).startswith('{"$"')


def interned_text(value: Any) -> str:
    return Interner().session().text(value)


def test_a_pinned_definition_comes_back_complete_and_is_interned_once() -> None:
    folder = Interner()
    whole = agent(tools=(tool("find"), tool("retried")))
    for value in (whole, replace(whole, extraction=None), workflow("small")):
        folding = folder.session()
        text = folding.text(Box(value=value, other=[value, value]))
        body = resolved_body(text, parts_of(folding))
        assert build(body["value"], type(value)) == value
        assert build(body["other"][1], type(value)) == value
    assert folder.intern_pin(whole) is folder.intern_pin(whole)
    assert isinstance(whole, PinnedAgent)


class Writer(Driven):
    """A conversation driven by hand, with everything that the loop would write."""

    def __init__(self) -> None:
        self.written = Commit(CONVERSATION_ID)
        super().__init__(begin=False)

    def step(self, event: inputs.Input, *, after_ms: int = 1) -> Any:
        before = len(self.decided)
        decisions = super().step(event, after_ms=after_ms)
        made = self.written
        made.entry_head += 1
        made.entries.append(Entry(made.entry_head, self.now, event, decisions))
        for decision in self.decided[before:]:
            for change in CONVERSATION.record(self.state, decision):
                if isinstance(change, Emit):
                    made.event_head += 1
                    made.events.append(Event(made.event_head, self.now, CONVERSATION_ID, change))
                else:
                    made.changes.append(change)
        return decisions

    def taken(self) -> Commit:
        """Return what has to be written since the last call."""
        made = self.written
        self.written = commit(CONVERSATION_ID, entry_head=made.entry_head, event_head=made.event_head)
        return replace(made, root=CONVERSATION_ID)


def text_of(number: int) -> str:
    return f"<turn {number:04}> " + "lorem ipsum " * 30


def live_through(writer: Writer, pinned: PinnedAgent, number: int, history: list[dict[str, Any]]) -> None:
    """Run one turn with a tool. Its request repeats the last twenty turns."""
    writer.step(send(f"seed {number}", content=text_of(number), agent=pinned))
    history.append({"role": "user", "content": text_of(number)})
    request = {"model": "m", "messages": [dict(each) for each in history[-41:]]}
    writer.succeed(OperationKind.ASSEMBLY, {"request": request})
    writer.answer(text_answer("", call("find")))
    writer.succeed(OperationKind.TASK, {"found": number})
    answer = f"answer {number} " + "dolor sit " * 30
    writer.answer(text_answer(answer))
    writer.fail(OperationKind.EXTRACTION, BUSINESS)
    history.append({"role": "assistant", "content": answer})


def measured(connection: sqlite3.Connection) -> tuple[int, str]:
    """Return the number of bytes in all tables, and all parts."""
    size = 0
    for table in ("entries", "events", "parts", "turns", "messages", "moves", "works", "requests"):
        for row in connection.execute(f"SELECT * FROM {table}").fetchall():
            size += sum(len(column if isinstance(column, bytes) else str(column)) for column in row)
    parts = connection.execute("SELECT CAST(data AS BLOB) FROM parts").fetchall()
    return size, "\n".join(unpack(row[0]).decode() for row in parts)


async def test_a_record_grows_with_new_content_only(tmp_path: Path) -> None:
    sizes, parts = [], ""
    async with opened("sqlite", tmp_path, count=1) as store:
        shard = store.of(CONVERSATION_ID)
        assert isinstance(shard, SqliteJournal)
        writer, pinned, history = Writer(), agent(), list[dict[str, Any]]()
        for number in range(200):
            live_through(writer, pinned, number, history)
            if number % 25 == 24:
                await shard.commit([writer.taken()])
            if number % 100 == 99:
                size, parts = await shard.database.read(measured)
                sizes.append(size)
    half, whole = sizes
    # Twice the turns take twice the bytes; the first twenty had less to repeat.
    assert whole < 2.2 * half
    for number in range(200):
        # Requests refer to the messages.
        assert f"<turn {number:04}>" not in parts


FIRST_MEETINGS = '''
import sys, threading, types
from wonder_server.codec.interning import build, encode, read

sys.setswitchinterval(1e-6)
SOURCE = """
from __future__ import annotations
from dataclasses import dataclass, field
from typing import Any

@dataclass(frozen=True, slots=True, kw_only=True)
class Leaf:
    name: str
    given: dict[str, Any] = field(default_factory=dict)

@dataclass(frozen=True, slots=True, kw_only=True)
class Tree:
    leaf: Leaf
    trees: dict[str, Tree] = field(default_factory=dict)
    leaves: tuple[Leaf, ...] = ()
"""
BODY = {"leaf": {"name": "a"}, "trees": {"b": {"leaf": {"name": "b"}}}, "leaves": [{"name": "c"}]}


def meet(cls, start, reads):
    start.wait()
    met = read(encode(BODY), cls) if reads else build(BODY, cls)
    assert met.trees["b"].leaf.name == "b"


for number in range(40):
    module = types.ModuleType(f"made_{number}")
    sys.modules[module.__name__] = module
    exec(SOURCE, module.__dict__)
    start = threading.Barrier(4)
    threads = [threading.Thread(target=meet, args=(module.Tree, start, i % 2)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
'''


def test_concurrent_first_uses_of_a_class_do_not_crash() -> None:
    """Run in a process of its own, since a failure ends the process."""
    environment = {**os.environ, "PYTHONPATH": str(Path(wonder_server.__file__).parents[1])}
    ended = subprocess.run(
        [sys.executable, "-c", FIRST_MEETINGS],
        check=False,
        timeout=60,
        capture_output=True,
        env=environment,
    )
    assert ended.returncode == 0, ended.stderr.decode()[-500:]
