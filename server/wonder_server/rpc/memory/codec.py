"""Codec of memories."""

from __future__ import annotations

from typing import Final

from google.protobuf.timestamp_pb2 import Timestamp

from wonder.v1 import conversation_pb2, memory_pb2, memory_service_pb2
from wonder_server.core.errors import Reason, error
from wonder_server.core.memory.ranking import Hit, Weights
from wonder_server.core.memory.records import AGENT, USER, Change, Draft, Filter, Memory, Role, Source
from wonder_server.rpc.shared.fields import bounded
from wonder_server.rpc.shared.payload import dict_to_struct, struct_to_dict
from wonder_server.rpc.shared.times import from_timestamp, to_timestamp

DEFAULT_SIGNIFICANCE: Final = 0.5
UPDATABLE: Final = ("type", "content", "significance", "metadata", "contradicts_ids", "said_at", "subject")
_ROLES: Final[dict[Role, conversation_pb2.MessageRole]] = {
    "": conversation_pb2.MESSAGE_ROLE_UNSPECIFIED,
    USER: conversation_pb2.MESSAGE_ROLE_USER,
    AGENT: conversation_pb2.MESSAGE_ROLE_AGENT,
}


def memory_to_proto(memory: Memory) -> memory_pb2.Memory:
    """Encode a memory."""
    source = memory.source
    return memory_pb2.Memory(
        id=memory.id,
        agent_id=memory.agent_id,
        type=memory.type,
        content=memory.content,
        significance=memory.significance,
        metadata=dict_to_struct(memory.metadata),
        source=memory_pb2.MemorySource(
            conversation_id=source.conversation_id,
            turn_id=source.turn_id,
            message_id=source.message_id,
            move_id=source.move_id,
            run_id=source.run_id,
            speaker=source.speaker,
            speaker_id=source.speaker_id,
            ordinal=source.ordinal,
            role=_ROLES[source.role],
        ),
        supersedes_id=memory.supersedes_id,
        superseded_by_id=memory.superseded_by_id,
        contradicts_ids=memory.contradicts_ids,
        size_bytes=memory.size_bytes,
        archive_time=to_timestamp(memory.archived_ms),
        create_time=to_timestamp(memory.created_ms),
        update_time=to_timestamp(memory.updated_ms),
        etag=memory.etag,
        said_at=to_timestamp(memory.said_ms) or Timestamp(),
        subject=memory.subject,
    )


def hit_to_proto(hit: Hit) -> memory_pb2.SearchHit:
    """Encode a hit with its memory and the parts of its score."""
    return memory_pb2.SearchHit(
        memory=memory_to_proto(hit.memory),
        score=hit.score,
        relevance=hit.relevance,
        significance=hit.significance,
        recency=hit.recency,
    )


def draft_from_proto(
    memory: memory_pb2.Memory, *, path: str, idempotency_key: str = "", unless_known: bool = False
) -> Draft:
    """Decode a memory to write; fields that the server sets are ignored. ``path`` is its path in the request.

    Raises FIELD_INVALID. The service checks the values.
    """
    source = memory.source
    return Draft(
        type=memory.type,
        content=memory.content,
        significance=_significance(memory),
        metadata=struct_to_dict(memory.metadata, f"{path}.metadata"),
        source=Source(
            conversation_id=source.conversation_id,
            turn_id=source.turn_id,
            message_id=source.message_id,
            move_id=source.move_id,
            run_id=source.run_id,
            speaker=source.speaker,
            speaker_id=source.speaker_id,
            ordinal=source.ordinal,
            role=_role(source.role, f"{path}.source.role"),
        ),
        contradicts_ids=tuple(memory.contradicts_ids),
        idempotency_key=idempotency_key,
        unless_known=unless_known,
        said_ms=from_timestamp(memory.said_at, f"{path}.said_at") if memory.HasField("said_at") else None,
        subject=memory.subject,
    )


def change_from_proto(request: memory_service_pb2.UpdateMemoryRequest) -> Change:
    """Decode the fields to change and their values. Raises FIELD_MASK_UNSUPPORTED or FIELD_INVALID."""
    memory, paths = request.memory, _masked_change(request)
    if not paths:
        raise error(
            Reason.FIELD_INVALID,
            "The request changes nothing. Set a field or name it in update_mask.",
            field="update_mask",
        )
    return Change(
        type=memory.type if "type" in paths else None,
        content=memory.content if "content" in paths else None,
        significance=_significance(memory) if "significance" in paths else None,
        metadata=struct_to_dict(memory.metadata, "memory.metadata") if "metadata" in paths else None,
        contradicts_ids=tuple(memory.contradicts_ids) if "contradicts_ids" in paths else None,
        said_ms=_new_said_ms(memory) if "said_at" in paths else None,
        subject=memory.subject if "subject" in paths else None,
    )


def filter_from_proto(wanted: memory_service_pb2.MemoryFilter) -> Filter:
    """Decode a filter. Raises FIELD_INVALID for an invalid time."""

    def time(name: str) -> int | None:
        given = getattr(wanted, name)
        return from_timestamp(given, f"filter.{name}") if wanted.HasField(name) else None

    return Filter(
        types=tuple(wanted.types),
        metadata=struct_to_dict(wanted.metadata, "filter.metadata"),
        conversation_id=bounded(wanted.conversation_id, "filter.conversation_id"),
        turn_id=bounded(wanted.turn_id, "filter.turn_id"),
        start_ms=time("start_time"),
        end_ms=time("end_time"),
        said_start_ms=time("said_start_time"),
        said_end_ms=time("said_end_time"),
        set_aside=wanted.include_superseded,
        subject=wanted.subject,
    )


def weights_from_proto(weights: memory_service_pb2.SearchWeights) -> Weights:
    """Decode the weights; an unset weight has the contract's default."""
    given = {field.name: value for field, value in weights.ListFields()}
    return Weights(**given)


def _role(number: int, path: str) -> Role:
    for role, known in _ROLES.items():
        if known == number:
            return role
    raise error(Reason.FIELD_INVALID, f"{path} is {number}. Use a value of MessageRole.", field=path)


def _new_said_ms(memory: memory_pb2.Memory) -> int:
    """Return the new time. Raises FIELD_INVALID if the mask names it and it is unset."""
    if not memory.HasField("said_at"):
        raise error(
            Reason.FIELD_INVALID,
            "update_mask names said_at, but memory.said_at is unset.",
            field="memory.said_at",
        )
    return from_timestamp(memory.said_at, "memory.said_at")


def _masked_change(request: memory_service_pb2.UpdateMemoryRequest) -> set[str]:
    """Return the fields that the mask names, or those that are set if the mask is empty."""
    for path in request.update_mask.paths:
        if path not in UPDATABLE:
            raise error(
                Reason.FIELD_MASK_UNSUPPORTED,
                f"update_mask: '{path[:100]}' cannot be changed. Use one of {', '.join(UPDATABLE)}.",
                field="update_mask",
            )
    set_fields = {field.name for field, _ in request.memory.ListFields()}
    return set(request.update_mask.paths) or set_fields & set(UPDATABLE)


def _significance(memory: memory_pb2.Memory) -> float:
    return memory.significance if memory.HasField("significance") else DEFAULT_SIGNIFICANCE
