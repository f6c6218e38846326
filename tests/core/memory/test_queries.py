"""Questions: their periods, and the side of the conversation that they ask for."""

from __future__ import annotations

import pytest

from wonder_server.core.memory.queries import MemoryQuery, read_query
from wonder_server.core.memory.records import AGENT, USER, Role

NOW_MS = 1_684_337_400_000


@pytest.mark.parametrize(
    ("text", "role"),
    [
        ("What did you suggest for the trip?", AGENT),
        ("You've already recommended a hotel.", AGENT),
        ("the list that you gave me", AGENT),
        ("What did I say about my budget?", USER),
        ("As I mentioned, the garden is small", USER),
        ("what I mentioned to you", USER),
        ("What did you say when I asked about tea?", ""),
        ("Can you help me? I want a plan.", ""),
        ("Which database?", ""),
    ],
)
def test_a_question_for_something_said_asks_for_a_side(text: str, role: Role) -> None:
    assert read_query(text, NOW_MS).role == role


def test_a_question_has_its_text_and_its_periods() -> None:
    asked = read_query("What did I say yesterday?", NOW_MS)
    assert (asked.text, asked.role, len(asked.periods)) == ("What did I say yesterday?", USER, 1)
    assert read_query("tea", NOW_MS) == MemoryQuery("tea")
