"""The trace of a call, from the W3C metadata ``traceparent``."""

from __future__ import annotations

from structlog.contextvars import bind_contextvars

from wonder_server.core.actor import trace
from wonder_server.rpc.shared.call_context import CallContext


def trace_from_metadata(context: CallContext) -> str:
    """Return the id of the call's trace, "" without one, and bind it to the call's log lines."""
    for key, value in context.invocation_metadata() or ():
        if key == "traceparent" and isinstance(value, str):
            trace_id = trace.parse_traceparent(value)
            if trace_id:
                bind_contextvars(trace=trace_id)
            return trace_id
    return ""
