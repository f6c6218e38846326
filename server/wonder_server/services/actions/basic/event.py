"""``event``: emits an event to the clients of a run or task (feature H3).

The step's key makes it repeatable: a run records one event for each key, also if the step is repeated."""

from __future__ import annotations

from typing import Final

from wonder_server.core.errors import WonderError
from wonder_server.core.json_types import JsonDict
from wonder_server.core.schema import payloads
from wonder_server.services.actions.contract.kind import ActionCall, ActionKind

MAX_PAYLOAD_BYTES: Final = 64 * 1024


async def _run(call: ActionCall) -> JsonDict:
    payload = call.input.get("payload", {})
    fault = payloads.check(payload, field="payload", max_bytes=MAX_PAYLOAD_BYTES)
    if fault is not None:
        raise WonderError(fault)
    call.emit(call.input["name"], payload)
    return {}


EVENT = ActionKind(
    name="event",
    description=(
        "Emits an event. A run records it once, also if the step is repeated. A task outside a run reports it"
        " as progress to the clients that stream the task."
    ),
    input_schema={
        "type": "object",
        "properties": {
            "name": {
                "type": "string",
                "pattern": "^[a-z][a-z0-9_.-]{0,99}$",
                "description": "Name of the event, such as order.shipped.",
            },
            "payload": {
                "type": "object",
                "description": f"Content of the event, at most {MAX_PAYLOAD_BYTES // 1024} KiB.",
            },
        },
        "required": ["name"],
        "additionalProperties": False,
    },
    output_schema={"type": "object"},
    run=_run,
)
