"""Tests of the words of a query: what matches, how well, and what is shown."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wonder_server.core.errors import Reason, WonderError
from wonder_server.core.history.text_query import (
    MAX_QUERY_CHARACTERS,
    MAX_QUERY_WORDS,
    SCORED_CHARACTERS,
    SNIPPET_CHARACTERS,
    one_line,
    quoted,
    text_query,
)


@pytest.mark.parametrize(
    ("query", "text"),
    [
        ("deploy", "Deployment on Friday"),
        ("FRIDAY deploy", "Deployment on Friday"),
        ("über", "ÜBER uns"),
        ("strasse", "Strasse"),
        ("１２", "house 12"),
        ("会議", "明日の会議は中止"),
        ("a.b", "a and b"),
        ("user_id", "the id of the user"),
        ("it's", "it s"),
    ],
)
def test_a_text_with_all_words_matches(query: str, text: str) -> None:
    assert text_query(query).matches(text)
    assert 0 < text_query(query).score(text) <= 1


@pytest.mark.parametrize(
    ("query", "text"),
    [("ploy", "Deployment"), ("deploy monday", "Deployment on Friday"), ("tea", "steam"), ("a", "")],
)
def test_a_text_without_one_of_the_words_does_not_match(query: str, text: str) -> None:
    assert not text_query(query).matches(text)


@pytest.mark.parametrize("query", ["", " \n", "!?*\"'()", "___", "🙂", "x" * (MAX_QUERY_CHARACTERS + 1)])
def test_a_query_without_words_or_above_its_size_is_refused(query: str) -> None:
    with pytest.raises(WonderError) as caught:
        text_query(query)
    assert (caught.value.fault.reason, caught.value.fault.field) == (Reason.FIELD_INVALID, "query")
    assert len(caught.value.fault.message) < 200


def test_a_query_with_too_many_words_is_refused() -> None:
    assert (
        len(text_query(" ".join(f"w{n}" for n in range(MAX_QUERY_WORDS)) + " w0 W1").words) == MAX_QUERY_WORDS
    )
    with pytest.raises(WonderError, match="has 17 words; the maximum is 16"):
        text_query(" ".join(f"w{n}" for n in range(MAX_QUERY_WORDS + 1)))


@pytest.mark.parametrize(
    "query",
    [
        '"tea"',
        "tea OR coffee*",
        "NEAR(tea, 2)",
        "tea AND NOT milk",
        "-tea",
        "content:tea",
        "(tea",
        "te[a",
        "'; --",
    ],
)
def test_operators_are_words_or_nothing(query: str) -> None:
    try:
        words = text_query(query).words
    except WonderError:
        assert query == "'; --"
    else:
        assert all(word.isalnum() for word in words)


def test_a_whole_word_counts_more_than_its_beginning_and_often_more_than_once() -> None:
    query = text_query("tea")
    assert query.score("tea tea tea") > query.score("tea") > query.score("teapot") > 0
    assert query.score("tea") > query.score("tea" + " and so on" * 50)


def test_a_snippet_shows_the_first_match_in_one_line() -> None:
    text = "start\n" * 100 + "[agent critic] I agree:\n tea is\r\ngood\u2028[user Mia] yes" + " end" * 100
    shown = text_query("tea").snippet(text)
    assert "tea is good [user Mia] yes" in shown
    assert shown.startswith("…") and shown.endswith("…") and len(shown) <= SNIPPET_CHARACTERS + 2
    assert shown.splitlines() == [shown]
    assert text_query("tea").snippet("Green tea.") == "Green tea."


@pytest.mark.parametrize("before", [0, 49_990, 49_998, 50_000, 120_000, 1_000_000])
def test_a_word_is_found_at_any_place_of_a_long_text(before: int) -> None:
    query = text_query("teapot")
    assert query.matches("." * before + "Teapot") and query.matches("的" * before + ".Teapot")
    assert query.snippet("." * before + "Teapot").endswith("Teapot")
    assert 0 < query.score("." * before + "teapot") < 1
    assert not query.matches("x" + "x" * before + "teapot")
    assert not query.matches("." * before + "teap ot")


def test_the_score_of_a_text_depends_on_its_beginning() -> None:
    query = text_query("a b c d e f g h i j k l m n o p")
    text = "a b c d e f g h i j k l m n o p " * (SCORED_CHARACTERS // 32)
    assert query.score(text) == query.score(text + "a " * 100_000)
    assert query.score(text + "?" * 100_000) > query.score("?" * SCORED_CHARACTERS + text) > 0


@given(st.text(max_size=300), st.text(min_size=1, max_size=30))
def test_any_query_finds_or_is_refused_and_shows_one_line(text: str, query: str) -> None:
    try:
        asked = text_query(query)
    except WonderError:
        return
    both = f"{text} {' '.join(asked.words)}"
    assert asked.matches(both) and 0 < asked.score(both) <= 1
    shown = asked.snippet(both)
    assert len(shown.splitlines()) <= 1 and len(shown) <= SNIPPET_CHARACTERS + 2


def test_every_further_line_of_a_quote_begins_with_a_space() -> None:
    assert quoted("a\n[user x] b\r\n\u2028[agent y] c") == "a\n [user x] b\n \n [agent y] c"
    assert quoted("") == ""
    assert one_line(" a\x00b\u202ec \t d\n") == "a b c d"
