"""The page of features is whole, and names tests that exist."""

from __future__ import annotations

import re

from tests.paths import ROOT

COUNTS = dict(zip("ABCDEFGHIJKLMNOP", (7, 14, 11, 7, 8, 6, 9, 5, 5, 4, 3, 4, 14, 7, 5, 5), strict=True))
ROW = re.compile(r"^\| ([A-P]\d+) \| [^|]+ \| (done|partly|not yet) \|(.*)\|(.*)\|$", re.MULTILINE)


def rows() -> list[tuple[str, str, str, str]]:
    return ROW.findall((ROOT / "docs" / "features.md").read_text(encoding="utf-8"))


def test_every_feature_has_one_row() -> None:
    ids = [row[0] for row in rows()]
    assert ids == [f"{letter}{number}" for letter, most in COUNTS.items() for number in range(1, most + 1)]


def test_the_tests_that_are_named_exist() -> None:
    named = {name.strip() for *_, tests in rows() for name in tests.split(",") if name.strip()}
    assert not [name for name in sorted(named) if not (ROOT / "tests" / name).is_file()]


def test_what_is_done_or_partly_done_is_shown_by_a_test() -> None:
    assert not [row[0] for row in rows() if row[1] != "not yet" and not row[3].strip()]


def test_what_is_partly_done_says_what_is_missing() -> None:
    partly = [row for row in rows() if row[1] == "partly"]
    silent = {row[0] for row in partly if "Missing" not in row[2]}
    assert silent <= {"J1", "H3"}, "these list what there is"
