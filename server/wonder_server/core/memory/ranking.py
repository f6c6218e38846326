"""Ranking of the memories that a search found (feature E3).

A memory's *significance* is its importance on its own; its *relevance* depends on the query, and its
*recency* on the time it was said or changed. The score of a hit is the weighted mean of the three.

`term_weights` holds the weights of words. The constants were chosen on every second agent of two sets of real
conversations, ``make bench-memory`` measures them on both, and docs/adr/0038 has the steps.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from wonder_server.core.memory.records import Memory

RECENCY_HALF_LIFE_MS: Final = 30 * 24 * 3600 * 1000
"""Time in which the recency of a memory falls to one half: 30 days."""

FULL_WORDS: Final = 20
"""Number of words from which a memory's vector has its full weight. For fewer words full text is more
reliable."""

EVEN_MATCH: Final = 0.4
"""Match at which relevance is 0.5. The best memory of an agent that was asked a question about something else
exceeds it as often as the best memory of an agent that has the answer stays below it."""
STEEPNESS: Final = 4.0
"""Steepness of relevance around `EVEN_MATCH`. Logistic regression gave 4.4 on the validation halves of the
two sets and 5.7 on the test halves."""
_EVEN_POWER: Final = math.pow(EVEN_MATCH, STEEPNESS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Weights:
    """Weights of the parts of a hit's score. Only their proportions matter.

    ``vector``: the part of the match, 0 to 1, that the vectors decide; full text decides the rest. None uses
    the embedder's ``share``.
    """

    relevance: float = 0.7
    significance: float = 0.2
    recency: float = 0.1
    vector: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A memory that full text or vectors found, before ranking.

    ``text`` is the share of the query's words that it matches, weighted by rarity (0: no word; 1: as a text
    that has each word once). ``vector`` is its cosine (0: not among the nearest). ``words`` is its length, 0
    if unknown. ``recent_ms`` is the time that its recency counts from. ``memory`` is the record, if the
    caller requested it.
    """

    id: str
    significance: float
    recent_ms: int
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


def rank(
    candidates: Sequence[Candidate], weights: Weights, now_ms: int, limit: int, share: float
) -> list[Ranked]:
    """Return the best ``limit`` candidates, best first; equal scores in order of id.

    A candidate's match is the mean of its text and its cosine. ``share`` is the weight of the cosine if
    ``weights.vector`` is None. A short memory has a lower weight of the cosine and a higher one of full text.
    If one of the two found nothing, only the other counts.
    """
    share = share if weights.vector is None else weights.vector
    if 0 < share < 1:
        if not any(candidate.text > 0 for candidate in candidates):
            share = 1.0
        elif not any(candidate.vector > 0 for candidate in candidates):
            share = 0.0
    total = weights.relevance + weights.significance + weights.recency
    found: list[tuple[float, str, float, float, float]] = []
    for candidate in candidates:
        part = share
        if candidate.words < FULL_WORDS and candidate.words and share < 1:
            part *= math.sqrt(candidate.words / FULL_WORDS)
        match = (1 - part) * candidate.text + part * max(candidate.vector, 0.0)
        if match <= 0:
            continue
        relevant = relevance(match)
        recency = 0.5 ** (max(now_ms - candidate.recent_ms, 0) / RECENCY_HALF_LIFE_MS)
        score = (
            weights.relevance * relevant
            + weights.significance * candidate.significance
            + weights.recency * recency
        ) / total
        found.append((-score, candidate.id, relevant, candidate.significance, recency))
    return [
        Ranked(id=id, score=-score, relevance=relevant, significance=significance, recency=recency)
        for score, id, relevant, significance, recency in heapq.nsmallest(limit, found)
    ]


def relevance(match: float) -> float:
    """Return the relevance of a match, 0 to 1: the probability that a best hit with this match belongs to a
    question that the memories answer, if half of all questions are such."""
    power = math.pow(max(match, 0.0), STEEPNESS)
    return power / (power + _EVEN_POWER)
