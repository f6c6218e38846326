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

Rows = Mapping[str, Sequence[Any]]
"""Rows of a state by table, oldest first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reload:
    """Selection of the rows that a state is restored from.

    ``live``: tables whose live rows are all loaded. ``recent``: tables with the number of newest rows to
    load. ``children``: pairs of tables; rows of the first whose parent is a loaded row of the second.
    """

    live: tuple[str, ...]
    recent: tuple[tuple[str, int], ...] = ()
    children: tuple[tuple[str, str], ...] = ()


def _return_false(_: object) -> bool:
    return False


def _no_parent(_: object) -> str:
    return ""


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
    - ``answer(decisions)`` are the ids that answer the input, and its repetition.
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
    - ``parent(state)`` is the id of the actor that waits for this one; "" without one.
    - ``allows_early_dispatch(command)``: the command may be executed before its commit, since executing
      it again or for nothing has no effect outside.
    - ``compact_row(state)`` is the row that lists an ended actor; None before the end. It requires
      that ``record`` ignores the state, since the other rows are derived later from the journal alone
      (docs/adr/0017-compact-runs.md).
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
    rejection: Callable[[Sequence[Decision]], Fault | None]
    must_commit: Callable[[State, Sequence[Decision]], bool]
    pending: Callable[[State], Sequence[str]]
    size_bytes: Callable[[State], int]
    answer: Callable[[Sequence[Decision]], dict[str, str]]
    succeeded: Callable[[str, JsonValue, str], Input]
    failed: Callable[[str, Fault, str], Input]
    timer_fired: Callable[[str], Input]
    restarted: Callable[[str], Input]
    allows_early_dispatch: Callable[[Command], bool] = _return_false
    can_unload: Callable[[State], bool] = _return_false
    parent: Callable[[State], str] = _no_parent
    compact_row: Callable[[State], Put | None] | None = None
    row_types: Mapping[str, type]
    """The class of each table's rows."""
    event_types: Mapping[str, type]
    """The class of each event kind's payload."""
    inputs: tuple[type, ...]
    decisions: tuple[type, ...]
