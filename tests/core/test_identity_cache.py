"""Tests of the cache by identity."""

from __future__ import annotations

from dataclasses import dataclass, field

from wonder_server.core.identity_cache import CACHE_SIZE, cache_by_identity


@dataclass(frozen=True)
class Definition:
    """Equal to others like it, and without a hash, as pinned definitions are."""

    names: dict[str, int] = field(default_factory=dict)


def test_the_function_is_called_once_for_each_object() -> None:
    asked: list[Definition] = []

    @cache_by_identity
    def total(definition: Definition) -> int:
        asked.append(definition)
        return sum(definition.names.values())

    one, other = Definition({"a": 1}), Definition({"a": 2})
    assert [total(one), total(other), total(one), total(other)] == [1, 2, 1, 2]
    assert asked == [one, other]


def test_a_reused_id_is_not_mistaken_for_its_former_object() -> None:
    @cache_by_identity
    def number(definition: Definition) -> int:
        return definition.names["n"]

    # Most objects exist only during the call, so their ids would be reused if the cache did not keep them.
    assert [number(Definition({"n": n})) for n in range(3 * CACHE_SIZE)] == list(range(3 * CACHE_SIZE))
