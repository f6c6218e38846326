"""Memory operations that an extraction returns as data, for the platform to apply (features D4, E6)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from wonder_server.core.commands import Scope
from wonder_server.core.errors import Reason, error
from wonder_server.core.memory import Draft, Memory, Source


class Writes(Protocol):
    """What is needed of the memory service."""

    async def write(self, agent_id: str, draft: Draft) -> Memory: ...


class MemoryOperations:
    """Applies ``{op: write, type, content, significance, metadata}``; the scope's key keeps it single."""

    def __init__(self, memory: Writes) -> None:
        self._memory = memory

    async def apply(self, operation: Mapping[str, Any], scope: Scope) -> dict[str, Any]:
        """The stored memory's id. Errors: FIELD_INVALID for what is no memory operation."""
        if operation.get("op", "write") != "write":
            raise error(
                Reason.FIELD_INVALID, "A memory operation's `op` is `write`.", field="memory_operations.op"
            )
        content, significance = operation.get("content"), operation.get("significance", 0.5)
        metadata, kind = operation.get("metadata") or {}, operation.get("type", "fact")
        if not isinstance(content, str) or not isinstance(kind, str):
            raise error(
                Reason.FIELD_INVALID,
                "A memory operation needs `content` and `type` as text.",
                field="memory_operations.content",
            )
        if isinstance(significance, bool) or not isinstance(significance, int | float):
            raise error(
                Reason.FIELD_INVALID,
                "A memory operation's `significance` is a number from 0 to 1.",
                field="memory_operations.significance",
            )
        draft = Draft(
            type=kind,
            content=content,
            significance=float(significance),
            metadata=dict(metadata) if isinstance(metadata, Mapping) else {},
            source=Source(conversation_id=scope.conversation_id, turn_id=scope.turn_id, run_id=scope.run_id),
            idempotency_key=scope.key,
            unless_known=True,
        )
        memory = await self._memory.write(scope.agent_id, draft)
        return {"id": memory.id}
