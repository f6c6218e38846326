"""Child runs that nobody waits for any more.

Who gives up a child run, because it was cancelled, failed or took too long, first writes that down and then
tells the child. If the server ends in between, only the next start can tell it: the parent has forgotten the
operation, and the child would wait on for ever.
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
"""Open runs that are looked through at a start."""


async def orphaned_runs(records: Records) -> list[str]:
    """The ids of open runs whose parents have given them up. Damaged records are left alone."""
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
        # A node's execution has the id of its operation; each attempt has a child of its own.
        node = await records.get("executions", parent.operation_id, parent.actor_id)
        return (
            isinstance(node, NodeExecution)
            and node.status is ExecutionStatus.RUNNING
            and node.carried_out_by == run.id
        )
    turn = await records.get("turns", run.scope.turn_id, parent.actor_id)
    # Extraction goes on when the turn is over.
    return isinstance(turn, Turn) and (
        turn.status is TurnStatus.ACTIVE or turn.memory_extraction_run_id == run.id
    )
