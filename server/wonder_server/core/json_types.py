"""Types of decoded JSON. Only here `Any` stands for a JSON value."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

JsonValue: TypeAlias = Any
"""None, a bool, an int, a float, a str, or a list or mapping of these.

Code checks the type of a received value before use, so a recursive union would add casts and no safety.
"""

JsonObject: TypeAlias = Mapping[str, JsonValue]
"""A JSON object that its reader does not change."""

JsonDict: TypeAlias = dict[str, JsonValue]
"""A JSON object that its owner may change."""
