"""Fields of requests: those that must be there, and where faults lie."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Final

from wonder_server.core.errors import Fault, Reason, WonderError, error

MAX_REFERENCE_CHARS: Final = 512
"""Characters of an id, a name or a reference; nothing longer can be found, or need be logged."""


def required(text: str, field: str) -> str:
    """``text``, an id, name or reference. FIELD_INVALID if it is empty or too long to be one."""
    if not text:
        raise error(Reason.FIELD_INVALID, f"{field} is required.", field=field)
    return bounded(text, field)


def bounded(text: str, field: str, limit: int = MAX_REFERENCE_CHARS) -> str:
    """``text``, at most ``limit`` characters long. FIELD_INVALID if it is longer."""
    if len(text) > limit:
        raise error(Reason.FIELD_INVALID, f"{field} has at most {limit} characters.", field=field)
    return text


@contextmanager
def map_fault_fields(paths: Mapping[str, str]) -> Iterator[None]:
    """Faults raised inside name fields as this request has them.

    ``paths`` maps what the service calls a field to its path in the request: with ``types`` to
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
