"""Types of decoded JSON. The only place where `Any` stands for a JSON value."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

JsonValue: TypeAlias = Any
"""None, a bool, an int, a float, a str, or a list or mapping of these. Code that takes a value from outside
checks its type before use, so a recursive union would add casts and no safety."""

JsonObject: TypeAlias = Mapping[str, JsonValue]
"""A JSON object that is read and not changed."""

JsonDict: TypeAlias = dict[str, JsonValue]
"""A JSON object that its owner may change."""
