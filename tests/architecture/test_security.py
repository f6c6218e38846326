"""The security page names tests that exist."""

from __future__ import annotations

import re

from tests.paths import ROOT

ROW = re.compile(r"^\| (.+) \| ([^|]*) \|$", re.MULTILINE)


def guarantees() -> list[tuple[str, list[str]]]:
    text = (ROOT / "docs" / "security.md").read_text(encoding="utf-8")
    listed = text[: text.index("## Permissions")]
    found = [(row, tests) for row, tests in ROW.findall(listed) if row != "guarantee"]
    return [(row, [name.strip() for name in tests.split(",")]) for row, tests in found]


def test_the_page_begins_with_the_guarantees() -> None:
    headings = re.findall(r"^#+ .*$", (ROOT / "docs" / "security.md").read_text(), re.MULTILINE)
    assert headings[:2] == ["# Security", "## Guarantees"]
    assert len(guarantees()) > 20


def test_each_guarantee_names_tests_that_exist() -> None:
    missing = [name for _, tests in guarantees() for name in tests if not (ROOT / "tests" / name).is_file()]
    assert not missing
