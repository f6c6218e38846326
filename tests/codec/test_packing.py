"""Packed values: each is read as it was written, damage is an error, and no frame takes much memory."""

from __future__ import annotations

import json
import random
import threading

import pytest
import zstandard

from wonder_server.codec.packing import (
    MAX_BYTES,
    MIN_BYTES,
    Stored,
    is_packed,
    pack_all,
    unpack,
    unpacked_size,
)

LONG = json.dumps({"turn_id": "turn_01M82NNRQA0C2XD51G14BJ8YR0", "content": "some text " * 40}).encode()


def as_read(stored: Stored) -> bytes:
    """Return a stored value as a query returns it: cast to a blob."""
    return stored if isinstance(stored, bytes) else stored.encode()


def packed(value: bytes) -> bytes:
    [stored] = pack_all([value])
    assert isinstance(stored, bytes)
    return stored


@pytest.mark.parametrize(
    "value",
    [b"{}", b'""', b"[" + b"1," * 47 + b"1]", LONG, '{"text":"žluťoučký kůň 🎉"}'.encode() * 20, b"7"],
)
def test_every_value_is_read_as_it_was_written(value: bytes) -> None:
    [stored] = pack_all([value])
    assert unpack(as_read(stored)) == value
    assert unpacked_size(as_read(stored)) == len(value)


def test_many_values_are_packed_in_order() -> None:
    values = [json.dumps({"n": number, "text": "x" * (number * 7)}).encode() for number in range(200)]
    assert [unpack(as_read(stored)) for stored in pack_all(values)] == values
    assert pack_all([]) == []


def test_a_long_value_becomes_a_short_blob_and_a_short_one_stays_text() -> None:
    assert len(packed(LONG)) < len(LONG) / 3
    short = b"[" + b"1" * (MIN_BYTES - 3) + b"]"
    assert pack_all([short]) == [short.decode()]


def test_a_value_that_does_not_get_shorter_stays_text() -> None:
    chance = random.Random(1)
    noise = json.dumps("".join(chr(chance.randrange(0x4E00, 0x9FFF)) for _ in range(60)), ensure_ascii=False)
    assert pack_all([noise.encode()]) == [noise]


def test_a_value_above_the_limit_stays_text() -> None:
    value = b'"' + b"a" * MAX_BYTES + b'"'
    [stored] = pack_all([value])
    assert isinstance(stored, str)
    assert unpack(as_read(stored)) == value


def test_a_frame_that_claims_more_than_the_limit_is_damage_and_takes_no_memory() -> None:
    bomb = zstandard.ZstdCompressor().compress(bytes(MAX_BYTES + 1))
    with pytest.raises(ValueError, match="the maximum is"):
        unpack(packed(LONG)[:1] + bomb)


def test_a_frame_without_a_size_is_damage() -> None:
    stream = zstandard.ZstdCompressor(write_content_size=False)
    with pytest.raises(ValueError, match="does not state its size"):
        unpack(packed(LONG)[:1] + stream.compress(LONG))


@pytest.mark.parametrize("stored", [b"\x01", b"\x01(\xb5/\xfd", b"\x01" + bytes(30), packed(LONG)[:-3]])
def test_a_cut_or_foreign_frame_is_damage(stored: bytes) -> None:
    assert is_packed(stored)
    with pytest.raises(ValueError, match="packed value"):
        unpack(stored)


def test_a_flipped_bit_gives_damage_or_a_text_that_differs_but_never_another_error() -> None:
    whole = packed(LONG)
    for bit in range(8, 8 * len(whole)):
        damaged = bytearray(whole)
        damaged[bit // 8] ^= 1 << bit % 8
        try:
            unpack(bytes(damaged))
        except ValueError:
            continue


def test_threads_have_contexts_of_their_own() -> None:
    values = [json.dumps({"n": number, "text": "word " * 50}).encode() for number in range(50)]
    wrong: list[bytes] = []

    def work() -> None:
        for _ in range(20):
            read = [unpack(as_read(stored)) for stored in pack_all(values)]
            wrong.extend(value for value, before in zip(read, values, strict=True) if value != before)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_the_shipped_dictionary_reads_what_the_first_release_with_it_wrote() -> None:
    """A dictionary never changes. If this fails, ship the new one under the next number."""
    stored = bytes.fromhex(FIRST)
    assert unpack(stored) == LONG


FIRST = (
    "0128b52ffd60cd008d010023c206ab8dd7d5f8bef19e8c0df829e18c84c64bac14929cc088e7c3e1"
    "bc05fc83ed03dcb66a088287af040fb091a0751f"
)
