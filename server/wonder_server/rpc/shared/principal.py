"""The authenticated caller of the current request."""

from __future__ import annotations

from contextvars import ContextVar
from typing import Final

ANONYMOUS: Final = ""

current_principal: ContextVar[str] = ContextVar("caller", default=ANONYMOUS)
"""Name of the current call's token; ``ANONYMOUS`` if the server has no tokens."""
