"""Comparison of recorded decisions with decisions that are planned again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass

from msgspec import Struct

from wonder_server.core.actor.earlier_wordings import EARLIER_WORDINGS
from wonder_server.core.errors import Fault


def same_decisions(recorded: Sequence[object], planned: Sequence[object]) -> bool:
    """Return True if both are equal, apart from the messages of faults and earlier wordings of other texts.

    A newer version may word a message differently. Its reason, field and metadata are compared.
    """
    if recorded == planned:
        return True
    return len(recorded) == len(planned) and _comparable(recorded) == _comparable(planned)


def _comparable(value: object) -> object:
    """Return a comparable form of a value: without the messages of faults, and with today's wordings."""
    if isinstance(value, str):
        return _reworded(value)
    if isinstance(value, Struct):
        return type(value), [_comparable(getattr(value, name)) for name in value.__struct_fields__]
    if is_dataclass(value) and not isinstance(value, type):
        names = [each.name for each in fields(value)]
        if isinstance(value, Fault):
            names.remove("message")
        return type(value), [_comparable(getattr(value, name)) for name in names]
    if isinstance(value, Mapping):
        return {name: _comparable(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_comparable(each) for each in value]
    return value


def _reworded(text: str) -> str:
    """Return ``text`` with today's wordings."""
    for earlier, today in EARLIER_WORDINGS.items():
        if earlier in text:
            text = text.replace(earlier, today)
    return text
