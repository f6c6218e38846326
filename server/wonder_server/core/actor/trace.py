"""One trace through everything that a call from outside leads to (W3C Trace Context).

A caller may bring a ``traceparent``. Where none does, the trace is named after the turn or the run that
everything began with: its ULID has the 128 bits of a trace's id, so that nothing has to be made or written
down. A trace that is not its own name is carried on: by `wonder_server.core.actor.commands.Scope` to tools
and
runs, by their calls to other agents' turns.
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
    """The trace that a ``traceparent`` names; "" if it is none, for then a new trace begins."""
    found = _TRACEPARENT.fullmatch(traceparent.strip())
    return found[1] if found is not None and (not found[2] or not traceparent.startswith("00")) else ""


def root_trace_id(identifier: str) -> str:
    """The trace of the turn or run that everything began with: 32 hexadecimal digits."""
    return f"{ulid_bits(identifier):032x}"


def scope_trace_id(scope: Scope) -> str:
    """The trace of what is done in this scope."""
    return scope.trace_id or root_trace_id(scope.turn_id or scope.root_id or scope.run_id or scope.key)


def traceparent(scope: Scope) -> str:
    """What a worker is given, so that what it does is part of the trace."""
    span = hashlib.blake2b(scope.key.encode(), digest_size=8).hexdigest()
    return f"00-{scope_trace_id(scope)}-{span}-01"
