"""A model under test, made to behave in a given way: offline by what it is told, LiteLLM by the script."""

from __future__ import annotations

from contextlib import aclosing
from dataclasses import dataclass, replace
from typing import Any, Protocol

from wonder_server.core.definitions.specs import ModelProfile
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
    """``case`` gives the profile and the request that make the model behave as named."""

    model: Model
    format: str

    def case(self, name: str) -> tuple[ModelProfile, dict[str, Any]]: ...


def tool(request_format: str, name: str, schema: dict[str, Any]) -> dict[str, Any]:
    """A tool as the format describes it."""
    if request_format == "anthropic_messages":
        return {"name": name, "description": f"The {name}.", "input_schema": schema}
    return {
        "type": "function",
        "function": {"name": name, "description": f"The {name}.", "parameters": schema},
    }


def ask(request_format: str, text: str, *, system: str = "", **tools: dict[str, Any]) -> dict[str, Any]:
    """A request with one user message and the given tools (name -> schema)."""
    messages: list[dict[str, Any]] = [{"role": "user", "content": text}]
    request: dict[str, Any] = {"messages": messages}
    if request_format == "anthropic_messages":
        request["max_tokens"] = 1000
        if system:
            request["system"] = system
    elif system:
        messages.insert(0, {"role": "system", "content": system})
    if tools:
        request["tools"] = [tool(request_format, name, schema) for name, schema in tools.items()]
    return request


def with_results(request_format: str, request: dict[str, Any], result: ModelResult) -> dict[str, Any]:
    """The next request: the model's own message, and a result for each of its calls."""
    answers: list[dict[str, Any]]
    if request_format == "anthropic_messages":
        blocks = [
            {"type": "tool_result", "tool_use_id": call.id, "content": f"{call.name} is fine"}
            for call in result.tool_calls
        ]
        answers = [{"role": "user", "content": blocks}]
    else:
        answers = [
            {"role": "tool", "tool_call_id": call.id, "content": f"{call.name} is fine"}
            for call in result.tool_calls
        ]
    return {**request, "messages": [*request["messages"], result.raw, *answers]}


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

    def case(self, name: str) -> tuple[ModelProfile, dict[str, Any]]:
        profile = ModelProfile(provider="offline", model="offline", format=self.format)
        request = ask(self.format, _SAID[name], weather=WEATHER_SCHEMA, clock=CLOCK_SCHEMA)
        if name == "length":
            request["max_tokens"] = 3
        if name == "slow":
            profile = replace(profile, parameters={"token_delay_ms": 20})
        return profile, request


@dataclass
class LiteLLMSubject:
    model: Model
    format: str

    def case(self, name: str, **patience: int) -> tuple[ModelProfile, dict[str, Any]]:
        provider = "anthropic" if self.format == "anthropic_messages" else "openai"
        profile = ModelProfile(provider=provider, model=name, format=self.format, **patience)  # type: ignore[arg-type]
        return profile, ask(self.format, "Hello", weather=WEATHER_SCHEMA, clock=CLOCK_SCHEMA)


async def collect(
    model: Model, profile: ModelProfile, request: dict[str, Any]
) -> tuple[list[str], ModelResult]:
    """The pieces of text, and the result; checks that the result is the last chunk."""
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
