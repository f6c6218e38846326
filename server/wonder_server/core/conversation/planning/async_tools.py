"""Tools in the background (feature C4): the turn goes on without them and stays active until they are back.

The model gets the result "it runs" at once, so that the provider has an answer to each call; what came of it
is told later, as a notice, before the turn's next call of the model. What has not been told yet follows
from the moves alone::

    invocations with ``is_async`` and a result, less those that some move has in ``told``
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from wonder_server.core.conversation.context.dialects import result_text
from wonder_server.core.conversation.model.values import Invocation, Move, ToolResult


def running_result(entry: Invocation) -> ToolResult:
    """What the model is told at once of a call that runs in the background."""
    return ToolResult(
        tool_call_id=entry.call.id,
        success=True,
        result={
            "status": "running",
            "operation_id": entry.operation_id,
            "note": "This runs in the background. You are told when it ends, whether it works or fails; "
            "until then answer without it, and do not call the tool again for the same.",
        },
    )


def running(moves: Iterable[Move]) -> list[Invocation]:
    """Calls in the background that have no result yet."""
    return [entry for move in moves for entry in move.invocations if entry.is_async and entry.result is None]


def unreported(moves: Sequence[Move]) -> list[Invocation]:
    """Calls in the background whose results the model does not know yet, in the order of their arrival."""
    reported = {entry.operation_id for move in moves for entry in move.reported}
    news = [
        (entry.result.created_ms, entry.operation_id, entry)
        for move in moves
        for entry in move.invocations
        if entry.is_async and entry.result is not None and entry.operation_id not in reported
    ]
    return [entry for _, _, entry in sorted(news, key=lambda item: item[:2])]


def of_operations(moves: Iterable[Move], operation_ids: Sequence[str]) -> tuple[Invocation, ...]:
    """The invocations that these operations carry out, in the order of the ids."""
    found = {entry.operation_id: entry for move in moves for entry in move.invocations}
    return tuple(found[each] for each in operation_ids if each in found)


def notice(news: Sequence[Invocation], still: Sequence[Invocation]) -> str:
    """What the model is told of results that have come; ``still`` are those that have not."""
    said = ["(A notice of the platform, not the user's words.)"]
    said += [_report(entry) for entry in news]
    if still:
        names = ", ".join(f"`{entry.call.name}` ({entry.operation_id})" for entry in still)
        said.append(f"Still running: {names}.")
    said.append("Go on with the task, and tell the user what matters of this, failures too.")
    return "\n\n".join(said)


def _report(entry: Invocation) -> str:
    assert entry.result is not None, "only what has a result is told"
    end = "has ended. Its result" if entry.result.success else "has failed. Its error"
    return (
        f"The tool `{entry.call.name}` that ran in the background ({entry.operation_id}) {end}:\n"
        f"{result_text(entry.result)}"
    )
