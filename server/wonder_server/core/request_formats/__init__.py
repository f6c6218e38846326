"""Requests made valid: what a provider documents as refused leaves the server in no request. Pure.

Whatever makes a request (an assembly, the conversation that goes on, an ``llm`` action) may put in what its
format does not take: a message of white space, a result whose call was left out, a parameter that holds only
beside others. `sendable` is the last step before a request is sent, one module for each format. Old folders
hold such things too, so it is done when sending, not when storing; what is valid is left as it is, byte for
byte, so that providers find what they have cached.

Limits that only the author of a definition can mend (an unknown model, a parameter of another format) are not
touched: the provider says so on the first turn.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from wonder_server.core.request_formats import anthropic_messages, gemini, openai_chat, openai_responses
from wonder_server.core.request_formats.format import RequestFormat
from wonder_server.core.request_formats.parts import Notes, Request

__all__ = [
    "FALLBACK",
    "FORMATS",
    "PROVIDERS",
    "Notes",
    "Request",
    "RequestFormat",
    "default_format",
    "for_side_call",
    "sendable",
]

FORMATS: Mapping[str, RequestFormat] = {
    each.name: each
    for each in (openai_chat.FORMAT, openai_responses.FORMAT, anthropic_messages.FORMAT, gemini.FORMAT)
}
"""The request formats by name. The first format of a provider is its default."""

FALLBACK = openai_chat.FORMAT
"""The format of providers that define none: most of them accept OpenAI chat."""

PROVIDERS = tuple(dict.fromkeys(each.provider for each in FORMATS.values()))
"""The providers whose APIs define the formats."""

_OF_ANSWERS = frozenset(
    "max_tokens max_completion_tokens max_output_tokens maxOutputTokens stop stop_sequences stopSequences"
    " response_format response_mime_type responseMimeType response_schema responseSchema responseJsonSchema"
    " text output_format n candidate_count candidateCount best_of logprobs top_logprobs responseLogprobs"
    " logit_bias prediction modalities responseModalities audio speechConfig verbosity"
    " tools tool_choice parallel_tool_calls max_tool_calls toolConfig tool_config functions function_call"
    " thinking thinkingConfig thinking_config web_search_options mcp_servers container background".split()
)
"""Parameters that shape an agent's answers: how long and in what form they are, what tools they call."""

_NESTED = ("generationConfig", "generation_config", "output_config")


def default_format(provider: str) -> str:
    """Return the name of the format that profiles of ``provider`` use if they name none."""
    return next((each.name for each in FORMATS.values() if each.provider == provider), FALLBACK.name)


def sendable(format_name: str, request: Request, provider: str = "") -> tuple[Request, Notes]:
    """``request`` as its format takes it, and a note on each tool that had to be left out or changed. Neither
    it nor anything in it is changed in place; a format that nobody knows is left alone."""
    found, notes = FORMATS.get(format_name), Notes()
    return (request if found is None else found.make_valid(request, provider, notes)), notes


def for_side_call(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """What of a profile's parameters holds for a call that is not the agent's own answer, such as a summary:
    how the model is reached, not how long its answers are, in what form, with what tools and thoughts."""
    kept: dict[str, Any] = {}
    for name, value in parameters.items():
        if name in _NESTED and isinstance(value, Mapping):
            inner = {key: each for key, each in value.items() if key not in (*_OF_ANSWERS, "format")}
            if inner:
                kept[name] = inner
        elif name not in _OF_ANSWERS:
            kept[name] = value
    return kept
