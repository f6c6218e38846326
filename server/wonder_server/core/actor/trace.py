"""One trace for everything that a call from outside starts (W3C Trace Context).

A caller may send a ``traceparent``. Otherwise the trace has the id of the first turn or run: its ULID has
the 128 bits of a trace id, so the server neither generates nor stores one. A trace id from a caller is
passed on by `wonder_server.core.actor.commands.Scope`: to tools and runs, and by agent calls to further
turns.
"""

from __future__ import annotations

import hashlib
import re

from wonder_server.core.actor.commands import Scope
from wonder_server.core.ids import ulid_bits

_TRACEPARENT = re.compile(
    r"(?!ff)[0-9a-f]{2}-(?!0{32})([0-9a-f]{32})-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}(-.*)?"
)


def parse_traceparent(traceparent: str) -> str:
    """Return the trace id of a ``traceparent``; "" if it is invalid, so that a new trace starts."""
    found = _TRACEPARENT.fullmatch(traceparent.strip())
    return found[1] if found is not None and (not found[2] or not traceparent.startswith("00")) else ""


def root_trace_id(identifier: str) -> str:
    """Return the trace id of the first turn or run, as 32 hexadecimal digits."""
    return f"{ulid_bits(identifier):032x}"


def scope_trace_id(scope: Scope) -> str:
    """Return the trace id of work in this scope."""
    return scope.trace_id or root_trace_id(scope.turn_id or scope.root_id or scope.run_id or scope.key)


def traceparent(scope: Scope) -> str:
    """Return the ``traceparent`` for a worker, so that its work belongs to the trace."""
    return f"00-{scope_trace_id(scope)}-{span_id(scope.key)}-01"


def span_id(identifier: str) -> str:
    """Return the id of the span of a piece of work, as 16 hexadecimal digits."""
    return hashlib.blake2b(identifier.encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()
