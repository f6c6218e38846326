"""The answer to a refused caller: the permission that is missing, or nothing.

A call reaches the projects in which its caller has the permission of the call, and everything else does not
exist for it. To a caller who may read a conversation but not write to it, "there is no conversation" is
untrue. So what a call has not found is looked up again with the permission to read it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final, Protocol

from wonder_server.core import ids
from wonder_server.core.definitions.references import parse_reference
from wonder_server.core.errors import Fault, Reason, WonderError, error
from wonder_server.core.identity import STORED_KINDS, Principal
from wonder_server.ports.access import ByPrincipal
from wonder_server.ports.scoped import ScopedCatalog, ScopedRecords

_READS: Final[Mapping[Reason, str]] = {
    Reason.CONVERSATION_NOT_FOUND: "conversations.read",
    Reason.TURN_NOT_FOUND: "conversations.read",
    Reason.MESSAGE_NOT_FOUND: "conversations.read",
    Reason.RUN_NOT_FOUND: "runs.read",
    Reason.GATE_NOT_FOUND: "gates.read",
    Reason.AGENT_NOT_FOUND: "agents.read",
    Reason.PROJECT_NOT_FOUND: "projects.read",
    Reason.FILE_NOT_FOUND: "files.read",
    Reason.LIBRARY_NOT_FOUND: "libraries.read",
    Reason.DEFINITION_NOT_FOUND: "definitions.read",
}
"""The permission to read what a call has not found."""

_TABLES: Final = {
    Reason.CONVERSATION_NOT_FOUND: ("conversations", "conv"),
    Reason.TURN_NOT_FOUND: ("turns", "turn"),
    Reason.MESSAGE_NOT_FOUND: ("messages", "msg"),
    Reason.RUN_NOT_FOUND: ("runs", "run"),
    Reason.GATE_NOT_FOUND: ("gates", "gate"),
}
"""Tables of the record, with the prefixes of their ids."""


class Views(Protocol):
    """The stores of one access scope."""

    @property
    def records(self) -> ScopedRecords: ...

    @property
    def catalog(self) -> ScopedCatalog: ...


class Visibility:
    """Tells a missing permission from a missing resource."""

    def __init__(self, views: ByPrincipal[Views]) -> None:
        self._views = views

    async def explain(self, principal: Principal, problem: WonderError) -> WonderError:
        """Return PERMISSION_DENIED with the permission of the call in place of a NOT_FOUND for what the
        caller may read; else ``problem``."""
        reads = _READS.get(problem.fault.reason, "")
        if principal.kind not in STORED_KINDS or not reads or principal.permission in ("", reads):
            return problem
        mine, readable = self._views.of(principal), self._views.of(replace(principal, permission=reads))
        if mine is readable or not await _has(readable, problem.fault) or await _has(mine, problem.fault):
            return problem
        return error(
            Reason.PERMISSION_DENIED,
            f"The permission {principal.permission} is missing.",
            permission=principal.permission,
        )


async def _has(views: Views, fault: Fault) -> bool:
    """Return True if these stores have what the fault says is missing."""
    key = fault.metadata.get("id", "")
    if fault.reason in _TABLES:
        table, prefix = _TABLES[fault.reason]
        return ids.is_id(prefix, key) and await views.records.get(table, key) is not None
    match fault.reason:
        case Reason.AGENT_NOT_FOUND:
            return await views.catalog.agent(key) is not None
        case Reason.PROJECT_NOT_FOUND:
            return await views.catalog.project(key) is not None
        case Reason.FILE_NOT_FOUND:
            return await views.catalog.file(key) is not None
        case Reason.LIBRARY_NOT_FOUND:
            return await views.catalog.library(key) is not None
        case _:
            reference = parse_reference(key)
            return reference is not None and await views.catalog.definition(reference) is not None
