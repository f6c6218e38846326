"""Memories of agents (document 1, section Memory; features E1, E3, E4, E6).

A memory belongs to exactly one agent. Its *significance* is its importance on its own; its *relevance*
depends on the query. Search combines both with *recency*; see `Weights`.
"""

from __future__ import annotations

import hashlib
import heapq
import math
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from wonder_server.core.json_types import JsonDict

RECENCY_HALF_LIFE_MS: Final = 30 * 24 * 3600 * 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """Origin of a memory (feature E6). An empty field does not apply."""

    conversation_id: str = ""
    turn_id: str = ""
    move_id: str = ""
    run_id: str = ""
    speaker: str = ""
    """Name of the participant who wrote the message."""
    ordinal: int = 0
    """Number of the message in the conversation, from 1; 0 is unknown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """One stored memory. ``type`` is a name that the library chooses. ``significance`` is between 0 and 1.
    ``version`` starts at 1 and increases with each change, including changes of links.

    A content that is too long for a row is stored in the object ``content_ref``. The store then leaves it
    out, and the memory service adds it. ``size_bytes`` is its length in UTF-8.
    """

    id: str
    agent_id: str
    type: str
    content: str
    significance: float
    metadata: JsonDict
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
    """Time of archiving; 0 if it is not archived."""

    @property
    def etag(self) -> str:
        """Value that a caller returns to change exactly the version it has read."""
        return str(self.version)


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """A memory to be written.

    ``idempotency_key``: the same key of the same agent writes once; later writes return the first record.
    ``unless_known``: if a memory of the same type has the same content except for case and white space,
    return that memory and write nothing. Extraction sets it.
    """

    type: str
    content: str
    significance: float = 0.5
    metadata: JsonDict = field(default_factory=dict)
    source: Source = Source()
    contradicts_ids: tuple[str, ...] = ()
    archives_ids: tuple[str, ...] = ()
    """Memories that this one replaces: they are archived in the same commit."""
    idempotency_key: str = ""
    unless_known: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """New values for a stored memory; None leaves a field unchanged."""

    type: str | None = None
    content: str | None = None
    significance: float | None = None
    metadata: JsonDict | None = None
    contradicts_ids: tuple[str, ...] | None = None
    archived_ms: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Filter:
    """Filter of a list or a search. An empty field or None does not filter.

    ``metadata``: memories whose metadata contains all of these fields with these values; nested objects
    likewise. ``start_ms``: written at or after; ``end_ms``: written before. Superseded and archived memories
    are omitted unless ``set_aside``. ``other_types``: types to omit.
    """

    types: tuple[str, ...] = ()
    other_types: tuple[str, ...] = ()
    metadata: JsonDict = field(default_factory=dict)
    conversation_id: str = ""
    turn_id: str = ""
    start_ms: int | None = None
    end_ms: int | None = None
    set_aside: bool = False

    @property
    def narrows(self) -> bool:
        """True if the filter excludes more than superseded and archived memories."""
        return self != Filter(set_aside=self.set_aside)


EVERYTHING: Final = Filter(set_aside=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Weights:
    """Weights of the parts of a hit's score. Only their proportions matter.

    ``vector``: the part of relevance, 0 to 1, that the vectors decide; full text decides the rest. None uses
    the embedder's ``share``.
    """

    relevance: float = 0.7
    significance: float = 0.2
    recency: float = 0.1
    vector: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A memory that full text or vectors found, before ranking.

    ``text`` is its BM25 score (higher is better, 0: no word matched), ``vector`` its cosine (0: not among the
    nearest). ``words`` is its length, 0 if unknown. ``memory`` is the record, if the caller requested it.
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
    """A candidate's id with its score and the parts of the score, each between 0 and 1."""

    id: str
    score: float
    relevance: float
    significance: float
    recency: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Hit:
    """A memory found by a search. The parts are between 0 and 1; ``score`` is their weighted mean."""

    memory: Memory
    score: float
    relevance: float
    significance: float
    recency: float


FULL_WORDS: Final = 20
"""Number of words from which a memory's vector has its full weight. For fewer words full text is more
reliable."""


def rank(
    candidates: Sequence[Candidate], weights: Weights, now_ms: int, limit: int, share: float = 0.15
) -> list[Ranked]:
    """Return the best ``limit`` candidates, best first; equal scores in order of id.

    BM25 and cosine have no common scale, so each is divided by the best of the candidates before they are
    mixed. ``share`` is the weight of the cosine if ``weights.vector`` is None. A short memory has a lower
    weight of the cosine and a higher one of full text. If one of the two found nothing, only the other
    counts.
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
    """Return a hash that is equal for contents that differ only in case, white space and Unicode spelling."""
    words = " ".join(unicodedata.normalize("NFKC", content).casefold().split())
    return hashlib.blake2b(f"{kind}\n{words}".encode(), digest_size=16).digest()
