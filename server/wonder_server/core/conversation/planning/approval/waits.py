"""Time in which a tool call waits for people does not count against its timeout (features C7, M9).

A workflow or an agent that a tool calls may wait at gates of its own. When the deadline of such a call has
come, the planner asks how long the work below it has waited (`MeasureWaits`), before it fails the call. The
answer moves the deadline by that time. While the work still waits, the planner asks again after `hold_ms`;
nothing is decided in between, so a wait of a month has a few entries in the journal.
"""

from __future__ import annotations

from wonder_server.core.conversation.model.decisions import ExtendDeadline, MeasureWaits
from wonder_server.core.conversation.model.inputs import WaitsMeasured
from wonder_server.core.conversation.model.operations import Decisions
from wonder_server.core.conversation.model.state import ConversationState
from wonder_server.core.conversation.model.values import Operation, OperationKind, OperationStatus
from wonder_server.core.frozen import replace

RULES_OF_WAITS = 4
"""Version of `TURN_RULES` from which on waiting for people does not count against the timeouts of tools."""

ASK_MS = 60_000
"""Time after which an unanswered question is asked again: the server may have stopped in between."""

MIN_HOLD_MS, MAX_HOLD_MS = 60_000, 3_600_000


def measure_waits(state: ConversationState, operation: Operation, now: int) -> Decisions:
    """Ask how long the work of a call has waited for people, as its deadline has come; nothing if it
    cannot.
    """
    work = state.turn_work.get(operation.turn_id)
    is_called = operation.kind in (OperationKind.WORKFLOW, OperationKind.AGENT) and operation.tool_call_id
    if work is None or work.rules < RULES_OF_WAITS or not is_called:
        return ()
    if operation.status is not OperationStatus.DISPATCHED:
        return ()
    due = operation.due_ms or operation.wake_ms
    return (MeasureWaits(operation=replace(operation, due_ms=due, wake_ms=now + ASK_MS)),)


def extend_deadline(operation: Operation, event: WaitsMeasured, now: int) -> Decisions:
    """Move the deadline by the time that the work has waited; nothing if the deadline has passed."""
    if operation.status is not OperationStatus.DISPATCHED or not operation.due_ms:
        return ()
    more = max(0, event.waited_ms - operation.held_ms)
    due = operation.due_ms + more
    held = replace(operation, held_ms=operation.held_ms + more)
    if event.waits:
        held = replace(held, due_ms=due, held_at_ms=now, wake_ms=now + hold_ms(event.waited_ms))
    elif due > now or more:
        # The next timer decides with the turn's own time moved too.
        held = replace(held, due_ms=0, held_at_ms=0, wake_ms=max(due, now + 1))
    else:
        return ()
    return (ExtendDeadline(operation=held, waited_ms=more),)


def hold_ms(waited_ms: int) -> int:
    """Return the time until the next question about work that has waited ``waited_ms`` and still waits."""
    return min(MAX_HOLD_MS, max(MIN_HOLD_MS, waited_ms // 2))
