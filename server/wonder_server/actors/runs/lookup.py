"""Runs as they are looked up: rows of the record, with the place where it ends."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from wonder_server.core import ids
from wonder_server.core.coordinator.planner import RUN
from wonder_server.core.coordinator.values import (
    ENDED_TOKEN_STATUSES,
    ContextValue,
    Gate,
    GateStatus,
    NodeExecution,
    Run,
    RunStatus,
    Token,
    TokenStatus,
)
from wonder_server.core.errors import Reason, WonderError, error
from wonder_server.ports.journal import Entry, Journals
from wonder_server.ports.records import Head, Query, QueryResult, Records, is_truncated

ENDED = frozenset({RunStatus.COMPLETED, RunStatus.FAILED, RunStatus.CANCELLED})
EXECUTIONS_PAGE = 50
ENTRIES_PAGE = 100

_NEWEST_ENDED_TOKENS = 100
_MAX_ROWS = 10_000
"""More rows than there are of what is read whole: live tokens, entries of the state, gates."""

_ENDED_TOKENS = tuple(status.value for status in TokenStatus if status in ENDED_TOKEN_STATUSES)
_LIVE_TOKENS = tuple(status.value for status in TokenStatus if status not in ENDED_TOKEN_STATUSES)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunDetails:
    """Where a run stands: its state; its live tokens and the newest that have ended; its newest node
    executions, newest first; the gates that wait; the node of the run that waits for it, if one does."""

    state: dict[str, Any]
    tokens: list[Token]
    executions: list[NodeExecution]
    gates: list[Gate]
    parent_node_id: str


@dataclass(frozen=True, slots=True)
class RunView:
    """A run, how far its record goes, and if it was asked for, where it stands."""

    run: Run
    head: Head
    details: RunDetails | None = None

    @property
    def has_ended(self) -> bool:
        return self.run.status in ENDED

    @property
    def executions(self) -> int:
        """How many node executions there were; a run itself knows only when it has ended."""
        return max(self.run.executions, self.head.executions)


class RunLookup:
    """Reads runs. All of it raises RUN_NOT_FOUND for what is no id of one.

    ``write`` has a run written that is in memory only, so that it is found; see `Loop.write`.
    """

    def __init__(self, records: Records, journals: Journals, flush: Callable[[str], Awaitable[None]]) -> None:
        self.records = records
        self._journals = journals
        self._flush = flush

    async def run(self, run_id: str) -> Run:
        """The run alone."""
        return (await self.snapshot(run_id)).run

    async def snapshot(self, run_id: str) -> RunView:
        """The run, and how far its record goes."""
        await self.ensure_written(run_id)
        found = await self.records.snapshot(run_id, [_run_query(run_id)])
        if found is None or not found.rows[0]:
            raise archived_or_missing(run_id)
        return RunView(found.rows[0][0], found.head)

    async def with_details(self, run_id: str) -> RunView:
        """The run with its details, all of one moment."""
        await self.ensure_written(run_id)
        found = await self.records.snapshot(
            run_id,
            [
                _run_query(run_id),
                Query(table="tokens", statuses=_LIVE_TOKENS, newest_first=False, limit=_MAX_ROWS),
                Query(table="tokens", statuses=_ENDED_TOKENS, limit=_NEWEST_ENDED_TOKENS),
                _executions_query(run_id, 0),
                Query(table="gates", statuses=(GateStatus.PENDING,), newest_first=False, limit=_MAX_ROWS),
                Query(table="context", fields=(("section", "state"),), limit=_MAX_ROWS),
            ],
        )
        if found is None or not found.rows[0]:
            raise archived_or_missing(run_id)
        (run,), live, ended, executions, gates, context = found.rows
        entries: list[ContextValue] = context
        details = RunDetails(
            state={entry.key: entry.value for entry in sorted(entries, key=lambda entry: entry.key)},
            tokens=[*live, *reversed(ended)],
            executions=executions,
            gates=gates,
            parent_node_id=await self._parent_node(run),
        )
        return RunView(run, found.head, details)

    async def executions(self, run_id: str, before: int) -> list[NodeExecution]:
        """The next page of node executions, newest first, those with an ordinal below ``before``."""
        return await self.records.find(_executions_query(run_id, before))

    async def views(self, query: Query) -> list[RunView]:
        """The runs that ``query`` finds, each with how far its record goes."""
        runs: list[Run] = await self.records.find(query)
        heads = await self.records.heads([run.id for run in runs]) if runs else {}
        views = (RunView(run, heads.get(run.id, Head(0, 0))) for run in runs)
        return QueryResult(views, truncated=is_truncated(runs))

    async def journal(self, run_id: str) -> AsyncIterator[list[Entry]]:
        """The run's journal, page by page: others get their turn in between."""
        await self.run(run_id)
        journal, after = self._journals.of(run_id), 0
        while page := await journal.entries(run_id, RUN, after, ENTRIES_PAGE):
            yield page
            after = page[-1].sequence

    async def _parent_node(self, run: Run) -> str:
        """An operation of a run has the id of the node execution that it is."""
        if run.parent is None or not run.parent.actor_id.startswith("run_"):
            return ""
        found: NodeExecution | None = await self.records.get(
            "executions", run.parent.operation_id, run.parent.actor_id
        )
        return "" if found is None else found.node_id

    async def ensure_written(self, run_id: str) -> None:
        """Refuse what cannot be the id of a run of this folder; have the run written if it is not yet."""
        self.check_id(run_id)
        await self._flush(run_id)

    def check_id(self, run_id: str) -> None:
        """Refuse what cannot be the id of a run of this folder."""
        if not ids.is_id("run", run_id) or not self._journals.holds(run_id):
            raise run_not_found(run_id)


def run_not_found(run_id: str) -> WonderError:
    return error(Reason.RUN_NOT_FOUND, "No run has this id.", field="run_id", id=run_id[:64])


def archived_or_missing(run_id: str) -> WonderError:
    """As `not_found`, of what could be the id of one. The runs of an archived conversation lie with it, and
    requests about runs name no conversation that could be brought back."""
    return error(
        Reason.RUN_NOT_FOUND,
        "No run that is at hand has this id. If it was for a conversation that may be archived, call "
        "ListRuns with its conversation_id first, which brings it back.",
        field="run_id",
        id=run_id[:64],
    )


def _run_query(run_id: str) -> Query:
    return Query(table="runs", id=run_id, limit=1)


def _executions_query(run_id: str, before: int) -> Query:
    return Query(
        table="executions",
        actor=run_id,
        by_ordinal=True,
        after=(before, "") if before else None,
        limit=EXECUTIONS_PAGE,
    )
