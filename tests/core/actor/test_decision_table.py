"""Tests of the table of decisions (`wonder_server.core.actor.decision_table`)."""

from __future__ import annotations

import pytest

from wonder_server.core.actor.changes import Delete
from wonder_server.core.actor.commands import Stop
from wonder_server.core.actor.decision_table import DecisionHandlers, commanding, decision_table
from wonder_server.core.frozen import Value


class Add(Value, frozen=True, kw_only=True):
    number: int


class Skip(Value, frozen=True, kw_only=True):
    pass


class Unknown(Value, frozen=True, kw_only=True):
    pass


Decision = Add | Skip


def add(state: list[int], decision: Add) -> None:
    state.append(decision.number)


def delete(state: list[int], decision: Add) -> tuple[Delete, ...]:
    return (Delete("numbers", str(decision.number)),)


ADD = DecisionHandlers(Add, apply=add, record=delete)
SKIP = DecisionHandlers[list[int], Skip](Skip)


def test_a_row_holds_the_handlers_of_its_class() -> None:
    handlers, state, decision = decision_table(Decision, ADD, SKIP), [1], Add(number=2)
    handlers[Add].apply(state, decision)
    assert state == [1, 2]
    assert handlers[Add].record(state, decision) == (Delete("numbers", "2"),)


def test_a_handler_that_is_not_given_does_nothing() -> None:
    handlers, state = decision_table(Decision, ADD, SKIP), [1]
    handlers[Skip].apply(state, Skip())
    assert state == [1]
    assert not handlers[Skip].record(state, Skip())
    assert not handlers[Skip].commands(state, Skip())


def test_only_classes_with_a_handler_of_commands_have_commands() -> None:
    stop = DecisionHandlers[list[int], Skip](
        Skip, commands=lambda state, decision: (Stop(operation_id="op"),)
    )
    assert commanding(decision_table(Decision, ADD, stop)) == {Skip}
    assert commanding(decision_table(Decision, ADD, SKIP)) == frozenset()


def test_a_class_without_a_row_is_an_error() -> None:
    with pytest.raises(TypeError, match="Skip"):
        decision_table(Decision, ADD)


def test_a_class_with_two_rows_is_an_error() -> None:
    with pytest.raises(TypeError, match="Add"):
        decision_table(Decision, ADD, SKIP, ADD)


def test_a_class_outside_the_union_is_an_error() -> None:
    with pytest.raises(TypeError, match="Unknown"):
        decision_table(Decision, ADD, SKIP, DecisionHandlers[list[int], Unknown](Unknown))
