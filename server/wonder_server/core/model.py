"""What a language model said, in one neutral shape for every provider's format."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from wonder_server.core.token_estimates import BYTES_PER_TOKEN, json_tokens, text_tokens


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
    ``estimated``: the call ended before its provider had counted everything, so that a part is our estimate.
    """

    input_tokens: int | None = None
    output_tokens: int | None = None
    cached_input_tokens: int | None = None
    reasoning_tokens: int | None = None
    cost_micros: int | None = None
    estimated: bool = False


NO_USAGE = Usage(cost_micros=0)
"""What a call has used of whose answer nothing has come: no cost that anybody knows of."""


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


class Meter:
    """Counts what a call under way has used, for the case that it does not come to its end."""

    __slots__ = ("_characters", "_texts", "_usage", "started")

    def __init__(self) -> None:
        self.started = False
        self._texts: list[str] = []
        self._characters = 0
        self._usage = Usage()

    def add_text(self, text: str) -> None:
        """A piece of the answer's text has arrived."""
        self.started = True
        self._texts.append(text)

    def set_usage(self, usage: Usage, characters: int) -> None:
        """The provider has counted ``told`` so far, and has sent ``letters`` in all that are no text."""
        self.started = True
        self._usage, self._characters = usage, characters

    def estimate_usage(self, request: dict[str, Any]) -> Usage | None:
        """What the call with ``request`` has used: as its provider counted, and an estimate for the rest.
        None if nothing of an answer has come: nobody knows then whether anything was used."""
        if not self.started:
            return None
        told = self._usage
        written = text_tokens("".join(self._texts)) + -(-self._characters // BYTES_PER_TOKEN)
        return replace(
            told,
            input_tokens=json_tokens(request) if told.input_tokens is None else told.input_tokens,
            output_tokens=max(told.output_tokens or 0, written),
            estimated=True,
        )
