"""Ranking of hits: full text and vectors in one relevance, significance and recency."""

from __future__ import annotations

import pytest

from wonder_server.core.memory.chunking import CHUNK_CHARACTERS, MAX_CHUNKS, chunks
from wonder_server.core.memory.records import (
    FULL_WORDS,
    RECENCY_HALF_LIFE_MS,
    Candidate,
    Ranked,
    Weights,
    rank,
)

NOW = 10 * RECENCY_HALF_LIFE_MS
RELEVANCE = Weights(relevance=1, significance=0, recency=0)


def candidate(id: str, text: float = 0.0, vector: float = 0.0, words: int = FULL_WORDS) -> Candidate:
    return Candidate(id=id, significance=0.5, updated_ms=NOW, text=text, vector=vector, words=words)


def by_id(found: list[Ranked]) -> dict[str, float]:
    return {hit.id: hit.relevance for hit in found}


def test_each_part_is_divided_by_the_best_and_mixed_by_the_embedders_share() -> None:
    found = rank(
        [candidate("a", text=8, vector=0.2), candidate("b", text=2, vector=0.8)], RELEVANCE, NOW, 9, 0.25
    )
    assert by_id(found) == pytest.approx({"a": 0.75 + 0.25 * 0.25, "b": 0.75 * 0.25 + 0.25})


def test_a_short_memorys_vector_counts_for_less_and_its_words_for_more() -> None:
    found = by_id(rank([candidate("a", 1, 1), candidate("b", vector=1, words=5)], RELEVANCE, NOW, 9, 0.4))
    assert found == pytest.approx({"a": 1.0, "b": 0.4 * 0.5})
    assert by_id(rank([candidate("a", 1, 1, words=5)], RELEVANCE, NOW, 9, 0.4)) == pytest.approx({"a": 1.0})


def test_if_one_of_the_two_found_nothing_only_the_other_counts() -> None:
    assert by_id(rank([candidate("a", vector=0.1)], RELEVANCE, NOW, 9)) == {"a": 1.0}
    assert by_id(rank([candidate("a", text=3)], RELEVANCE, NOW, 9)) == {"a": 1.0}
    assert rank([candidate("a", vector=-0.1)], RELEVANCE, NOW, 9) == []


def test_a_request_can_set_the_weight_of_vectors() -> None:
    both = [candidate("words", text=1), candidate("near", vector=1)]
    for share, expected in ((0.0, {"words": 1.0}), (1.0, {"near": 1.0}), (0.3, {"words": 0.7, "near": 0.3})):
        weights = Weights(relevance=1, significance=0, recency=0, vector=share)
        assert by_id(rank(both, weights, NOW, 9)) == pytest.approx(expected)
    words_alone = Weights(vector=0.0)
    assert rank([candidate("near", vector=1)], words_alone, NOW, 9) == []


def test_equal_scores_come_in_order_of_id_and_no_more_than_asked_for() -> None:
    found = rank([candidate(id, text=1) for id in "cab"], RELEVANCE, NOW, 2)
    assert [hit.id for hit in found] == ["a", "b"]


def test_recency_has_a_half_life_and_future_times_count_as_now() -> None:
    old = Candidate(id="old", significance=0, updated_ms=NOW - RECENCY_HALF_LIFE_MS, text=1)
    ahead = Candidate(id="ahead", significance=0, updated_ms=NOW + 5, text=1)
    found = {hit.id: hit.recency for hit in rank([old, ahead], Weights(), NOW, 9)}
    assert found == {"old": 0.5, "ahead": 1.0}


def test_a_short_text_is_one_chunk_and_a_long_one_is_complete() -> None:
    assert chunks("tea") == ["tea"]
    assert chunks("") == [""]
    words = [f"word{number}" for number in range(3_000)]
    found = chunks(" ".join(words))
    assert all(len(passage) <= CHUNK_CHARACTERS for passage in found)
    assert {word for passage in found for word in passage.split()} == set(words)
    assert len(chunks("x" * (1 << 20))) <= MAX_CHUNKS
    assert sum(map(len, chunks("x" * (1 << 20)))) >= 1 << 20
