"""Entries of the audit: who changed what, with which key, on what, from where."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from wonder_server.core.json_types import JsonDict


class AuditOutcome(StrEnum):
    """The end of the call."""

    DONE = "done"
    REFUSED = "refused"


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditEntry:
    """One change, or one refused call.

    ``id`` sorts by time. ``principal`` is the text of the caller (`Principal.text`) and ``key_id`` its key.
    ``method`` is the method of the contract, ``resource`` the id of what was changed, ``project_id`` its
    project. ``details`` has no secrets and no contents. ``repeats`` counts refusals that were left out before
    this one, since refusals are sampled.
    """

    id: str
    at_ms: int
    tenant_id: str
    principal: str
    method: str
    outcome: AuditOutcome = AuditOutcome.DONE
    resource: str = ""
    project_id: str = ""
    key_id: str = ""
    act_as: str = ""
    reason: str = ""
    request_id: str = ""
    peer: str = ""
    trace_id: str = ""
    repeats: int = 0
    details: JsonDict = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditQuery:
    """A selection of entries. Empty filters select all; ``end_ms`` is exclusive, 0 is open. ``tenant_id``
    None is every tenant. ``before`` is the id of the last entry of the previous page."""

    tenant_id: str | None = None
    principal: str = ""
    method: str = ""
    resource: str = ""
    project_id: str = ""
    outcome: AuditOutcome | None = None
    start_ms: int = 0
    end_ms: int = 0
    before: str = ""
    limit: int = 50
