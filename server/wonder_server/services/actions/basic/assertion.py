"""``assert``: fails the step unless a condition holds (document 5, verification)."""

from __future__ import annotations

from typing import Any

from wonder_server.core.errors import Reason, error
from wonder_server.services.actions.contract.kind import ActionCall, ActionKind


def _check(call: ActionCall) -> dict[str, Any]:
    if call.input["condition"] is not True:
        raise error(Reason.ASSERTION_FAILED, call.input.get("message") or "An assertion does not hold.")
    return {}


async def _run(call: ActionCall) -> dict[str, Any]:
    return _check(call)


ASSERT = ActionKind(
    name="assert",
    description="Fails the step with ASSERTION_FAILED and the message unless the condition is true.",
    input_schema={
        "type": "object",
        "properties": {
            "condition": {"type": "boolean", "description": "What must be true."},
            "message": {"type": "string", "description": "What to say if it is not."},
        },
        "required": ["condition"],
        "additionalProperties": False,
    },
    output_schema={"type": "object"},
    run=_run,
    run_inline=_check,
)
