"""Field tables of stored classes: the fields that can hold long texts, lists or objects (see `interning`)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, is_dataclass
from enum import Enum
from functools import cache
from operator import attrgetter
from types import NoneType, UnionType
from typing import Any, Final, Literal, TypeAlias, Union, get_args, get_origin, get_type_hints

import msgspec

from wonder_server.core.definitions.specs import PinnedAgent, PinnedTask, PinnedWorkflow

StoredValue: TypeAlias = Any
"""A frozen value of `core`, or what its fields hold. The codec looks at the exact class of each value, which
a static type cannot express."""

ValueClass: TypeAlias = Any
"""A class of frozen values, or the type hint of one of their fields."""

Path: TypeAlias = tuple[str, ...]
"""The attribute names that lead from a frozen value to a value inside it."""

PINNED: Final[frozenset[ValueClass]] = frozenset({PinnedAgent, PinnedTask, PinnedWorkflow})
CONTAINERS: Final[frozenset[ValueClass]] = frozenset({dict, list, tuple})
SCALARS: Final[frozenset[ValueClass]] = frozenset({NoneType, bool, int, float})
_TEXTLESS: Final = PINNED | CONTAINERS | SCALARS
"""Classes that `has_text` skips: they have no text fields, or the codec interns their texts separately."""


@cache
def field_names(cls: ValueClass) -> tuple[str, ...]:
    """Return the field names of a class of frozen values; empty for any other class."""
    if issubclass(cls, msgspec.Struct):
        return tuple(cls.__struct_fields__)
    return tuple(field.name for field in fields(cls)) if is_dataclass(cls) else ()


@cache
def may_be_long(cls: ValueClass) -> tuple[str, ...]:
    """Return the names of the fields that can hold a text, list, object or pinned definition."""
    return tuple(name for name, hint in _hints(cls).items() if _can_be_long(hint, texts=True))


@cache
def container_fields(
    cls: ValueClass,
) -> tuple[tuple[Path, ...], Callable[[StoredValue], tuple[StoredValue, ...]]]:
    """Return the paths of all lists, objects and pinned definitions in values of ``cls``, and their getter.

    The paths include those inside nested frozen values. The getter returns the values at the paths, in order.
    """
    paths = _paths(cls, texts=False)
    return tuple(tuple(path.split(".")) for path in paths), _getter(paths)


@cache
def _text_getter(cls: ValueClass) -> Callable[[StoredValue], tuple[StoredValue, ...]]:
    """Return the getter for everything that can be long, texts included."""
    return _getter(_paths(cls, texts=True))


def _getter(paths: list[str]) -> Callable[[StoredValue], tuple[StoredValue, ...]]:
    """Return a function that returns the values at ``paths`` as a tuple."""
    if len(paths) > 1:
        return attrgetter(*paths)
    if not paths:
        return lambda value: ()
    only = attrgetter(paths[0])
    return lambda value: (only(value),)


def _paths(cls: ValueClass, *, texts: bool) -> list[str]:
    """Return the dotted paths of lists, objects and pinned definitions, and with ``texts`` of texts."""
    found = []
    for name, hint in _hints(cls).items():
        if _can_be_long(hint, texts=texts):
            within = [f"{name}.{path}" for path in _paths(hint, texts=texts)] if _is_value(hint) else [name]
            found += within
    return found


def _hints(cls: ValueClass) -> dict[str, ValueClass]:
    own = field_names(cls)
    hints = get_type_hints(cls) if own else {}
    return {name: hints[name] for name in own}


def has_text(value: StoredValue, size: int) -> bool:
    """Return True if a frozen value has a text of at least ``size`` characters outside lists and objects."""
    for item in _text_getter(value.__class__)(value):
        cls = item.__class__
        if cls is str:
            if len(item) >= size:
                return True
        elif cls not in _TEXTLESS and has_text(item, size):
            return True
    return False


def _can_be_long(hint: ValueClass, *, texts: bool) -> bool:
    origin: object = get_origin(hint)
    if origin in (Union, UnionType):
        return any(_can_be_long(each, texts=texts) for each in get_args(hint))
    if hint is str:
        return texts
    if not isinstance(hint, type):
        return origin is not Literal
    if hint in SCALARS or issubclass(hint, Enum):
        return False
    return not _is_value(hint) or bool(_paths(hint, texts=texts))


def _is_value(hint: ValueClass) -> bool:
    """Return True if a hint is a class of frozen values other than a pinned definition."""
    return isinstance(hint, type) and hint not in PINNED and bool(field_names(hint))
