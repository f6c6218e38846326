"""A copy of a frozen value with some fields changed, be it a dataclass or a struct."""

from __future__ import annotations

import dataclasses
from typing import Any

import msgspec


def replace(value: Any, **changes: Any) -> Any:
    if isinstance(value, msgspec.Struct):
        return msgspec.structs.replace(value, **changes)
    return dataclasses.replace(value, **changes)
