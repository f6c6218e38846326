"""``sleep``: lets time pass (feature H3).

It lives in memory and starts over after a crash; for long waits, workflows have nodes that wait.
"""

from __future__ import annotations

import asyncio
from typing import Any

from wonder_server.core.errors import Reason, error
from wonder_server.services.actions.contract.kind import ActionCall, ActionKind


async def _run(call: ActionCall) -> dict[str, Any]:
    duration_ms = call.input["duration_ms"]
    if duration_ms >= call.timeout_ms:
        raise error(
            Reason.INPUT_INVALID,
            f"duration_ms is {duration_ms}, and the action times out after {call.timeout_ms} ms:"
            " raise its timeout_ms, or let the workflow wait.",
            field="duration_ms",
        )
    await asyncio.sleep(duration_ms / 1000)
    return {}


SLEEP = ActionKind(
    name="sleep",
    description=(
        "Waits, for less than the action's timeout_ms. For minutes and more use a node that waits: that"
        " survives restarts."
    ),
    input_schema={
        "type": "object",
        "properties": {
            "duration_ms": {"type": "number", "minimum": 0, "description": "Milliseconds."},
        },
        "required": ["duration_ms"],
        "additionalProperties": False,
    },
    output_schema={"type": "object"},
    run=_run,
)
