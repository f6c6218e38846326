"""Comparison of recorded decisions with decisions that are planned again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass

from msgspec import Struct

from wonder_server.core.errors import Fault


def same_decisions(recorded: Sequence[object], planned: Sequence[object]) -> bool:
    """Return True if both are equal, apart from the messages of faults.

    A newer version may word a message differently. Its reason, field and metadata are compared.
    """
    if recorded == planned:
        return True
    return len(recorded) == len(planned) and _without_messages(recorded) == _without_messages(planned)


def _without_messages(value: object) -> object:
    """Return a comparable form of a value in which the faults have no message."""
    if isinstance(value, Struct):
        return type(value), [_without_messages(getattr(value, name)) for name in value.__struct_fields__]
    if is_dataclass(value) and not isinstance(value, type):
        names = [each.name for each in fields(value)]
        if isinstance(value, Fault):
            names.remove("message")
        return type(value), [_without_messages(getattr(value, name)) for name in names]
    if isinstance(value, Mapping):
        return {name: _without_messages(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_without_messages(each) for each in value]
    return value
