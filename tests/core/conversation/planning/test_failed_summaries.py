"""Tests of summaries that fail: they are not tried again with every turn."""

from __future__ import annotations

import itertools

import pytest

from tests.core.conversation.context.test_window import small, text
from tests.core.conversation.conversation_kit import ASSEMBLED, Driven, send, text_answer
from tests.replacing import replace
from wonder_server.core.conversation.model import inputs
from wonder_server.core.conversation.model.values import OperationKind, TurnStatus
from wonder_server.core.definitions.specs import PinnedAgent

WHO = small(summarize=True)


def tries(driven: Driven, number: int, rules: int, who: PinnedAgent = WHO, summary: str = "") -> bool:
    """Complete a turn of 200 tokens; a summary returns ``summary``. Return True if one was asked for."""
    event = send(f"turn {number}", text(number), agent=who)
    driven.step(replace(event, rules=rules))
    tried = False
    while driven.turn.status is TurnStatus.ACTIVE:
        (operation,) = driven.state.pending(driven.turn.id)
        if operation.kind is OperationKind.MODEL:
            driven.step(inputs.ModelAnswered(operation_id=operation.id, result=text_answer(text(number))))
            continue
        tried = tried or operation.kind is OperationKind.SUMMARY
        output = {"summary": summary} if operation.kind is OperationKind.SUMMARY else ASSEMBLED
        driven.step(inputs.Succeeded(operation_id=operation.id, output=output))
    return tried


def turns_that_try(rules: int, summary: str = "", tokens: int = 3000) -> list[int]:
    driven, who = Driven(begin=False), small(tokens, summarize=True)
    return [number for number in range(1, 40) if tries(driven, number, rules, who, summary)]


def test_a_failed_summary_is_tried_again_once_the_history_has_grown_by_a_step() -> None:
    tried = turns_that_try(4)
    # A step is a quarter of the window.
    assert len(tried) >= 3
    assert all(later - earlier >= 2 for earlier, later in itertools.pairwise(tried))
    every_turn = turns_that_try(3)
    assert tried[0] == every_turn[0] and len(tried) <= len(every_turn) // 2


def test_turns_of_earlier_rules_try_as_they_did() -> None:
    tried = turns_that_try(3)
    assert tried == list(range(tried[0], 40))


@pytest.mark.parametrize("rules", [3, 4])
def test_summaries_that_succeed_are_made_as_before(rules: int) -> None:
    assert turns_that_try(rules, "It was about x.") == turns_that_try(3, "It was about x.") != []
