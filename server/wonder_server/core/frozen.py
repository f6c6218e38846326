"""Frozen values that are made by the thousand.

A planner makes a dozen values for each node of a run: a frozen dataclass costs 1.7 µs to make and 3 µs to
change, a ``msgspec.Struct`` a tenth of it, and it is written to JSON without a detour (docs/adr/0009).
"""

from __future__ import annotations

import msgspec

field = msgspec.field
"""Says how a field gets its default, ``field(default_factory=dict)``, and its stored name, ``name="…"``."""

replace = msgspec.structs.replace
"""A copy of a value with some fields changed."""


class Value(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """Base of frozen values with named fields; each says ``frozen=True, kw_only=True`` for itself, since
    type checkers do not inherit it. Equal when their fields are.

    Fields that have their default are not written down, so a default never changes: what is on disk would
    come to say something else. A stored name never changes either: a field that is renamed keeps its first
    name as ``field(name="first_name")``."""


def stored_text(tag: str, value: Value) -> str:
    """Return a value as text: the form of `repr`, with ``tag`` for the class and the stored field names.

    Fingerprints of requests are made of this text, so renaming a class or a field does not change them.
    """
    fields = zip(value.__struct_encode_fields__, value.__struct_fields__, strict=True)
    return f"{tag}({', '.join(f'{stored}={getattr(value, name)!r}' for stored, name in fields)})"
