"""``worker``: a kind of action that a remote worker carries out (feature H4).

The pool (`services.workers`) waits for a worker, keeps the action's time, and decides about lost work. The
operation's id, which workers know it by, is the step's key: the same however often it is tried.
"""

from __future__ import annotations

from typing import Any

from wonder_server.core.errors import Reason, error
from wonder_server.services.actions.contract.kind import ActionCall, ActionKind
from wonder_server.services.workers import Job, Progress


async def _run(call: ActionCall) -> dict[str, Any]:
    workers = call.services.execution.workers
    if workers is None:
        raise error(Reason.NOT_IMPLEMENTED, "This server takes no workers.")

    def report(progress: Progress) -> None:
        call.progress(progress.message, progress.fraction, progress.output)

    job = Job(
        kind=call.input["name"],
        input=call.input.get("input", {}),
        operation_id=call.context.key,
        context=call.context,
        timeout_ms=call.timeout_ms,
        idempotent=call.idempotent,
        on_progress=report,
    )
    return await workers.perform(job)


WORKER = ActionKind(
    name="worker",
    description="Has a remote worker do something: the kind of action that it registered under a name.",
    input_schema={
        "type": "object",
        "properties": {
            "name": {
                "type": "string",
                "minLength": 1,
                "maxLength": 100,
                "description": "Name of the kind, as workers register it.",
            },
            "input": {"type": "object", "description": "Its input, which the worker's schema describes."},
        },
        "required": ["name"],
        "additionalProperties": False,
    },
    output_schema={"type": "object", "description": "What the worker answers."},
    run=_run,
    enforces_timeout=True,
)
