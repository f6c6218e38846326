"""Tests of normalization: the library's own result for every text, with short sorts and short pieces."""

from __future__ import annotations

import sys
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wonder_server.core.content import normal_text
from wonder_server.core.content.normal_text import begins_anew, nfkc, with_sorted_runs

MARKS = "\u0300\u0316\u0334\u0345\u0344\u0327\u0f71\u0f72\u0f73\u0f74\u0f75\u0f81\u3099\uff9e\uff9f\U0001e8d0"
STARTERS = "aeÉǖΣ\u09c7\u09be\u0dd9\u0dcf\u1100\u1161\u11a8\uac00\uffc2カﾊ\ufdfa😀𝒜的\u034f\U000110a5\n "


@given(st.lists(st.tuples(st.text(STARTERS, max_size=3), st.text(MARKS, max_size=80)), max_size=12))
def test_a_text_has_the_normal_form_of_the_library(parts: list[tuple[str, str]]) -> None:
    text = "".join(starters + marks for starters, marks in parts)
    assert nfkc(text) == unicodedata.normalize("NFKC", text)


@given(st.text(STARTERS + MARKS), st.integers(min_value=1, max_value=5))
def test_a_text_in_pieces_has_the_normal_form_of_the_whole(text: str, piece: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(normal_text, "PIECE", piece)
        assert nfkc(text) == unicodedata.normalize("NFKC", text)


def test_no_character_that_merges_with_an_earlier_one_begins_anew() -> None:
    for character in map(chr, range(sys.maxunicode + 1)):
        decomposed = unicodedata.decomposition(character)
        if decomposed and not decomposed.startswith("<"):
            assert not decomposed.partition(" ")[2] or not begins_anew(chr(int(decomposed.split()[-1], 16)))
        assert not unicodedata.combining(unicodedata.normalize("NFKD", character)[0]) or not begins_anew(
            character
        )


@given(st.text(STARTERS + MARKS * 9, max_size=300))
def test_the_normalization_has_no_long_run_of_marks_to_sort(text: str) -> None:
    run: list[int] = []
    for each in with_sorted_runs(text) + "a":
        if combining_class := unicodedata.combining(each):
            run.append(combining_class)
        elif each not in "\u0f73\u0f75\u0f81\uff9e\uff9f":
            assert len(run) <= 10 or run == sorted(run)
            run = []


def test_a_megabyte_of_marks_in_the_wrong_order_is_normalized() -> None:
    # An insertion sort of these would move a mark 60 thousand million times.
    high, low = "\u0300" * 249_999, "\u0316" * 250_000
    assert nfkc("a\u0300" + high + low) == "à" + low + high
