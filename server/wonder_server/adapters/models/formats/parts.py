"""Parts that the accumulators of all formats share: partial tool calls, token counts, errors. Pure."""

from __future__ import annotations

import json
from typing import Protocol

from wonder_server.adapters.models.common.provider_errors import from_status
from wonder_server.adapters.models.common.tool_arguments import clean_text, is_acceptable, parse_arguments
from wonder_server.adapters.models.formats.images import GatheredImages
from wonder_server.core.errors import Fault
from wonder_server.core.json_types import JsonDict, JsonValue
from wonder_server.core.model import ModelResult, ToolCall, Usage
from wonder_server.ports.model import ArgumentsDelta, ReasoningDelta, TextDelta

MAX_COUNT = 2**40
"""Maximum plausible number of tokens of an answer. Larger reported counts are ignored."""


Aside = ReasoningDelta | ArgumentsDelta
"""A piece of an answer that is not its text."""

Piece = TextDelta | Aside
"""A piece of an answer."""


class Accumulator(Protocol):
    """The state of one streamed answer.

    - ``has_started``: text, a tool call or thinking has arrived.
    - ``complete``: the provider has sent the reason why the answer ends. A stream that ends before that is
      cut off.
    - ``ended``: no event follows.
    - ``character_count``: the characters received that are not text of the answer.
    - ``asides``: pieces of reasoning and of tool calls that `take_pieces` has not taken yet.
    - ``images``: the images that have arrived.
    """

    has_started: bool
    ended: bool
    character_count: int
    asides: list[Aside]
    images: GatheredImages

    @property
    def usage_so_far(self) -> Usage:
        """The usage that the provider has reported so far."""

    @property
    def complete(self) -> bool: ...

    def feed(self, event: JsonDict) -> str:
        """Process one event and return its text of the answer, often empty.

        Raises `WonderError` if the event reports an error, and KeyError, TypeError, AttributeError or
        ValueError if its shape is not the format's.
        """

    def result(self) -> ModelResult:
        """Return the answer after the end of the stream."""


def take_pieces(accumulator: Accumulator, text: str) -> list[Piece]:
    """Return the pieces of one event, and take its asides: reasoning, then ``text``, then tool calls."""
    asides, accumulator.asides = accumulator.asides, []
    pieces: list[Piece] = [each for each in asides if isinstance(each, ReasoningDelta)]
    if text:
        pieces.append(TextDelta(text))
    pieces += [each for each in asides if isinstance(each, ArgumentsDelta)]
    return pieces


class PartialToolCall:
    """A tool call that is not complete yet. ``index`` is its position among the calls of the answer."""

    __slots__ = ("arguments", "id", "index", "name")

    def __init__(self, call_id: str = "", name: str = "", arguments: str = "", index: int = 0) -> None:
        self.id = call_id
        self.name = name
        self.arguments = [arguments]
        self.index = index

    def add(self, text: str) -> ArgumentsDelta:
        """Add a piece of the arguments, and return it as it is streamed."""
        self.arguments.append(text)
        return ArgumentsDelta(self.index, clean_text(self.id), clean_text(self.name), clean_text(text))


def finalize_tool_calls(partial_calls: list[PartialToolCall], *, cut: bool = False) -> tuple[ToolCall, ...]:
    """Return the complete calls. Each has a unique id, since results are matched to calls by id.

    ``cut`` means that the provider truncated the answer. The arguments of a last call without arguments are
    then lost, so the call is malformed.
    """
    taken: set[str] = set()
    calls = []
    for position, call in enumerate(partial_calls):
        call_id = clean_text(call.id) or f"call_{position}"
        while call_id in taken:
            call_id += "_"
        taken.add(call_id)
        text = "".join(call.arguments)
        if cut and position == len(partial_calls) - 1 and not text.strip():
            text = "{"
        calls.append(tool_call(call_id, clean_text(call.name), text))
    return tuple(calls)


def tool_call(call_id: str, name: str, written: str) -> ToolCall:
    """Return a tool call whose arguments the model has written as the text ``written``."""
    arguments = parse_arguments(written)
    return ToolCall(
        id=call_id,
        name=name,
        arguments=arguments,
        malformed="" if arguments is not None else clean_text(written),
    )


def argument_text(arguments: JsonValue) -> str:
    """Return arguments that arrived as JSON as the text that `tool_call` reads."""
    if not arguments:
        return ""
    return json.dumps(arguments, ensure_ascii=not is_acceptable(arguments))


def token_count(usage: JsonValue, *path: str) -> int | None:
    """Return the number of tokens under ``path`` of a usage object, or None."""
    for name in path:
        usage = usage.get(name) if isinstance(usage, dict) else None
    return usage if type(usage) is int and 0 <= usage <= MAX_COUNT else None


def first_count(usage: JsonValue, *paths: tuple[str, ...]) -> int | None:
    """Return the number of tokens under the first of ``paths`` that has one, or None."""
    return next((found for path in paths if (found := token_count(usage, *path)) is not None), None)


def token_total(*counts: int | None) -> int | None:
    """Return the sum of the known counts, or None if all are unknown."""
    known = [each for each in counts if each is not None]
    return sum(known) if known else None


_STATUSES = {
    "invalid_request_error": 400,
    "context_length_exceeded": 400,
    "invalid_prompt": 400,
    "authentication_error": 401,
    "invalid_api_key": 401,
    "permission_error": 403,
    "not_found_error": 404,
    "model_not_found": 404,
    "request_too_large": 413,
    "rate_limit_error": 429,
    "rate_limit_exceeded": 429,
    "insufficient_quota": 429,
    "overloaded_error": 529,
}


def reported_fault(problem: JsonValue) -> Fault:
    """Return the fault for an error event of a stream. An unknown kind counts as a 500 of the provider."""
    detail = problem if isinstance(problem, dict) else {"message": str(problem)}
    code = detail.get("code")
    if type(code) is int and 400 <= code < 600:
        status = code
    else:
        status = next(
            (_STATUSES[word] for word in (str(code), str(detail.get("type"))) if word in _STATUSES), 500
        )
    return from_status(status, json.dumps({"error": detail}), {})


def json_objects(value: JsonValue) -> list[JsonDict]:
    """Return the objects of a list; an empty list for any other value."""
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def json_object(value: JsonValue) -> JsonDict:
    """Return an object; an empty object for any other value."""
    return value if isinstance(value, dict) else {}
