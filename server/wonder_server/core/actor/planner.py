"""What the loop needs of a planner. Conversation and Coordinator are two values of this one shape."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from wonder_server.core.actor.changes import Change, Put
from wonder_server.core.actor.commands import Command
from wonder_server.core.errors import Fault

Rows = Mapping[str, Sequence[Any]]
"""Rows of a working set by table, oldest first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reload:
    """Which rows make up the working set.

    ``live``: tables whose live rows are all loaded. ``recent``: the newest so many rows of a table.
    ``children``: rows of one table whose parent is a loaded row of another.
    """

    live: tuple[str, ...]
    recent: tuple[tuple[str, int], ...] = ()
    children: tuple[tuple[str, str], ...] = ()


def _return_false(_: Any) -> bool:
    return False


def _no_parent(_: Any) -> str:
    return ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Planner:
    """A pure planner and what goes with it. States, inputs and decisions are its own types.

    ``plan(state, input, now_ms)`` decides and never raises; ``apply(state, decision)`` changes the working
    set; ``record`` and ``commands`` say what a decision writes and what is carried out once it is written;
    ``restore`` rebuilds the working set from rows. ``refusal`` is the fault that the decisions refuse with,
    if they do. ``must_commit`` is False while all that was decided may simply be done again after a crash.
    ``weight`` is about how many bytes of text an idle working set holds.
    ``pending`` are the ids of the operations in the outbox; ``idle`` is True when there are none.
    ``answer`` is what a repeated request is told again. ``root(actor_id, state)`` is the actor that this one
    belongs to, itself or its conversation: what belongs together shares storage and goes together.
    ``early(command)``: it may be carried out before what led to it is on disk, since doing it again, or for
    nothing, makes no difference outside. ``parked(state)``: all that is pending merely waits, so that the
    working set need not stay in memory. ``parent(state)`` is the actor that waits for this one, empty if
    none does.
    ``summary(state)`` is the row by which an actor that has ended is listed, None while it has not. It is for
    planners whose ``record`` does not look at the state: what a decision writes can be said later then, from
    the journal alone (docs/adr/0017-compact-runs.md).
    ``succeeded(operation_id, output, run_id)`` and ``failed(operation_id, fault, run_id)`` are the inputs
    that a result becomes; ``run_id`` is empty if no run did it.
    """

    kind: str
    prefix: str
    root: Callable[[str, Any], str]
    reload: Reload
    new_state: Callable[[], Any]
    restore: Callable[[Rows], Any]
    plan: Callable[[Any, Any, int], tuple[Any, ...]]
    apply: Callable[[Any, Any], None]
    record: Callable[[Any, Any], Iterable[Change]]
    commands: Callable[[Any, Any], Iterable[Command]]
    rejection: Callable[[Sequence[Any]], Fault | None]
    must_commit: Callable[[Any, Sequence[Any]], bool]
    pending: Callable[[Any], Sequence[str]]
    size_bytes: Callable[[Any], int]
    answer: Callable[[Sequence[Any]], dict[str, str]]
    succeeded: Callable[[str, Any, str], Any]
    failed: Callable[[str, Fault, str], Any]
    timer_fired: Callable[[str], Any]
    restarted: Callable[[str], Any]
    allows_early_dispatch: Callable[[Command], bool] = _return_false
    can_unload: Callable[[Any], bool] = _return_false
    parent: Callable[[Any], str] = _no_parent
    compact_row: Callable[[Any], Put | None] | None = None
    row_types: Mapping[str, type]
    """The class of each table's rows."""
    event_types: Mapping[str, type]
    """The class of each event kind's payload."""
    inputs: tuple[type, ...]
    decisions: tuple[type, ...]
