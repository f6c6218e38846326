"""Errors with a reason that callers receive, as values.

Two shapes have one content::

    Fault         a frozen value: planners return it; the journal and events record it
    WonderError   the exception that carries a Fault through services and rpc

``rpc/server/error_codes.py`` holds the only table from `Reason` to gRPC status. `Reason` has the names of the
contract's enum ``ErrorReason`` (a test asserts it).
"""

from __future__ import annotations

import dataclasses
import errno
from dataclasses import dataclass
from enum import StrEnum
from typing import Final


class Reason(StrEnum):
    """Reason of an error. ``errors.proto`` documents each one with an example."""

    # The request is invalid (INVALID_ARGUMENT).
    MALFORMED_REQUEST = "MALFORMED_REQUEST"
    FIELD_INVALID = "FIELD_INVALID"
    FIELD_MASK_UNSUPPORTED = "FIELD_MASK_UNSUPPORTED"
    PAGE_TOKEN_INVALID = "PAGE_TOKEN_INVALID"
    PAYLOAD_TOO_DEEP = "PAYLOAD_TOO_DEEP"
    NUMBER_OUT_OF_RANGE = "NUMBER_OUT_OF_RANGE"
    REQUEST_ID_REUSED = "REQUEST_ID_REUSED"
    DEFINITION_INVALID = "DEFINITION_INVALID"
    INPUT_INVALID = "INPUT_INVALID"
    # A named resource does not exist (NOT_FOUND).
    CONVERSATION_NOT_FOUND = "CONVERSATION_NOT_FOUND"
    TURN_NOT_FOUND = "TURN_NOT_FOUND"
    MESSAGE_NOT_FOUND = "MESSAGE_NOT_FOUND"
    AGENT_NOT_FOUND = "AGENT_NOT_FOUND"
    PROJECT_NOT_FOUND = "PROJECT_NOT_FOUND"
    LIBRARY_NOT_FOUND = "LIBRARY_NOT_FOUND"
    DEFINITION_NOT_FOUND = "DEFINITION_NOT_FOUND"
    MEMORY_NOT_FOUND = "MEMORY_NOT_FOUND"
    RUN_NOT_FOUND = "RUN_NOT_FOUND"
    GATE_NOT_FOUND = "GATE_NOT_FOUND"
    ARTIFACT_NOT_FOUND = "ARTIFACT_NOT_FOUND"
    FILE_NOT_FOUND = "FILE_NOT_FOUND"
    TENANT_NOT_FOUND = "TENANT_NOT_FOUND"
    PRINCIPAL_NOT_FOUND = "PRINCIPAL_NOT_FOUND"
    KEY_NOT_FOUND = "KEY_NOT_FOUND"
    ROLE_BINDING_NOT_FOUND = "ROLE_BINDING_NOT_FOUND"
    # The name is taken (ALREADY_EXISTS).
    ALREADY_EXISTS = "ALREADY_EXISTS"
    # A concurrent change came first (ABORTED).
    ETAG_MISMATCH = "ETAG_MISMATCH"
    MERGE_CONFLICT = "MERGE_CONFLICT"
    # The state forbids it (FAILED_PRECONDITION).
    CONVERSATION_NOT_ACTIVE = "CONVERSATION_NOT_ACTIVE"
    TURN_NOT_ACTIVE = "TURN_NOT_ACTIVE"
    RUN_NOT_ACTIVE = "RUN_NOT_ACTIVE"
    NOT_ATTACHED = "NOT_ATTACHED"
    NO_AGENT = "NO_AGENT"
    RESOURCE_IN_USE = "RESOURCE_IN_USE"
    GATE_RESOLVED = "GATE_RESOLVED"
    SANDBOX_UNAVAILABLE = "SANDBOX_UNAVAILABLE"
    # A limit was reached (RESOURCE_EXHAUSTED).
    LIMIT_EXCEEDED = "LIMIT_EXCEEDED"
    PAYLOAD_TOO_LARGE = "PAYLOAD_TOO_LARGE"
    SLOW_READER = "SLOW_READER"
    MAX_MOVES_REACHED = "MAX_MOVES_REACHED"
    BUDGET_EXHAUSTED = "BUDGET_EXHAUSTED"
    COST_UNKNOWN = "COST_UNKNOWN"
    # The caller is unknown or lacks a scope (UNAUTHENTICATED, PERMISSION_DENIED).
    UNAUTHENTICATED = "UNAUTHENTICATED"
    PERMISSION_DENIED = "PERMISSION_DENIED"
    # A cursor is beyond the record (OUT_OF_RANGE).
    CURSOR_OUT_OF_RANGE = "CURSOR_OUT_OF_RANGE"
    # The work was cancelled (CANCELLED).
    CANCELLED = "CANCELLED"
    # The work exceeded its timeout (DEADLINE_EXCEEDED).
    TIMEOUT = "TIMEOUT"
    # The work failed (in turns, runs and tasks; as a status: FAILED_PRECONDITION or ABORTED).
    CONTEXT_ASSEMBLY_FAILED = "CONTEXT_ASSEMBLY_FAILED"
    MEMORY_EXTRACTION_FAILED = "MEMORY_EXTRACTION_FAILED"
    MODEL_FAILED = "MODEL_FAILED"
    AGENT_DECLINED = "AGENT_DECLINED"
    TASK_FAILED = "TASK_FAILED"
    RUN_FAILED = "RUN_FAILED"
    ASSERTION_FAILED = "ASSERTION_FAILED"
    EXPRESSION_FAILED = "EXPRESSION_FAILED"
    OUTCOME_UNKNOWN = "OUTCOME_UNKNOWN"
    OUTPUT_INVALID = "OUTPUT_INVALID"
    # The server is temporarily unable (UNAVAILABLE).
    SERVER_DRAINING = "SERVER_DRAINING"
    STORAGE_UNAVAILABLE = "STORAGE_UNAVAILABLE"
    OWNER_MOVED = "OWNER_MOVED"
    MODEL_UNAVAILABLE = "MODEL_UNAVAILABLE"
    # The method is not implemented (UNIMPLEMENTED).
    NOT_IMPLEMENTED = "NOT_IMPLEMENTED"
    # An error of the server itself (INTERNAL).
    INTERNAL = "INTERNAL"


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One error, as data.

    ``message`` is a plain sentence for people: the problem and the remedy. It never contains a class name,
    a stack trace or a secret. ``field`` is the path of the offending request field (``content``,
    ``spec.nodes[2].condition``). ``transient`` marks infrastructure errors, which the platform retries
    (feature I1); any other error is final. ``retry_after_ms`` becomes ``RetryInfo``.
    """

    reason: Reason
    message: str
    field: str = ""
    metadata: dict[str, str] = dataclasses.field(default_factory=dict)
    transient: bool = False
    retry_after_ms: int | None = None


class WonderError(Exception):
    """Exception that carries a `Fault` from services and adapters to the caller."""

    def __init__(self, fault: Fault, *, faults: tuple[Fault, ...] = ()) -> None:
        super().__init__(f"{fault.reason}: {fault.message}")
        self.fault = fault
        self.faults = faults or (fault,)
        """All violations of the request; ``BadRequest`` lists them."""


def error(
    reason: Reason,
    message: str,
    *,
    field: str = "",
    transient: bool = False,
    retry_after_ms: int | None = None,
    **metadata: str,
) -> WonderError:
    """Return the exception for ``raise error(Reason.X, "sentence", field="a.b", id=…)``."""
    return WonderError(
        Fault(
            reason=reason,
            message=message,
            field=field,
            metadata=metadata,
            transient=transient,
            retry_after_ms=retry_after_ms,
        )
    )


# --- missing resources ----------------------------------------------------------------------------

_MAX_QUOTED_CHARACTERS: Final = 100

_KINDS: Final[dict[Reason, tuple[str, str]]] = {
    Reason.CONVERSATION_NOT_FOUND: (
        "conversation",
        "List the conversations with `wonder conversations` or ListConversations.",
    ),
    Reason.TURN_NOT_FOUND: ("turn", "List the turns of a conversation with ListTurns."),
    Reason.MESSAGE_NOT_FOUND: ("message", "List the messages of a conversation with ListMessages."),
    Reason.AGENT_NOT_FOUND: (
        "agent",
        "List the agents with `wonder agent list` or ListAgents, or create it with `wonder agent create`.",
    ),
    Reason.PROJECT_NOT_FOUND: (
        "project",
        "List the projects with `wonder project list` or ListProjects, or create it with "
        "`wonder project create`.",
    ),
    Reason.LIBRARY_NOT_FOUND: (
        "library",
        "List the libraries with `wonder libraries` or ListLibraries, or create it with `wonder apply`.",
    ),
    Reason.DEFINITION_NOT_FOUND: (
        "definition",
        "List the definitions with `wonder definitions` or ListDefinitions, or save a new one with "
        "`wonder apply`.",
    ),
    Reason.MEMORY_NOT_FOUND: (
        "memory",
        "List the memories of an agent with `wonder memory list --agent NAME` or ListMemories.",
    ),
    Reason.RUN_NOT_FOUND: ("run", "List the runs with `wonder runs` or ListRuns."),
    Reason.GATE_NOT_FOUND: ("gate", "List the gates with `wonder gates` or ListGates."),
    Reason.ARTIFACT_NOT_FOUND: (
        "artifact",
        "List the artifacts with `wonder artifact list` or ListArtifacts.",
    ),
    Reason.FILE_NOT_FOUND: ("file", "List the files with `wonder files list` or ListFiles."),
    Reason.TENANT_NOT_FOUND: ("tenant", "List the tenants with `wonder tenants list` or ListTenants."),
    Reason.PRINCIPAL_NOT_FOUND: (
        "principal",
        "List the principals with `wonder principals list` or ListPrincipals.",
    ),
    Reason.KEY_NOT_FOUND: ("key", "List the keys with `wonder keys list` or ListKeys."),
    Reason.ROLE_BINDING_NOT_FOUND: (
        "role binding",
        "List the role bindings with `wonder roles list` or ListRoleBindings.",
    ),
}
"""The noun of each reason, and the next step."""


def not_found(
    reason: Reason, key: str, *, field: str = "", place: str = "", noun: str = "", next_step: str = ""
) -> WonderError:
    """Return the error for a missing resource with this id or name.

    ``place`` follows the name: `` of the agent 'ada'``, or a suggestion. ``noun`` and ``next_step`` replace
    those of the reason.
    """
    kind, remedy = _KINDS[reason]
    quoted = f"'{key[:_MAX_QUOTED_CHARACTERS]}'"
    message = f"There is no {noun or kind} {quoted}{place}. {next_step or remedy}"
    metadata = {"id": key[:_MAX_QUOTED_CHARACTERS]}
    return WonderError(Fault(reason=reason, message=message, field=field, metadata=metadata))


def with_id(fault: Fault, actor_id: str) -> Fault:
    """Return the fault of a planner, with the id of the missing conversation or run, which planners of an
    empty state do not know."""
    if fault.reason not in (Reason.CONVERSATION_NOT_FOUND, Reason.RUN_NOT_FOUND) or "id" in fault.metadata:
        return fault
    return not_found(fault.reason, actor_id, field=fault.field).fault


# --- shortages of the system ----------------------------------------------------------------------


def system_fault(problem: BaseException) -> Fault | None:
    """Return the fault for exhausted file descriptors or a full disk; None for any other error."""
    seen: set[int] = set()
    pending: list[BaseException] = [problem]
    while pending:
        each = pending.pop()
        if id(each) in seen:
            continue
        seen.add(id(each))
        if isinstance(each, OSError) and each.errno in _SHORTAGES:
            reason, message = _SHORTAGES[each.errno]
            return Fault(reason=reason, message=message, transient=True)
        pending += [cause for cause in (each.__cause__, each.__context__) if cause is not None]
        if isinstance(each, BaseExceptionGroup):
            pending += each.exceptions
    return None


_DESCRIPTORS = (
    Reason.LIMIT_EXCEEDED,
    "The server has no free file descriptors. Retry later. Its operator can raise the limit (ulimit -n).",
)
_FULL = (
    Reason.STORAGE_UNAVAILABLE,
    "The server's disk is full. Retry after its operator has freed space.",
)
_SHORTAGES = {
    errno.EMFILE: _DESCRIPTORS,
    errno.ENFILE: _DESCRIPTORS,
    errno.ENOSPC: _FULL,
    errno.EDQUOT: _FULL,
}
