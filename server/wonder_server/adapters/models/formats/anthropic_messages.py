"""The format of Anthropic messages. Source: Anthropic, "Streaming messages"."""

from __future__ import annotations

from collections.abc import Iterable

from wonder_server.adapters.models.common.tool_arguments import clean_text, parse_arguments
from wonder_server.adapters.models.formats.images import GatheredImages
from wonder_server.adapters.models.formats.parts import (
    Aside,
    PartialToolCall,
    argument_text,
    finalize_tool_calls,
    reported_fault,
    token_count,
    token_total,
)
from wonder_server.adapters.models.formats.wire_format import ProviderApi, WireFormat
from wonder_server.core.errors import WonderError
from wonder_server.core.json_types import JsonDict, JsonValue
from wonder_server.core.model import ModelResult, ToolCall, Usage
from wonder_server.core.request_formats import anthropic_messages
from wonder_server.ports.model import ReasoningDelta

_STOPS = {
    "end_turn": "end",
    "stop_sequence": "end",
    "tool_use": "tool_calls",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "refusal": "refusal",
}

_TEXT_BLOCKS = ("text", "thinking")
"""Kinds of blocks whose text arrives in pieces, in the field that has the name of the kind."""

_MAX_TOKENS = 4096
"""Limit of an answer, without thinking, if neither profile nor request sets one. Anthropic requires a
limit."""


def anthropic_message(text: str, calls: Iterable[ToolCall]) -> JsonDict:
    """Return an answer of text and tool calls as the assistant's message in the next request."""
    blocks: list[JsonDict] = [{"type": "text", "text": text}] if text else []
    blocks += [
        {"type": "tool_use", "id": call.id, "name": call.name, "input": call.arguments or {}}
        for call in calls
    ]
    return {"role": "assistant", "content": blocks}


class AnthropicMessages:
    """Accumulator of streaming events. Blocks of unknown types stay unchanged."""

    def __init__(self) -> None:
        self.has_started = False
        self.ended = False
        self.character_count = 0
        self.asides: list[Aside] = []
        self.images = GatheredImages()
        self._blocks: dict[int, JsonDict] = {}
        self._pieces: dict[int, list[str]] = {}
        self._calls: dict[int, PartialToolCall] = {}
        """The calls so far, by the index of their block."""
        self._stop = ""
        self._usage: JsonDict = {}
        self._model = ""

    @property
    def complete(self) -> bool:
        return bool(self._stop)

    def feed(self, event: JsonDict) -> str:
        match event.get("type"):
            case "content_block_delta":
                return self._delta(event["index"], event["delta"])
            case "content_block_start":
                return self._start(event["index"], dict(event["content_block"]))
            case "content_block_stop":
                self._stop_block(event.get("index", -1))
            case "message_start":
                message = event["message"]
                self._model = message.get("model") or ""
                self._usage.update(message.get("usage") or {})
            case "message_delta":
                self._stop = event["delta"].get("stop_reason") or self._stop
                self._usage.update(event.get("usage") or {})
            case "message_stop":
                self.ended = True
            case "error":
                raise WonderError(reported_fault(event.get("error")))
        return ""

    def _start(self, index: int, block: JsonDict) -> str:
        self._blocks[index] = block
        kind = block.get("type")
        initial = clean_text(block.get(kind) or "") if kind in _TEXT_BLOCKS else ""
        self._pieces[index] = [initial]
        self.has_started = self.has_started or kind != "text"
        if kind == "thinking" and initial:
            self.asides.append(ReasoningDelta(initial))
        elif kind == "tool_use":
            call = PartialToolCall(block.get("id") or "", block.get("name") or "", index=len(self._calls))
            self._calls[index] = call
            self.asides.append(call.add(""))
        return initial if kind == "text" else ""

    def _stop_block(self, index: int) -> None:
        """Stream the arguments of a call that arrived whole, with the start of its block."""
        call = self._calls.get(index)
        if call is not None and not any(call.arguments):
            if arguments := argument_text(self._blocks[index].get("input")):
                self.asides.append(call.add(arguments))

    def _delta(self, index: int, delta: JsonDict) -> str:
        block, pieces = self._blocks[index], self._pieces[index]
        self.has_started = True
        match delta.get("type"):
            case "text_delta":
                text = clean_text(delta["text"])
                pieces.append(text)
                return text
            case "input_json_delta":
                pieces.append(delta["partial_json"])
                self.character_count += len(pieces[-1])
                if index in self._calls and pieces[-1]:
                    self.asides.append(self._calls[index].add(pieces[-1]))
            case "thinking_delta":
                pieces.append(clean_text(delta["thinking"]))
                self.character_count += len(pieces[-1])
                self.asides.append(ReasoningDelta(pieces[-1]))
            case "signature_delta":
                block["signature"] = block.get("signature", "") + delta["signature"]
            case "citations_delta":
                block["citations"] = [*(block.get("citations") or ()), delta["citation"]]
        return ""

    def result(self) -> ModelResult:
        content: list[JsonDict] = []
        partial_calls: list[PartialToolCall] = []
        for index in sorted(self._blocks):
            block, text = self._blocks[index], "".join(self._pieces[index])
            kind = block.get("type")
            if kind in _TEXT_BLOCKS:
                block = {**block, kind: text}
            elif text or "input" in block:
                text = text or argument_text(block["input"])
                block = {**block, "input": parse_arguments(text) or {}}
            if kind == "tool_use":
                partial_calls.append(PartialToolCall(block.get("id") or "", block.get("name") or "", text))
            # The provider sends empty text blocks, and rejects a request that contains one.
            if kind != "text" or text:
                content.append(block)
        stop = _STOPS.get(self._stop, "other")
        calls = finalize_tool_calls(partial_calls, cut=stop == "length")
        return ModelResult(
            text="".join(block["text"] for block in content if block.get("type") == "text"),
            tool_calls=calls,
            raw={"role": "assistant", "content": content},
            usage=self.usage_so_far,
            stop_reason="tool_calls" if calls and stop == "end" else stop,
            model=self._model,
            reasoning="".join(block["thinking"] for block in content if block.get("type") == "thinking"),
        )

    @property
    def usage_so_far(self) -> Usage:
        """The usage with all input tokens, as OpenAI counts them.

        Anthropic reports cached tokens separately.
        """
        cached = token_count(self._usage, "cache_read_input_tokens")
        written = token_count(self._usage, "cache_creation_input_tokens")
        hour = token_count(self._usage, "cache_creation", "ephemeral_1h_input_tokens")
        return Usage(
            input_tokens=token_total(token_count(self._usage, "input_tokens"), written, cached),
            output_tokens=token_count(self._usage, "output_tokens"),
            cached_input_tokens=cached,
            cache_write_input_tokens=written,
            reasoning_tokens=token_count(self._usage, "output_tokens_details", "thinking_tokens"),
            hour_cache_write_tokens=hour or None,
        )


def thinking_tokens(thinking: JsonValue) -> int:
    """Return the token budget of a request's field ``thinking``; 0 without a valid one."""
    budget = thinking.get("budget_tokens") if isinstance(thinking, dict) else None
    return budget if type(budget) is int and budget > 0 else 0


def _with_max_tokens(request: JsonDict) -> JsonDict:
    if "max_tokens" in request:
        return request
    return {**request, "max_tokens": _MAX_TOKENS + thinking_tokens(request.get("thinking"))}


WIRE_FORMAT = WireFormat(
    format=anthropic_messages.FORMAT,
    api=ProviderApi(
        base_url="https://api.anthropic.com",
        version_path="/v1",
        headers={"anthropic-version": "2023-06-01"},
        key_header="x-api-key",
    ),
    accumulator=AnthropicMessages,
    message=anthropic_message,
    path=lambda model: "/messages",
    stream_body=lambda request, model: {**request, "model": model, "stream": True},
    with_defaults=_with_max_tokens,
)
