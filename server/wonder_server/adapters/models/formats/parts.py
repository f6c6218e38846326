"""What the accumulators of all formats share: tool calls being written, counts, reported errors. Pure."""

from __future__ import annotations

import json
from typing import Any, Protocol

from wonder_server.adapters.models.common.provider_errors import from_status
from wonder_server.adapters.models.common.tool_arguments import clean_text, is_acceptable, parse_arguments
from wonder_server.core.errors import Fault
from wonder_server.core.model import ModelResult, ToolCall, Usage

MAX_COUNT = 2**40
"""No answer has more tokens; a provider that says so is not believed."""


class Accumulator(Protocol):
    """Gathers one stream.

    ``begun``: something of the answer has arrived, be it text, a tool call or thinking. ``complete``: the
    provider has said why it stopped; without that the stream broke off. ``ended``: nothing follows.
    ``letters``: how many have come that are no text of the answer.
    """

    has_started: bool
    ended: bool
    character_count: int

    @property
    def usage_so_far(self) -> Usage:
        """What the provider has counted so far."""

    @property
    def complete(self) -> bool: ...

    def feed(self, event: dict[str, Any]) -> str:
        """Takes one event; returns the answer's text in it, often empty. Raises `WonderError` when the
        event reports an error, and KeyError, TypeError, AttributeError or ValueError when its shape is not
        the format's."""

    def result(self) -> ModelResult:
        """The whole answer, once the stream has ended."""


class PartialToolCall:
    """A tool call that is still being written."""

    __slots__ = ("arguments", "id", "name")

    def __init__(self, call_id: str = "", name: str = "", arguments: str = "") -> None:
        self.id = call_id
        self.name = name
        self.arguments = [arguments]


def finalize_tool_calls(partial_calls: list[PartialToolCall], *, cut: bool = False) -> tuple[ToolCall, ...]:
    """The finished calls, each with an id of its own: results are matched to calls by id.

    ``cut``: the answer was ended before the model was done. Then a last call without arguments is one whose
    arguments never came, not one that needs none, and may not be run.
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


def tool_call(call_id: str, name: str, partial_calls: str) -> ToolCall:
    """A tool call from what the model wrote as its arguments."""
    arguments = parse_arguments(partial_calls)
    return ToolCall(
        id=call_id,
        name=name,
        arguments=arguments,
        malformed="" if arguments is not None else clean_text(partial_calls),
    )


def argument_text(arguments: Any) -> str:
    """Arguments that arrived as JSON, as the text that `tool_call` reads."""
    if not arguments:
        return ""
    return json.dumps(arguments, ensure_ascii=not is_acceptable(arguments))


def token_count(usage: Any, *path: str) -> int | None:
    """The number of tokens under ``path`` of a usage object; None where there is none."""
    for name in path:
        usage = usage.get(name) if isinstance(usage, dict) else None
    return usage if type(usage) is int and 0 <= usage <= MAX_COUNT else None


def token_total(*counts: int | None) -> int | None:
    """The sum of the counts that there are."""
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


def reported_fault(problem: Any) -> Fault:
    """The fault that an error inside a stream stands for; unknown kinds are the provider's trouble."""
    detail = problem if isinstance(problem, dict) else {"message": str(problem)}
    code = detail.get("code")
    if type(code) is int and 400 <= code < 600:
        status = code
    else:
        status = next(
            (_STATUSES[word] for word in (str(code), str(detail.get("type"))) if word in _STATUSES), 500
        )
    return from_status(status, json.dumps({"error": detail}), {})
