"""The principal of the current call."""

from __future__ import annotations

from contextvars import ContextVar

from wonder_server.core.identity import ANONYMOUS, Principal

current_principal: ContextVar[Principal] = ContextVar("principal", default=ANONYMOUS)
"""The principal of the current call. `Authentication` sets it once. Servicers read it and pass it on as an
argument; nothing below rpc reads a context variable."""
