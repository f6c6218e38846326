"""The requirement files hold every package down to its hash, and no address of an index."""

from __future__ import annotations

import re

import pytest

from tests.paths import ROOT

FILES = ("requirements.txt", "requirements-dev.txt")


def pins(name: str) -> dict[str, str]:
    """Package name to version."""
    return dict(re.findall(r"^([a-z0-9._-]+)==(\S+) \\$", (ROOT / name).read_text(), re.MULTILINE))


@pytest.mark.parametrize("name", FILES)
def test_every_requirement_is_pinned_and_hashed(name: str) -> None:
    text = (ROOT / name).read_text().replace("\\\n", " ")
    lines = [line for line in text.splitlines() if line.strip() and not line.lstrip().startswith("#")]
    assert lines
    for line in lines:
        assert re.match(r"[a-z0-9._-]+==\S+ .*--hash=sha256:[0-9a-f]{64}", line), line


@pytest.mark.parametrize("name", [*FILES, "requirements.in", "requirements-dev.in"])
def test_no_requirement_file_names_an_address(name: str) -> None:
    text = (ROOT / name).read_text()
    assert not re.search(r"://|--(extra-)?index-url|--find-links|--trusted-host|(^|\s)-[if]\s", text)


def test_development_uses_the_versions_that_are_shipped() -> None:
    shipped = pins("requirements.txt")
    assert shipped
    assert shipped.items() <= pins("requirements-dev.txt").items()
