"""``event``: tells those who watch that something has happened (feature H3).

The step's key makes it repeatable: whoever records events keeps one for each key, however often the step
runs.
"""

from __future__ import annotations

from typing import Any, Final

from wonder_server.core.errors import WonderError
from wonder_server.core.schema import payloads
from wonder_server.services.actions.contract.kind import ActionCall, ActionKind

MAX_PAYLOAD_BYTES: Final = 64 * 1024


async def _run(call: ActionCall) -> dict[str, Any]:
    payload = call.input.get("payload", {})
    wrong = payloads.check(payload, field="payload", max_bytes=MAX_PAYLOAD_BYTES)
    if wrong is not None:
        raise WonderError(wrong)
    call.emit(call.input["name"], payload)
    return {}


EVENT = ActionKind(
    name="event",
    description=(
        "Emits an event. In a run it becomes part of the run's record, once, also if the step is tried again;"
        " a task that runs without one shows it as progress, to whoever streams the task."
    ),
    input_schema={
        "type": "object",
        "properties": {
            "name": {
                "type": "string",
                "pattern": "^[a-z][a-z0-9_.-]{0,99}$",
                "description": "What has happened, such as order.shipped.",
            },
            "payload": {
                "type": "object",
                "description": f"More about it; at most {MAX_PAYLOAD_BYTES // 1024} KiB.",
            },
        },
        "required": ["name"],
        "additionalProperties": False,
    },
    output_schema={"type": "object"},
    run=_run,
)
