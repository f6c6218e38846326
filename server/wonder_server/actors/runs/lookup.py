"""Lookups of runs: rows of the record, with the sequence of its last event."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass

from wonder_server.core import ids
from wonder_server.core.actor.gates import Gate, GateStatus
from wonder_server.core.coordinator.model.values import (
    ENDED_TOKEN_STATUSES,
    ContextValue,
    NodeExecution,
    Run,
    RunStatus,
    Token,
    TokenStatus,
)
from wonder_server.core.errors import Reason, WonderError, not_found
from wonder_server.core.json_types import JsonDict
from wonder_server.ports.journal import Entry
from wonder_server.ports.records import Head, Query, QueryResult, is_truncated
from wonder_server.ports.scoped import ScopedJournals, ScopedRecords

ENDED = frozenset({RunStatus.COMPLETED, RunStatus.FAILED, RunStatus.CANCELLED})
EXECUTIONS_PAGE = 50
ENTRIES_PAGE = 100

_NEWEST_ENDED_TOKENS = 100
_MAX_ROWS = 10_000
"""Limit above the number of rows of any run: live tokens, state entries, gates."""

_ENDED_TOKENS = tuple(status.value for status in TokenStatus if status in ENDED_TOKEN_STATUSES)
_LIVE_TOKENS = tuple(status.value for status in TokenStatus if status not in ENDED_TOKEN_STATUSES)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunDetails:
    """Details of a run.

    - ``state``: the workflow state.
    - ``tokens``: live tokens and the newest ended ones.
    - ``executions``: the newest node executions, newest first.
    - ``gates``: pending gates.
    - ``parent_node_id``: the node that waits for this run, "" if none does.
    """

    state: JsonDict
    tokens: list[Token]
    executions: list[NodeExecution]
    gates: list[Gate]
    parent_node_id: str


@dataclass(frozen=True, slots=True)
class RunView:
    """A run, the head of its record, and its details if the request asked for them."""

    run: Run
    head: Head
    details: RunDetails | None = None

    @property
    def has_ended(self) -> bool:
        return self.run.status in ENDED

    @property
    def executions(self) -> int:
        """Number of node executions. The run itself holds it only after its end."""
        return max(self.run.executions, self.head.executions)


class RunLookup:
    """Reads runs. Every method raises RUN_NOT_FOUND for an id that names no run.

    ``flush(run_id)`` writes a run that is only in memory; see `Loop.flush`.
    """

    def __init__(
        self, records: ScopedRecords, journals: ScopedJournals, flush: Callable[[str], Awaitable[None]]
    ) -> None:
        self.records = records
        self._journals = journals
        self._flush = flush

    async def run(self, run_id: str) -> Run:
        """Return the run."""
        return (await self.snapshot(run_id)).run

    async def snapshot(self, run_id: str) -> RunView:
        """Return the run and the head of its record."""
        await self.ensure_written(run_id)
        found = await self.records.snapshot(run_id, [_run_query(run_id)])
        if found is None or not found.rows[0]:
            raise archived_or_missing(run_id)
        return RunView(found.rows[0][0], found.head)

    async def with_details(self, run_id: str) -> RunView:
        """Return the run with its details, read in one snapshot."""
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
        """Return the next page of node executions, newest first, with ordinals below ``before``."""
        return await self.records.find(_executions_query(run_id, before))

    async def views(self, query: Query) -> list[RunView]:
        """Return the runs that match ``query``, each with the head of its record."""
        unread: list[str] = []
        while True:
            runs: list[Run] = await self.records.find(query)
            heads = await self.records.heads([run.id for run in runs]) if runs else {}
            missing = [run.id for run in runs if run.id not in heads]
            # A run was archived or deleted between the two reads. One that is found again without its head
            # is damaged.
            if not missing or missing == unread:
                views = (RunView(run, heads.get(run.id, Head(0, 0))) for run in runs)
                return QueryResult(views, truncated=is_truncated(runs))
            unread = missing

    async def journal(self, run_id: str) -> AsyncIterator[list[Entry]]:
        """Yield the run's journal in pages."""
        await self.run(run_id)
        journal, after = self._journals.of(run_id), 0
        while page := await journal.entries(run_id, after, ENTRIES_PAGE):
            yield page
            after = page[-1].sequence

    async def _parent_node(self, run: Run) -> str:
        """Return the node of the parent run that waits for this run, or "". An operation's id is that of its
        node execution."""
        if run.parent is None or not run.parent.actor_id.startswith("run_"):
            return ""
        found: NodeExecution | None = await self.records.get(
            "executions", run.parent.operation_id, run.parent.actor_id
        )
        return "" if found is None else found.node_id

    async def ensure_written(self, run_id: str) -> None:
        """Check the id, then write the run if it is only in memory. Raises RUN_NOT_FOUND."""
        self.check_id(run_id)
        await self._flush(run_id)

    def check_id(self, run_id: str) -> None:
        """Raise RUN_NOT_FOUND if this is not the id of a run."""
        if not ids.is_id("run", run_id) or not self._journals.holds(run_id):
            raise run_not_found(run_id)


def run_not_found(run_id: str) -> WonderError:
    return not_found(Reason.RUN_NOT_FOUND, run_id, field="run_id")


def archived_or_missing(run_id: str) -> WonderError:
    """Build RUN_NOT_FOUND for a run that may belong to an archived conversation.

    A request by run id alone cannot restore that conversation.
    """
    return not_found(
        Reason.RUN_NOT_FOUND,
        run_id,
        field="run_id",
        place=", or its conversation is archived",
        next_step="Call ListRuns with its conversation_id first: the server then restores an archived "
        "conversation.",
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
