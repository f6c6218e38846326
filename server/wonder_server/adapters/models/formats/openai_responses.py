"""The format of OpenAI responses. Source: OpenAI, "Responses API: streaming events".

An answer is a list of items: messages, tool calls and reasoning. ``raw`` is ``{"output": [item, …]}``. The
``input`` of the next request repeats the items unchanged.
"""

from __future__ import annotations

import json
from collections.abc import Iterable

from wonder_server.adapters.models.common.tool_arguments import clean_text, parse_arguments
from wonder_server.adapters.models.formats.images import GatheredImages
from wonder_server.adapters.models.formats.openai_chat import OPENAI
from wonder_server.adapters.models.formats.parts import (
    Aside,
    PartialToolCall,
    finalize_tool_calls,
    json_objects,
    reported_fault,
    token_count,
)
from wonder_server.adapters.models.formats.wire_format import WireFormat
from wonder_server.core.errors import WonderError
from wonder_server.core.json_types import JsonDict, JsonValue
from wonder_server.core.model import ModelResult, ToolCall, Usage
from wonder_server.core.request_formats import openai_responses
from wonder_server.core.request_formats.openai_responses import IMAGE_CALL
from wonder_server.ports.model import ReasoningDelta

_INCOMPLETE = {"max_output_tokens": "length", "content_filter": "refusal"}


def responses_message(text: str, calls: Iterable[ToolCall]) -> JsonDict:
    """Return an answer of text and tool calls as the items that the next request repeats."""
    content = [{"type": "output_text", "text": text, "annotations": []}]
    items: list[JsonDict] = [{"type": "message", "role": "assistant", "content": content}] if text else []
    items += [
        {
            "type": "function_call",
            "call_id": call.id,
            "name": call.name,
            "arguments": json.dumps(call.arguments or {}, ensure_ascii=False),
        }
        for call in calls
    ]
    return {"output": items}


class OpenAIResponses:
    """Accumulator of ``response.*`` events. Items of unknown types stay unchanged."""

    def __init__(self) -> None:
        self.has_started = False
        self.ended = False
        self.character_count = 0
        self.asides: list[Aside] = []
        self.images = GatheredImages()
        self._calls: dict[int, PartialToolCall] = {}
        """The calls so far, by the index of their item."""
        self._items: dict[int, JsonDict] = {}
        self._text: list[str] = []
        self._streamed_items: set[tuple[int, int]] = set()
        self._has_refusal = False
        self._reasoning: list[str] = []
        self._arguments: dict[int, list[str]] = {}
        self._stop = ""
        self._usage: JsonValue = None
        self._model = ""

    @property
    def complete(self) -> bool:
        return bool(self._stop)

    def feed(self, event: JsonDict) -> str:
        match event.get("type"):
            case "response.output_text.delta":
                return self._text_delta(event, event["delta"])
            case "response.refusal.delta":
                self._has_refusal = True
                return self._text_delta(event, event["delta"])
            case "response.function_call_arguments.delta":
                self._arguments.setdefault(event["output_index"], []).append(event["delta"])
                self.character_count += len(event["delta"])
                if call := self._calls.get(event["output_index"]):
                    self.asides.append(call.add(event["delta"]))
            case "response.reasoning_summary_text.delta" | "response.reasoning_text.delta":
                self.has_started = True
                self._reasoning.append(clean_text(event["delta"]))
                self.character_count += len(self._reasoning[-1])
                self.asides.append(ReasoningDelta(self._reasoning[-1]))
            case "response.reasoning_summary_part.added" if self._reasoning:
                self._reasoning.append("\n\n")
                self.asides.append(ReasoningDelta("\n\n"))
            case _:
                return self._feed_boundary(event)
        return ""

    def _feed_boundary(self, event: JsonDict) -> str:
        """Process an event that starts or ends an item or the answer."""
        match event.get("type"):
            case "response.output_item.added":
                # The start of a message contains no answer yet; the start of any other item does.
                self.has_started = self.has_started or event["item"].get("type") != "message"
                self._items[event["output_index"]] = dict(event["item"])
                self._show_call(event["output_index"], event["item"])
            case "response.output_item.done":
                self.has_started = True
                self._items[event["output_index"]] = self._without_image(event["item"])
                self._show_call(event["output_index"], event["item"], complete=True)
                return self._unstreamed_text(event["output_index"], event["item"])
            case "response.created" | "response.in_progress":
                self._model = event["response"].get("model") or self._model
            case "response.completed" | "response.incomplete":
                return self._end(event["response"])
            case "response.failed":
                raise WonderError(reported_fault(event["response"].get("error")))
            case "error":
                raise WonderError(reported_fault(event.get("error") or event))
        return ""

    def _show_call(self, index: int, item: JsonDict, *, complete: bool = False) -> None:
        """Stream the start of a tool call, or the whole of a complete call that did not arrive in deltas."""
        if item.get("type") != "function_call":
            return
        known = self._calls.get(index)
        call = known or PartialToolCall(
            item.get("call_id") or "", item.get("name") or "", "", len(self._calls)
        )
        self._calls[index] = call
        arguments = item.get("arguments") or "" if complete and not any(call.arguments) else ""
        if known is None or arguments:
            self.asides.append(call.add(arguments))

    def _without_image(self, item: JsonDict) -> JsonDict:
        """Return an item with a place for the content of its image."""
        if item.get("type") != IMAGE_CALL or not isinstance(item.get("result"), str):
            return dict(item)
        place = self.images.add(item["result"], f"image/{item.get('output_format') or 'png'}")
        return {**{name: item[name] for name in item if name != "result"}, **place}

    def _text_delta(self, event: JsonDict, delta: str) -> str:
        text = self.images.after_text(clean_text(delta))
        if text:
            self.has_started = True
            self._streamed_items.add((event["output_index"], event.get("content_index", 0)))
            self._text.append(text)
        return text

    def _unstreamed_text(self, index: int, item: JsonDict) -> str:
        """Return the text of a complete message that did not arrive in deltas."""
        found = ""
        if item.get("type") == "message":
            for position, part in enumerate(item.get("content") or ()):
                if (index, position) not in self._streamed_items:
                    self._has_refusal |= part.get("type") == "refusal"
                    where = {"output_index": index, "content_index": position}
                    found += self._text_delta(where, part.get("text") or part.get("refusal") or "")
        return found

    def _end(self, response: JsonDict) -> str:
        self.ended = True
        self._model = response.get("model") or self._model
        self._usage = response.get("usage")
        reason = str((response.get("incomplete_details") or {}).get("reason"))
        self._stop = _INCOMPLETE.get(reason, "other") if response.get("status") == "incomplete" else "end"
        found = ""
        for index, item in enumerate(response.get("output") or ()):
            self._items[index] = self._without_image(item)
            self._show_call(index, item, complete=True)
            found += self._unstreamed_text(index, item)
        return found

    @property
    def usage_so_far(self) -> Usage:
        return Usage(
            input_tokens=token_count(self._usage, "input_tokens"),
            output_tokens=token_count(self._usage, "output_tokens"),
            cached_input_tokens=token_count(self._usage, "input_tokens_details", "cached_tokens"),
            reasoning_tokens=token_count(self._usage, "output_tokens_details", "reasoning_tokens"),
        )

    def result(self) -> ModelResult:
        output, partial_calls = [], []
        for index, item in sorted(self._items.items()):
            if item.get("type") == "function_call":
                arguments = item.get("arguments") or "".join(self._arguments.get(index, ()))
                partial_calls.append(
                    PartialToolCall(item.get("call_id") or "", item.get("name") or "", arguments)
                )
                # The provider rejects a history that it cannot parse, so malformed arguments become {}.
                item = {**item, "arguments": arguments if parse_arguments(arguments) else "{}"}
            output.append(item)
        calls = finalize_tool_calls(partial_calls, cut=self._stop not in ("end", ""))
        ids = iter(calls)
        output = [
            {**item, "call_id": next(ids).id} if item.get("type") == "function_call" else item
            for item in output
        ]
        text = "".join(self._text)
        if text and not output:  # Some servers send only deltas.
            output = responses_message(text, ())["output"]
        stop = "refusal" if self._has_refusal else self._stop or "other"
        return ModelResult(
            text=text,
            tool_calls=calls,
            raw={"output": output},
            usage=self.usage_so_far,
            stop_reason="tool_calls" if calls and stop == "end" else stop,
            model=self._model,
            reasoning="".join(self._reasoning),
        )


# --- requests for the offline model -----------------------------------------------------------------


def _as_chat(request: JsonDict) -> JsonDict:
    given = request.get("input")
    items = [{"role": "user", "content": given}] if isinstance(given, str) else json_objects(given)
    messages = [_chat_message(item) for item in items]
    if request.get("instructions"):
        messages.insert(0, {"role": "system", "content": request["instructions"]})
    tools = [{"type": "function", "function": tool} for tool in json_objects(request.get("tools"))]
    return {
        "messages": messages,
        "tools": tools,
        "tool_choice": request.get("tool_choice"),
        "max_tokens": request.get("max_output_tokens"),
    }


def _chat_message(item: JsonDict) -> JsonDict:
    match item.get("type"):
        case "function_call":
            call = {"id": item.get("call_id", ""), "function": {"name": item.get("name", "tool")}}
            return {"role": "assistant", "tool_calls": [call]}
        case "function_call_output":
            return {
                "role": "tool",
                "tool_call_id": item.get("call_id", ""),
                "content": item.get("output", ""),
            }
    content = item.get("content")
    if isinstance(content, list):
        texts = [str(part.get("text", "")) for part in json_objects(content) if "text" in part]
        content = "\n".join(texts)
    return {"role": item.get("role", ""), "content": content}


WIRE_FORMAT = WireFormat(
    format=openai_responses.FORMAT,
    api=OPENAI,
    accumulator=OpenAIResponses,
    message=responses_message,
    path=lambda model: "/responses",
    stream_body=lambda request, model: {**request, "model": model, "stream": True},
    as_chat=_as_chat,
)
