"""Asynchronous tools (feature C4): the turn continues without their results and stays active until they
arrive.

The model receives the result "running" at once, since the provider requires an answer to each call. A
notice reports the real result before the turn's next model call. The unreported results follow from the
moves alone::

    invocations with ``is_async`` and a result, minus the invocations in some move's ``reported``
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from wonder_server.core.conversation.context.dialects import result_text
from wonder_server.core.conversation.model.values import Invocation, Move, ToolResult


def running_result(entry: Invocation) -> ToolResult:
    """Return the immediate result of an asynchronous call, for the model."""
    return ToolResult(
        tool_call_id=entry.call.id,
        success=True,
        result={
            "status": "running",
            "operation_id": entry.operation_id,
            "note": "This runs in the background. A notice reports its end, success or failure; "
            "until then answer without it, and do not call the tool again for the same.",
        },
    )


def running(moves: Iterable[Move]) -> list[Invocation]:
    """Return the asynchronous calls without a result."""
    return [entry for move in moves for entry in move.invocations if entry.is_async and entry.result is None]


def unreported(moves: Sequence[Move]) -> list[Invocation]:
    """Return the asynchronous calls with results that no request contains yet, in the order of arrival."""
    reported = {entry.operation_id for move in moves for entry in move.reported}
    news = [
        (entry.result.created_ms, entry.operation_id, entry)
        for move in moves
        for entry in move.invocations
        if entry.is_async and entry.result is not None and entry.operation_id not in reported
    ]
    return [entry for _, _, entry in sorted(news, key=lambda item: item[:2])]


def of_operations(moves: Iterable[Move], operation_ids: Sequence[str]) -> tuple[Invocation, ...]:
    """Return the invocations of these operations, in the order of the ids."""
    found = {entry.operation_id: entry for move in moves for entry in move.invocations}
    return tuple(found[each] for each in operation_ids if each in found)


def notice(news: Sequence[Invocation], still: Sequence[Invocation]) -> str:
    """Return the notice for the model about new results. ``still`` are the calls without a result."""
    parts = ["(A notice of the platform, not the user's words.)"]
    parts += [_report(entry) for entry in news]
    if still:
        names = ", ".join(f"`{entry.call.name}` ({entry.operation_id})" for entry in still)
        parts.append(f"Still running: {names}.")
    parts.append("Go on with the task, and tell the user what matters of this, failures too.")
    return "\n\n".join(parts)


def _report(entry: Invocation) -> str:
    assert entry.result is not None, "a notice reports only calls with a result"
    end = "has ended. Its result" if entry.result.success else "has failed. Its error"
    return (
        f"The tool `{entry.call.name}` that ran in the background ({entry.operation_id}) {end}:\n"
        f"{result_text(entry.result)}"
    )
