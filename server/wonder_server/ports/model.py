"""Language models: they take a request in the provider's own format and return chunks."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Protocol

import msgspec

from wonder_server.core.content.answer_images import AnswerImage
from wonder_server.core.definitions.specs import ModelProfile
from wonder_server.core.json_types import JsonDict
from wonder_server.core.model import ModelResult, Usage


class TextDelta(msgspec.Struct, frozen=True, gc=False):
    """A part of the answer's text, in order."""

    text: str


class ReasoningDelta(msgspec.Struct, frozen=True, gc=False):
    """A part of the model's reasoning, in order. The text of the answer does not include it."""

    text: str


class ArgumentsDelta(msgspec.Struct, frozen=True, gc=False):
    """A part of the arguments of a tool call while the model writes it: text of a JSON object.

    ``index`` is the position of the call among the calls of the answer. ``call_id`` and ``name`` are those of
    the call, as far as the provider has sent them. The first delta of a call may have no text.
    """

    index: int
    call_id: str
    name: str
    text: str


class UsageUpdate(msgspec.Struct, frozen=True, gc=False):
    """The usage of the call so far: the provider's counts, and the number of characters received outside of
    the text (tool calls, thinking). Several updates may precede the end; they count if the end never
    arrives."""

    usage: Usage
    character_count: int


@dataclass(frozen=True, slots=True)
class Finished:
    """The response, always the last chunk and exactly once. ``untruncated`` is the complete result if
    ``result`` was cut.

    ``images`` are the images of the answer. Its message in the provider's format has places for them
    (`core.content.answer_images`)."""

    result: ModelResult
    untruncated: ModelResult | None = None
    images: tuple[AnswerImage, ...] = ()


Chunk = TextDelta | ReasoningDelta | ArgumentsDelta | UsageUpdate | Finished


class FilledRequest(JsonDict):
    """A request with the contents of files, which may have many megabytes.

    ``named`` is the request that names the files in their places; estimates count its tokens.
    """

    def __init__(self, request: JsonDict, named: JsonDict) -> None:
        super().__init__(request)
        self.named = named


class Model(Protocol):
    """A way to call models.

    ``stream`` yields `TextDelta` chunks whose concatenation is the result's text, `ReasoningDelta` and
    `ArgumentsDelta` chunks for reasoning and tool calls as they arrive, `UsageUpdate` chunks for what all of
    this costs, then one `Finished`. It makes exactly one attempt: the caller retries. The timeouts of the
    profile (first token, between chunks) are the adapter's. Closing the iterator (``aclose``) or cancelling
    its consumer closes the upstream request immediately.

    It raises `WonderError`, and messages never contain a key:

    - MODEL_UNAVAILABLE or TIMEOUT with ``transient=True`` if a retry may succeed (429 with
      ``retry_after_ms``, 5xx, lost
      connection, stalled stream)
    - MODEL_FAILED if a retry cannot succeed (401, 400)
    """

    def stream(self, profile: ModelProfile, request: JsonDict) -> AsyncIterator[Chunk]: ...

    async def close(self) -> None: ...
