"""Owners: only the directory reaches actors, with values that another node could receive."""

from __future__ import annotations

import dataclasses
import enum
import types
from collections.abc import Mapping
from typing import Any, Union, get_args, get_origin, get_type_hints

import msgspec
import pytest

from tests.architecture.sources import SERVER, files
from tests.architecture.test_imports import imports, module_of
from wonder_server.codec.interning import encode, read
from wonder_server.core.actor.queries import ActorQuery
from wonder_server.core.conversation.planner import CONVERSATION
from wonder_server.core.coordinator.planner import RUN

LOOPS = ("wonder_server.actors.runtime.loop", "wonder_server.actors.runtime.loops")
MAY_USE_LOOPS = (
    "wonder_server.actors.runtime",
    "wonder_server.actors.directory",
    "wonder_server.compose.runtime",
    # A dry run has loops, a journal and actors of its own, which nothing else can reach.
    "wonder_server.actors.dispatch.dry_run",
)
HUB = "wonder_server.actors.streaming.hub.StreamHub"
MAY_USE_HUB = (
    "wonder_server.actors.streaming",
    "wonder_server.actors.directory",
    "wonder_server.compose",
    # Handlers run on the node that owns the shard, and produce what its streams show.
    "wonder_server.actors.dispatch",
)


def users(names: tuple[str, ...]) -> set[str]:
    """Return the modules that import one of these modules, or a name of one."""
    return {
        module_of(path)
        for path in files(SERVER)
        if any(name == used or name.startswith(f"{used}.") for name in imports(path) for used in names)
    }


@pytest.mark.parametrize(("names", "allowed"), [(LOOPS, MAY_USE_LOOPS), ((HUB,), MAY_USE_HUB)])
def test_only_the_directory_and_the_runtime_reach_into_loops_and_streams(
    names: tuple[str, ...], allowed: tuple[str, ...]
) -> None:
    found = users(names)
    assert {each for each in found if not each.startswith(allowed)} == set()
    assert {each for each in allowed if not any(user.startswith(each) for user in found)} == set()


MAX_DEPTH = 5
"""Depth at which samples of recursive classes are empty."""

PLAIN: dict[Any, Any] = {str: "text", int: 7, float: 1.5, bool: True, types.NoneType: None}
JSON = {"list": [1, "two", None, {"deep": True}]}


def sample(hint: Any, depth: int = 0) -> Any:
    """Return a value of an annotated type. Raises TypeError for a type that no store can hold."""
    origin, arguments = get_origin(hint), get_args(hint)
    if hint in PLAIN:
        return PLAIN[hint]
    if hint is Any:
        return JSON
    if origin in (Union, types.UnionType):
        if depth > MAX_DEPTH and types.NoneType in arguments:
            return None
        return sample(next(each for each in arguments if each is not types.NoneType), depth)
    if origin is tuple:
        return () if depth > MAX_DEPTH else (sample(arguments[0], depth + 1),)
    if origin in (dict, Mapping) or (isinstance(origin, type) and issubclass(origin, Mapping)):
        return {} if depth > MAX_DEPTH else {"key": sample(arguments[1], depth + 1)}
    if isinstance(hint, type) and issubclass(hint, enum.Enum):
        return next(iter(hint))
    if isinstance(hint, type) and (issubclass(hint, msgspec.Struct) or dataclasses.is_dataclass(hint)):
        return built(hint, depth)
    raise TypeError(f"{hint} cannot be stored")


def built(cls: type, depth: int = 0) -> Any:
    """Return an instance with a value in each field."""
    return cls(**{name: sample(hint, depth + 1) for name, hint in get_type_hints(cls).items()})


INPUTS = [*CONVERSATION.inputs, *RUN.inputs, *get_args(ActorQuery)]


@pytest.mark.parametrize("cls", INPUTS, ids=lambda cls: f"{cls.__module__.split('.')[2]}-{cls.__name__}")
def test_every_input_and_query_can_be_stored_and_sent(cls: type) -> None:
    value = built(cls)
    assert read(encode(value), cls) == value


@pytest.mark.parametrize("hint", [object, type(lambda: None), "asyncio.Future", types.GeneratorType])
def test_a_live_object_is_no_sample(hint: Any) -> None:
    with pytest.raises(TypeError, match="cannot be stored"):
        sample(hint)
