"""Collection of a definition's faults, so that an author sees all of them at once."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from wonder_server.core.errors import Fault, Reason

MAX_FAULTS = 100
"""Limit of reported faults. Further faults are dropped."""


class FaultList:
    """A growing list of DEFINITION_INVALID faults, each with its path."""

    def __init__(self) -> None:
        self._found: list[Fault] = []

    def refuse(self, path: str, message: str) -> None:
        """Add a fault. ``message`` is a plain sentence about the value at ``path``."""
        if len(self._found) < MAX_FAULTS:
            self._found.append(Fault(reason=Reason.DEFINITION_INVALID, message=message, field=path))

    def found(self) -> tuple[Fault, ...]:
        """Return all faults."""
        return tuple(self._found)


def join(path: str, name: str) -> str:
    """Join ``a`` and ``b`` to ``a.b``. An empty path adds nothing."""
    return f"{path}.{name}" if path else name


def under(prefix: str, faults: Iterable[Fault]) -> tuple[Fault, ...]:
    """Return the faults with ``prefix`` before each path."""
    return tuple(
        replace(fault, field=join(prefix, fault.field) if fault.field else prefix) for fault in faults
    )
