"""Laws of the weights of words."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wonder_server.core.memory.term_weights import (
    LONG_WORDS,
    MIN_COUNT,
    long_text_divisor,
    name_holders,
    rarity,
)

counts = st.integers(0, 10**6)


@given(count=counts, few=counts, more=counts)
def test_a_word_in_more_memories_weighs_no_more(count: int, few: int, more: int) -> None:
    few, more = sorted((few, more))
    assert rarity(count, few) >= rarity(count, more) > 0


def test_among_few_memories_a_word_is_as_rare_as_among_a_hundred() -> None:
    assert rarity(1, 1) == rarity(MIN_COUNT, 1) > 4


@given(texts=counts, by_speaker=counts)
def test_the_holders_of_a_name_lie_between_its_texts_and_its_speakers_texts(
    texts: int, by_speaker: int
) -> None:
    holders = name_holders(texts, by_speaker)
    assert min(max(texts, 1), by_speaker) - 1e-6 <= holders or holders == texts
    assert holders <= max(texts, by_speaker, 1)


def test_a_name_that_is_seldom_said_is_rarer_than_its_speakers_texts() -> None:
    assert name_holders(4, 400) == pytest.approx(40)
    assert name_holders(50, 20) == 50


@given(few=st.floats(0, 10**5), more=st.floats(0, 10**5))
def test_longer_texts_are_divided_by_no_less(few: float, more: float) -> None:
    few, more = sorted((few, more))
    assert 1 <= long_text_divisor(few) <= long_text_divisor(more)


def test_texts_of_usual_length_are_not_divided() -> None:
    assert long_text_divisor(LONG_WORDS) == 1.0
    assert 1.1 < long_text_divisor(2 * LONG_WORDS) < 1.2
