"""About how many bytes of text a value holds: as quick as it is, what a plain walk finds."""

from __future__ import annotations

from dataclasses import dataclass, fields

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from wonder_server.actors.streaming.sizes import text_bytes
from wonder_server.core.conversation.model.values import Caller, Role
from wonder_server.core.frozen import Value


class Note(Value, frozen=True, kw_only=True):
    text: str = ""
    value: object = None


@dataclass(frozen=True)
class Page:
    title: str
    value: object


LEAVES = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=9)
    | st.sampled_from([Role.USER, Role.AGENT])
    | st.builds(Caller, user_id=st.text(max_size=9))
)
VALUES = st.recursive(
    LEAVES,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.lists(inner, max_size=4).map(tuple)
        | st.dictionaries(st.text(max_size=5), inner, max_size=4)
        | st.builds(Note, text=st.text(max_size=5), value=inner)
        | st.builds(Page, title=st.text(max_size=5), value=inner)
    ),
    max_leaves=12,
)


def reference_size(value: object, deepest: int) -> int:
    if isinstance(value, str):
        return len(value)
    if not deepest:
        return 0
    if isinstance(value, dict):
        return sum(len(key) + reference_size(each, deepest - 1) for key, each in value.items())
    if isinstance(value, list | tuple):
        return sum(reference_size(each, deepest - 1) for each in value)
    if isinstance(value, msgspec.Struct):
        return sum(reference_size(getattr(value, name), deepest - 1) for name in value.__struct_fields__)
    if isinstance(value, Page):
        return sum(reference_size(getattr(value, each.name), deepest - 1) for each in fields(value))
    return 0


@given(value=VALUES, deepest=st.integers(0, 5) | st.just(40))
def test_all_texts_count(value: object, deepest: int) -> None:
    assert text_bytes(value, deepest) == reference_size(value, deepest)


def test_text_below_the_depth_limit_does_not_count() -> None:
    value: object = "deep"
    for _ in range(2_000):
        value = ["text", value]
    assert text_bytes(value) == 40 * len("text")
