"""Filter for messages of an MCP server. Answers, and progress of calls that request it, reach the package
`mcp`.

The package starts a task for each message, so a flood would fill the memory. Other messages (logs, changed
tool lists, requests for sampling, roots or input) have no use here.
"""

from __future__ import annotations

import re
from contextvars import ContextVar
from enum import Enum
from typing import Any, Final

from mcp_types import (
    ErrorData,
    JSONRPCError,
    JSONRPCMessage,
    JSONRPCNotification,
    JSONRPCRequest,
    JSONRPCResponse,
)

from wonder_server.adapters.mcp.limits import MAX_MESSAGES, MESSAGES_PER_S, TokenBucket, is_number
from wonder_server.core.errors import Reason, WonderError, error
from wonder_server.core.json_types import JsonObject

METHOD_NOT_FOUND: Final = -32601

_HEAD: Final = re.compile(rb'\s*\{\s*(?:"jsonrpc"\s*:\s*"2\.0"\s*,\s*)?"id"\s*:\s*(\d{1,15})\s*,')
_TAIL: Final = re.compile(rb'"id"\s*:\s*(\d{1,15})\s*\}\s*\Z')
_ID_WINDOW: Final = 200


class PendingCall:
    """A running call of a tool. ``problem`` is the reason why it has no answer, if known.

    ``lists``: it asks for the tools of the server. Then ``listed`` are those of the last page, as the server
    wrote them.
    """

    def __init__(self) -> None:
        self.problem: WonderError | None = None
        self.lists = False
        self.listed: list[Any] = []
        self.progress = TokenBucket(MAX_MESSAGES, MESSAGES_PER_S)


CURRENT_CALL: ContextVar[PendingCall | None] = ContextVar("wonder_mcp_asked", default=None)
"""The call of the current task. The package writes a request in the task of its caller."""


class Verdict(Enum):
    """The decision about a message."""

    PASS = "pass"
    DROP = "drop"
    REFUSE = "refuse"
    FLOOD = "flood"


class MessageFilter:
    """Decide about the messages of one session. It knows the running calls by the ids of their requests."""

    def __init__(self) -> None:
        self._budget = TokenBucket(MAX_MESSAGES, MESSAGES_PER_S)
        self._pending: dict[int | str, PendingCall | None] = {}

    def record_request(self, message: JSONRPCMessage) -> None:
        """Record a request that is being sent."""
        if isinstance(message, JSONRPCRequest):
            self._pending[message.id] = CURRENT_CALL.get()

    def discard(self, call: PendingCall) -> None:
        """Remove a call that has ended, answered or not."""
        for request in [request for request, waiting in self._pending.items() if waiting is call]:
            del self._pending[request]

    def verdict_for(self, message: JSONRPCMessage) -> Verdict:
        """Return the verdict for a message from the server."""
        if isinstance(message, JSONRPCResponse | JSONRPCError) and message.id in self._pending:
            call = self._pending.pop(message.id)
            if call is not None and call.lists and isinstance(message, JSONRPCResponse):
                _take_tools(call, message)
            return Verdict.PASS
        if isinstance(message, JSONRPCNotification) and message.method == "notifications/progress":
            call = self._call_of_progress(message.params)
            if call is not None:
                return Verdict.PASS if call.progress.take() else Verdict.FLOOD
        if not self._budget.take():
            return Verdict.FLOOD
        return Verdict.REFUSE if isinstance(message, JSONRPCRequest) else Verdict.DROP

    def accept_unreadable(self) -> bool:
        """Count a line that is not a message. Return False if there are too many."""
        return self._budget.take()

    def call_answered_by(
        self, line: bytes | bytearray, *, whole: bool
    ) -> tuple[int | str, PendingCall] | None:
        """Return the request that an unreadable line answers, and its call; None if that is unknown.

        A line that is not ``whole`` may have its id later. Then a single running call counts as the one it
        answers.
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

    def _call_of_progress(self, parameters: JsonObject | None) -> PendingCall | None:
        """Return the running call of a progress message; None if there is none or its numbers are invalid."""
        parameters = parameters or {}
        token, total = parameters.get("progressToken"), parameters.get("total")
        if not isinstance(token, int | str) or not is_number(parameters.get("progress")):
            return None
        return self._pending.get(token) if total is None or is_number(total) else None


def _take_tools(call: PendingCall, page: JSONRPCResponse) -> None:
    """Move the tools of a page to its call."""
    listed = page.result.get("tools")
    if isinstance(listed, list):
        call.listed = listed
        page.result = {**page.result, "tools": []}


def rejection(request: JSONRPCRequest) -> JSONRPCResponse | JSONRPCError:
    """Return the answer to a request of a server: an empty result for ``ping``, an error for anything
    else."""
    if request.method == "ping":
        return JSONRPCResponse(jsonrpc="2.0", id=request.id, result={})
    problem = ErrorData(code=METHOD_NOT_FOUND, message="Method not found")
    return JSONRPCError(jsonrpc="2.0", id=request.id, error=problem)


def unreadable(server: str) -> WonderError:
    """Return the error of a call whose answer is not a valid message."""
    return error(
        Reason.TASK_FAILED,
        f"The MCP server '{server}' sent an answer that is not a message of the protocol: invalid JSON or"
        " UTF-8, nested too deeply, or incomplete.",
    )


def flooded(server: str) -> WonderError:
    """Return the error of a session that ended because of too many messages."""
    return error(
        Reason.TASK_FAILED,
        f"The MCP server '{server}' sent more than {MAX_MESSAGES} messages that are not answers, and more"
        f" than {MESSAGES_PER_S} a second. Its session was ended.",
        transient=True,
    )
