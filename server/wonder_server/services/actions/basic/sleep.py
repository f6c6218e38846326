"""``sleep``: waits for a duration (feature H3).

The wait is in memory and starts again after a crash. For long waits, use a waiting node of a workflow."""

from __future__ import annotations

import asyncio

from wonder_server.core.errors import Reason, error
from wonder_server.core.json_types import JsonDict
from wonder_server.services.actions.contract.kind import ActionCall, ActionKind


async def _run(call: ActionCall) -> JsonDict:
    duration_ms = call.input["duration_ms"]
    if duration_ms >= call.timeout_ms:
        raise error(
            Reason.INPUT_INVALID,
            f"duration_ms is {duration_ms}, and the action times out after {call.timeout_ms} ms. Raise"
            " its timeout_ms, or use a waiting node of a workflow.",
            field="duration_ms",
        )
    await asyncio.sleep(duration_ms / 1000)
    return {}


SLEEP = ActionKind(
    name="sleep",
    description=(
        "Waits for less than the action's timeout_ms. For minutes or longer, use a waiting node of a"
        " workflow, which survives restarts."
    ),
    input_schema={
        "type": "object",
        "properties": {
            "duration_ms": {"type": "number", "minimum": 0, "description": "Duration in milliseconds."},
        },
        "required": ["duration_ms"],
        "additionalProperties": False,
    },
    output_schema={"type": "object"},
    run=_run,
)
