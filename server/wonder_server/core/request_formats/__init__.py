"""Validation of requests: remove or change whatever a provider's documentation says it rejects.

A request comes from an assembly, from a continued conversation or from an ``llm`` action. It may contain
parts that its format does not allow: a message of white space, a result without its call, a parameter that
requires another one. `valid_request` is the last step before sending, with one module for each format.

Stored requests contain such parts too, so the server corrects them when it sends, not when it stores. A
valid request stays the same byte for byte, so providers find it in their caches.

Errors that only the author of a definition can correct (an unknown model, a parameter of another format)
stay. The provider reports them in the first turn.
"""

from __future__ import annotations

from collections.abc import Mapping

from wonder_server.core.json_types import JsonDict, JsonObject
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
    "valid_request",
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
"""Parameters that shape an agent's answers: length, form and tools."""

_NESTED = ("generationConfig", "generation_config", "output_config")


def default_format(provider: str) -> str:
    """Return the name of the format that profiles of ``provider`` use if they name none."""
    return next((each.name for each in FORMATS.values() if each.provider == provider), FALLBACK.name)


def valid_request(format_name: str, request: Request, provider: str = "") -> tuple[Request, Notes]:
    """Return a valid form of ``request``, with a note on each tool that was omitted or changed.

    The request is not changed in place. A request of an unknown format is returned itself.
    """
    found, notes = FORMATS.get(format_name), Notes()
    return (request if found is None else found.make_valid(request, provider, notes)), notes


def for_side_call(parameters: JsonObject) -> JsonDict:
    """Return the parameters for a call that is not the agent's own answer, such as a summary.

    Parameters of the connection stay; those that shape answers are omitted.
    """
    kept: JsonDict = {}
    for name, value in parameters.items():
        if name in _NESTED and isinstance(value, Mapping):
            inner = {key: each for key, each in value.items() if key not in (*_OF_ANSWERS, "format")}
            if inner:
                kept[name] = inner
        elif name not in _OF_ANSWERS:
            kept[name] = value
    return kept
