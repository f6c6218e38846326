"""Dates in questions, as periods in UTC."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wonder_server.core.memory.dates import MAX_PERIODS, Period, mentioned_periods

NOW = datetime(2023, 5, 17, 15, 30, tzinfo=UTC)  # A Wednesday.


def ms(*parts: int) -> int:
    return int(datetime(*parts, tzinfo=UTC).timestamp() * 1000)  # type: ignore[misc, arg-type]


def periods(text: str, now: datetime = NOW) -> list[tuple[str, str]]:
    found = mentioned_periods(text, int(now.timestamp() * 1000))
    return [
        tuple(
            datetime.fromtimestamp(each / 1000, UTC).isoformat()[:10] for each in (one.start_ms, one.end_ms)
        )
        for one in found
    ]  # type: ignore[misc]


@pytest.mark.parametrize(
    ("text", "start", "end"),
    [
        ("What did we say in May 2023?", "2023-05-01", "2023-06-01"),
        ("what happened in Feb. 2022", "2022-02-01", "2022-03-01"),
        ("What did she do on 7 May 2023?", "2023-05-07", "2023-05-08"),
        ("the 7th of May", "2023-05-07", "2023-05-08"),
        ("May 7th, 2022", "2022-05-07", "2022-05-08"),
        ("on August 3", "2022-08-03", "2022-08-04"),
        ("in December", "2022-12-01", "2023-01-01"),
        ("in March", "2023-03-01", "2023-04-01"),
        ("on 2023-04-30", "2023-04-30", "2023-05-01"),
        ("notes of 2023/04", "2023-04-01", "2023-05-01"),
        ("in 2021", "2021-01-01", "2022-01-01"),
        ("what did I eat yesterday?", "2023-05-16", "2023-05-17"),
        ("the day before yesterday", "2023-05-15", "2023-05-16"),
        ("last week", "2023-05-08", "2023-05-15"),
        ("last month", "2023-04-01", "2023-05-01"),
        ("last year", "2022-01-01", "2023-01-01"),
        ("three days ago", "2023-05-14", "2023-05-15"),
        ("a couple of weeks ago", "2023-04-30", "2023-05-07"),
        ("2 years ago", "2020-11-16", "2021-11-16"),
        ("in the last two weeks", "2023-05-03", "2023-05-18"),
        ("over the past 3 days", "2023-05-14", "2023-05-18"),
        ("on Monday", "2023-05-15", "2023-05-16"),
        ("last Wednesday", "2023-05-10", "2023-05-11"),
        ("Wednesday", "2023-05-17", "2023-05-18"),
    ],
)
def test_a_date_is_a_period(text: str, start: str, end: str) -> None:
    assert periods(text) == [(start, end)]


@pytest.mark.parametrize(
    "text",
    [
        "May I ask you something?",
        "We march in a parade",
        "in May 2024",
        "on 31 February 2023",
        "on 2023-13-45",
        "the year 2099",
        "flat 2021",
        "¿qué dije en mayo de 2023?",
        "",
        "99 of May 99999",
    ],
)
def test_other_words_and_times_to_come_are_no_periods(text: str) -> None:
    assert periods(text) == []


def test_a_month_without_a_year_is_the_latest_that_has_begun() -> None:
    assert periods("in January", datetime(2023, 1, 1, tzinfo=UTC)) == [("2023-01-01", "2023-02-01")]
    assert periods("last month", datetime(2023, 1, 9, tzinfo=UTC)) == [("2022-12-01", "2023-01-01")]


def test_several_dates_come_in_their_order_and_a_list_of_dates_counts_as_none() -> None:
    assert periods("in 2021 or in March") == [("2021-01-01", "2022-01-01"), ("2023-03-01", "2023-04-01")]
    assert periods(" ".join(f"2023-01-0{day}" for day in range(1, MAX_PERIODS + 2))) == []


def test_a_period_knows_the_words_that_name_it() -> None:
    [period] = mentioned_periods("Where did I go on May 7th, 2022?", ms(2023, 1, 1))
    assert period.words == ("may", "7th", "2022")


def test_closeness_is_one_inside_and_falls_to_zero_within_the_length_of_the_period() -> None:
    may = Period(ms(2023, 5, 1), ms(2023, 6, 1))
    assert may.closeness(ms(2023, 5, 1)) == may.closeness(ms(2023, 6, 1) - 1) == 1.0
    assert may.closeness(ms(2023, 6, 16, 12)) == pytest.approx(0.5, abs=0.01)
    assert may.closeness(ms(2023, 3, 1)) == may.closeness(ms(2023, 8, 1)) == 0.0
    day = Period(ms(2023, 5, 1), ms(2023, 5, 2))
    assert day.closeness(ms(2023, 5, 3)) == pytest.approx(0.5, abs=0.01)


@given(text=st.text(alphabet="may 0123456789-/,.agolstwekdnuryh", max_size=60) | st.text(max_size=80),
       now_ms=st.integers(-(10**16), 10**16))  # fmt: skip
def test_any_text_at_any_time_gives_periods_that_have_begun(text: str, now_ms: int) -> None:
    for period in mentioned_periods(text, now_ms):
        assert period.start_ms <= now_ms
        assert period.start_ms < period.end_ms
        assert 0.0 <= period.closeness(now_ms) <= 1.0
        assert period.closeness(period.start_ms) == 1.0
