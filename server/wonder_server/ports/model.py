"""Language models: they take a request in the provider's own format and return chunks."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Protocol

import msgspec

from wonder_server.core.definitions.specs import ModelProfile
from wonder_server.core.json_types import JsonDict
from wonder_server.core.model import ModelResult, Usage


class TextDelta(msgspec.Struct, frozen=True, gc=False):
    """A part of the answer's text, in order."""

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
    ``result`` was cut."""

    result: ModelResult
    untruncated: ModelResult | None = None


Chunk = TextDelta | UsageUpdate | Finished


class Model(Protocol):
    """A way to call models.

    ``stream`` yields `TextDelta` chunks whose concatenation is the result's text, `UsageUpdate` chunks for
    anything else, then one `Finished`. It makes exactly one attempt: the caller retries. The timeouts of the
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
