"""The format of Gemini ``streamGenerateContent``. Source: Google, "Gemini API: GenerateContentResponse"."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from urllib.parse import quote

from wonder_server.adapters.models.common.provider_errors import refused, unavailable
from wonder_server.adapters.models.common.tool_arguments import clean_text
from wonder_server.adapters.models.formats.images import GatheredImages
from wonder_server.adapters.models.formats.parts import (
    Aside,
    PartialToolCall,
    argument_text,
    finalize_tool_calls,
    json_object,
    json_objects,
    reported_fault,
    token_count,
    token_total,
)
from wonder_server.adapters.models.formats.wire_format import ProviderApi, WireFormat
from wonder_server.core.errors import WonderError
from wonder_server.core.json_types import JsonDict, JsonValue
from wonder_server.core.model import ModelResult, ToolCall, Usage
from wonder_server.core.request_formats import gemini
from wonder_server.ports.model import ReasoningDelta

_STOPS = {
    "STOP": "end",
    "MAX_TOKENS": "length",
    "SAFETY": "refusal",
    "RECITATION": "refusal",
    "BLOCKLIST": "refusal",
    "PROHIBITED_CONTENT": "refusal",
    "SPII": "refusal",
    "IMAGE_SAFETY": "refusal",
}
_MALFORMED_STOPS = frozenset({"MALFORMED_FUNCTION_CALL", "MALFORMED_RESPONSE"})


def gemini_message(text: str, calls: Iterable[ToolCall]) -> JsonDict:
    """Return an answer of text and tool calls as the model's content in the next request."""
    parts: list[JsonDict] = [{"text": text}] if text else []
    parts += [
        {"functionCall": {"id": call.id, "name": call.name, "args": call.arguments or {}}} for call in calls
    ]
    return {"role": "model", "parts": parts}


class Gemini:
    """Accumulator of ``GenerateContentResponse`` events. It reads candidate 0.

    Parts of unknown types stay unchanged. The format has no final event: the stream ends with the response
    body.
    """

    def __init__(self) -> None:
        self.has_started = False
        self.ended = False
        self.character_count = 0
        self.asides: list[Aside] = []
        self.images = GatheredImages()
        self._call_count = 0
        self._parts: list[tuple[JsonDict, list[str]]] = []
        """The first piece of each part, and the pieces of its text."""
        self._text: list[str] = []
        self._reasoning: list[str] = []
        self._finish = ""
        self._usage: JsonValue = None
        self._model = ""

    @property
    def complete(self) -> bool:
        return bool(self._finish)

    def feed(self, event: JsonDict) -> str:
        if event.get("error"):
            raise WonderError(reported_fault(event["error"]))
        self._model = event.get("modelVersion") or self._model
        self._usage = event.get("usageMetadata") or self._usage
        if (event.get("promptFeedback") or {}).get("blockReason"):
            self._finish = "SAFETY"
        text = ""
        for candidate in event.get("candidates") or ():
            if candidate.get("index", 0) == 0:
                for part in (candidate.get("content") or {}).get("parts") or ():
                    text += self._part(dict(part))
                self._finish = candidate.get("finishReason") or self._finish
        if self._finish in _MALFORMED_STOPS:
            raise WonderError(unavailable("The model wrote a tool call that its provider could not read."))
        return text

    def _part(self, part: JsonDict) -> str:
        """Add a part and return its text. A part of plain text extends a previous part of the same kind.

        A part with a signature stays separate, since the provider requires it at its position.
        """
        if not isinstance(part.get("text"), str):
            self.has_started = True
            image = json_object(part.get("inlineData"))
            if isinstance(image.get("data"), str):
                if part.get("thought"):
                    return ""  # A draft of the image; the next request needs none.
                place = self.images.add(image["data"], str(image.get("mimeType")))
                part = {**{name: part[name] for name in part if name != "inlineData"}, **place}
            self.character_count += len(str(part))
            self._parts.append((part, []))
            if call := part.get("functionCall"):
                partial = _partial_call(call, self._call_count)
                self._call_count += 1
                self.asides.append(partial.add("".join(partial.arguments) or "{}"))
            return ""
        text = clean_text(part["text"])
        thought = bool(part.get("thought"))
        shown = text if thought else self.images.after_text(text)
        if text:
            self.has_started = True
            self.character_count += len(text) if thought else 0
            (self._reasoning if thought else self._text).append(shown)
            if thought:
                self.asides.append(ReasoningDelta(text))
        plain = {"text": "", "thought": True} if thought else {"text": ""}
        if part != {**plain, "text": part["text"]}:
            self._parts.append((part, [text]))
        elif self._parts and self._parts[-1][0] == plain:
            self._parts[-1][1].append(text)
        elif text:
            self._parts.append((plain, [text]))
        return "" if thought else shown

    def result(self) -> ModelResult:
        stop = _STOPS.get(self._finish, "other")
        parts = [{**part, "text": "".join(pieces)} if pieces else part for part, pieces in self._parts]
        called = [part["functionCall"] for part in parts if part.get("functionCall")]
        # Arguments arrive complete, so a call without arguments needs none, even in a truncated answer.
        calls = finalize_tool_calls([_partial_call(call) for call in called])
        arguments = iter(call.arguments or {} for call in calls)
        parts = [
            {**part, "functionCall": {**part["functionCall"], "args": next(arguments)}}
            if part.get("functionCall")
            else part
            for part in parts
        ]
        return ModelResult(
            text="".join(self._text),
            tool_calls=calls,
            raw={"role": "model", "parts": parts},
            usage=self.usage_so_far,
            stop_reason="tool_calls" if calls and stop == "end" else stop,
            model=self._model,
            reasoning="".join(self._reasoning),
        )

    @property
    def usage_so_far(self) -> Usage:
        return Usage(
            input_tokens=token_total(
                token_count(self._usage, "promptTokenCount"),
                token_count(self._usage, "toolUsePromptTokenCount"),
            ),
            output_tokens=token_total(
                token_count(self._usage, "candidatesTokenCount"),
                token_count(self._usage, "thoughtsTokenCount"),
            ),
            cached_input_tokens=token_count(self._usage, "cachedContentTokenCount"),
            reasoning_tokens=token_count(self._usage, "thoughtsTokenCount"),
        )


def _partial_call(call: JsonDict, index: int = 0) -> PartialToolCall:
    """Return the partial form of a tool call.

    A call whose arguments arrive in pieces is malformed: the server does not request such calls.
    """
    partial = call.get("partialArgs") or call.get("willContinue")
    arguments = "{" if partial else argument_text(call.get("args"))
    return PartialToolCall(call.get("id") or "", call.get("name") or "", arguments, index)


def _path(model: str) -> str:
    kind, slash, name = model.partition("/")
    if not slash or kind not in ("models", "tunedModels"):
        kind, name = "models", model
    try:
        return f"/{kind}/{quote(name, safe='')}:streamGenerateContent"
    except UnicodeEncodeError:
        raise WonderError(refused("the name of the model is not text")) from None


# --- requests for the offline model -----------------------------------------------------------------


def _as_chat(request: JsonDict) -> JsonDict:
    contents = json_objects(request.get("contents"))
    messages = [message for content in contents for message in _chat_messages(content)]
    if system := _text(json_object(request.get("systemInstruction"))):
        messages.insert(0, {"role": "system", "content": system})
    declared = [
        {
            **declaration,
            "parameters": declaration.get("parametersJsonSchema") or declaration.get("parameters"),
        }
        for tool in json_objects(request.get("tools"))
        for declaration in json_objects(tool.get("functionDeclarations"))
    ]
    calling = json_object(json_object(request.get("toolConfig")).get("functionCallingConfig"))
    return {
        "messages": messages,
        "tools": [{"type": "function", "function": declaration} for declaration in declared],
        "tool_choice": "none" if calling.get("mode") == "NONE" else None,
        "max_tokens": json_object(request.get("generationConfig")).get("maxOutputTokens"),
    }


def _chat_messages(content: JsonDict) -> Iterator[JsonDict]:
    """Yield one message for each function response of a content, and one for its text and calls, if any."""
    calls = []
    for part in json_objects(content.get("parts")):
        call, answered = json_object(part.get("functionCall")), json_object(part.get("functionResponse"))
        if call:
            calls.append({"id": call.get("name", ""), "function": {"name": call.get("name", "tool")}})
        if answered:
            response = json_object(answered.get("response"))
            output = response.get("output", response)
            text = output if isinstance(output, str) else json.dumps(output, ensure_ascii=False)
            yield {"role": "tool", "tool_call_id": answered.get("name", ""), "content": text}
    text = _text(content)
    if text or calls:
        role = "assistant" if content.get("role") == "model" else "user"
        yield {"role": role, "content": text, **({"tool_calls": calls} if calls else {})}


def _text(content: JsonDict) -> str:
    parts = json_objects(content.get("parts"))
    return "\n".join(str(part["text"]) for part in parts if "text" in part and not part.get("thought"))


WIRE_FORMAT = WireFormat(
    format=gemini.FORMAT,
    api=ProviderApi(
        base_url="https://generativelanguage.googleapis.com",
        version_path="/v1beta",
        query="alt=sse",
        key_header="x-goog-api-key",
    ),
    accumulator=Gemini,
    message=gemini_message,
    path=_path,
    # The path names the model, and that the answer streams.
    stream_body=lambda request, model: request,
    as_chat=_as_chat,
)
