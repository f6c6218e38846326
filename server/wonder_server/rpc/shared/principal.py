"""The caller of the current request, as authentication found it."""

from __future__ import annotations

from contextvars import ContextVar
from typing import Final

ANONYMOUS: Final = ""

current_principal: ContextVar[str] = ContextVar("caller", default=ANONYMOUS)
"""Name of the token of the current call; ``ANONYMOUS`` if the server has no tokens."""
