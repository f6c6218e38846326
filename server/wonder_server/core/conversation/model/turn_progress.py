"""The fields of a turn that change after its start, as decisions carry them.

The input, the caller and the settings of a turn never change, so only `StartTurn` carries them. Decisions
about a turn repeated them six times in its journal. A `TurnProgress` has the names and defaults of the
turn's own fields, so the whole turns in the decisions of older journals are read as their progress.
"""

from __future__ import annotations

from wonder_server.core.actor.commands import Parent
from wonder_server.core.conversation.model.values import Turn, TurnStatus
from wonder_server.core.errors import Fault
from wonder_server.core.frozen import Value, replace
from wonder_server.core.json_types import JsonValue


class TurnProgress(Value, frozen=True, kw_only=True):
    """The status, usage, hooks and outcome of a turn. ``agent_id`` never changes: the turn's answer to its
    parent contains it, when the turn itself may no longer be in the state.
    """

    id: str
    agent_id: str
    status: TurnStatus = TurnStatus.ACTIVE
    fault: Fault | None = None
    context_assembly_run_id: str = ""
    memory_extraction_run_id: str = ""
    memory_extraction_failed: bool = False
    tool_failures: int = 0
    moves: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cost_micros: int = 0
    model_calls: int = 0
    unpriced_calls: int = 0
    completed_ms: int = 0
    parent: Parent | None = None
    output: JsonValue = None
    cancelled_by: str = ""
    cached_input_tokens: int = 0
    cache_write_input_tokens: int = 0
    reasoning_tokens: int = 0


def progress_of(turn: Turn) -> TurnProgress:
    """Return the progress of ``turn``."""
    return TurnProgress(
        id=turn.id,
        agent_id=turn.agent_id,
        status=turn.status,
        fault=turn.fault,
        context_assembly_run_id=turn.context_assembly_run_id,
        memory_extraction_run_id=turn.memory_extraction_run_id,
        memory_extraction_failed=turn.memory_extraction_failed,
        tool_failures=turn.tool_failures,
        moves=turn.moves,
        input_tokens=turn.input_tokens,
        output_tokens=turn.output_tokens,
        cost_micros=turn.cost_micros,
        model_calls=turn.model_calls,
        unpriced_calls=turn.unpriced_calls,
        completed_ms=turn.completed_ms,
        parent=turn.parent,
        output=turn.output,
        cancelled_by=turn.cancelled_by,
        cached_input_tokens=turn.cached_input_tokens,
        cache_write_input_tokens=turn.cache_write_input_tokens,
        reasoning_tokens=turn.reasoning_tokens,
    )


def with_progress(turn: Turn, progress: TurnProgress) -> Turn:
    """Return ``turn`` with ``progress`` in place of its own."""
    return replace(
        turn,
        status=progress.status,
        fault=progress.fault,
        context_assembly_run_id=progress.context_assembly_run_id,
        memory_extraction_run_id=progress.memory_extraction_run_id,
        memory_extraction_failed=progress.memory_extraction_failed,
        tool_failures=progress.tool_failures,
        moves=progress.moves,
        input_tokens=progress.input_tokens,
        output_tokens=progress.output_tokens,
        cost_micros=progress.cost_micros,
        model_calls=progress.model_calls,
        unpriced_calls=progress.unpriced_calls,
        completed_ms=progress.completed_ms,
        parent=progress.parent,
        output=progress.output,
        cancelled_by=progress.cancelled_by,
        cached_input_tokens=progress.cached_input_tokens,
        cache_write_input_tokens=progress.cache_write_input_tokens,
        reasoning_tokens=progress.reasoning_tokens,
    )
