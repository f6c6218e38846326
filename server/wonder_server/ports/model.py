"""Language models: a request in the provider's own format in, chunks out."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any, Protocol

import msgspec

from wonder_server.core.definitions.specs import ModelProfile
from wonder_server.core.model import ModelResult, Usage


class TextDelta(msgspec.Struct, frozen=True, gc=False):
    """A piece of the answer's text, in order."""

    text: str


class UsageUpdate(msgspec.Struct, frozen=True, gc=False):
    """What the call has used so far: the provider's counts, and how many ``letters`` have come that are no
    text (tool calls, thinking). Any number of these come before the end, for the case that it never does."""

    usage: Usage
    character_count: int


@dataclass(frozen=True, slots=True)
class Finished:
    """The response; always the last chunk, exactly once. ``whole`` is all of it where ``result`` was cut."""

    result: ModelResult
    untruncated: ModelResult | None = None


Chunk = TextDelta | UsageUpdate | Finished


class Model(Protocol):
    """One way of reaching models.

    ``stream`` yields `TextDelta` s whose concatenation is the result's text, with `Counted` between them
    where something else arrives, then one `Finished`.
    It raises `WonderError`: MODEL_UNAVAILABLE or TIMEOUT with ``transient=True`` for what may
    succeed if tried again (429 with ``retry_after_ms``, 5xx, connection lost, stalled), MODEL_FAILED
    for what will not (401, 400). Messages never hold a key. Closing the iterator (``aclose``) or
    cancelling its consumer closes the upstream request at once. It makes exactly one attempt:
    retrying is the caller's, the watchdogs of the profile (first token, between chunks) are its own.
    """

    def stream(self, profile: ModelProfile, request: dict[str, Any]) -> AsyncIterator[Chunk]: ...

    async def close(self) -> None: ...
