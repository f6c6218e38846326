"""``memory.write``: the agent remembers something (features D4, E1, E6).

The step's key makes it repeatable: written once however often it runs.
"""

from __future__ import annotations

from typing import Any

from wonder_server.core.memory import Draft, Source
from wonder_server.services.actions.kind import ActionCall, ActionKind
from wonder_server.services.actions.memories import MEMORY_SCHEMA, as_json, remembering_agent

DEFAULT_TYPE = "fact"


async def _run(call: ActionCall) -> dict[str, Any]:
    given, context = call.input, call.context
    draft = Draft(
        type=given.get("type", DEFAULT_TYPE),
        content=given["content"],
        significance=float(given.get("significance", 0.5)),
        metadata=dict(given.get("metadata", {})),
        source=Source(
            conversation_id=context.conversation_id, turn_id=context.turn_id, run_id=context.run_id
        ),
        idempotency_key=context.key,
        unless_known=given.get("unless_known", False),
    )
    return as_json(await call.services.memory.write(remembering_agent(call), draft))


MEMORY_WRITE = ActionKind(
    name="memory.write",
    description="Stores a memory of the agent in whose name the task runs.",
    input_schema={
        "type": "object",
        "properties": {
            "content": {"type": "string", "minLength": 1, "description": "What to remember."},
            "type": {
                "type": "string",
                "description": f"The library's own word; '{DEFAULT_TYPE}' if left out.",
            },
            "significance": {"type": "number", "minimum": 0, "maximum": 1},
            "metadata": {"type": "object"},
            "unless_known": {
                "type": "boolean",
                "description": "Answer with the memory that says the same already, if there is one.",
            },
        },
        "required": ["content"],
        "additionalProperties": False,
    },
    output_schema=MEMORY_SCHEMA,
    repeatable=True,
    run=_run,
)
