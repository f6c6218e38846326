"""Tests of texts of other programs on one line."""

from __future__ import annotations

import pytest

from wonder_server.core.printable import printable, quoted


@pytest.mark.parametrize(
    ("text", "most", "shown"),
    [
        ("plain, größer 你好 🙂\n", 30, "plain, größer 你好 🙂"),
        ("a\nb\tc\x00\x1b[31m", 30, r"a\nb\tc\x00\x1b[31m"),
        ("\u202e\ud800\x85", 30, r"\u202e\ud800\x85"),
        ("x" * 10, 10, "x" * 10),
        ("x" * 11, 10, "x" * 10 + "…"),
        ("\n" * 5 + "x", 10, r"\n\n\n\n\n" + "…"),
    ],
)
def test_a_text_is_shown_on_one_line_up_to_its_maximum_length(text: str, most: int, shown: str) -> None:
    assert printable(text, most) == shown


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("The disk is full.\nTraceback (most recent call last):\n  File", "The disk is full."),
        ("Traceback (most recent call last):\n  File", "no reason was given"),
        (" \n", "no reason was given"),
    ],
)
def test_a_reason_is_quoted_without_a_stack_trace(text: str, shown: str) -> None:
    assert quoted(text) == shown
