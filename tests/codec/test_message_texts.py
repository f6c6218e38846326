"""Tests of the references to messages in stored values."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.codec.test_interning import Box, Stored, parts_of
from wonder_server.codec.interning import (
    PLAIN_MAX_BYTES,
    Interner,
    InternSession,
    build,
    decode,
    encode,
    read,
    resolve,
)
from wonder_server.codec.message_texts import (
    MARK,
    MAX_TEXTS,
    MAX_TOTAL_BYTES,
    MIN_BYTES,
    NO_TEXTS,
    PARTS_MARK,
    MessageTexts,
    with_texts,
)

LONG = "the keeper of lighthouse 4711 counts the gulls"
MESSAGES = (
    LONG,
    'He said: "count the gulls of lighthouse 4711", twice',
    "a text that ends with a backslash and has forty bytes \\",
    "line one of the message\nline two of the message\n",
    "Möwen zählen, jeden Tag von Neuem, auf dem Leuchtturm",
    "short",
    # What stands between two strings of JSON.
    ",1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20,",
    ":{},1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,",
    "}],[1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,",
    '{"$m":0}, {"$m":1}, {"$m":2}, {"$m":3}, {"$m":4}, {}',
    "long " * 500,
)
TEXTS = NO_TEXTS.with_messages(enumerate(MESSAGES))
REFERRED = [
    each for each in MESSAGES if len(each.encode()) >= MIN_BYTES and not each.startswith((",", ":", "}"))
]

STRINGS = st.one_of(
    st.sampled_from(MESSAGES),
    st.sampled_from(MESSAGES).map(lambda text: f'{text}"{text}:'),
    st.sampled_from(MESSAGES).map(lambda text: f":{text}"),
    st.text(st.characters(codec="utf-8"), max_size=60),
)
KEYS = st.one_of(st.sampled_from(["$m", "$", "$$m", "content", ":", *MESSAGES[:2]]), STRINGS)
VALUES: st.SearchStrategy[Any] = st.recursive(
    st.one_of(st.none(), st.integers(0, 20), STRINGS),
    lambda inner: st.one_of(
        st.lists(inner, max_size=6),
        st.dictionaries(KEYS, inner, max_size=4),
        st.lists(st.fixed_dictionaries({"role": st.just("user"), "content": STRINGS}), max_size=40),
        st.just([*range(20)]),
    ),
    max_leaves=15,
)


def session() -> InternSession:
    found = Interner().session()
    found.messages = TEXTS
    return found


@given(value=VALUES)
def test_a_value_with_references_resolves_to_the_same_value(value: Any) -> None:
    referring = session()
    stored = Stored(parts_of(referring), MESSAGES)
    for text in (referring.text(Box(value=value)), referring.tagged(Box(value=value), TEXTS)):
        stored = Stored(parts_of(referring), MESSAGES)
        body = resolve(decode(text), stored)
        assert build(body[1] if isinstance(body, list) else body, Box).value == value


@given(value=VALUES, other=STRINGS)
def test_a_value_of_a_table_without_parts_is_read_as_it_was(value: Any, other: str) -> None:
    box = Box(value=value, other=other)
    referring = session()
    data = referring.plain_text(box).encode()
    if data[:1] == PARTS_MARK:
        stored = Stored(parts_of(referring), MESSAGES)
        assert len(encode(box)) > PLAIN_MAX_BYTES
        assert build(resolve(decode(data), stored), Box) == box
        return
    assert len(data) <= PLAIN_MAX_BYTES + len(MARK)
    if data[:1] == MARK:
        data = with_texts(data, MESSAGES.__getitem__)
    assert read(data, Box) == box


def test_a_long_text_of_a_table_without_parts_is_stored_once() -> None:
    """User data that looks like a reference or a mark stays data."""
    result = {"content": "r" * PLAIN_MAX_BYTES, "$": "0" * 32, "$m": 1, "said": REFERRED[0]}
    referring = session()
    move, event = Box(value={"result": result}, other="\t"), Box(value=[result], other=" ")
    texts = [referring.plain_text(each) for each in (move, event)]
    parts = parts_of(referring)
    assert sum(part.count(b"r" * 100) > 0 for part in parts.values()) == 1
    for text, box in zip(texts, (move, event), strict=True):
        assert text.encode()[:1] == PARTS_MARK and len(text) < 1000
        assert build(resolve(decode(text), Stored(parts, MESSAGES)), Box) == box


@pytest.mark.parametrize("message", REFERRED)
def test_a_message_is_referred_to_wherever_it_is_a_whole_value(message: str) -> None:
    turns = [{"role": "user", "content": message, "turn_id": f"turn_{index}"} for index in range(30)]
    for value in (message, {"content": message}, turns[:2], turns, {"history": turns, "text": message}):
        referring = session()
        text = referring.text(Box(value=value)) + referring.plain_text(Box(value=None, other=message))
        stored = text.encode() + b"".join(parts_of(referring).values())
        assert b'{"$m":' in stored
        assert encode(message)[1:-1] not in stored


def test_a_history_of_messages_is_no_part_per_message() -> None:
    texts = [f"{LONG}, and then number {index}, which is one more sentence to say" for index in range(40)]
    referring = Interner().session()
    referring.messages = NO_TEXTS.with_messages(enumerate(texts))
    history = [{"role": "user", "content": text, "author": "ann"} for text in texts]
    text = referring.text(Box(value={"history": history}))
    assert len(referring.parts) == 1
    assert build(resolve(decode(text), Stored(referring.parts, texts)), Box).value == {"history": history}


def test_a_plain_value_with_keys_like_references_repeats_its_messages() -> None:
    text = session().plain_text(Box(value={"$m": 1}, other=LONG))
    assert LONG in text and not text.startswith(MARK.decode())


def test_a_text_that_was_said_twice_has_its_first_ordinal() -> None:
    texts = NO_TEXTS.with_messages([(1, LONG), (2, "another text"), (3, LONG)])
    assert texts.refer(f':"{LONG}"'.encode()) == b':{"$m":1}'
    assert texts.with_messages([(4, LONG)]) is texts


def test_only_the_newest_texts_are_known() -> None:
    def say(number: int) -> str:
        return f"{LONG}, number {number}"

    texts = NO_TEXTS.with_messages((number, say(number)) for number in range(MAX_TEXTS + 1))
    assert texts.refer(f':"{say(0)}"'.encode()) == f':"{say(0)}"'.encode()
    assert texts.refer(f':"{say(MAX_TEXTS)}"'.encode()) == b':{"$m":%d}' % MAX_TEXTS
    half = "x" * (MAX_TOTAL_BYTES // 2)
    texts = NO_TEXTS.with_messages((number, f"{number}{half}") for number in range(3))
    assert texts.size <= MAX_TOTAL_BYTES
    assert texts.refer(f':"2{half}"'.encode()) == b':{"$m":2}'


def test_texts_do_not_change() -> None:
    first = NO_TEXTS.with_messages([(1, LONG)])
    first.with_messages([(2, f"{LONG} again")])
    assert isinstance(first, MessageTexts) and not NO_TEXTS
    assert first.refer(f':"{LONG} again"'.encode()) == f':"{LONG} again"'.encode()
