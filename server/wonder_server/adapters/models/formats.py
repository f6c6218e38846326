"""Streamed answers in the providers' formats, gathered into one `ModelResult`. Pure.

An `Accumulator` is fed each event of a stream, already parsed as JSON, and gives back the text in it::

    OpenAI chat         one ``chat.completion.chunk`` at a time
    Anthropic messages  one ``message_start``, ``content_block_delta``, … at a time

Every way of reaching a provider shares these, so tool calls are put together in one place.
Sources: feature D2; OpenAI "Chat Completions streaming"; Anthropic "Streaming messages".
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from typing import Any, Protocol

from wonder_server.adapters.models.arguments import clean_text, parse_arguments
from wonder_server.adapters.models.faults import from_status
from wonder_server.core.errors import Fault, Reason, WonderError, error
from wonder_server.core.model import ModelResult, ToolCall, Usage

OPENAI_CHAT = "openai_chat"
ANTHROPIC_MESSAGES = "anthropic_messages"


class Accumulator(Protocol):
    """Gathers one stream. ``begun``: something of the answer has arrived, be it text, a tool call or
    thinking. ``complete``: the provider has said why it stopped; without that the stream broke off."""

    begun: bool

    @property
    def complete(self) -> bool: ...

    def feed(self, event: dict[str, Any]) -> str:
        """Takes one event; returns the answer's text in it, often empty. Raises `WonderError` when the
        event reports an error."""

    def result(self) -> ModelResult:
        """The whole answer, once the stream has ended."""


def usual_format(provider: str) -> str:
    """The format that a provider's profiles use when they name none."""
    return ANTHROPIC_MESSAGES if provider == "anthropic" else OPENAI_CHAT


def accumulator(format_name: str) -> Accumulator:
    """A fresh accumulator; NOT_IMPLEMENTED for a format that this server does not speak yet."""
    make = _ACCUMULATORS.get(format_name)
    if make is None:
        raise error(
            Reason.NOT_IMPLEMENTED,
            f"Requests in the format {format_name} cannot be sent yet; use {' or '.join(_ACCUMULATORS)}.",
            field="format",
        )
    return make()


def tool_call(call_id: str, name: str, written: str) -> ToolCall:
    """A tool call from what the model wrote as its arguments."""
    arguments = parse_arguments(written)
    return ToolCall(
        id=call_id,
        name=name,
        arguments=arguments,
        malformed="" if arguments is not None else clean_text(written),
    )


def openai_message(text: str, calls: Iterable[ToolCall], *, refusal: str = "") -> dict[str, Any]:
    """The assistant's message as the next request repeats it.

    Malformed arguments go back as ``{}``: several servers fail on a history that does not parse.
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
    message: dict[str, Any] = {
        "role": "assistant",
        "content": text or (None if tool_calls or refusal else ""),
    }
    if refusal:
        message["refusal"] = refusal
    if tool_calls:
        message["tool_calls"] = tool_calls
    return message


def anthropic_message(text: str, calls: Iterable[ToolCall]) -> dict[str, Any]:
    """The assistant's message as the next request repeats it, for answers of text and tool calls."""
    blocks: list[dict[str, Any]] = [{"type": "text", "text": text}] if text else []
    blocks += [
        {"type": "tool_use", "id": call.id, "name": call.name, "input": call.arguments or {}}
        for call in calls
    ]
    return {"role": "assistant", "content": blocks}


class _Written:
    """A tool call that is still being written."""

    __slots__ = ("arguments", "id", "name")

    def __init__(self, call_id: str = "", name: str = "") -> None:
        self.id = call_id
        self.name = name
        self.arguments: list[str] = []


class OpenAIChat:
    """Gathers OpenAI ``chat.completion.chunk`` s; reads choice 0."""

    def __init__(self) -> None:
        self.begun = False
        self._text: list[str] = []
        self._refusal: list[str] = []
        self._calls: list[_Written] = []
        self._by_index: dict[int, _Written] = {}
        self._finish = ""
        self._usage = Usage()
        self._model = ""

    @property
    def complete(self) -> bool:
        return bool(self._finish)

    def feed(self, event: dict[str, Any]) -> str:
        if "error" in event:
            raise WonderError(_reported(event["error"]))
        self._model = event.get("model") or self._model
        if usage := event.get("usage"):
            self._usage = Usage(
                input_tokens=usage.get("prompt_tokens"), output_tokens=usage.get("completion_tokens")
            )
        text = ""
        for choice in event.get("choices") or ():
            if choice.get("index", 0) == 0:
                self._finish = choice.get("finish_reason") or self._finish
                text += self._delta(choice.get("delta") or {})
        return text

    def _delta(self, delta: dict[str, Any]) -> str:
        text = delta.get("content")
        refusal = delta.get("refusal")
        text = clean_text(text) if isinstance(text, str) else ""
        if isinstance(refusal, str) and refusal:
            self._refusal.append(clean_text(refusal))
            text += self._refusal[-1]
        if text:
            self._text.append(text)
        calls = delta.get("tool_calls") or ()
        for call in calls:
            self._call_delta(call)
        if text or calls or delta.get("reasoning_content") or delta.get("reasoning"):
            self.begun = True
        return text

    def _call_delta(self, delta: dict[str, Any]) -> None:
        """Adds a piece to the call it belongs to: same index, unless a new id says that another begins.

        Some providers give every parallel call the index 0, some send no index, some repeat the id.
        """
        index, call_id = delta.get("index"), delta.get("id") or ""
        written = self._by_index.get(index) if index is not None else None
        if index is None:
            written = self._with_id(call_id) if call_id else (self._calls[-1] if self._calls else None)
        elif written is not None and call_id and written.id and written.id != call_id:
            written = self._with_id(call_id)
        if written is None:
            written = _Written()
            self._calls.append(written)
        if index is not None:
            self._by_index[index] = written
        function = delta.get("function") or {}
        written.id = written.id or call_id
        written.name = written.name or function.get("name") or ""
        written.arguments.append(function.get("arguments") or "")

    def _with_id(self, call_id: str) -> _Written | None:
        return next((call for call in self._calls if call.id == call_id), None)

    def result(self) -> ModelResult:
        calls = _settled(self._calls)
        text, refusal = "".join(self._text), "".join(self._refusal)
        stop = _OPENAI_STOPS.get(self._finish, "other")
        if refusal:
            stop = "refusal"
        elif calls and stop == "end":
            stop = "tool_calls"
        return ModelResult(
            text=text,
            tool_calls=calls,
            raw=openai_message("" if refusal else text, calls, refusal=refusal),
            usage=self._usage,
            stop_reason=stop,
            model=self._model,
        )


class AnthropicMessages:
    """Gathers Anthropic streaming events. Blocks it does not know are kept as they came."""

    def __init__(self) -> None:
        self.begun = False
        self._blocks: dict[int, dict[str, Any]] = {}
        self._json: dict[int, list[str]] = {}
        self._stop = ""
        self._usage: dict[str, Any] = {}
        self._model = ""

    @property
    def complete(self) -> bool:
        return bool(self._stop)

    def feed(self, event: dict[str, Any]) -> str:
        match event.get("type"):
            case "message_start":
                message = event["message"]
                self._model = message.get("model") or ""
                self._usage.update(message.get("usage") or {})
            case "content_block_start":
                block = dict(event["content_block"])
                self._blocks[event["index"]] = block
                if block.get("type") == "text":
                    block["text"] = clean_text(block.get("text") or "")
                    return str(block["text"])
                self.begun = True
            case "content_block_delta":
                return self._delta(event["index"], event["delta"])
            case "message_delta":
                self._stop = event["delta"].get("stop_reason") or self._stop
                self._usage.update(event.get("usage") or {})
            case "error":
                raise WonderError(_reported(event.get("error")))
        return ""

    def _delta(self, index: int, delta: dict[str, Any]) -> str:
        block = self._blocks[index]
        self.begun = True
        match delta.get("type"):
            case "text_delta":
                text = clean_text(delta["text"])
                block["text"] = block.get("text", "") + text
                return text
            case "input_json_delta":
                self._json.setdefault(index, []).append(delta["partial_json"])
            case "thinking_delta":
                block["thinking"] = block.get("thinking", "") + clean_text(delta["thinking"])
            case "signature_delta":
                block["signature"] = block.get("signature", "") + delta["signature"]
            case "citations_delta":
                block["citations"] = [*(block.get("citations") or ()), delta["citation"]]
        return ""

    def result(self) -> ModelResult:
        content: list[dict[str, Any]] = []
        written: list[_Written] = []
        for index in sorted(self._blocks):
            block = self._blocks[index]
            text = "".join(self._json.get(index, ()))
            if block.get("type") == "tool_use":
                call = _Written(block.get("id", ""), block.get("name", ""))
                call.arguments.append(text or json.dumps(block.get("input") or {}))
                written.append(call)
            if text or block.get("type") == "tool_use":
                block = {**block, "input": parse_arguments(text or json.dumps(block.get("input"))) or {}}
            # A text block without text is sent by the provider and refused by it when it comes back.
            if block.get("type") != "text" or block.get("text"):
                content.append(block)
        calls = _settled(written)
        stop = _ANTHROPIC_STOPS.get(self._stop, "other")
        return ModelResult(
            text="".join(block["text"] for block in content if block.get("type") == "text"),
            tool_calls=calls,
            raw={"role": "assistant", "content": content},
            usage=self._counted(),
            stop_reason="tool_calls" if calls and stop == "end" else stop,
            model=self._model,
        )

    def _counted(self) -> Usage:
        """All input tokens, as OpenAI counts them: Anthropic reports cached ones apart from the rest."""
        kinds = ("input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens")
        counts = [self._usage[kind] for kind in kinds if isinstance(self._usage.get(kind), int)]
        return Usage(
            input_tokens=sum(counts) if counts else None, output_tokens=self._usage.get("output_tokens")
        )


_ACCUMULATORS: dict[str, Callable[[], Accumulator]] = {
    OPENAI_CHAT: OpenAIChat,
    ANTHROPIC_MESSAGES: AnthropicMessages,
}

_OPENAI_STOPS = {
    "stop": "end",
    "tool_calls": "tool_calls",
    "function_call": "tool_calls",
    "length": "length",
    "content_filter": "refusal",
}

_ANTHROPIC_STOPS = {
    "end_turn": "end",
    "stop_sequence": "end",
    "tool_use": "tool_calls",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "refusal": "refusal",
}

_ERROR_STATUSES = {
    "invalid_request_error": 400,
    "authentication_error": 401,
    "permission_error": 403,
    "not_found_error": 404,
    "request_too_large": 413,
    "rate_limit_error": 429,
    "overloaded_error": 529,
}


def _reported(reported: Any) -> Fault:
    """The fault that an error inside a stream stands for; unknown kinds are the provider's trouble."""
    detail = reported if isinstance(reported, dict) else {"message": str(reported)}
    status = _ERROR_STATUSES.get(str(detail.get("type")), 500)
    return from_status(status, str(detail.get("message") or ""), {})


def _settled(written: list[_Written]) -> tuple[ToolCall, ...]:
    """The finished calls, each with an id of its own: results are matched to calls by id."""
    taken: set[str] = set()
    calls = []
    for position, call in enumerate(written):
        call_id = call.id or f"call_{position}"
        while call_id in taken:
            call_id += "_"
        taken.add(call_id)
        calls.append(tool_call(call_id, call.name, "".join(call.arguments)))
    return tuple(calls)
