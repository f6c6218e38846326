"""Division of long memories into chunks that are embedded one by one."""

from __future__ import annotations

from wonder_server.core.memory.chunking import CHUNK_CHARACTERS, MAX_CHUNKS, chunks


def test_a_short_text_is_one_chunk_and_a_long_one_is_complete() -> None:
    assert chunks("tea") == ["tea"]
    assert chunks("") == [""]
    words = [f"word{number}" for number in range(3_000)]
    found = chunks(" ".join(words))
    assert all(len(passage) <= CHUNK_CHARACTERS for passage in found)
    assert {word for passage in found for word in passage.split()} == set(words)
    assert len(chunks("x" * (1 << 20))) <= MAX_CHUNKS
    assert sum(map(len, chunks("x" * (1 << 20)))) >= 1 << 20
