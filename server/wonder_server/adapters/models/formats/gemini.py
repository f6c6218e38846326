"""Gemini ``streamGenerateContent``. Source: Google, "Gemini API: GenerateContentResponse"."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from wonder_server.adapters.models.common.provider_errors import unavailable
from wonder_server.adapters.models.common.tool_arguments import clean_text
from wonder_server.adapters.models.formats.parts import (
    PartialToolCall,
    argument_text,
    finalize_tool_calls,
    reported_fault,
    token_count,
    token_total,
)
from wonder_server.core.errors import WonderError
from wonder_server.core.model import ModelResult, ToolCall, Usage

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


def gemini_message(text: str, calls: Iterable[ToolCall]) -> dict[str, Any]:
    """The model's content as the next request repeats it, for answers of text and tool calls."""
    parts: list[dict[str, Any]] = [{"text": text}] if text else []
    parts += [
        {"functionCall": {"id": call.id, "name": call.name, "args": call.arguments or {}}} for call in calls
    ]
    return {"role": "model", "parts": parts}


class Gemini:
    """Gathers ``GenerateContentResponse`` s; reads candidate 0. Parts it does not know are kept as they came.

    The format has no last event: the stream ends where the answer's body does.
    """

    def __init__(self) -> None:
        self.has_started = False
        self.ended = False
        self.character_count = 0
        self._parts: list[tuple[dict[str, Any], list[str]]] = []
        """Each part as it began, and the pieces of its text."""
        self._text: list[str] = []
        self._reasoning: list[str] = []
        self._finish = ""
        self._usage: Any = None
        self._model = ""

    @property
    def complete(self) -> bool:
        return bool(self._finish)

    def feed(self, event: dict[str, Any]) -> str:
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

    def _part(self, part: dict[str, Any]) -> str:
        """Keeps a part; text goes on with the part before it if both are nothing but text of one kind.

        A part with a signature stays as it is: its provider wants it back where it was.
        """
        if not isinstance(part.get("text"), str):
            self.has_started = True
            self.character_count += len(str(part))
            self._parts.append((part, []))
            return ""
        text = clean_text(part["text"])
        thought = bool(part.get("thought"))
        if text:
            self.has_started = True
            self.character_count += len(text) if thought else 0
            (self._reasoning if thought else self._text).append(text)
        plain = {"text": "", "thought": True} if thought else {"text": ""}
        if part != {**plain, "text": part["text"]}:
            self._parts.append((part, [text]))
        elif self._parts and self._parts[-1][0] == plain:
            self._parts[-1][1].append(text)
        elif text:
            self._parts.append((plain, [text]))
        return "" if thought else text

    def result(self) -> ModelResult:
        stop = _STOPS.get(self._finish, "other")
        parts = [{**part, "text": "".join(pieces)} if pieces else part for part, pieces in self._parts]
        called = [part["functionCall"] for part in parts if part.get("functionCall")]
        # Arguments are whole here: a call without any is one that needs none, even in a cut answer.
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


def _partial_call(call: dict[str, Any]) -> PartialToolCall:
    """A tool call. One whose arguments arrive in pieces, which this server does not ask for, is malformed."""
    partial = call.get("partialArgs") or call.get("willContinue")
    arguments = "{" if partial else argument_text(call.get("args"))
    return PartialToolCall(call.get("id") or "", call.get("name") or "", arguments)
