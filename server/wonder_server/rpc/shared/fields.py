"""Checks of request fields, and the mapping of fault fields to request fields."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Final

from wonder_server.core.errors import Fault, Reason, WonderError, error

MAX_REFERENCE_CHARS: Final = 512
"""Maximum characters of an id, a name or a reference. A longer one cannot exist, and would fill the log."""


def required(text: str, field: str) -> str:
    """Return ``text``, an id, name or reference. Raises FIELD_INVALID if it is empty or too long."""
    if not text:
        raise error(Reason.FIELD_INVALID, f"{field} is required.", field=field)
    return bounded(text, field)


def bounded(text: str, field: str, limit: int = MAX_REFERENCE_CHARS) -> str:
    """Return ``text``. Raises FIELD_INVALID if it has more than ``limit`` characters."""
    if len(text) > limit:
        raise error(
            Reason.FIELD_INVALID, f"{field} has {len(text)} characters; the maximum is {limit}.", field=field
        )
    return text


@contextmanager
def map_fault_fields(paths: Mapping[str, str]) -> Iterator[None]:
    """Rename the fields of faults raised inside to the fields of the request.

    ``paths`` maps the service's name of a field to its path in the request: with ``types`` mapped to
    ``filter.types``, ``types[3]`` becomes ``filter.types[3]``.
    """
    try:
        yield
    except WonderError as problem:
        faults = tuple(_map_fault(fault, paths) for fault in problem.faults)
        raise WonderError(_map_fault(problem.fault, paths), faults=faults) from None


def _map_fault(fault: Fault, paths: Mapping[str, str]) -> Fault:
    name, bracket, rest = fault.field.partition("[")
    return replace(fault, field=paths.get(name, name) + bracket + rest)
