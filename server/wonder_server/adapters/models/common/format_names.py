"""Names of the request formats, and the format that a provider's profiles use by default. Pure."""

from __future__ import annotations

from typing import Final

OPENAI_CHAT: Final = "openai_chat"
OPENAI_RESPONSES: Final = "openai_responses"
ANTHROPIC_MESSAGES: Final = "anthropic_messages"
GEMINI: Final = "gemini"

_DEFAULT_FORMATS: Final = {"anthropic": ANTHROPIC_MESSAGES, "gemini": GEMINI}


def default_format(provider: str) -> str:
    """Return the format that a provider's profiles use when they name none."""
    return _DEFAULT_FORMATS.get(provider, OPENAI_CHAT)
