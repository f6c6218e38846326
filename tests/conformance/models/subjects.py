"""Models under test with a given behavior: offline by the request, others by the provider's script."""

from __future__ import annotations

from contextlib import aclosing
from dataclasses import dataclass, replace
from typing import Protocol

from wonder_server.core.conversation.context.dialects import DIALECTS
from wonder_server.core.conversation.model.values import ToolResult
from wonder_server.core.definitions.specs import ModelProfile
from wonder_server.core.json_types import JsonDict
from wonder_server.core.model import ModelResult
from wonder_server.ports.model import Finished, Model, TextDelta

KEY = "sk-test-secret-key"

WEATHER_SCHEMA = {
    "type": "object",
    "properties": {"city": {"type": "string"}, "days": {"type": "integer"}},
    "required": ["city"],
}
CLOCK_SCHEMA = {"type": "object", "properties": {"zone": {"type": "string"}}}


class Subject(Protocol):
    """A model under test. ``case`` returns the profile and the request for a behavior."""

    model: Model
    format: str

    def case(self, name: str) -> tuple[ModelProfile, JsonDict]: ...


def tool(request_format: str, name: str, schema: JsonDict) -> JsonDict:
    """Return a tool in a format."""
    described = {"name": name, "description": f"The {name}."}
    match request_format:
        case "anthropic_messages":
            return {**described, "input_schema": schema}
        case "openai_responses":
            return {"type": "function", **described, "parameters": schema, "strict": False}
        case "gemini":
            return {**described, "parametersJsonSchema": schema}
        case _:
            return {"type": "function", "function": {**described, "parameters": schema}}


def ask(request_format: str, text: str, *, system: str = "", **tools: JsonDict) -> JsonDict:
    """Return a request with one user message and the given tools (name -> schema)."""
    said = {"role": "user", "content": text}
    request: JsonDict
    match request_format:
        case "anthropic_messages":
            request = {"messages": [said], "max_tokens": 1000, **({"system": system} if system else {})}
        case "openai_responses":
            request = {"input": [said], **({"instructions": system} if system else {})}
        case "gemini":
            request = {"contents": [{"role": "user", "parts": [{"text": text}]}]}
            if system:
                request["systemInstruction"] = {"parts": [{"text": system}]}
        case _:
            request = {"messages": [*([{"role": "system", "content": system}] if system else []), said]}
    if tools:
        described = [tool(request_format, name, schema) for name, schema in tools.items()]
        request["tools"] = [{"functionDeclarations": described}] if request_format == "gemini" else described
    return request


def limited(request_format: str, request: JsonDict, tokens: int) -> JsonDict:
    """Return the request with a limit of the answer's tokens."""
    match request_format:
        case "openai_responses":
            return {**request, "max_output_tokens": tokens}
        case "gemini":
            return {**request, "generationConfig": {"maxOutputTokens": tokens}}
        case _:
            return {**request, "max_tokens": tokens}


def with_results(request_format: str, request: JsonDict, result: ModelResult) -> JsonDict:
    """Return the next request, with the model's message and a result for each call."""
    results = [
        ToolResult(tool_call_id=call.id, success=True, result=f"{call.name} is fine")
        for call in result.tool_calls
    ]
    return DIALECTS[request_format].resume(request, result.raw, results)


_SAID = {
    "text": "Hello to you, offline model",
    "words-50": "say 50 words",
    "tool": 'use the tool weather with {"city": "Łódź", "days": 3}',
    "parallel": 'run weather {"city": "Łódź", "days": 3}\nrun clock {"zone": "UTC"}',
    "no-arguments": "run clock",
    "bad-arguments": 'run weather {"city": "Par\nrun clock {"zone": "UTC"}',
    "deep-arguments": "run weather " + '{"a":' * 40 + "1" + "}" * 40,
    "huge-number": 'run weather {"n": 9007199254740993}',
    "length": "say 50 words",
    "slow": "say 500 words",
}


@dataclass
class OfflineSubject:
    model: Model
    format: str

    def case(self, name: str) -> tuple[ModelProfile, JsonDict]:
        profile = ModelProfile(provider="offline", model="offline", format=self.format)
        request = ask(self.format, _SAID[name], weather=WEATHER_SCHEMA, clock=CLOCK_SCHEMA)
        if name == "length":
            request = limited(self.format, request, 3)
        if name == "slow":
            profile = replace(profile, parameters={"token_delay_ms": 20})
        return profile, request


PROVIDERS = {"anthropic_messages": "anthropic", "gemini": "gemini"}


@dataclass
class RemoteSubject:
    """A model that calls the scripted provider."""

    model: Model
    format: str

    def case(self, name: str, **patience: int) -> tuple[ModelProfile, JsonDict]:
        provider = PROVIDERS.get(self.format, "openai")
        profile = ModelProfile(provider=provider, model=name, format=self.format, **patience)  # type: ignore[arg-type]
        return profile, ask(self.format, "Hello", weather=WEATHER_SCHEMA, clock=CLOCK_SCHEMA)


async def collect(model: Model, profile: ModelProfile, request: JsonDict) -> tuple[list[str], ModelResult]:
    """Return the pieces of text and the result. Assert that the result is the last chunk."""
    texts: list[str] = []
    result: ModelResult | None = None
    async with aclosing(model.stream(profile, request)) as chunks:  # type: ignore[type-var]
        async for chunk in chunks:
            assert result is None, "nothing follows the result"
            match chunk:
                case TextDelta(text):
                    texts.append(text)
                case Finished(found):
                    result = found
    assert result is not None, "the last chunk is the result"
    return texts, result
