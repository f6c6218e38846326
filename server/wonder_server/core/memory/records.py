"""What an agent remembers (document 1, section Memory; features E1, E3, E4, E6).

A memory belongs to exactly one agent. Its *significance* says how important it is in itself; how
*relevant* it is depends on what is asked. Search combines both with *recency*, see `Weights`.
"""

from __future__ import annotations

import hashlib
import heapq
import math
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

RECENCY_HALF_LIFE_MS: Final = 30 * 24 * 3600 * 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """Where a memory came from (feature E6). Empty: not from there."""

    conversation_id: str = ""
    turn_id: str = ""
    move_id: str = ""
    run_id: str = ""
    speaker: str = ""
    """Who said it, by name."""
    ordinal: int = 0
    """Its place among what was said in the conversation, from 1; 0: not known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """One stored memory. ``type`` is the library's own word; ``significance`` lies in 0..1;
    ``version`` starts at 1 and grows with each change, also of its links.

    A content that is too long for a row lies in the object ``content_ref``; a store of rows leaves it
    out then, and the memory service puts it in. ``size_bytes`` is its length in UTF-8.
    """

    id: str
    agent_id: str
    type: str
    content: str
    significance: float
    metadata: dict[str, Any]
    source: Source
    created_ms: int
    updated_ms: int
    version: int
    content_ref: str = ""
    size_bytes: int = 0
    supersedes_id: str = ""
    superseded_by_id: str = ""
    contradicts_ids: tuple[str, ...] = ()
    archived_ms: int = 0
    """When it was archived; 0: it was not."""

    @property
    def etag(self) -> str:
        """What a caller hands back to change exactly what it saw."""
        return str(self.version)


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """A memory to be written.

    ``idempotency_key``: the same key of the same agent never writes twice; the first record is
    answered. ``unless_known``: a memory of the same type whose content is the same but for case and
    white space is answered in place of a second one; what extraction wants.
    """

    type: str
    content: str
    significance: float = 0.5
    metadata: dict[str, Any] = field(default_factory=dict)
    source: Source = Source()
    contradicts_ids: tuple[str, ...] = ()
    archives_ids: tuple[str, ...] = ()
    """Memories that it stands for from now on: they are archived in the same commit."""
    idempotency_key: str = ""
    unless_known: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """New values for a stored memory; None leaves a field as it is."""

    type: str | None = None
    content: str | None = None
    significance: float | None = None
    metadata: dict[str, Any] | None = None
    contradicts_ids: tuple[str, ...] | None = None
    archived_ms: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Filter:
    """Which memories a list or a search is about; what is empty or None does not narrow it.

    ``metadata``: those whose metadata has all of its fields with these values, nested objects likewise.
    ``start_ms``: written then or later; ``end_ms``: written before. Superseded and archived ones are left
    out unless ``set_aside``. ``other_types``: none of these.
    """

    types: tuple[str, ...] = ()
    other_types: tuple[str, ...] = ()
    metadata: dict[str, Any] = field(default_factory=dict)
    conversation_id: str = ""
    turn_id: str = ""
    start_ms: int | None = None
    end_ms: int | None = None
    set_aside: bool = False

    @property
    def narrows(self) -> bool:
        """Whether it asks for more than that a memory is not set aside."""
        return self != Filter(set_aside=self.set_aside)


EVERYTHING: Final = Filter(set_aside=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Weights:
    """How much each part counts in a hit's score. Only their proportions matter.

    ``vector``: which part of relevance, 0 to 1, the vectors decide, the rest being full text; None: as much
    as the embedder is worth.
    """

    relevance: float = 0.7
    significance: float = 0.2
    recency: float = 0.1
    vector: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A memory that full text or vectors found, before it is ranked.

    ``text`` is its BM25 score (more is better, 0: no word matched), ``vector`` its cosine (0: not
    among the nearest). ``words`` is its length, 0 if not known; ``memory`` the record itself, where it was
    asked for.
    """

    id: str
    significance: float
    updated_ms: int
    text: float = 0.0
    vector: float = 0.0
    words: int = 0
    memory: Memory | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Ranked:
    """A candidate's id with its score and the parts that made it, each in 0..1."""

    id: str
    score: float
    relevance: float
    significance: float
    recency: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Hit:
    """A memory found, and why: the parts are 0..1, ``score`` is their weighted mean."""

    memory: Memory
    score: float
    relevance: float
    significance: float
    recency: float


FULL_WORDS: Final = 20
"""From how many words on a memory's vector counts in full: that of a few words says little that full text
does not say better."""


def rank(
    candidates: Sequence[Candidate], weights: Weights, now_ms: int, limit: int, share: float = 0.15
) -> list[Ranked]:
    """The best ``limit`` candidates, best first; equal scores in order of id.

    Score fusion: BM25 and cosine are each divided by the best of the candidates, since neither has a
    scale of its own, and mixed. ``share`` is what the cosine counts for, by the embedder's strength, where
    ``weights.vector`` does not say; for a short memory it counts for less, and full text for more. Where one
    of the two found nothing, the other stands alone.
    """
    share = share if weights.vector is None else weights.vector
    best_text = max((c.text for c in candidates), default=0.0)
    best_vector = max((c.vector for c in candidates), default=0.0)
    if 0 < share < 1 and (best_text <= 0 or best_vector <= 0):
        share = float(best_text <= 0)
    total = weights.relevance + weights.significance + weights.recency
    per_text = 1 / best_text if best_text > 0 else 0.0
    per_vector = 1 / best_vector if best_vector > 0 else 0.0
    found: list[tuple[float, str, float, float, float]] = []
    for candidate in candidates:
        part = share
        if candidate.words < FULL_WORDS and candidate.words and share < 1:
            part *= math.sqrt(candidate.words / FULL_WORDS)
        relevance = (1 - part) * candidate.text * per_text + part * max(candidate.vector, 0.0) * per_vector
        if relevance <= 0:
            continue
        recency = 0.5 ** (max(now_ms - candidate.updated_ms, 0) / RECENCY_HALF_LIFE_MS)
        score = (
            weights.relevance * relevance
            + weights.significance * candidate.significance
            + weights.recency * recency
        ) / total
        found.append((-score, candidate.id, relevance, candidate.significance, recency))
    return [
        Ranked(id=id, score=-score, relevance=relevance, significance=significance, recency=recency)
        for score, id, relevance, significance, recency in heapq.nsmallest(limit, found)
    ]


def fingerprint(kind: str, content: str) -> bytes:
    """Equal for memories that say the same but for case, white space and Unicode spelling."""
    words = " ".join(unicodedata.normalize("NFKC", content).casefold().split())
    return hashlib.blake2b(f"{kind}\n{words}".encode(), digest_size=16).digest()
