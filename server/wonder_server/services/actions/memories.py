"""What the ``memory.*`` actions share: how a memory looks as JSON, and whose it is."""

from __future__ import annotations

from typing import Any

from wonder_server.core.errors import Reason, error
from wonder_server.core.memory import Memory
from wonder_server.services.actions.kind import ActionCall

MEMORY_SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "id": {"type": "string"},
        "type": {"type": "string"},
        "content": {"type": "string"},
        "significance": {"type": "number"},
        "metadata": {"type": "object"},
        "created_ms": {"type": "integer", "description": "Milliseconds since 1970."},
        "updated_ms": {"type": "integer", "description": "Milliseconds since 1970."},
    },
}


def remembering_agent(call: ActionCall) -> str:
    """The agent whose memory is touched: always the context's, never the input's (feature E5)."""
    if not call.context.agent_id:
        raise error(Reason.NO_AGENT, "There is no agent here whose memory could be used.")
    return call.context.agent_id


def as_json(memory: Memory) -> dict[str, Any]:
    """A memory, as `MEMORY_SCHEMA` describes it."""
    return {
        "id": memory.id,
        "type": memory.type,
        "content": memory.content,
        "significance": memory.significance,
        "metadata": memory.metadata,
        "created_ms": memory.created_ms,
        "updated_ms": memory.updated_ms,
    }
