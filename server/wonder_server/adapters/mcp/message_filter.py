"""The messages of a server that reach the package `mcp`: answers, and progress of calls that ask for it.

The package starts a task for each message, so a flood would fill the memory. All else that a server may say
(its log, changed lists of tools, requests for sampling, roots or input) is of no use here.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextvars import ContextVar
from enum import Enum
from typing import Any, Final

from mcp_types import JSONRPCError, JSONRPCNotification, JSONRPCRequest, JSONRPCResponse

from wonder_server.adapters.mcp.limits import MAX_MESSAGES, MESSAGES_PER_S, TokenBucket, is_number
from wonder_server.core.errors import Reason, WonderError, error

METHOD_NOT_FOUND: Final = -32601

_HEAD: Final = re.compile(rb'\s*\{\s*(?:"jsonrpc"\s*:\s*"2\.0"\s*,\s*)?"id"\s*:\s*(\d{1,15})\s*,')
_TAIL: Final = re.compile(rb'"id"\s*:\s*(\d{1,15})\s*\}\s*\Z')
_ID_WINDOW: Final = 200


class PendingCall:
    """A call of a tool that is under way. ``problem`` says why it has no answer, if that is known."""

    def __init__(self) -> None:
        self.problem: WonderError | None = None
        self.progress = TokenBucket(MAX_MESSAGES, MESSAGES_PER_S)


CURRENT_CALL: ContextVar[PendingCall | None] = ContextVar("wonder_mcp_asked", default=None)
"""The call that the current task makes. The package writes a request in the task of its caller."""


class Verdict(Enum):
    """What becomes of a message."""

    PASS = "pass"
    DROP = "drop"
    REFUSE = "refuse"
    FLOOD = "flood"


class MessageFilter:
    """Judges the messages of one session, and knows its calls under way by the ids of their requests."""

    def __init__(self) -> None:
        self._budget = TokenBucket(MAX_MESSAGES, MESSAGES_PER_S)
        self._pending: dict[int | str, PendingCall | None] = {}

    def record_request(self, message: Any) -> None:
        """Note a request that is being sent."""
        if isinstance(message, JSONRPCRequest):
            self._pending[message.id] = CURRENT_CALL.get()

    def discard(self, call: PendingCall) -> None:
        """Note that a call is over, answered or not."""
        for request in [request for request, waiting in self._pending.items() if waiting is call]:
            del self._pending[request]

    def verdict_for(self, message: Any) -> Verdict:
        """Return what to do with a message from the server."""
        if isinstance(message, JSONRPCResponse | JSONRPCError) and message.id in self._pending:
            del self._pending[message.id]
            return Verdict.PASS
        if isinstance(message, JSONRPCNotification) and message.method == "notifications/progress":
            call = self._call_of_progress(message.params)
            if call is not None:
                return Verdict.PASS if call.progress.take() else Verdict.FLOOD
        if not self._budget.take():
            return Verdict.FLOOD
        return Verdict.REFUSE if isinstance(message, JSONRPCRequest) else Verdict.DROP

    def accept_unreadable(self) -> bool:
        """Judge a line that is no message. Return False when there are too many of them."""
        return self._budget.take()

    def call_answered_by(
        self, line: bytes | bytearray, *, whole: bool
    ) -> tuple[int | str, PendingCall] | None:
        """The request that an unreadable line answers, and its call; None if it does not say.

        Unless the line is ``whole``, its id may come later, so the only call there is will be meant.
        """
        calls = {request: call for request, call in self._pending.items() if call is not None}
        found = _HEAD.match(line[:_ID_WINDOW]) or (_TAIL.search(line[-_ID_WINDOW:]) if whole else None)
        if found is not None:
            request: int | str = int(found[1])
        elif not whole and len(calls) == 1 and line[:_ID_WINDOW].lstrip()[:1] == b"{":
            request = next(iter(calls))
        else:
            return None
        return (request, calls[request]) if request in calls else None

    def _call_of_progress(self, parameters: Mapping[str, Any] | None) -> PendingCall | None:
        """The call under way whose progress this is; None if there is none, or its numbers cannot be used."""
        parameters = parameters or {}
        token, total = parameters.get("progressToken"), parameters.get("total")
        if not isinstance(token, int | str) or not is_number(parameters.get("progress")):
            return None
        return self._pending.get(token) if total is None or is_number(total) else None


def rejection(request: JSONRPCRequest) -> JSONRPCResponse | JSONRPCError:
    """The answer to a request of a server: it may ask whether we are there, and nothing else."""
    if request.method == "ping":
        return JSONRPCResponse(jsonrpc="2.0", id=request.id, result={})
    problem: Any = {"code": METHOD_NOT_FOUND, "message": "Method not found"}
    return JSONRPCError(jsonrpc="2.0", id=request.id, error=problem)


def unreadable(server: str) -> WonderError:
    """The error of a call whose answer is no message."""
    return error(
        Reason.TASK_FAILED,
        f"The MCP server '{server}' answered what is no message of the protocol: no JSON, not in UTF-8,"
        " nested too deeply, or without what belongs there.",
    )


def flooded(server: str) -> WonderError:
    """The error of a session that was ended for its messages."""
    return error(
        Reason.TASK_FAILED,
        f"The MCP server '{server}' sends more than {MAX_MESSAGES} messages that are no answers, and more"
        f" than {MESSAGES_PER_S} a second. Its session was ended.",
        transient=True,
    )
