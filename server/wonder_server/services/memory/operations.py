"""Memory operations that an extraction returns as data, and their application (features D4, E6).

::

    {op: write,     content, type, significance, metadata, contradicts_ids, archives_ids, speaker, role,
                    speaker_id, ordinal, said_ms, message_id, move_id, subject}
    {op: update,    id, …}           change the given fields
    {op: supersede, id, content, …}  write a memory that replaces this one
    {op: archive,   id}              exclude from search; still readable by id
    {op: delete,    id}              delete; a memory that does not exist counts as deleted

Each operation is applied once: the scope's key is the idempotency key."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Protocol

from wonder_server.core.actor.commands import Scope
from wonder_server.core.errors import Reason, WonderError, error
from wonder_server.core.idempotency import IdempotencyKey, own_key
from wonder_server.core.json_types import JsonDict, JsonObject
from wonder_server.core.memory.records import ROLES, Change, Draft, Memory, Role, Source
from wonder_server.ports.access import ByPrincipal, working_principal
from wonder_server.ports.clock import Clock

DEFAULT_TYPE: Final = "fact"
DEFAULT_SIGNIFICANCE: Final = 0.5
MAX_CHAIN: Final = 10
"""Maximum number of replacements to follow from a superseded memory to the current one."""
_OPS: Final = ("write", "update", "supersede", "archive", "delete")


class MemoryWriter(Protocol):
    """The methods of `MemoryService` that operations need."""

    async def write(self, agent_id: str, draft: Draft) -> Memory: ...

    async def get(self, agent_id: str, memory_id: str) -> Memory: ...

    async def update(
        self, agent_id: str, memory_id: str, change: Change, *, request: IdempotencyKey | None = None
    ) -> Memory: ...

    async def supersede(
        self, agent_id: str, memory_id: str, draft: Draft, *, request: IdempotencyKey | None = None
    ) -> tuple[Memory, Memory]: ...

    async def delete(
        self, agent_id: str, memory_id: str, *, request: IdempotencyKey | None = None
    ) -> None: ...


class MemoryOperations:
    """Applies memory operations to the memories of the scope's agent, for the principal of the work."""

    def __init__(self, memory: ByPrincipal[MemoryWriter], clock: Clock) -> None:
        self._memories = memory
        self._clock = clock

    async def apply(self, operation: JsonObject, scope: Scope) -> JsonDict:
        """Apply one operation and return the id of its memory. Raises FIELD_INVALID for an invalid operation,
        MEMORY_NOT_FOUND, and the errors of `MemoryService`."""
        memory = self._memories.of(working_principal(scope.principal))
        op = operation.get("op", "write")
        request = own_key("operation", scope.key)
        if op == "write":
            return {"id": (await memory.write(scope.agent_id, _draft(operation, scope))).id}
        if op not in _OPS:
            raise _invalid("op", f"`op` of a memory operation is {op!r:.100}; use one of {', '.join(_OPS)}.")
        memory_id = operation.get("id")
        if not isinstance(memory_id, str) or not memory_id:
            raise _invalid("id", f"The memory operation `{op}` has no `id`. Set it to the id of a memory.")
        if op == "supersede":
            return {"id": await self._supersede(memory, operation, scope, memory_id, request)}
        if op == "delete":
            try:
                await memory.delete(scope.agent_id, memory_id, request=request)
            except WonderError as problem:
                if problem.fault.reason is not Reason.MEMORY_NOT_FOUND:
                    raise
            return {"id": memory_id}
        change = Change(archived_ms=self._clock.now_ms()) if op == "archive" else _change(operation)
        await memory.update(scope.agent_id, memory_id, change, request=request)
        return {"id": memory_id}

    async def _supersede(
        self,
        memory: MemoryWriter,
        operation: JsonObject,
        scope: Scope,
        memory_id: str,
        request: IdempotencyKey,
    ) -> str:
        """Write the replacement and return its id. If another conversation has already replaced the memory,
        replace its replacement. If the memory was deleted, write the new one."""
        draft = _draft(operation, scope, unless_known=False)
        for _ in range(MAX_CHAIN):
            try:
                new, _old = await memory.supersede(scope.agent_id, memory_id, draft, request=request)
            except WonderError as problem:
                fault = problem.fault
                if fault.reason is Reason.MEMORY_NOT_FOUND:
                    break
                if fault.reason is not Reason.FIELD_INVALID or fault.field != "memory_id":
                    raise
                memory_id = (await memory.get(scope.agent_id, memory_id)).superseded_by_id or memory_id
            else:
                return new.id
        return (await memory.write(scope.agent_id, _draft(operation, scope))).id


def _draft(operation: JsonObject, scope: Scope, *, unless_known: bool = True) -> Draft:
    """Return the memory to write. ``unless_known``: keep an existing memory of the agent with the same
    content."""
    source = Source(
        conversation_id=scope.conversation_id,
        turn_id=scope.turn_id,
        run_id=scope.run_id,
        message_id=_text(operation, "message_id", ""),
        move_id=_text(operation, "move_id", "") or scope.move_id,
        speaker=_text(operation, "speaker", ""),
        speaker_id=_text(operation, "speaker_id", ""),
        ordinal=int(_number(operation, "ordinal", 0)),
        role=_role(operation),
    )
    return Draft(
        type=_text(operation, "type", DEFAULT_TYPE if unless_known else ""),
        content=_text(operation, "content"),
        significance=_number(operation, "significance", DEFAULT_SIGNIFICANCE),
        metadata=_metadata(operation) or {},
        source=source,
        contradicts_ids=_ids(operation) or (),
        archives_ids=_ids(operation, "archives_ids") or (),
        idempotency_key=scope.key,
        unless_known=unless_known,
        said_ms=_said_ms(operation),
        subject=_text(operation, "subject", ""),
    )


def _change(operation: JsonObject) -> Change:
    return Change(
        type=_text(operation, "type") if "type" in operation else None,
        content=_text(operation, "content") if "content" in operation else None,
        significance=_number(operation, "significance") if "significance" in operation else None,
        metadata=_metadata(operation),
        contradicts_ids=_ids(operation),
        said_ms=_said_ms(operation),
        subject=_text(operation, "subject") if "subject" in operation else None,
    )


def _role(operation: JsonObject) -> Role:
    value = _text(operation, "role", "")
    for role in ROLES:
        if value == role:
            return role
    raise _invalid("role", f"`role` of a memory operation is {value!r:.100}; use user or agent.")


def _said_ms(operation: JsonObject) -> int | None:
    return int(_number(operation, "said_ms")) if operation.get("said_ms") is not None else None


def _text(operation: JsonObject, name: str, default: str | None = None) -> str:
    value = operation.get(name, default)
    if not isinstance(value, str):
        raise _invalid(name, f"`{name}` of a memory operation is not a string: {value!r:.100}.")
    return value


def _number(operation: JsonObject, name: str, default: float | None = None) -> float:
    value = operation.get(name, default)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise _invalid(name, f"`{name}` of a memory operation is not a number: {value!r:.100}.")
    return float(value)


def _metadata(operation: JsonObject) -> JsonDict | None:
    value = operation.get("metadata")
    if value is not None and not isinstance(value, Mapping):
        raise _invalid("metadata", f"`metadata` of a memory operation is not an object: {value!r:.100}.")
    return None if value is None else dict(value)


def _ids(operation: JsonObject, name: str = "contradicts_ids") -> tuple[str, ...] | None:
    value = operation.get(name)
    if value is None:
        return None
    if not isinstance(value, list | tuple) or not all(isinstance(each, str) for each in value):
        raise _invalid(name, f"`{name}` of a memory operation is not a list of memory ids: {value!r:.100}.")
    return tuple(value)


def _invalid(name: str, message: str) -> WonderError:
    return error(Reason.FIELD_INVALID, message, field=f"memory_operations.{name}")
