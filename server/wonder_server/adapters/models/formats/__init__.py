"""Streamed answers in the providers' formats, gathered into one `ModelResult`, and requests as they are sent.

An accumulator is fed each event of a stream, already parsed as JSON, and gives back the text in it. One file
for each format; every way of reaching a provider shares them, so tool calls are put together in one place.
Sources: feature D2, and the providers' documents named in each file.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from wonder_server.adapters.models.common import provider_errors
from wonder_server.adapters.models.common.format_names import (
    ANTHROPIC_MESSAGES,
    GEMINI,
    OPENAI_CHAT,
    OPENAI_RESPONSES,
)
from wonder_server.adapters.models.formats.anthropic_messages import AnthropicMessages, anthropic_message
from wonder_server.adapters.models.formats.gemini import Gemini, gemini_message
from wonder_server.adapters.models.formats.openai_chat import OpenAIChat, openai_message
from wonder_server.adapters.models.formats.openai_responses import OpenAIResponses, responses_message
from wonder_server.adapters.models.formats.parts import Accumulator, tool_call
from wonder_server.core.definitions.specs import ModelProfile
from wonder_server.core.errors import Reason, WonderError, error
from wonder_server.core.model import ModelResult, ToolCall
from wonder_server.core.request_formats import valid_request
from wonder_server.logs import logger

__all__ = ["Accumulator", "accumulator", "apply_parameters", "feed", "finish", "message", "tool_call"]

_ACCUMULATORS: dict[str, Callable[[], Accumulator]] = {
    OPENAI_CHAT: OpenAIChat,
    OPENAI_RESPONSES: OpenAIResponses,
    ANTHROPIC_MESSAGES: AnthropicMessages,
    GEMINI: Gemini,
}

_MESSAGES: dict[str, Callable[[str, Iterable[ToolCall]], dict[str, Any]]] = {
    OPENAI_CHAT: openai_message,
    OPENAI_RESPONSES: responses_message,
    ANTHROPIC_MESSAGES: anthropic_message,
    GEMINI: gemini_message,
}

_SHAPE_ERRORS = (KeyError, TypeError, AttributeError, ValueError)
_OFFLINE_PARAMETERS = frozenset({"token_delay_ms"})
_ANTHROPIC_MAX_TOKENS = 4096
_LIMITS = ("max_tokens", "max_completion_tokens")

_log = logger("models")
_logged: set[tuple[str, str, str]] = set()
_MAX_LOGGED = 1000


def accumulator(format_name: str) -> Accumulator:
    """A fresh accumulator; NOT_IMPLEMENTED for a format that this server does not speak."""
    make = _ACCUMULATORS.get(format_name)
    if make is None:
        raise error(
            Reason.NOT_IMPLEMENTED,
            f"Requests in the format {format_name} cannot be sent; use {' or '.join(_ACCUMULATORS)}.",
            field="format",
        )
    return make()


def feed(accumulator: Accumulator, event: Any) -> str:
    """The text in ``event``; a shape that is not the format's is a transient MODEL_UNAVAILABLE."""
    try:
        return accumulator.feed(event)
    except _SHAPE_ERRORS as problem:
        raise WonderError(provider_errors.UNREADABLE) from problem


def finish(accumulator: Accumulator) -> ModelResult:
    """The answer of a stream that has ended; a transient MODEL_UNAVAILABLE if it broke off."""
    if not accumulator.complete:
        raise WonderError(provider_errors.STREAM_CUT_OFF)
    try:
        return accumulator.result()
    except _SHAPE_ERRORS as problem:
        raise WonderError(provider_errors.UNREADABLE) from problem


def apply_parameters(profile: ModelProfile, request: dict[str, Any], format_name: str) -> dict[str, Any]:
    """``request`` with the profile's parameters where it has none of that name, made valid for its format:
    what is sent. What a request says itself comes before what it inherits and could not hold beside it."""
    full = {
        name: value
        for name, value in {**_inherited(profile.parameters, request), **request}.items()
        if name not in _OFFLINE_PARAMETERS
    }
    if format_name == ANTHROPIC_MESSAGES:
        full.setdefault("max_tokens", _ANTHROPIC_MAX_TOKENS + _budget(full.get("thinking")))
    valid, notes = valid_request(format_name, full, profile.provider)
    for note in notes:
        _log_once(profile, note)
    return valid


def _inherited(parameters: dict[str, Any], request: dict[str, Any]) -> dict[str, Any]:
    inherited = dict(parameters)
    if any(name in request for name in _LIMITS):
        for name in _LIMITS:
            inherited.pop(name, None)
    most = request.get("max_tokens")
    if type(most) is int and _budget(inherited.get("thinking")) >= most:
        del inherited["thinking"]
    return inherited


def _budget(thinking: Any) -> int:
    budget = thinking.get("budget_tokens") if isinstance(thinking, dict) else None
    return budget if type(budget) is int and budget > 0 else 0


def _log_once(profile: ModelProfile, note: str) -> None:
    """Log what a request had to leave out, once for each model."""
    said = (profile.provider, profile.model, note)
    if said in _logged:
        return
    if len(_logged) >= _MAX_LOGGED:
        _logged.clear()
    _logged.add(said)
    _log.warning("model_request_adapted", provider=profile.provider, model=profile.model, note=note)


def message(format_name: str, text: str, calls: Iterable[ToolCall]) -> dict[str, Any]:
    """The model's own message in a format, for answers of text and tool calls: ``ModelResult.raw``."""
    return _MESSAGES[format_name](text, calls)
