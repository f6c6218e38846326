"""Tests of the queue that serves its callers in turn."""

from __future__ import annotations

import pytest

from wonder_server.core.round_robin import RoundRobin


def test_callers_are_served_in_turn_and_their_items_in_order() -> None:
    line = RoundRobin[str]()
    for item, name in (("a1", "ann"), ("a2", "ann"), ("a3", "ann"), ("b1", "bob"), ("b2", "bob")):
        line.append(item, name)
    assert [line.popleft() for _ in range(5)] == ["a1", "b1", "a2", "b2", "a3"]
    assert not line
    with pytest.raises(IndexError):
        line.popleft()


def test_a_skipped_caller_keeps_its_place() -> None:
    line = RoundRobin[int]()
    for number, name in enumerate(("ann", "bob", "carl")):
        line.append(number, name)
    assert line.pop_for(lambda name: name == "bob") == ("bob", 1)
    assert line.pop_for(lambda name: False) is None
    assert line.popleft() == 0


def test_an_item_that_is_removed_is_not_served() -> None:
    line = RoundRobin[int]()
    line.append(1, "ann")
    line.append(2, "ann")
    line.remove(1, "ann")
    assert line.popleft() == 2
    with pytest.raises(ValueError):
        line.remove(2, "ann")
