"""The decision records: numbers without gaps, one form, and no reference to a record that does not exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
RECORDS = sorted((ROOT / "docs" / "adr").iterdir())
PARTS = ["Status", "Context", "Decision", "Alternatives", "Consequences"]
SUFFIXES = {".py", ".md", ".in", ".proto", ".toml", ".yaml"}
FOLDERS = ("server", "sdk", "tests", "tools", "bench", "examples", "docs", "proto")

FILE = re.compile(r"\d{4}-[a-z0-9-]+\.md")
NAMED = re.compile(r"adr/(\d{4}[\w.-]*)")
LINKED = re.compile(r"\]\((\d{4}-[\w-]+\.md)\)")
NUMBERED = re.compile(r"\bADR (\d+)")


def sources() -> list[Path]:
    top = [path for path in ROOT.iterdir() if path.is_file()]
    below = [path for folder in FOLDERS for path in (ROOT / folder).rglob("*")]
    return sorted(path for path in [*top, *below] if path.suffix in SUFFIXES and path != Path(__file__))


def test_records_are_numbered_without_gaps() -> None:
    assert [path.name for path in RECORDS if not FILE.fullmatch(path.name)] == []
    assert [int(path.name[:4]) for path in RECORDS] == list(range(1, len(RECORDS) + 1))


@pytest.mark.parametrize("path", RECORDS, ids=lambda path: path.stem)
def test_a_record_has_the_one_form(path: Path) -> None:
    title, *lines = path.read_text(encoding="utf-8").splitlines()
    assert re.fullmatch(rf"# {int(path.name[:4])}\. \S.*", title)
    assert not [line for line in lines if line.startswith("#")]
    assert re.findall(r"^\*\*([A-Z][a-z]+)\.\*\*", "\n".join(lines), re.MULTILINE) == PARTS


def test_every_record_that_is_referred_to_exists() -> None:
    names = {path.name for path in RECORDS}
    missing = []
    for source in sources():
        text = source.read_text(encoding="utf-8")
        links = LINKED.findall(text) if source.parent.name == "adr" else []
        for name in (*links, *(found.rstrip(".") for found in NAMED.findall(text))):
            if not any(
                each.startswith(name) and len(name) in (4, len(each), len(each) - 3) for each in names
            ):
                missing.append(f"{source.relative_to(ROOT)}: {name}")
        for number in NUMBERED.findall(text):
            if not 1 <= int(number) <= len(RECORDS):
                missing.append(f"{source.relative_to(ROOT)}: ADR {number}")
    assert missing == []
