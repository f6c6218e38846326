"""The table of a planner's decisions: each class with its apply, record and commands handlers.

A planner declares every decision class once, in one row::

    HANDLERS = decision_table(
        Decision,
        DecisionHandlers(StartRun, apply=start_run, record=run_started),
        DecisionHandlers(RefuseRun),
    )

    def apply(state: RunState, decision: Decision) -> None:
        HANDLERS[type(decision)].apply(state, decision)

The type checker compares each handler with the class of its row. `decision_table` compares the rows with the
union of decisions when the planner is imported, so a class without a row fails every test.

A lookup costs one dictionary access. A ``match`` tests one class after another, and for frozen values
(`wonder_server.core.frozen`) one test costs as much as making a value.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import UnionType
from typing import Any, Generic, TypeVar, get_args

from wonder_server.core.actor.changes import Change
from wonder_server.core.actor.commands import Command

StateT = TypeVar("StateT")
DecisionT = TypeVar("DecisionT")


def leave_unchanged(state: object, decision: object) -> None:
    """Do not change the state."""


def record_nothing(state: object, decision: object) -> Sequence[Change]:
    """Return no changes."""
    return ()


def command_nothing(state: object, decision: object) -> Sequence[Command]:
    """Return no commands."""
    return ()


@dataclass(frozen=True)
class DecisionHandlers(Generic[StateT, DecisionT]):
    """A decision class and its three handlers. A handler that is not given does nothing.

    ``apply`` changes the state. ``record`` returns the rows and events to write, from the state after
    ``apply``. ``commands`` returns the commands to execute, from the state after the whole input.
    """

    decision: type[DecisionT]
    apply: Callable[[StateT, DecisionT], None] = leave_unchanged
    record: Callable[[StateT, DecisionT], Sequence[Change]] = record_nothing
    commands: Callable[[StateT, DecisionT], Sequence[Command]] = command_nothing


def decision_table(
    decisions: UnionType, *rows: DecisionHandlers[StateT, Any]
) -> Mapping[type, DecisionHandlers[StateT, Any]]:
    """Return the rows by class. Raises TypeError unless each class of the union ``decisions`` has one row."""
    declared, expected = Counter(row.decision for row in rows), set(get_args(decisions))
    wrong = {cls for cls in expected | set(declared) if declared[cls] != 1 or cls not in expected}
    if wrong:
        names = ", ".join(sorted(cls.__name__ for cls in wrong))
        raise TypeError(f"These classes need exactly one row and a place in the union: {names}.")
    return {row.decision: row for row in rows}


def commanding(table: Mapping[type, DecisionHandlers[StateT, Any]]) -> frozenset[type]:
    """Return the decision classes that may have commands."""
    return frozenset(cls for cls, row in table.items() if row.commands is not command_nothing)
