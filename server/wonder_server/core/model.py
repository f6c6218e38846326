"""What a language model said, in one neutral shape for every provider's format."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCall:
    """One tool call of a model response.

    ``arguments`` is None when what the model sent does not parse as a JSON object; ``malformed``
    then holds the text, and the call is answered with INVALID_INPUT and never run.
    """

    id: str
    name: str
    arguments: dict[str, Any] | None
    malformed: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """Tokens as the provider counted them; None where it did not say.

    ``cached_input_tokens`` are part of ``input_tokens``, ``reasoning_tokens`` of ``output_tokens``.
    ``cost_micros``: what it cost in millionths of a US dollar, by the price table; None if not known.
    """

    input_tokens: int | None = None
    output_tokens: int | None = None
    cached_input_tokens: int | None = None
    reasoning_tokens: int | None = None
    cost_micros: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelResult:
    """A whole model response.

    ``raw`` is the assistant's message in the provider's own format: what is appended to the request
    when the conversation goes on, and what a move records. ``stop_reason`` is one of ``end``,
    ``tool_calls``, ``length``, ``refusal``, ``other``. ``reasoning`` is what the model thought before it
    answered, where the format shows it; it is no part of ``text``.
    """

    text: str
    tool_calls: tuple[ToolCall, ...] = ()
    raw: dict[str, Any] = field(default_factory=dict)
    usage: Usage = field(default_factory=Usage)
    stop_reason: str = "end"
    model: str = ""
    reasoning: str = ""
