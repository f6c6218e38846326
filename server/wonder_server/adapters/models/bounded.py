"""`BoundedModel`: limits on the size of models' answers.

- Text above the limit is truncated with a notice, in the stream and in the answer.
- Tool arguments above the limit are omitted, and the call is malformed: truncated arguments would be another
  call.
- A call whose name is too long is malformed, and keeps the start of the name.
- An id that is too long is replaced by its hash.

The message in the provider's format is then written from the bounded parts. `Finished.untruncated` is the
answer as received. Above `Bounds.answer` the model reads no more, and the part received is the answer.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from typing import Final

from wonder_server.adapters.models.formats import message
from wonder_server.core.definitions.specs import ModelProfile
from wonder_server.core.errors import Reason
from wonder_server.core.json_types import JsonDict
from wonder_server.core.model import Meter, ModelResult, ToolCall, Usage
from wonder_server.core.schema import payloads
from wonder_server.core.schema.truncation import NOTICE_BYTES, notice, truncate_text, utf8_prefix, utf8_size
from wonder_server.ports.model import Chunk, FilledRequest, Finished, Model, TextDelta, UsageUpdate

HINT: Final = "ReadMessage (`wonder message`) has the whole."
NAME_BYTES: Final = 128
"""Maximum size of the name in a tool call, in bytes. Names of tools have at most 64."""
ID_BYTES: Final = 16 << 10
"""Maximum size of a tool call's id, in bytes. LiteLLM adds some kilobytes of Gemini's signatures to it."""
_TRUNCATED_SUFFIX: Final = "_cut_off"
_INVALID_NAME_CHARACTERS: Final = re.compile(r"[^a-zA-Z0-9_-]")


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """Maximum sizes in bytes.

    - ``text``: an answer's text.
    - ``arguments``: the arguments of one tool call.
    - ``raw``: the answer in the provider's format.
    - ``answer``: the part of an answer that is read.
    """

    text: int = 1 << 20
    arguments: int = 256 << 10
    raw: int = 1 << 20
    answer: int = 16 << 20


class BoundedModel:
    """A model with answers within `Bounds`. Implements the port ``Model``."""

    def __init__(self, model: Model, bounds: Bounds) -> None:
        self._model = model
        self._bounds = bounds

    async def stream(self, profile: ModelProfile, request: JsonDict) -> AsyncIterator[Chunk]:
        bounds, meter = self._bounds, Meter()
        text_limit = bounds.text - NOTICE_BYTES - len(HINT)
        pieces: list[str] = []
        size = character_count = sent = 0
        chunks = self._model.stream(profile, request)
        try:
            async for chunk in chunks:
                if isinstance(chunk, Finished):
                    last = self._last(profile, chunk)
                    break
                if isinstance(chunk, UsageUpdate):
                    meter.set_usage(chunk.usage, chunk.character_count)
                    character_count = chunk.character_count
                    yield chunk
                elif not isinstance(chunk, TextDelta):
                    yield chunk
                else:
                    meter.add_text(chunk.text)
                    pieces.append(chunk.text)
                    before, size = size, size + utf8_size(chunk.text)
                    shown = (
                        chunk.text
                        if size <= text_limit
                        else utf8_prefix(chunk.text, max(0, text_limit - before))
                    )
                    if shown and before < text_limit:
                        sent += len(shown)
                        yield chunk if shown is chunk.text else TextDelta(shown)
                if size + character_count > bounds.answer:
                    last = self._last(profile, Finished(_truncated_result(profile, request, meter, pieces)))
                    break
            else:
                return
        finally:
            close = getattr(chunks, "aclose", None)
            if close is not None:
                await close()
        rest = last.result.text[sent:]
        if rest:
            yield TextDelta(rest)
        yield last

    async def close(self) -> None:
        await self._model.close()

    def _last(self, profile: ModelProfile, last: Finished) -> Finished:
        kept = bounded(last.result, profile.format, self._bounds)
        return last if kept is last.result else Finished(kept, last.result, last.images)


def bounded(result: ModelResult, format_name: str, bounds: Bounds) -> ModelResult:
    """Return ``result`` reduced to ``bounds``; the same object if it is within them."""
    text = truncate_text(result.text, bounds.text, HINT)
    calls = _calls(result.tool_calls, bounds)
    reasoning = truncate_text(result.reasoning, bounds.raw)
    is_whole = text is result.text and calls == result.tool_calls
    if is_whole and reasoning is result.reasoning and not _is_too_large(result.raw, bounds.raw):
        return result
    repeated = [replace(call, arguments=call.arguments or {}, malformed="") for call in calls]
    raw = message(format_name, text, repeated)
    return replace(result, text=text, tool_calls=calls, reasoning=reasoning, raw=raw)


def _calls(calls: tuple[ToolCall, ...], bounds: Bounds) -> tuple[ToolCall, ...]:
    kept, used = [], 0
    for call in calls:
        size = utf8_size(call.malformed)
        if call.arguments is not None:
            size = utf8_size(json.dumps(call.arguments, ensure_ascii=False))
        name, id_size = utf8_size(call.name), utf8_size(call.id)
        if id_size > ID_BYTES or used + id_size > bounds.raw:
            digest = hashlib.sha256(call.id.encode("utf-8", "replace")).hexdigest()
            call = replace(call, id=f"call_{digest[:32]}")
        used += min(name, NAME_BYTES) + utf8_size(call.id)
        if name > NAME_BYTES:
            # The next request contains the name, and providers check its characters.
            prefix = _INVALID_NAME_CHARACTERS.sub("_", call.name[: 64 - len(_TRUNCATED_SUFFIX)])
            call = replace(call, name=prefix + _TRUNCATED_SUFFIX)
        if name > NAME_BYTES or size > bounds.arguments or used + size > bounds.raw:
            missing = size + name if name > NAME_BYTES else size
            call = replace(call, arguments=None, malformed=notice(missing, missing, HINT).strip())
        else:
            used += size
        kept.append(call)
    return tuple(kept)


def _is_too_large(raw: JsonDict, limit: int) -> bool:
    fault = payloads.check(raw, max_bytes=limit)
    return fault is not None and fault.reason is Reason.PAYLOAD_TOO_LARGE


def _truncated_result(
    profile: ModelProfile, request: JsonDict, meter: Meter, pieces: list[str]
) -> ModelResult:
    text = "".join(pieces)
    named = request.named if isinstance(request, FilledRequest) else request
    return ModelResult(
        text=text,
        raw=message(profile.format, text, ()),
        usage=meter.estimate_usage(named) or Usage(),
        stop_reason="length",
        model=profile.model,
    )
