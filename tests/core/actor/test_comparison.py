"""Replayed decisions are compared without the messages of faults."""

from __future__ import annotations

import pytest

from tests.replacing import replace
from wonder_server.core.actor.comparison import same_decisions
from wonder_server.core.coordinator.model.decisions import RefuseRun
from wonder_server.core.errors import Fault, Reason

FAULT = Fault(reason=Reason.INPUT_INVALID, message="Old words.", metadata={"gate": "g"})
REFUSAL = RefuseRun(fault=FAULT)


@pytest.mark.parametrize(
    ("change", "same"),
    [
        ({}, True),
        ({"message": "New words."}, True),
        ({"reason": Reason.INTERNAL}, False),
        ({"field": "input"}, False),
        ({"metadata": {"gate": "h"}}, False),
    ],
)
def test_only_the_message_of_a_fault_may_differ(change: dict[str, object], same: bool) -> None:
    planned = (replace(REFUSAL, fault=replace(FAULT, **change)),)
    assert same_decisions((REFUSAL,), planned) is same


def test_other_values_are_compared_whole() -> None:
    assert not same_decisions((REFUSAL,), ())
    assert not same_decisions((REFUSAL,), (REFUSAL, REFUSAL))
    assert not same_decisions(("a message",), ("another message",))
