"""Codecs of enum names, budgets, usage, bounded texts and metadata."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache, lru_cache
from typing import Any

from google.protobuf.internal.enum_type_wrapper import EnumTypeWrapper
from google.protobuf.struct_pb2 import Struct

from wonder.v1 import common_pb2
from wonder_server.core.budget import Account, Budget
from wonder_server.core.conversation.model.usage import known_cost
from wonder_server.core.conversation.model.values import Conversation, Turn
from wonder_server.core.errors import Reason, error
from wonder_server.core.identity import recorded_principal
from wonder_server.core.json_types import JsonDict
from wonder_server.rpc.shared.payload import struct_to_dict
from wonder_server.services.catalog.agents import check_metadata

MAX_BUDGET = 2**53


@cache
def enum_value(enum_type: EnumTypeWrapper, prefix: str, name: str) -> Any:
    """Return the number of the enum value that the core calls ``name``."""
    return enum_type.Value(f"{prefix}_{name.upper()}")


def enum_names(
    enum_type: EnumTypeWrapper, prefix: str, numbers: Sequence[int], field: str
) -> tuple[str, ...]:
    """Return the core's names of enum numbers. Raises FIELD_INVALID for UNSPECIFIED."""
    found = []
    for index, number in enumerate(numbers):
        name = enum_type.Name(number).removeprefix(f"{prefix}_").lower()
        if name == "unspecified":
            raise error(
                Reason.FIELD_INVALID,
                f"{field}[{index}] is unspecified. Use one of {_choices(enum_type, prefix)}.",
                field=f"{field}[{index}]",
            )
        found.append(name)
    return tuple(found)


def _choices(enum_type: EnumTypeWrapper, prefix: str) -> str:
    names = [name.removeprefix(f"{prefix}_").lower() for name in enum_type.keys()]
    return ", ".join(name for name in names if name != "unspecified")


def set_principal(message: common_pb2.Principal, text: str) -> None:
    """Set ``message`` to the principal that a record names; leave it unset if the record names none."""
    found = _principal(text)
    if found is not None:
        message.CopyFrom(found)


@lru_cache(maxsize=4096)
def _principal(text: str) -> common_pb2.Principal | None:
    """Encode a recorded principal. Cached: most records of a server name few principals."""
    found = recorded_principal(text)
    if found is None:
        return None
    kind = enum_value(common_pb2.PrincipalKind, "PRINCIPAL_KIND", found.kind.value)
    return common_pb2.Principal(kind=kind, subject=found.subject)


def budget_to_proto(value: Budget) -> common_pb2.Budget | None:
    """Encode a budget; return None for a budget without limits."""
    if value == Budget():
        return None
    return common_pb2.Budget(
        max_tokens=value.max_tokens,
        max_cost_micros=value.max_cost_micros,
        max_duration_ms=value.max_duration_ms,
    )


def budget_from_proto(message: common_pb2.Budget, field: str) -> Budget:
    """Decode a budget. Raises FIELD_INVALID for a limit that is out of range."""
    given = {name: getattr(message, name) for name in ("max_tokens", "max_cost_micros", "max_duration_ms")}
    for name, limit in given.items():
        if not 0 <= limit <= MAX_BUDGET:
            raise error(
                Reason.FIELD_INVALID,
                f"{field}.{name} is {limit}. Use a number between 0 (no limit) and {MAX_BUDGET}.",
                field=f"{field}.{name}",
            )
    return Budget(**given)


def usage_to_proto(spender: Conversation | Turn | Account) -> common_pb2.Usage:
    """Encode the usage of a conversation, a turn or an agent."""
    encoded = common_pb2.Usage()
    set_usage(encoded, spender)
    return encoded


def set_usage(message: common_pb2.Usage, spender: Conversation | Turn | Account) -> None:
    """Set ``message`` to the usage of ``spender``. The cost stays unset if it is unknown."""
    message.input_tokens = spender.input_tokens
    message.output_tokens = spender.output_tokens
    message.cached_input_tokens = spender.cached_input_tokens
    message.cache_write_input_tokens = spender.cache_write_input_tokens
    message.reasoning_tokens = spender.reasoning_tokens
    if (cost := known_cost(spender)) is not None:
        message.cost_micros = cost
    message.cost_unknown = spender.unpriced_calls
    message.model_calls = spender.model_calls or getattr(spender, "moves", 0)


def check_text_size(text: str, max_bytes: int, field: str) -> str:
    """Return ``text``. Raises FIELD_INVALID if it has more than ``max_bytes`` bytes."""
    size = len(text.encode("utf-8", "replace"))
    if size > max_bytes:
        raise error(
            Reason.FIELD_INVALID, f"{field} has {size} bytes; the maximum is {max_bytes}.", field=field
        )
    return text


def metadata_from_proto(message: Struct, field: str) -> JsonDict:
    """Decode a client's metadata. Raises PAYLOAD_TOO_LARGE and the errors of `struct_to_dict`."""
    if not message.fields:
        return {}
    metadata = struct_to_dict(message, field)
    check_metadata(metadata, field)
    return metadata
