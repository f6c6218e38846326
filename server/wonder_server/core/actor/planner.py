"""The interface between the loop and its two planners, Conversation and Coordinator."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from wonder_server.core.actor.changes import Change, Put
from wonder_server.core.actor.commands import Command
from wonder_server.core.errors import Fault
from wonder_server.core.json_types import JsonValue

State: TypeAlias = Any
"""State of a planner; each planner has its own class."""

Input: TypeAlias = Any
"""Input of a planner; each planner has its own union."""

Decision: TypeAlias = Any
"""Decision of a planner; each planner has its own union."""

Operation: TypeAlias = Any
"""Value of a pending operation; each planner has its own class."""

Rows = Mapping[str, Sequence[Any]]
"""Rows of a state by table, oldest first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BoundedChildren:
    """Rows of ``table`` whose parents are loaded rows of the table ``parent``, those of the newest first.

    ``needs(parent)`` is True for a parent whose rows are loaded. ``size_bytes(rows)`` is the size of one
    parent's rows. Rows of further parents are not loaded once the sum exceeds ``max_bytes``.
    """

    table: str
    parent: str
    needs: Callable[[Any], bool]
    size_bytes: Callable[[Sequence[Any]], int]
    max_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Reload:
    """Selection of the rows that a state is restored from.

    ``live``: tables whose live rows are all loaded. ``recent``: tables with the number of newest rows to
    load. ``children``: pairs of tables; rows of the first whose parent is a loaded row of the second.
    ``bounded``: further rows, up to a size.
    """

    live: tuple[str, ...]
    recent: tuple[tuple[str, int], ...] = ()
    children: tuple[tuple[str, str], ...] = ()
    bounded: BoundedChildren | None = None


def _return_false(_: object) -> bool:
    return False


def _no_id(_: object) -> str:
    return ""


def _no_answer(_state: object, _query: object) -> None:
    return None


def _waits_for_nothing(_operation: object, _has_unfinished_child: bool, _now_ms: int) -> bool:
    return False


def _count_nothing(_: Sequence[object]) -> int:
    return 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Planner:
    """A pure planner with its persistence and its properties. Each planner has its own types of state, input
    and decision.

    Planning and effects:

    - ``plan(state, input, now_ms)`` returns decisions and never raises.
    - ``apply(state, decision)`` changes the state.
    - ``record(state, decision)`` returns rows and events; ``commands`` returns the commands
      to execute after the commit.
    - ``rejection(decisions)`` is the fault of decisions that reject the input, else None.
    - ``answer(state, decisions)`` are the ids that answer the input, and its repetition.
    - ``succeeded``, ``failed``, ``timer_fired`` and ``restarted`` make the inputs that report on an
      operation. ``run_id`` is empty if no run executed it.

    Properties of a state:

    - ``new_state`` and ``restore(rows)`` make a state.
    - ``pending`` lists the ids of the operations in the outbox.
    - ``must_commit`` is False while all decisions are safe to repeat after a crash.
    - ``size_bytes`` is the approximate size of the text in an idle state.
    - ``root(actor_id, state)`` is the actor that owns this one: itself or its conversation. They share
      a shard and are deleted together.
    - ``can_unload(state)``: all pending operations only wait, so the state need not stay in memory.
    - ``waits(operation, has_unfinished_child, now_ms)``: nothing must be dispatched again for a pending
      operation after a restart, since a timer, an input from outside or its unfinished child ends it.
      ``child_run(operation)`` is the id of the run that executes it; "" without one.
    - ``parent(state)`` is the id of the actor that waits for this one; "" without one.
    - ``allows_early_dispatch(command)``: the command may be executed before its commit, since executing
      it again or for nothing has no effect outside.
    - ``query(state, query)`` answers a query about the state with a value (`core/actor/queries.py`).
    - ``compact_row(state)`` is the row that lists an ended actor; None before the end. The other rows are
      derived later from the actor's whole journal (docs/adr/0017-compact-runs.md).
      ``may_be_compact(decisions)`` is False if a row that ``record`` returns for them is listed across
      actors, so that it must not be derived later. ``event_count(decisions)`` is
      the number of events that ``record`` returns for the decisions of such an actor; lists show it without
      deriving them.
    """

    kind: str
    prefix: str
    root: Callable[[str, State], str]
    reload: Reload
    new_state: Callable[[], State]
    restore: Callable[[Rows], State]
    plan: Callable[[State, Input, int], tuple[Decision, ...]]
    apply: Callable[[State, Decision], None]
    record: Callable[[State, Decision], Iterable[Change]]
    commands: Callable[[State, Decision], Iterable[Command]]
    commanding: frozenset[type]
    """The decision classes for which the loop calls ``commands``; the others have none."""
    rejection: Callable[[Sequence[Decision]], Fault | None]
    must_commit: Callable[[State, Sequence[Decision]], bool]
    pending: Callable[[State], Sequence[str]]
    size_bytes: Callable[[State], int]
    answer: Callable[[State, Sequence[Decision]], dict[str, str]]
    succeeded: Callable[[str, JsonValue, str], Input]
    failed: Callable[[str, Fault, str], Input]
    timer_fired: Callable[[str], Input]
    restarted: Callable[[str], Input]
    waits: Callable[[Operation, bool, int], bool] = _waits_for_nothing
    child_run: Callable[[Operation], str] = _no_id
    allows_early_dispatch: Callable[[Command], bool] = _return_false
    can_unload: Callable[[State], bool] = _return_false
    parent: Callable[[State], str] = _no_id
    query: Callable[[State, Any], Any] = _no_answer
    compact_row: Callable[[State], Put | None] | None = None
    may_be_compact: Callable[[Sequence[Decision]], bool] = _return_false
    event_count: Callable[[Sequence[Decision]], int] = _count_nothing
    row_types: Mapping[str, type]
    """The class of each table's rows."""
    event_types: Mapping[str, type]
    """The class of each event kind's payload."""
    inputs: tuple[type, ...]
    decisions: tuple[type, ...]
