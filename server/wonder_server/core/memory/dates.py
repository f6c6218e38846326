"""Dates in a question: "in May 2023", "on 3 March", "two weeks ago", "last Tuesday".

A date becomes a `Period` in UTC, relative to the time at which the question is asked. Memories that were said
in it count for more (`ranking`). English only; a question in another language has no periods. Dates in the
future have none either: no memory was said then.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

MAX_PERIODS: Final = 4
"""Maximum number of periods of one question. A text with more dates is a list, not a question about one."""
MIN_SLACK_MS: Final = 2 * 24 * 3600 * 1000
"""Minimum slack of a period: people often mention an event a day or two later."""

_DAY: Final = timedelta(days=1)
_MONTHS: Final = {
    name: number
    for number, names in enumerate(
        ("january jan", "february feb", "march mar", "april apr", "may", "june jun", "july jul", "august aug",
         "september sept sep", "october oct", "november nov", "december dec"),
        1,
    )
    for name in names.split()
}  # fmt: skip
_WEEKDAYS: Final = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
_COUNTS: Final = {
    word: number
    for number, words in enumerate(("", "a an one", "two", "three", "four", "five", "six", "seven", "eight",
                                    "nine", "ten", "eleven", "twelve"))
    for word in words.split()
}  # fmt: skip
_DAYS_IN: Final = {"day": 1, "week": 7, "month": 30, "year": 365}
_MONTH: Final = "(?P<month>" + "|".join(sorted(_MONTHS, key=len, reverse=True)) + r")\.?"
_DATE: Final = r"(?P<day>\d{1,2})(?:st|nd|rd|th)?"
_YEAR: Final = r"(?P<year>(?:19|20)\d\d)"
_COUNT: Final = r"(?P<count>\d{1,3}|" + "|".join(_COUNTS) + r"|(?:a )?couple of|(?:a )?few)"
_UNIT: Final = "(?P<unit>day|week|month|year)"


@dataclass(frozen=True, slots=True)
class Period:
    """A time from ``start_ms`` (inclusive) to ``end_ms`` (exclusive), in milliseconds since 1970.

    ``words`` are the words of the question that name it, in lower case.
    """

    start_ms: int
    end_ms: int
    words: tuple[str, ...] = ()

    @property
    def slack_ms(self) -> int:
        """Return the distance from the period at which `closeness` has fallen to 0: its own length."""
        return max(self.end_ms - self.start_ms, MIN_SLACK_MS)

    def closeness(self, at_ms: int) -> float:
        """Return 1 for a time in the period, falling to 0 at the distance `slack_ms` from it."""
        distance = max(self.start_ms - at_ms, at_ms - self.end_ms + 1, 0)
        return max(0.0, 1.0 - distance / self.slack_ms)


def mentioned_periods(text: str, now_ms: int) -> tuple[Period, ...]:
    """Return the periods that a question names, in their order, none of them in the future.

    A date without a year is its latest occurrence that has begun. More than `MAX_PERIODS` dates count as
    none.
    """
    try:
        now = datetime.fromtimestamp(now_ms / 1000, UTC)
    except (OverflowError, OSError, ValueError):
        return ()
    found: dict[int, Period] = {}
    rest = text.lower()
    if not _HINT.search(rest):
        return ()
    for pattern, read in _RULES:
        for match in pattern.finditer(rest):
            try:
                span = read(match, now)
            except (ValueError, OverflowError):  # 31 February, or a year before 1.
                span = None
            if span is not None and span[0] <= now:
                words = tuple(re.findall(r"[^\W_]+", match[0]))
                found[match.start()] = Period(_ms(span[0]), _ms(span[1]), words)
        # A later rule must not read a part of this date again: "3 May 2023" contains "May 2023".
        rest = pattern.sub(lambda match: " " * len(match[0]), rest)
    periods = tuple(found[start] for start in sorted(found))
    return periods if len(periods) <= MAX_PERIODS else ()


_Span = tuple[datetime, datetime]


def _ms(time: datetime) -> int:
    return int(time.timestamp() * 1000)


def _midnight(time: datetime) -> datetime:
    return time.replace(hour=0, minute=0, second=0, microsecond=0)


def _month_span(year: int, month: int) -> _Span:
    start = datetime(year, month, 1, tzinfo=UTC)
    return start, (start + timedelta(days=31)).replace(day=1)


def _days_back(now: datetime, days: int, length: int = 1) -> _Span:
    """Return ``length`` whole days, the first of them ``days`` before today."""
    start = _midnight(now) - days * _DAY
    return start, start + length * _DAY


def _iso(match: re.Match[str], now: datetime) -> _Span:
    year, month = int(match["year"]), int(match["month"])
    if match["day"] is None:
        return _month_span(year, month)
    start = datetime(year, month, int(match["day"]), tzinfo=UTC)
    return start, start + _DAY


def _named_day(match: re.Match[str], now: datetime) -> _Span:
    month, day = _MONTHS[match["month"]], int(match["day"])
    year = int(match["year"]) if match["year"] else now.year
    start = datetime(year, month, day, tzinfo=UTC)
    if start > now and not match["year"]:
        start = datetime(year - 1, month, day, tzinfo=UTC)
    return start, start + _DAY


def _named_month(match: re.Match[str], now: datetime) -> _Span:
    month = _MONTHS[match["month"]]
    given = match.groupdict().get("year")
    year = int(given) if given else now.year
    return _month_span(year - (not given and month > now.month), month)


def _year(match: re.Match[str], now: datetime) -> _Span:
    year = int(match["year"])
    return datetime(year, 1, 1, tzinfo=UTC), datetime(year + 1, 1, 1, tzinfo=UTC)


def _near_day(match: re.Match[str], now: datetime) -> _Span:
    return _days_back(now, 2 if match["before"] else 1)


def _last_unit(match: re.Match[str], now: datetime) -> _Span:
    """Return the calendar week (from Monday), month or year before the present one."""
    if match["unit"] == "week":
        return _days_back(now, now.weekday() + 7, 7)
    if match["unit"] == "month":
        return _month_span(now.year - (now.month == 1), (now.month - 2) % 12 + 1)
    return datetime(now.year - 1, 1, 1, tzinfo=UTC), datetime(now.year, 1, 1, tzinfo=UTC)


def _past_units(match: re.Match[str], now: datetime) -> _Span:
    days = _count(match["count"]) * _DAYS_IN[match["unit"]]
    return now - days * _DAY, now + _DAY


def _ago(match: re.Match[str], now: datetime) -> _Span:
    """Return one unit around the time: three weeks ago is any of the seven days around it."""
    unit = _DAYS_IN[match["unit"]]
    return _days_back(now, _count(match["count"]) * unit + unit // 2, unit)


def _weekday(match: re.Match[str], now: datetime) -> _Span:
    days = (now.weekday() - _WEEKDAYS.index(match["weekday"])) % 7
    return _days_back(now, days or (7 if match["last"] else 0))


def _count(word: str) -> int:
    if word.endswith("couple of"):
        return 2
    if word.endswith("few"):
        return 3
    return int(word) if word.isdigit() else _COUNTS[word]


_HINT: Final = re.compile(rf"\d\d|ago\b|day\b|\b(?:last|past|previous|{'|'.join(_MONTHS)})\b")
"""A part of every date. Most questions have none of them, and one pattern is quicker than eleven."""
_Reader = Callable[[re.Match[str], datetime], _Span]
_RULES: Final[tuple[tuple[re.Pattern[str], _Reader], ...]] = tuple(
    (re.compile(rf"\b(?:{pattern})\b"), read)
    for pattern, read in (
        (r"(?P<year>(?:19|20)\d\d)[-/](?P<month>\d{1,2})(?:[-/](?P<day>\d{1,2}))?", _iso),
        (rf"{_DATE}(?: of)? {_MONTH}(?:,? {_YEAR})?", _named_day),
        (rf"{_MONTH} {_DATE}(?:,? {_YEAR})?", _named_day),
        (rf"{_MONTH},? (?:of )?{_YEAR}", _named_month),
        # "may" and "march" are verbs too, so a month alone needs a word before it.
        (rf"(?:in|since|during|last|early|late|mid|around|until) {_MONTH}", _named_month),
        (rf"(?:in|since|during|of|around|year) {_YEAR}", _year),
        (r"(?P<before>the day before )?yesterday|last night", _near_day),
        (rf"(?:in |over |during |within )?the (?:last|past) {_COUNT} {_UNIT}s?", _past_units),
        (r"(?:last|previous) (?P<unit>week|month|year)", _last_unit),
        (rf"{_COUNT} {_UNIT}s? ago", _ago),
        (rf"(?P<last>last )?(?P<weekday>{'|'.join(_WEEKDAYS)})", _weekday),
    )
)
