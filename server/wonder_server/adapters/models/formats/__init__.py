"""The table of request formats, and the functions that adapters use for all of them.

One module for each format declares it as a `WireFormat`. An accumulator takes the parsed JSON events of a
stream, returns the text in each, and builds the `ModelResult`. All adapters share the accumulators. Sources:
feature D2, and the providers' documents named in each module.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from wonder_server.adapters.models.common import provider_errors
from wonder_server.adapters.models.formats import anthropic_messages, gemini, openai_chat, openai_responses
from wonder_server.adapters.models.formats.parts import Accumulator, Piece, take_pieces, tool_call
from wonder_server.adapters.models.formats.wire_format import WireFormat
from wonder_server.core.definitions.specs import ModelProfile
from wonder_server.core.errors import Reason, WonderError, error
from wonder_server.core.json_types import JsonDict, JsonObject, JsonValue
from wonder_server.core.model import ModelResult, ToolCall
from wonder_server.core.request_formats import valid_request
from wonder_server.logs import logger

__all__ = [
    "FORMATS",
    "Accumulator",
    "Piece",
    "accumulator",
    "apply_parameters",
    "feed",
    "finish",
    "message",
    "take_pieces",
    "tool_call",
    "wire_format",
]

FORMATS: Mapping[str, WireFormat] = {
    each.name: each
    for each in (
        openai_chat.WIRE_FORMAT,
        openai_responses.WIRE_FORMAT,
        anthropic_messages.WIRE_FORMAT,
        gemini.WIRE_FORMAT,
    )
}
"""The formats that the server sends, by name."""

_SHAPE_ERRORS = (KeyError, TypeError, AttributeError, ValueError)
_OFFLINE_PARAMETERS = frozenset({"token_delay_ms"})
_LENGTH_LIMITS = ("max_tokens", "max_completion_tokens")

_log = logger("models")
_logged: set[tuple[str, str, str]] = set()
_MAX_LOGGED = 1000


def wire_format(format_name: str) -> WireFormat:
    """Return the declaration of a format. Raises NOT_IMPLEMENTED for a name that is not in the table."""
    found = FORMATS.get(format_name)
    if found is None:
        raise error(
            Reason.NOT_IMPLEMENTED,
            f"Requests in the format {format_name} cannot be sent; use {' or '.join(FORMATS)}.",
            field="format",
        )
    return found


def accumulator(format_name: str) -> Accumulator:
    """Return a new accumulator. Raises NOT_IMPLEMENTED for an unknown format."""
    return wire_format(format_name).accumulator()


def feed(accumulator: Accumulator, event: JsonValue) -> str:
    """Return the text in ``event``. Raises a transient MODEL_UNAVAILABLE if its shape is not the format's."""
    try:
        return accumulator.feed(event)
    except _SHAPE_ERRORS as problem:
        raise WonderError(provider_errors.UNREADABLE) from problem


def finish(accumulator: Accumulator) -> ModelResult:
    """Return the answer of a stream that has ended. Raises a transient MODEL_UNAVAILABLE if the answer is
    incomplete.
    """
    if not accumulator.complete:
        raise WonderError(provider_errors.STREAM_CUT_OFF)
    try:
        return accumulator.result()
    except _SHAPE_ERRORS as problem:
        raise WonderError(provider_errors.UNREADABLE) from problem


def apply_parameters(profile: ModelProfile, request: JsonDict, format_name: str) -> JsonDict:
    """Return ``request`` with the profile's parameters, made valid for its format.

    A field of the request has precedence over the parameter of that name, and over parameters that conflict
    with it.
    """
    full = {
        name: value
        for name, value in {**_inherited(profile.parameters, request), **request}.items()
        if name not in _OFFLINE_PARAMETERS
    }
    if found := FORMATS.get(format_name):
        full = found.with_defaults(full)
    valid, notes = valid_request(format_name, full, profile.provider)
    for note in notes:
        _log_once(profile, note)
    return valid


def _inherited(parameters: JsonObject, request: JsonDict) -> JsonDict:
    """Return the parameters that do not conflict with fields of ``request``."""
    inherited = dict(parameters)
    if any(name in request for name in _LENGTH_LIMITS):
        for name in _LENGTH_LIMITS:
            inherited.pop(name, None)
    limit = request.get("max_tokens")
    if type(limit) is int and anthropic_messages.thinking_tokens(inherited.get("thinking")) >= limit:
        del inherited["thinking"]
    return inherited


def _log_once(profile: ModelProfile, note: str) -> None:
    """Log a note on a changed request, once for each model."""
    key = (profile.provider, profile.model, note)
    if key in _logged:
        return
    if len(_logged) >= _MAX_LOGGED:
        _logged.clear()
    _logged.add(key)
    _log.warning("model_request_adapted", provider=profile.provider, model=profile.model, note=note)


def message(format_name: str, text: str, calls: Iterable[ToolCall]) -> JsonDict:
    """Return an answer of text and tool calls as a message in a format: ``ModelResult.raw``."""
    return FORMATS[format_name].message(text, calls)
