"""`OfflineModel`: a model of rules that needs no key, no network and no weights.

It reads a request in any format of the table and gives the same answer to the same request. It is for first
steps, tests and benchmarks. The first matching rule applies:

1. If tool results follow the last user message, it reports them in words. Notices of the platform that need
   no answer are not messages.
2. Each line of the message that names an offered tool calls it, all in parallel::

       use the tool weather with {"city": "Łódź"}     run weather {"city": "Łódź"}
       ask researcher to find out about bees          (the text becomes the first text field)
       keep using the tool weather with {}            (calls again after each result, while tools are offered)

   The text after the name is passed unchanged, so ``run weather {"ci`` is a malformed call.
   ``answer with TEXT``: it answers with this text, unchanged, also if it violates an output schema.
3. ``remember (that) …`` calls the offered tool ``remember``.
4. ``what do you remember / know about …``, ``do you know / remember …``, ``what is my …``, ``who is my
   …``, ``what do I …``, ``where …``, ``when …``: it answers from the memories of the request (lines
   ``- text`` under a line ``Memories:``) that share a word with the question. Without such a memory it
   calls the offered tool ``recall``.
5. ``say 50 words``: it answers with fifty words of one token each.
6. ``who are you``, ``what can you do``, ``help``, ``hello``, ``hi there``: it introduces itself.
7. Otherwise it repeats the message and lists the offered tools.

``think about …`` before any of these: it reasons before it answers the rest. With an output schema in the
request an answer without tool calls is JSON that satisfies it, made of the text (`example_values`).

A tool whose name contains ``remember`` or ``recall`` (``memory_recall``) also matches. The profile's
parameter ``token_delay_ms`` is the pause between tokens, 0 by default. ``max_tokens`` of the request, or the
field of its format, truncates the answer (stop reason ``length``). A token is a word. Source: feature D2,
design "Models".
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import re
from collections.abc import AsyncGenerator, Callable
from dataclasses import replace

from wonder_server.adapters.models import formats
from wonder_server.adapters.models.common.provider_errors import as_sentence
from wonder_server.adapters.models.offline.example_values import example_value
from wonder_server.adapters.models.offline.reading import ParsedRequest, read
from wonder_server.core.definitions.specs import ModelProfile
from wonder_server.core.json_types import JsonDict, JsonValue
from wonder_server.core.model import ModelResult, ToolCall, Usage
from wonder_server.core.request_formats import FALLBACK
from wonder_server.ports.model import ArgumentsDelta, Chunk, Finished, ReasoningDelta, TextDelta

_TOKENS = re.compile(r"\S+\s*|\s+")
_TOKENS_PER_CHUNK = 64
"""Tokens a chunk if there is no pause between tokens. Other tasks run between chunks."""
_MAX_WORDS = 100_000

INTRODUCTION = (
    "I am Wonder's offline model: a small set of plain rules, not a language model. "
    "I stream, I call the tools I am given, and I answer from what is remembered. "
    "To talk to a real model, start the server with OPENAI_API_KEY, ANTHROPIC_API_KEY, GEMINI_API_KEY or "
    "WONDER_DEFAULT_MODEL set."
)


class OfflineModel:
    """A model of the rules in the module's docstring. It never fails. Implements the port ``Model``."""

    async def stream(self, profile: ModelProfile, request: JsonDict) -> AsyncGenerator[Chunk, None]:
        """See `ports.model.Model.stream`. Raises NOT_IMPLEMENTED for an unknown format."""
        wire_format = formats.wire_format(profile.format or FALLBACK.name)
        reading = read({**profile.parameters, **request}, wire_format)
        reasoning, reading = _think(reading)
        text, calls = answer(reading)
        if reading.schema is not None and not calls and not _VERBATIM.match(reading.user_text):
            text = json.dumps(example_value(reading.schema, text), ensure_ascii=False)
        tokens = _TOKENS.findall(text)
        cut = reading.max_tokens is not None and len(tokens) > reading.max_tokens
        if cut:
            tokens, calls = tokens[: reading.max_tokens], ()
            text = "".join(tokens)
        delay = float(profile.parameters.get("token_delay_ms", 0)) / 1000
        chunk_size = 1 if delay else _TOKENS_PER_CHUNK
        for piece in _pieces(_TOKENS.findall(reasoning), chunk_size):
            yield ReasoningDelta(piece)
            await asyncio.sleep(delay)
        for position, piece in enumerate(_pieces(tokens, chunk_size)):
            if position:
                await asyncio.sleep(delay)
            yield TextDelta(piece)
        for index, call in enumerate(calls):
            written = call.malformed or json.dumps(call.arguments, ensure_ascii=False)
            yield ArgumentsDelta(index, call.id, call.name, written)
        yield Finished(_result(text, calls, cut, reading, reasoning))

    async def close(self) -> None:
        """Do nothing: the model holds no resources."""


def _pieces(tokens: list[str], size: int) -> list[str]:
    return ["".join(tokens[position : position + size]) for position in range(0, len(tokens), size)]


def _think(reading: ParsedRequest) -> tuple[str, ParsedRequest]:
    """Return the reasoning and the request without the words that ask for it; "" without such words."""
    match = _THINK.match(reading.user_text)
    if match is None or reading.results:
        return "", reading
    rest = match["rest"].strip()
    tools = f" The tools are {', '.join(reading.tools)}." if reading.tools else ""
    return f"The message is: “{rest}”.{tools} The first rule that matches answers.", replace(
        reading, user_text=rest
    )


def answer(reading: ParsedRequest) -> tuple[str, tuple[ToolCall, ...]]:
    """Return the text of the answer and its tool calls."""
    if reading.results and not (_repeats_on_request(reading.user_text) and reading.tools):
        return _report(reading), ()
    for rule in _RULES:
        if found := rule(reading):
            return found
    return _repeat(reading), ()


Answer = tuple[str, tuple[ToolCall, ...]]


def _result(
    text: str, calls: tuple[ToolCall, ...], cut: bool, reading: ParsedRequest, reasoning: str
) -> ModelResult:
    tokens, thoughts = len(_TOKENS.findall(text)), len(_TOKENS.findall(reasoning))
    partial_calls = sum(len(call.name.split()) + len(str(call.arguments).split()) for call in calls)
    return ModelResult(
        text=text,
        tool_calls=calls,
        raw=formats.message(reading.format, text, calls),
        usage=Usage(
            input_tokens=reading.words,
            output_tokens=tokens + thoughts + partial_calls,
            reasoning_tokens=thoughts or None,
        ),
        stop_reason="length" if cut else "tool_calls" if calls else "end",
        model="offline",
        reasoning=reasoning,
    )


# --- rule 1: results ---------------------------------------------------------------------------


def _report(reading: ParsedRequest) -> str:
    return " ".join(_describe_result(result.name, result.text) for result in reading.results)


def _describe_result(name: str, text: str) -> str:
    try:
        value = json.loads(text)
    except ValueError:
        value = text
    if isinstance(value, dict) and isinstance(value.get("error"), dict):
        problem = value["error"].get("message") or value["error"].get("code")
        return as_sentence(f"The tool {name} failed: {problem}")
    found = _texts(value)
    if "recall" in name or "search" in name:
        return f"This is what I remember: {'; '.join(found)}." if found else "I remember nothing about that."
    if "remember" in name:
        return "I will remember that."
    return as_sentence(f"The tool {name} answered: {'; '.join(found) or _compact(value)}")


_TEXT_KEYS = ("content", "text", "answer", "output", "result", "message", "summary")


def _texts(value: JsonValue) -> list[str]:
    """Return the texts in a tool's result: its strings, and those under the keys of `_TEXT_KEYS`."""
    match value:
        case str():
            return [value.rstrip(".")] if value else []
        case list():
            return [text for item in value for text in _texts(item)]
        case dict():
            for key in _TEXT_KEYS:
                if found := _texts(value.get(key)):
                    return found
            lists = [item for item in value.values() if isinstance(item, list)]
            return _texts(lists[0]) if len(lists) == 1 else []
    return []


def _compact(value: JsonValue) -> str:
    return json.dumps(value, ensure_ascii=False)


# --- rules 2 to 6 ------------------------------------------------------------------------------

_NAMED = re.compile(
    r"\s*(?:please\s+)?(?P<keep>keep\s+)?(?P<verb>use|using|call|calling|run|running|ask|asking)\s+"
    r"(?:the\s+)?(?:tool\s+|agent\s+)?[`'\"]?(?P<name>[\w.-]+)[`'\"]?\s*"
    r"(?:(?:with|to|about|for|whether|if|:)(?:\s+|(?={)))?(?P<rest>.*)",
    re.IGNORECASE,
)
_REMEMBER = re.compile(
    r"(?<!you )(?<!i )\bremember\b\s*(?::|that\b)?\s*(?P<fact>.+)", re.IGNORECASE | re.DOTALL
)
_QUESTION = re.compile(
    r"\b(?:what do you (?:remember|know)|do you (?:remember|know)|(?:what|who)(?:'s| is| are| was| were) my"
    r"|what (?:did|do|am|was) i|which .* do i|do i\b|where\b|when\b|recall\b|which .* my\b)",
    re.IGNORECASE,
)
_SAY = re.compile(r"\bsay (?P<count>\d{1,6}) (?:words?|tokens?)\b", re.IGNORECASE)
_VERBATIM = re.compile(r"\s*(?:please\s+)?answer with\s*:?\s*(?P<text>\S.*)", re.IGNORECASE | re.DOTALL)
_THINK = re.compile(
    r"\s*(?:please\s+)?think (?:hard )?about\s*:?\s*(?P<rest>\S.*)", re.IGNORECASE | re.DOTALL
)
_ABOUT_IT = re.compile(
    r"\b(?:who are you|what are you|what can you do|are you (?:a |an )?(?:real|offline|ai|model|bot)|help)\b"
    r"|\A\s*(?:hello|hi|hey|good (?:morning|evening))\b(?:\W+(?:there|everyone|all|again|you)\b)?\W*\Z",
    re.IGNORECASE,
)
_WORDS = re.compile(r"\w{3,}")
_COMMON = frozenset(
    "about and any are call called can did does for has have know like mine much my tell that the this user"
    " was were what when where which who why with you your remember recall please".split()
)


def _named_tools(reading: ParsedRequest) -> Answer | None:
    calls: list[ToolCall] = []
    for line in reading.user_text.splitlines():
        match = _NAMED.match(line)
        name = match and reading.tool_named(match["name"].rstrip(".:,"))
        if match and name:
            calls.append(_build_call(reading, name, match["rest"], len(calls)))
    return ("", tuple(calls)) if calls else None


def _remember(reading: ParsedRequest) -> Answer | None:
    tool = reading.tool_like("remember")
    match = _REMEMBER.search(reading.user_text)
    if tool is None or match is None or reading.user_text.rstrip().endswith("?"):
        return None
    return "", (_build_call(reading, tool, match["fact"].strip().rstrip("."), 0),)


_MAX_QUERY = 1_000
"""Maximum number of characters of a question to `recall`."""


def _question(reading: ParsedRequest) -> Answer | None:
    if not _QUESTION.search(reading.user_text):
        return None
    words = _content_words(reading.user_text)
    known = [memory for memory in reading.memories if not words or words & _content_words(memory)]
    if known:
        return "I remember: " + "; ".join(memory.rstrip(".") for memory in known) + ".", ()
    if tool := reading.tool_like("recall"):
        # The text of a file may follow the question; `recall` takes 1,000 characters.
        return "", (_build_call(reading, tool, reading.user_text.strip()[:_MAX_QUERY], 0),)
    return None


def _content_words(text: str) -> set[str]:
    """Return the words of a text without common words and without a plural's s."""
    return {word.removesuffix("s") for word in _WORDS.findall(text.lower()) if word not in _COMMON}


def _count_words(reading: ParsedRequest) -> Answer | None:
    match = _SAY.search(reading.user_text)
    if match is None:
        return None
    count = min(int(match["count"]), _MAX_WORDS)
    return " ".join([f"word{number}" for number in range(1, count + 1)]), ()


def _verbatim(reading: ParsedRequest) -> Answer | None:
    match = _VERBATIM.match(reading.user_text)
    return (match["text"].strip(), ()) if match else None


def _introduce(reading: ParsedRequest) -> Answer | None:
    return (INTRODUCTION, ()) if not reading.user_text or _ABOUT_IT.search(reading.user_text) else None


def _repeat(reading: ParsedRequest) -> str:
    tools = ", ".join(reading.tools)
    offer = f" I can use these tools: {tools}." if tools else ""
    return (
        f"You said: “{reading.user_text.strip()}”. I am the offline model and answer by plain rules.{offer}"
    )


_RULES: tuple[Callable[[ParsedRequest], Answer | None], ...] = (
    _named_tools,
    _verbatim,
    _remember,
    _question,
    _count_words,
    _introduce,
)


def _repeats_on_request(text: str) -> bool:
    return any((match := _NAMED.match(line)) and match["keep"] for line in text.splitlines())


def _build_call(reading: ParsedRequest, tool: str, rest: str, position: int) -> ToolCall:
    """Return a call of ``tool``. ``rest`` is its arguments as JSON, or text for its first text field."""
    rest = rest.strip()
    if rest and not rest.startswith("{"):
        rest = json.dumps({reading.text_field(tool): rest})
    seed = f"{reading.message_count}/{position}/{tool}/{rest}/{reading.user_text}"
    digest = hashlib.blake2b(seed.encode("utf-8", "replace"), digest_size=8).hexdigest()
    return formats.tool_call(f"call_{digest}", tool, rest)
