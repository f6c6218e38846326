"""Types of decoded JSON. The only place of the SDK where `Any` stands for a JSON value."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

JsonValue: TypeAlias = Any
"""None, a bool, an int, a float, a str, or a list or mapping of these."""

JsonObject: TypeAlias = Mapping[str, JsonValue]
"""A JSON object that is read and not changed."""

JsonDict: TypeAlias = dict[str, JsonValue]
"""A JSON object that its owner may change."""
