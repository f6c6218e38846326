"""``assert``: fails the step unless a condition is true."""

from __future__ import annotations

from wonder_server.core.errors import Reason, error
from wonder_server.core.json_types import JsonDict
from wonder_server.services.actions.contract.kind import ActionCall, ActionKind


def _check(call: ActionCall) -> JsonDict:
    if call.input["condition"] is not True:
        raise error(
            Reason.ASSERTION_FAILED,
            call.input.get("message") or "The condition of an assert action is not true.",
        )
    return {}


async def _run(call: ActionCall) -> JsonDict:
    return _check(call)


ASSERT = ActionKind(
    name="assert",
    description="Fails the step with ASSERTION_FAILED and the message unless the condition is true.",
    input_schema={
        "type": "object",
        "properties": {
            "condition": {"type": "boolean", "description": "Condition that must be true."},
            "message": {"type": "string", "description": "Message of the fault if it is not true."},
        },
        "required": ["condition"],
        "additionalProperties": False,
    },
    output_schema={"type": "object"},
    run=_run,
    run_inline=_check,
)
