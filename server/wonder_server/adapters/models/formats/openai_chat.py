"""The format of OpenAI chat completions. Source: OpenAI, "Chat Completions streaming"."""

from __future__ import annotations

import json
from collections.abc import Iterable

from wonder_server.adapters.models.common.tool_arguments import clean_text
from wonder_server.adapters.models.formats.images import GatheredImages
from wonder_server.adapters.models.formats.parts import (
    Aside,
    PartialToolCall,
    finalize_tool_calls,
    first_count,
    json_object,
    json_objects,
    reported_fault,
    token_count,
)
from wonder_server.adapters.models.formats.wire_format import ProviderApi, WireFormat
from wonder_server.core.errors import WonderError
from wonder_server.core.json_types import JsonDict, JsonValue
from wonder_server.core.model import ModelResult, ToolCall, Usage
from wonder_server.core.request_formats import openai_chat
from wonder_server.ports.model import ReasoningDelta

_STOPS = {
    "stop": "end",
    "tool_calls": "tool_calls",
    "function_call": "tool_calls",
    "length": "length",
    "content_filter": "refusal",
}

_CACHE_READS = (
    ("prompt_tokens_details", "cached_tokens"),
    ("cache_read_input_tokens",),  # LiteLLM
    ("prompt_cache_hit_tokens",),  # DeepSeek
)
_CACHE_WRITES = (
    ("prompt_tokens_details", "cache_creation_tokens"),  # LiteLLM
    ("prompt_tokens_details", "cache_write_tokens"),  # OpenRouter
    ("cache_creation_input_tokens",),  # LiteLLM
)
_HOUR_CACHE_WRITES = ("prompt_tokens_details", "cache_creation_token_details", "ephemeral_1h_input_tokens")
"""As LiteLLM reports tokens that Anthropic keeps in its cache for an hour."""


def openai_message(
    text: str, calls: Iterable[ToolCall], *, refusal: str = "", reasoning: str = ""
) -> JsonDict:
    """Return an answer as the assistant's message in the next request.

    Malformed arguments become ``{}``, since several servers fail on a history that they cannot parse.
    """
    tool_calls = [
        {
            "id": call.id,
            "type": "function",
            "function": {
                "name": call.name,
                "arguments": json.dumps(call.arguments or {}, ensure_ascii=False),
            },
        }
        for call in calls
    ]
    message: JsonDict = {
        "role": "assistant",
        "content": text or (None if tool_calls or refusal else ""),
    }
    if refusal:
        message["refusal"] = refusal
    if tool_calls:
        message["tool_calls"] = tool_calls
        if reasoning:
            message["reasoning_content"] = reasoning
    return message


class OpenAIChat:
    """Accumulator of ``chat.completion.chunk`` events. It reads choice 0."""

    def __init__(self) -> None:
        self.has_started = False
        self.ended = False
        self.character_count = 0
        self.asides: list[Aside] = []
        self.images = GatheredImages()
        self._text: list[str] = []
        self._refusal: list[str] = []
        self._reasoning: list[str] = []
        self._repeats_reasoning = False
        self._calls: list[PartialToolCall] = []
        self._by_index: dict[int, PartialToolCall] = {}
        self._finish = ""
        self.usage_so_far = Usage()
        self._model = ""

    @property
    def complete(self) -> bool:
        return bool(self._finish)

    def feed(self, event: JsonDict) -> str:
        if event.get("error"):
            raise WonderError(reported_fault(event["error"]))
        self._model = event.get("model") or self._model
        if usage := event.get("usage"):
            self.usage_so_far = _usage(usage)
        text = ""
        for choice in event.get("choices") or ():
            if choice.get("index", 0) == 0:
                self._finish = choice.get("finish_reason") or self._finish
                if delta := choice.get("delta"):
                    text += self._delta(delta)
        return text

    def _delta(self, delta: JsonDict) -> str:
        text = delta.get("content")
        text = clean_text(text) if isinstance(text, str) else ""
        refusal = delta.get("refusal")
        if isinstance(refusal, str) and refusal:
            self._refusal.append(clean_text(refusal))
            text += self._refusal[-1]
        text = self.images.after_text(text)
        if text:
            self._text.append(text)
            self.has_started = True
        # OpenRouter, and LiteLLM for other providers.
        for image in json_objects(delta.get("images")):
            self.has_started = True
            self.images.add_url(json_object(image.get("image_url")).get("url"))
        if calls := delta.get("tool_calls"):
            self.has_started = True
            for call in calls:
                self._call_delta(call)
        # Servers other than OpenAI's use either of these names for thinking.
        if thought := delta.get("reasoning_content") or delta.get("reasoning"):
            self.has_started = True
            if isinstance(thought, str):
                self.character_count += len(thought)
                self._reasoning.append(clean_text(thought))
                self.asides.append(ReasoningDelta(self._reasoning[-1]))
                self._repeats_reasoning |= "reasoning_content" in delta
        return text

    def _call_delta(self, delta: JsonDict) -> None:
        """Add a piece to its call: the call with the same index, unless a new id starts another call.

        Some providers send the index 0 with every parallel call, some send no index, and some repeat the id.
        """
        index, call_id = delta.get("index"), delta.get("id") or ""
        partial = self._by_index.get(index) if index is not None else None
        if index is None:
            partial = self._with_id(call_id) if call_id else (self._calls[-1] if self._calls else None)
        elif partial is not None and call_id and partial.id and partial.id != call_id:
            partial = self._with_id(call_id)
        if partial is None:
            partial = PartialToolCall(index=len(self._calls))
            self._calls.append(partial)
        if index is not None:
            self._by_index[index] = partial
        function = delta.get("function") or {}
        partial.id = partial.id or call_id
        partial.name = partial.name or function.get("name") or ""
        is_new = len(partial.arguments) == 1
        piece = partial.add(function.get("arguments") or "")
        self.character_count += len(partial.arguments[-1])
        if is_new or piece.text:
            self.asides.append(piece)

    def _with_id(self, call_id: str) -> PartialToolCall | None:
        return next((call for call in self._calls if call.id == call_id), None)

    def result(self) -> ModelResult:
        stop = _STOPS.get(self._finish, "other")
        calls = finalize_tool_calls(self._calls, cut=stop == "length")
        text, refusal = "".join(self._text), "".join(self._refusal)
        reasoning = "".join(self._reasoning)
        if refusal:
            stop = "refusal"
        elif calls and stop == "end":
            stop = "tool_calls"
        return ModelResult(
            text=text,
            tool_calls=calls,
            raw=openai_message(
                "" if refusal else text,
                calls,
                refusal=refusal,
                # Servers whose models think before tool calls require the thinking in the next request.
                reasoning=reasoning if self._repeats_reasoning else "",
            ),
            usage=self.usage_so_far,
            stop_reason=stop,
            model=self._model,
            reasoning=reasoning,
        )


def _usage(reported: JsonValue) -> Usage:
    """Return the usage of a chunk. Servers other than OpenAI's report caches under several names."""
    return Usage(
        input_tokens=token_count(reported, "prompt_tokens"),
        output_tokens=token_count(reported, "completion_tokens"),
        cached_input_tokens=first_count(reported, *_CACHE_READS),
        cache_write_input_tokens=first_count(reported, *_CACHE_WRITES),
        hour_cache_write_tokens=token_count(reported, *_HOUR_CACHE_WRITES) or None,
        reasoning_tokens=token_count(reported, "completion_tokens_details", "reasoning_tokens"),
    )


def _stream_body(request: JsonDict, model: str) -> JsonDict:
    body = {**request, "model": model, "stream": True}
    body.setdefault("stream_options", {"include_usage": True})
    return body


OPENAI = ProviderApi(base_url="https://api.openai.com/v1", key_header="authorization", key_prefix="Bearer ")

WIRE_FORMAT = WireFormat(
    format=openai_chat.FORMAT,
    api=OPENAI,
    accumulator=OpenAIChat,
    message=openai_message,
    path=lambda model: "/chat/completions",
    stream_body=_stream_body,
)
