"""Orphaned child runs: runs whose parents no longer wait for them.

A parent that gives up a child run, because it was cancelled, failed or timed out, first commits that and
then cancels the child. If the server stops in between, the parent has forgotten the operation, so the next
start must cancel the child. It looks at each page of unfinished runs that it resumes.
"""

from __future__ import annotations

from collections.abc import Sequence

from wonder_server.core.actor.commands import Parent
from wonder_server.core.conversation.model.values import Turn, TurnStatus
from wonder_server.core.coordinator.model.values import ExecutionStatus, NodeExecution, Run, RunStatus
from wonder_server.core.errors import WonderError
from wonder_server.logs import logger
from wonder_server.ports.records import Query
from wonder_server.ports.scoped import ScopedRecords

_log = logger("actors")


async def orphaned_runs(records: ScopedRecords, run_ids: Sequence[str]) -> list[str]:
    """Return those of these runs that are open and whose parents no longer wait for them. Damaged records are
    skipped."""
    query = Query(
        table="runs",
        actors=tuple(run_ids),
        statuses=(RunStatus.RUNNING.value, RunStatus.WAITING.value),
        fields=(("parent.actor_id", ()),),
        limit=len(run_ids),
        lenient=True,
    )
    found: list[Run] = await records.find(query)
    return [run.id for run in found if run.parent is not None and not await _is_awaited(records, run)]


async def _is_awaited(records: ScopedRecords, run: Run) -> bool:
    parent = run.parent
    assert parent is not None
    try:
        return await _awaits(records, parent, run)
    except WonderError as problem:
        _log.error("orphans_unknown", run=run.id, problem=str(problem))
        return True


async def _awaits(records: ScopedRecords, parent: Parent, run: Run) -> bool:
    if parent.actor_id.startswith("run_"):
        # The id of a node's execution is the id of its operation. Each attempt has its own child.
        node = await records.get("executions", parent.operation_id, parent.actor_id)
        return (
            isinstance(node, NodeExecution)
            and node.status is ExecutionStatus.RUNNING
            and node.carried_out_by == run.id
        )
    turn = await records.get("turns", run.scope.turn_id, parent.actor_id)
    # Memory extraction continues after its turn has ended.
    return isinstance(turn, Turn) and (
        turn.status is TurnStatus.ACTIVE or turn.memory_extraction_run_id == run.id
    )
