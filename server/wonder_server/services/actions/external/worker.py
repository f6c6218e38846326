"""``worker``: executes an action kind on a remote worker (feature H4).

The worker pool (`services.workers`) waits for a worker, enforces the timeout and handles lost jobs. Workers
know the job by its operation id: the step's key, the same in every attempt."""

from __future__ import annotations

from wonder_server.core.errors import Reason, error
from wonder_server.core.json_types import JsonDict
from wonder_server.services.actions.contract.kind import ActionCall, ActionKind
from wonder_server.services.actions.contract.stored_results import with_files
from wonder_server.services.workers import Job, Progress


async def _run(call: ActionCall) -> JsonDict:
    workers = call.services.execution.workers
    if workers is None:
        raise error(Reason.NOT_IMPLEMENTED, "This server does not accept workers.")

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
    output = await workers.perform(job)
    return await with_files(call, output) if call.input.get("store_files", False) else output


WORKER = ActionKind(
    name="worker",
    description="Executes an action kind on a remote worker that registered it.",
    input_schema={
        "type": "object",
        "properties": {
            "name": {
                "type": "string",
                "minLength": 1,
                "maxLength": 100,
                "description": "Name of the action kind, as registered by workers.",
            },
            "input": {"type": "object", "description": "Input of the action kind, valid for its schema."},
            "store_files": {
                "type": "boolean",
                "description": "True to store images and files of the output as files of the project:"
                " {type, file_id, media_type, name, size_bytes} takes the place of each object, at any depth,"
                " with `type` image or file, base64 in `data`, `media_type`, and `name` if it has one. A"
                " tool's result shows them to the model. Default: false.",
            },
        },
        "required": ["name"],
        "additionalProperties": False,
    },
    output_schema={"type": "object", "description": "Output of the worker."},
    run=_run,
    enforces_timeout=True,
)
