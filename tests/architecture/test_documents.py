"""The documents: links and anchors exist, headings are nouns, and a guide begins with a command."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import pytest

from tests.paths import ROOT

DOCUMENTS = sorted(
    [
        *ROOT.glob("*.md"),
        *(ROOT / "docs").rglob("*.md"),
        *(ROOT / "examples").rglob("*.md"),
        *(ROOT / "sdk").rglob("README.md"),
    ]
)
GUIDES = [
    path
    for path in DOCUMENTS
    if path.parent == ROOT / "docs" and path.name not in ("features.md", "security.md")
]
HEADING = re.compile(r"^#+ (.*)$", re.MULTILINE)
FENCED = re.compile(r"^```.*?^```$", re.DOTALL | re.MULTILINE)
LINK = re.compile(r"\]\(([^)\s]+)\)")
INTERROGATIVES = ("What", "Who", "Whose", "How", "Whether", "When", "Where", "Which", "Why")
LINES_BEFORE_A_COMMAND = 30


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


@cache
def headings(path: Path) -> list[str]:
    return HEADING.findall(FENCED.sub("", path.read_text(encoding="utf-8")))


def anchor(heading: str) -> str:
    """Return the anchor that a page of a repository host gives to a heading."""
    return re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-")


@pytest.mark.parametrize("path", DOCUMENTS, ids=name_of)
def test_links_lead_to_files_and_headings(path: Path) -> None:
    broken = []
    for link in LINK.findall(FENCED.sub("", path.read_text(encoding="utf-8"))):
        file, _, fragment = link.partition("#")
        target = (path.parent / file).resolve() if file else path
        if "://" in link:
            continue
        if not target.exists() or (fragment and fragment not in map(anchor, headings(target))):
            broken.append(link)
    assert not broken


@pytest.mark.parametrize("path", [path for path in DOCUMENTS if path.name != "ARCHITECTURE.md"], ids=name_of)
def test_headings_are_nouns(path: Path) -> None:
    assert not [heading for heading in headings(path) if heading.split()[0].strip(":?,") in INTERROGATIVES]


@pytest.mark.parametrize("path", GUIDES, ids=name_of)
def test_a_guide_begins_with_a_command(path: Path) -> None:
    beginning = path.read_text(encoding="utf-8").splitlines()[:LINES_BEFORE_A_COMMAND]
    assert any(line.startswith("```") for line in beginning)
