"""Orphaned child runs: runs whose parents no longer wait for them.

A parent that gives up a child run, because it was cancelled, failed or timed out, first commits that and
then cancels the child. If the server stops in between, the parent has forgotten the operation, so the next
start must cancel the child.
"""

from __future__ import annotations

from wonder_server.core.actor.commands import Parent
from wonder_server.core.conversation.model.values import Turn, TurnStatus
from wonder_server.core.coordinator.values import ExecutionStatus, NodeExecution, Run, RunStatus
from wonder_server.core.errors import WonderError
from wonder_server.logs import logger
from wonder_server.ports.records import Query, Records

_log = logger("actors")

MAX_SCANNED_RUNS = 100_000
"""Maximum number of open runs that a start examines."""


async def orphaned_runs(records: Records) -> list[str]:
    """Return the ids of open runs whose parents no longer wait for them. Damaged records are skipped."""
    open_statuses = (RunStatus.RUNNING.value, RunStatus.WAITING.value)
    query = Query(table="runs", statuses=open_statuses, limit=MAX_SCANNED_RUNS, lenient=True)
    found: list[Run] = await records.find(query)
    return [run.id for run in found if run.parent is not None and not await _is_awaited(records, run)]


async def _is_awaited(records: Records, run: Run) -> bool:
    parent = run.parent
    assert parent is not None
    try:
        return await _awaits(records, parent, run)
    except WonderError as problem:
        _log.error("orphans_unknown", run=run.id, problem=str(problem))
        return True


async def _awaits(records: Records, parent: Parent, run: Run) -> bool:
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
