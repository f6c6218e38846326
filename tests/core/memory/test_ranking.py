"""Ranking of hits: full text and vectors in one relevance, significance and recency."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wonder_server.core.memory.ranking import (
    EVEN_MATCH,
    FULL_WORDS,
    RECENCY_HALF_LIFE_MS,
    Candidate,
    Ranked,
    Weights,
    rank,
    relevance,
)

NOW = 10 * RECENCY_HALF_LIFE_MS
RELEVANCE = Weights(relevance=1, significance=0, recency=0)
SHARE = 0.25

matches = st.floats(0, 10)


def candidate(id: str, text: float = 0.0, vector: float = 0.0, words: int = FULL_WORDS) -> Candidate:
    return Candidate(id=id, significance=0.5, recent_ms=NOW, text=text, vector=vector, words=words)


def by_id(found: list[Ranked]) -> dict[str, float]:
    return {hit.id: hit.relevance for hit in found}


@given(low=matches, high=matches)
def test_a_better_match_is_no_less_relevant(low: float, high: float) -> None:
    low, high = sorted((low, high))
    assert 0.0 <= relevance(low) <= relevance(high) <= 1.0


def test_relevance_is_one_half_at_the_even_match_and_tells_matches_apart() -> None:
    assert relevance(0) == 0.0
    assert relevance(EVEN_MATCH) == pytest.approx(0.5)
    assert relevance(EVEN_MATCH / 2) < 0.06
    assert relevance(2 * EVEN_MATCH) > 0.94


@given(st.lists(matches, min_size=1, max_size=6), matches)
def test_the_relevance_of_a_hit_does_not_depend_on_the_other_hits(others: list[float], match: float) -> None:
    more = [candidate(str(number), text) for number, text in enumerate(others)]
    alone = by_id(rank([candidate("a", match)], RELEVANCE, NOW, 9, 0.0))
    assert by_id(rank([candidate("a", match), *more], RELEVANCE, NOW, 9, 0.0)).get("a") == alone.get("a")


def test_text_and_cosine_are_mixed_by_the_embedders_share() -> None:
    both = [candidate("a", text=0.8, vector=0.2), candidate("b", text=0.2, vector=0.8)]
    assert by_id(rank(both, RELEVANCE, NOW, 9, SHARE)) == pytest.approx(
        {"a": relevance(0.75 * 0.8 + 0.25 * 0.2), "b": relevance(0.75 * 0.2 + 0.25 * 0.8)}
    )


def test_a_short_memorys_vector_counts_for_less_and_its_words_for_more() -> None:
    found = by_id(rank([candidate("a", 1, 1), candidate("b", vector=1, words=5)], RELEVANCE, NOW, 9, 0.4))
    assert found == pytest.approx({"a": relevance(1.0), "b": relevance(0.4 * 0.5)})


def test_if_one_of_the_two_found_nothing_only_the_other_counts() -> None:
    assert by_id(rank([candidate("a", vector=0.3)], RELEVANCE, NOW, 9, SHARE)) == {"a": relevance(0.3)}
    assert by_id(rank([candidate("a", text=0.3)], RELEVANCE, NOW, 9, SHARE)) == {"a": relevance(0.3)}
    assert rank([candidate("a", vector=-0.1)], RELEVANCE, NOW, 9, SHARE) == []


def test_a_request_can_set_the_weight_of_vectors() -> None:
    both = [candidate("words", text=1), candidate("near", vector=1)]
    for share, expected in ((0.0, {"words": 1.0}), (1.0, {"near": 1.0}), (0.3, {"words": 0.7, "near": 0.3})):
        weights = Weights(relevance=1, significance=0, recency=0, vector=share)
        wanted = {id: relevance(match) for id, match in expected.items()}
        assert by_id(rank(both, weights, NOW, 9, SHARE)) == pytest.approx(wanted)
    words_alone = Weights(vector=0.0)
    assert rank([candidate("near", vector=1)], words_alone, NOW, 9, SHARE) == []


def test_equal_scores_come_in_order_of_id_and_no_more_than_asked_for() -> None:
    found = rank([candidate(id, text=1) for id in "cab"], RELEVANCE, NOW, 2, SHARE)
    assert [hit.id for hit in found] == ["a", "b"]


def test_recency_has_a_half_life_and_future_times_count_as_now() -> None:
    old = Candidate(id="old", significance=0, recent_ms=NOW - RECENCY_HALF_LIFE_MS, text=1)
    ahead = Candidate(id="ahead", significance=0, recent_ms=NOW + 5, text=1)
    found = {hit.id: hit.recency for hit in rank([old, ahead], Weights(), NOW, 9, SHARE)}
    assert found == {"old": 0.5, "ahead": 1.0}
