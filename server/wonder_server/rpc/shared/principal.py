"""The principal of the current call, and the stored resources by which it calls."""

from __future__ import annotations

from contextvars import ContextVar

from wonder_server.core.identity import ANONYMOUS, Principal
from wonder_server.services.tenancy.directory import Caller

current_principal: ContextVar[Principal] = ContextVar("principal", default=ANONYMOUS)
"""The principal of the current call. `Authentication` sets it once. Servicers read it and pass it on as an
argument; nothing below rpc reads a context variable."""

current_caller: ContextVar[Caller | None] = ContextVar("caller", default=None)
"""The stored principal of the current call with its key and its permissions by project; None for a token of
the tokens file, and on a server without authentication."""
