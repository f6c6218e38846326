"""What is worked out once for each value that recurs."""

from __future__ import annotations

from dataclasses import dataclass, field

from wonder_server.core.identity_cache import CACHE_SIZE, cache_by_identity


@dataclass(frozen=True)
class Definition:
    """Equal to others like it, and without a hash, as pinned definitions are."""

    names: dict[str, int] = field(default_factory=dict)


def test_it_is_asked_once_for_each_object_and_answers_for_no_other() -> None:
    asked: list[Definition] = []

    @cache_by_identity
    def total(definition: Definition) -> int:
        asked.append(definition)
        return sum(definition.names.values())

    one, other = Definition({"a": 1}), Definition({"a": 2})
    assert [total(one), total(other), total(one), total(other)] == [1, 2, 1, 2]
    assert asked == [one, other]


def test_an_id_that_is_used_again_is_not_taken_for_the_object_that_had_it() -> None:
    @cache_by_identity
    def number(definition: Definition) -> int:
        return definition.names["n"]

    # Most of them live only for the call, so that their ids would come back, were they not kept.
    assert [number(Definition({"n": n})) for n in range(3 * CACHE_SIZE)] == list(range(3 * CACHE_SIZE))
