"""Pages of decisions from a journal."""

from __future__ import annotations

import pytest

from wonder_server.actors.conversation import decision_log
from wonder_server.actors.conversation.decision_log import DecisionFilter, Place, decided_after
from wonder_server.core.conversation.model.decisions import Decision, MarkWaiting, MemoryWritten, WriteMemory
from wonder_server.core.conversation.model.inputs import Restarted
from wonder_server.core.conversation.model.values import Operation, OperationKind
from wonder_server.core.idempotency import CompletedRequest
from wonder_server.ports.journal import Entry, Loaded

CONVERSATION_ID = "conv_1"


class Journal:
    """A journal in memory. ``first`` is the sequence of its first entry."""

    def __init__(self, *entries: tuple[Decision, ...], first: int = 1) -> None:
        self.found = [
            Entry(number, 1000 + number, Restarted(operation_id="op"), decisions)
            for number, decisions in enumerate(entries, first)
        ]
        self.reads = 0

    async def entries(self, actor_id: str, after: int, limit: int) -> list[Entry]:
        assert actor_id == CONVERSATION_ID
        self.reads += 1
        return [each for each in self.found if each.sequence > after][:limit]

    async def load(self, actor_id: str) -> Loaded | None:
        raise AssertionError

    async def completed_request(self, scope: str, request_id: str) -> CompletedRequest | None:
        raise AssertionError


def wait(turn: int) -> Decision:
    return MarkWaiting(turn_id=f"turn_{turn}", operation_id=f"op_{turn}")


def write(turn: int) -> Decision:
    operation = Operation(id=f"op_{turn}", turn_id=f"turn_{turn}", kind=OperationKind.MEMORY, input={})
    return WriteMemory(operation=operation)


def written(turn: int) -> Decision:
    return MemoryWritten(operation_id=f"op_{turn}", output=None)


Found = list[tuple[int, int, str, str]]


async def listed(journal: Journal, wanted: DecisionFilter, limit: int) -> tuple[Found, int]:
    """Return all decisions page by page, and the number of pages."""
    found: Found = []
    place: Place | None = Place()
    pages = 0
    while place is not None:
        page, place = await decided_after(journal, CONVERSATION_ID, place, wanted, limit)
        assert len(page) <= limit
        found += [(each.place.sequence, each.place.index, each.line.type, each.line.turn_id) for each in page]
        pages += 1
    return found, pages


ENTRIES = [
    (wait(1), write(1), wait(2)),
    (),
    (written(1), write(2)),
    *[(wait(1),)] * 30,
    (written(2), wait(2)),
]


@pytest.mark.parametrize("limit", [1, 2, 7, 500])
async def test_pages_of_any_size_list_the_same(limit: int) -> None:
    journal = Journal(*ENTRIES)
    found, _ = await listed(journal, DecisionFilter(), limit)
    assert [(sequence, index) for sequence, index, _, _ in found] == [
        (number, index)
        for number, decisions in enumerate(ENTRIES, 1)
        for index in range(1, len(decisions) + 1)
    ]
    # The end of a memory operation names only its operation, which an earlier page may have shown.
    mine, _ = await listed(journal, DecisionFilter(turn_id="turn_2"), limit)
    assert mine == [
        (1, 3, "MARK_WAITING", "turn_2"),
        (3, 2, "WRITE_MEMORY", "turn_2"),
        (34, 1, "MEMORY_WRITTEN", "turn_2"),
        (34, 2, "MARK_WAITING", "turn_2"),
    ]
    some, _ = await listed(journal, DecisionFilter(types=("MEMORY_WRITTEN",)), limit)
    assert [turn for _, _, _, turn in some] == ["turn_1", "turn_2"]


async def test_a_page_without_a_match_ends_and_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decision_log, "MAX_ENTRIES", 20)
    journal = Journal(*[(wait(1),)] * 95, (wait(2),))
    found, pages = await listed(journal, DecisionFilter(turn_id="turn_2"), 10)
    assert [sequence for sequence, *_ in found] == [96] and pages == 6


async def test_a_journal_that_begins_late_is_listed_from_its_first_entry() -> None:
    found, _ = await listed(Journal((wait(1),), (wait(2),), first=41), DecisionFilter(), 1)
    assert [sequence for sequence, *_ in found] == [41, 42]


async def test_an_empty_journal_has_no_decisions() -> None:
    assert await listed(Journal(), DecisionFilter(), 5) == ([], 1)
