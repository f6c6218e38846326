"""What is known of each class of frozen values: which of its fields can hold what is long (see `codec`)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, is_dataclass
from enum import Enum
from functools import cache
from operator import attrgetter
from types import NoneType, UnionType
from typing import Any, Final, Literal, Union, get_args, get_origin, get_type_hints

import msgspec

from wonder_server.core.definitions.specs import PinnedAgent, PinnedTask, PinnedWorkflow

PINNED: Final[frozenset[Any]] = frozenset({PinnedAgent, PinnedWorkflow, PinnedTask})
CONTAINERS: Final[frozenset[Any]] = frozenset({dict, list, tuple})
SCALARS: Final[frozenset[Any]] = frozenset({NoneType, bool, int, float})
_TEXTLESS: Final = PINNED | CONTAINERS | SCALARS
"""Of these, none has texts among its fields, or they are known already."""


@cache
def field_names(cls: Any) -> tuple[str, ...]:
    """The fields of a class of frozen values."""
    if issubclass(cls, msgspec.Struct):
        return tuple(cls.__struct_fields__)
    return tuple(field.name for field in fields(cls)) if is_dataclass(cls) else ()


@cache
def may_be_long(cls: Any) -> tuple[str, ...]:
    """Those of them that can hold what is long."""
    return tuple(name for name, hint in _hints(cls).items() if _can_be_long(hint, texts=True))


@cache
def container_fields(cls: Any) -> tuple[tuple[tuple[str, ...], ...], Callable[[Any], tuple[Any, ...]]]:
    """The lists, objects and pinned definitions in a value and in those that it always holds: where they are,
    and a function that finds them."""
    paths = _paths(cls, texts=False)
    return tuple(tuple(path.split(".")) for path in paths), _getter(paths)


@cache
def _text_getter(cls: Any) -> Callable[[Any], tuple[Any, ...]]:
    """The same with all that can be text."""
    return _getter(_paths(cls, texts=True))


def _getter(paths: list[str]) -> Callable[[Any], tuple[Any, ...]]:
    """A function that gives what is at these paths."""
    if len(paths) > 1:
        return attrgetter(*paths)
    if not paths:
        return lambda value: ()
    only = attrgetter(paths[0])
    return lambda value: (only(value),)


def _paths(cls: Any, *, texts: bool) -> list[str]:
    """Where there can be lists, objects and pinned definitions, or texts as well, in values of a class."""
    found = []
    for name, hint in _hints(cls).items():
        if _can_be_long(hint, texts=texts):
            within = [f"{name}.{path}" for path in _paths(hint, texts=texts)] if _is_value(hint) else [name]
            found += within
    return found


def _hints(cls: Any) -> dict[str, Any]:
    own = field_names(cls)
    hints = get_type_hints(cls) if own else {}
    return {name: hints[name] for name in own}


def has_text(value: Any, size: int) -> bool:
    """Whether a frozen value has a text of so many characters, but for those in lists and objects."""
    for item in _text_getter(value.__class__)(value):
        cls = item.__class__
        if cls is str:
            if len(item) >= size:
                return True
        elif cls not in _TEXTLESS and has_text(item, size):
            return True
    return False


def _can_be_long(hint: Any, *, texts: bool) -> bool:
    if get_origin(hint) in (Union, UnionType):
        return any(_can_be_long(each, texts=texts) for each in get_args(hint))
    if hint is str:
        return texts
    if not isinstance(hint, type):
        return get_origin(hint) is not Literal
    if hint in SCALARS or issubclass(hint, Enum):
        return False
    return not _is_value(hint) or bool(_paths(hint, texts=texts))


def _is_value(hint: Any) -> bool:
    """Whether a hint is a class of frozen values, but no pinned definition."""
    return isinstance(hint, type) and hint not in PINNED and bool(field_names(hint))
