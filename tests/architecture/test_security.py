"""The page of promises names tests that exist."""

from __future__ import annotations

import re

from tests.paths import ROOT

ROW = re.compile(r"^\| (.+) \| ([^|]*) \|$", re.MULTILINE)


def promises() -> list[tuple[str, list[str]]]:
    text = (ROOT / "docs" / "security.md").read_text(encoding="utf-8")
    listed = text[: text.index("## What is not promised")]
    found = [(promise, tests) for promise, tests in ROW.findall(listed) if promise != "promise"]
    return [(promise, [name.strip() for name in tests.split(",")]) for promise, tests in found]


def test_the_page_begins_with_what_is_promised() -> None:
    assert (ROOT / "docs" / "security.md").read_text().startswith("# Security\n\n## What is promised\n")
    assert len(promises()) > 20


def test_each_promise_is_shown_by_tests_that_exist() -> None:
    missing = [name for _, tests in promises() for name in tests if not (ROOT / "tests" / name).is_file()]
    assert not missing
