"""Checks of the options of methods: their names, and durations."""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Callable, Mapping
from typing import Final

from wonder_sdk.errors import RequestError
from wonder_sdk.transport.encoding import shown

_MAX_SECONDS: Final = 10**9
"""About thirty years; the command line has the same maximum."""


def check_options(options: Mapping[str, object], known: type, method: Callable[..., object]) -> None:
    """Raise TypeError for an option that the TypedDict ``known`` does not have.

    Python accepts every keyword for ``**options``. Without this check a misspelt ``project`` would start the
    run in the default project. The message names the optional parameters of ``method`` too.
    """
    if options.keys() <= known.__annotations__.keys():
        return
    parameters = inspect.signature(method).parameters.values()
    own = [each.name for each in parameters if each.default is not inspect.Parameter.empty]
    names = [*own, *known.__annotations__]
    for name in options:
        if name not in names:
            close = difflib.get_close_matches(name, names, 1)
            hint = f"Did you mean {close[0]!r}?" if close else f"Use one of: {', '.join(names)}."
            raise TypeError(f"Option {name!r} does not exist. {hint}")


def to_milliseconds(seconds: object, option: str) -> int:
    """Convert a duration to milliseconds, at least 1 unless it is 0. Raises `RequestError`."""
    value = to_seconds(seconds, option)
    return max(1, round(value * 1000)) if value else 0


def to_seconds(seconds: object, option: str) -> float:
    """Check a duration. Raises `RequestError`, a ValueError, for nan, inf and negative numbers too."""
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0 <= seconds <= _MAX_SECONDS:
        raise RequestError(
            f"{option}: must be a number of seconds from 0 to {_MAX_SECONDS}, not {shown(seconds)}", option
        )
    return seconds
