"""BM25 ranking of an agent's memories by the words of a query, over the contents of the FTS5 index.

FTS5's own ``bm25`` reads and counts every row with a word again for each query: 1 ms for an agent with 1,000
memories, 130 ms at 100,000. Here the *postings* of a word (its memories, and how often each has it) are read
from FTS5 once and kept as arrays while the agent is in use. Scoring takes a few microseconds a word. FTS5
stays the index on disk and is authoritative, with its tokens and stems.

The score counts:

- the memory's own words, and those of its neighbours (column ``around``) with `NEIGHBOUR_WEIGHT`. Both share
  one saturation and one length (BM25F), so a long neighbour does not outweigh a short message.
- the words of the speaker's name, as if they were part of the text. If the query names the speaker, or asks
  for the words of the speaker's side, the whole text scores higher by `SPEAKER_WEIGHT`.
- words that are common in any text (`STOP_WORDS`) with `STOP_WORD_WEIGHT`.
- a period that the query names, like a word that the memories said in it contain.

The score of a long text is divided by `long_text_divisor`. All scores are divided by the weight of the query,
which is about the score of a text that has each of its words once. So they compare between queries.

`Bm25Ranker.mark_changed` records memories that were written, changed or deleted after their agent was read.
The next search reads them again by key and keeps them beside the arrays. After too many changes it reads the
whole agent again. Everything here runs in the writer thread, where no transaction is open during a search.
"""

from __future__ import annotations

import importlib
import sqlite3
from collections import OrderedDict
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Final, overload

from wonder_server.adapters.sqlite.memory import text_index, tokenizer
from wonder_server.adapters.sqlite.memory.stemming import Stemmer
from wonder_server.core.memory.dates import Period
from wonder_server.core.memory.queries import MemoryQuery
from wonder_server.core.memory.records import ROLES, Role
from wonder_server.core.memory.stop_words import STOP_WORDS
from wonder_server.core.memory.term_weights import (
    K1,
    LONG_EXPONENT,
    LONG_WORDS,
    NEIGHBOUR_WEIGHT,
    QUERY_PAD,
    SPEAKER_WEIGHT,
    STOP_WORD_WEIGHT,
    B,
    name_holders,
    rarity,
)

if TYPE_CHECKING:  # numpy is imported at the first use, since the import takes long.
    import numpy
    from numpy.typing import NDArray

    Floats = NDArray[numpy.floating]
    Integers = NDArray[numpy.integer]

DEFAULT_MAX_BYTES: Final = 128 << 20
_SMALL_AGENT: Final = 256
"""An agent with fewer memories is quickly read again, and its averages change with each memory."""
_MAX_RECENT: Final = 32
"""Maximum number of changes of a larger agent before it is read again, besides 2 % of its memories."""
_BYTES_PER_TERM: Final = 400
_BLOCK: Final = 64
_DENSE_SHARE: Final = 0.1
"""Minimum share of memories with a term from which its posting has a place for every memory. Adding whole
arrays is thirty times faster per place."""
# The cast turns a damaged value into a number, so that it affects one memory and not the whole agent.
_SAID: Final = "CAST(coalesce(said_ms, created_ms, 0) AS INTEGER)"
_ROWS: Final = f"""
    SELECT memories.key, speaker, speaker_role, {_SAID}, sz
    FROM memories JOIN memories_text_docsize AS docsize ON docsize.id = memories.key
    WHERE agent_id = ? ORDER BY memories.key
"""
_ROW: Final = f"""
    SELECT speaker, speaker_role, {_SAID} FROM memories WHERE key = ? AND agent_id = ?
"""
_VOCABULARY: Final = """
    CREATE VIRTUAL TABLE IF NOT EXISTS temp.memories_terms USING fts5vocab (main, memories_text, 'instance')
"""
# One text instead of 100,000 rows takes a third of the time.
_INSTANCES: Final = "SELECT group_concat(2 * doc + (col = 'around')) FROM temp.memories_terms WHERE term = ?"


class QueryScores:
    """The scores of all memories for one query. Valid until the next search of the agent."""

    def __init__(self, agent: _Agent, scores: Floats) -> None:
        self._numpy = importlib.import_module("numpy")
        self._agent, self._scores = agent, scores

    @property
    def count(self) -> int:
        """Return the number of memories with a score above 0."""
        return int(self._numpy.count_nonzero(self._scores))

    def top(self, limit: int, among: Collection[int] | None = None) -> list[int]:
        """Return the keys of the best memories, best first; only keys of ``among`` if given."""
        numpy, scores, keys = self._numpy, self._scores, self._agent.keys
        if among is not None:
            wanted = numpy.fromiter(among, dtype="int64", count=len(among))
            scores = numpy.where(numpy.isin(keys, wanted), scores, 0.0)
        places = self._candidate_places(scores, limit)
        places = places[scores[places] > 0]
        if limit < len(places):
            places = places[numpy.argpartition(scores[places], len(places) - limit)[-limit:]]
        found: list[int] = keys[places[numpy.lexsort((keys[places], -scores[places]))]].tolist()
        return found

    def _candidate_places(self, scores: Floats, limit: int) -> Integers:
        """Return places that include the best ``limit`` scores: those of the blocks with the highest
        maxima."""
        numpy, blocks = self._numpy, len(scores) // _BLOCK
        if blocks <= 2 * limit:
            every: Integers = numpy.arange(len(scores))
            return every
        whole = blocks * _BLOCK
        best = scores[:whole].reshape(blocks, _BLOCK).max(axis=1)
        chosen = numpy.argpartition(best, blocks - limit)[-limit:]
        in_blocks = (chosen[:, None] * _BLOCK + numpy.arange(_BLOCK)).ravel()
        places: Integers = numpy.concatenate([in_blocks, numpy.arange(whole, len(scores))])
        return places

    def scores_of(self, keys: Sequence[int]) -> list[tuple[float, int]]:
        """Return the score of each of these memories, 0 if it has none, and its length in words."""
        if not len(self._agent.keys):
            return [(0.0, 0)] * len(keys)
        places = self._agent.places(keys)
        scores, lengths = self._scores[places].tolist(), self._agent.lengths[places].tolist()
        return [
            (score, int(length)) if place >= 0 else (0.0, 0)
            for place, score, length in zip(places.tolist(), scores, lengths, strict=True)
        ]


class Bm25Ranker:
    """BM25 scores of memories. Caches the postings of recently used agents, up to ``max_bytes`` in total."""

    def __init__(self, max_bytes: int = DEFAULT_MAX_BYTES) -> None:
        self._max_bytes = max_bytes
        self._agents: OrderedDict[str, _Agent] = OrderedDict()
        self._stemmer = Stemmer()

    @property
    def agents(self) -> tuple[str, ...]:
        """Return the cached agents, least recently used first."""
        return tuple(self._agents)

    @property
    def size(self) -> int:
        """Return the approximate size of the cache in bytes."""
        return sum(agent.size for agent in self._agents.values())

    def mark_changed(self, agent_id: str, key: int) -> None:
        """Record that a memory has changed in the index, or will change if the open transaction succeeds."""
        agent = self._agents.get(agent_id)
        if agent is not None:
            agent.changed.add(key)

    def score(self, connection: sqlite3.Connection, agent_id: str, query: MemoryQuery) -> QueryScores:
        """Score every memory of the agent for a query."""
        agent = self._agents.get(agent_id)
        if agent is None or not agent.refresh(connection):
            self._agents.pop(agent_id, None)
            agent = self._agents[agent_id] = _Agent(connection, agent_id, self._stemmer)
        self._agents.move_to_end(agent_id)
        scored = agent.score(connection, query)
        self._evict(agent_id)
        return scored

    def _evict(self, latest: str) -> None:
        total = self.size
        for agent_id in [name for name in self._agents if name != latest]:
            if total <= self._max_bytes:
                return
            total -= self._agents.pop(agent_id).size
        if total > self._max_bytes:
            self._agents[latest].clear_terms()


class _Posting:
    """One term: what it adds to the score of each memory with it, before the factor for its rarity.

    ``holders`` is the number of memories with the term in their own words, for a word of a name that of
    `name_holders`. ``places`` are the positions of the memories that ``parts`` belong to; None if ``parts``
    has a value for every memory.
    """

    __slots__ = ("holders", "parts", "places")

    def __init__(self, places: Integers | None, parts: Floats, holders: float) -> None:
        self.places, self.parts, self.holders = places, parts, holders

    @property
    def size(self) -> int:
        """Return the approximate size in bytes."""
        return _BYTES_PER_TERM + int(self.parts.nbytes) + (0 if self.places is None else self.places.nbytes)


class _Agent:
    """The memories of one agent as arrays. A memory keeps its place in the arrays until they are read
    again."""

    def __init__(self, connection: sqlite3.Connection, agent_id: str, stemmer: Stemmer) -> None:
        self._numpy = importlib.import_module("numpy")
        self._agent_id = agent_id
        self._prefix = tokenizer.agent_prefix(agent_id)
        self._stemmer = stemmer
        self.changed: set[int] = set()
        """Keys of memories that changed after the last refresh."""
        self._speakers: dict[str, int] = {}
        self._speaker_stems: list[frozenset[str]] = []
        self._speakers_by_stem: dict[str, list[int]] = {}
        """Speakers by the stems of their names."""
        self._terms: dict[str, _Posting] = {}
        self._term_bytes = 0
        self._recent: dict[str, list[tuple[int, float, bool]]] = {}
        """Postings of memories that came after the arrays were read: place, count, and True for own words."""
        self._recent_places: dict[int, int] = {}
        rows = connection.execute(_ROWS, (agent_id,)).fetchall()
        self._array_count = len(rows)
        numpy = self._numpy
        self.keys = numpy.array([row[0] for row in rows], dtype="int64")
        self._speaker = numpy.array([self._code(row[1]) for row in rows], dtype="int32")
        self._role = numpy.array([_role_code(row[2]) for row in rows], dtype="int8")
        self._said = numpy.array([row[3] for row in rows], dtype="int64")
        sizes = [_sizes(row[4]) for row in rows]
        self.lengths = numpy.array([own for own, _ in sizes], dtype="float32")
        self._full_lengths = numpy.array([own + around for own, around in sizes], dtype="float32")
        self._divisors = self._long_text_divisors(self.lengths)
        self._live = numpy.ones(len(rows), dtype="float32")
        self._average = max(float(self._full_lengths.mean()), 1.0) if rows else 1.0

    @property
    def size(self) -> int:
        """Return the approximate size in bytes."""
        return 48 * len(self.keys) + self._term_bytes + 200 * sum(map(len, self._recent.values()))

    def clear_terms(self) -> None:
        """Drop all postings. They are read again when needed."""
        self._terms.clear()
        self._term_bytes = 0

    def refresh(self, connection: sqlite3.Connection) -> bool:
        """Apply recorded changes. Return False if they are so many that reading the agent again is less
        work."""
        if not self.changed:
            return True
        allowed = self._array_count // 50 + (_MAX_RECENT if self._array_count >= _SMALL_AGENT else 0)
        if len(self._recent_places) + len(self.changed) > allowed:
            return False
        for key in sorted(self.changed):
            self._remove(key)
            row = connection.execute(_ROW, (key, self._agent_id)).fetchone()
            if row is not None:
                self._append(connection, key, row)
        self.changed.clear()
        return True

    def score(self, connection: sqlite3.Connection, query: MemoryQuery) -> QueryScores:
        """Score all memories of the agent for a query."""
        numpy = self._numpy
        scores = numpy.zeros(len(self.keys), dtype="float32")
        live_count = float(self._live.sum())
        dated = {word for period in query.periods for word in period.words}
        terms: set[str] = set()
        whole = QUERY_PAD
        for word in tokenizer.query_terms(query.text):
            share = STOP_WORD_WEIGHT if word in STOP_WORDS else 1.0
            for term in self._stemmer.of(word):
                if term not in terms:
                    terms.add(term)
                    weight = self._add(scores, connection, term, share, live_count)
                    whole += 0.0 if word in dated else weight
        for period in query.periods:
            whole += self._add_period(scores, period, live_count)
        factors = self._speaker_factors(terms, query.role)
        if factors is not None:
            scores *= factors
        scores *= self._live / (self._divisors * numpy.float32(whole))
        return QueryScores(self, scores)

    def _add(
        self, scores: Floats, connection: sqlite3.Connection, term: str, share: float, live_count: float
    ) -> float:
        """Add the contribution of one term to the scores. Return the weight of the term."""
        posting = self._posting(connection, term)
        recent = self._recent.get(term, ())
        weight = share * rarity(live_count, posting.holders + sum(own for _, _, own in recent))
        factor = weight * (K1 + 1)
        if posting.places is None:
            scores[: self._array_count] += factor * posting.parts
        else:
            scores[posting.places] += factor * posting.parts
        for place, count, _ in recent:
            scores[place] += factor * count / (count + self._length_norm(float(self._full_lengths[place])))
        return weight

    def _add_period(self, scores: Floats, period: Period, live_count: float) -> float:
        """Add the contribution of a period that the query names. Return its weight.

        The same as `Period.closeness`, for all memories at once.
        """
        numpy, said = self._numpy, self._said
        distances = numpy.maximum(numpy.maximum(period.start_ms - said, said - period.end_ms + 1), 0)
        closeness = numpy.maximum(1.0 - distances / period.slack_ms, 0.0).astype("float32")
        weight = rarity(live_count, float((closeness * self._live).sum()))
        scores += weight * closeness
        return weight

    def _speaker_factors(self, terms: set[str], role: Role) -> Floats | None:
        """Return the factor of each memory for its speaker; None if the query asks for no speaker."""
        named = {code for term in terms for code in self._speakers_by_stem.get(term, ())}
        if not named and not role:
            return None
        numpy = self._numpy
        factors = numpy.ones(len(self.keys), dtype="float32")
        if named:
            shares = numpy.zeros(len(self._speaker_stems), dtype="float32")
            for code in named:
                shares[code] = len(self._speaker_stems[code] & terms) / len(self._speaker_stems[code])
            factors += SPEAKER_WEIGHT * shares[self._speaker]
        if role:
            factors += SPEAKER_WEIGHT * (self._role == _role_code(role))
        found: Floats = factors
        return found

    def _long_text_divisors(self, words: Floats) -> Floats:
        """Return the `long_text_divisor` of each length."""
        found: Floats = self._numpy.maximum(words / LONG_WORDS, 1.0) ** LONG_EXPONENT
        return found

    @overload
    def _length_norm(self, length: float) -> float: ...

    @overload
    def _length_norm(self, length: Floats) -> Floats: ...

    def _length_norm(self, length: float | Floats) -> float | Floats:
        """Return the length term of BM25. The average length is that of the time the agent was read."""
        return K1 * (1 - B + B * length / self._average)

    def _posting(self, connection: sqlite3.Connection, term: str) -> _Posting:
        posting = self._terms.get(term)
        if posting is None:
            posting = self._terms[term] = self._from_index(connection, term)
            self._term_bytes += posting.size
        return posting

    def _from_index(self, connection: sqlite3.Connection, term: str) -> _Posting:
        """Read a posting from FTS5, for the memories in the arrays."""
        numpy = self._numpy
        connection.execute(_VOCABULARY)
        [found] = connection.execute(_INSTANCES, (self._prefix + term,)).fetchone()
        keys, read = self.keys[: self._array_count], self._array_count
        counts = numpy.zeros(read)
        holders = 0.0
        if found is not None and read:
            instances = numpy.fromstring(found, dtype="int64", sep=",")
            at = numpy.minimum(numpy.searchsorted(keys, instances >> 1), read - 1)
            own = (instances & 1) == 0
            known = keys[at] == instances >> 1
            at, own = at[known], own[known]
            counts = numpy.bincount(at, weights=numpy.where(own, 1.0, NEIGHBOUR_WEIGHT), minlength=read)
            holders = float(len(numpy.unique(at[own])))
        named = self._speakers_by_stem.get(term)
        if named and read:
            by_speaker = numpy.isin(self._speaker[:read], named)
            counts = counts + by_speaker
            holders = name_holders(holders, float(by_speaker.sum()))
        places = numpy.flatnonzero(counts)
        counts = counts[places]
        parts = (counts / (counts + self._length_norm(self._full_lengths[places]))).astype("float32")
        if len(places) < _DENSE_SHARE * read:
            return _Posting(places.astype("int32"), parts, holders)
        whole = numpy.zeros(read, dtype="float32")
        whole[places] = parts
        return _Posting(None, whole, holders)

    def places(self, keys: Sequence[int]) -> Integers:
        """Return the places of memories in the arrays; -1 for a memory that is not in them."""
        numpy, read = self._numpy, self.keys[: self._array_count]
        wanted = numpy.array(keys, dtype="int64")
        found: Integers
        if self._array_count:
            found = numpy.minimum(read.searchsorted(wanted), self._array_count - 1)
            found[read[found] != wanted] = -1
        else:
            found = numpy.full(len(wanted), -1)
        if self._recent_places:
            for position, key in enumerate(keys):
                if key in self._recent_places:
                    found[position] = self._recent_places[key]
        return found

    def _remove(self, key: int) -> None:
        [place] = self.places([key]).tolist()
        self._recent_places.pop(key, None)
        if place >= 0:
            self._live[place] = 0.0

    def _append(self, connection: sqlite3.Connection, key: int, row: tuple[str, str, int]) -> None:
        _, words, around = text_index.indexed_text(connection, key)
        speaker, role, said_ms = row
        code = self._code(speaker)
        place = len(self.keys)
        counts: dict[str, float] = dict.fromkeys(self._speaker_stems[code], 1.0)
        own = set(counts)
        for text, weight in ((words, 1.0), (around, NEIGHBOUR_WEIGHT)):
            for word in text.split():
                for term in self._stemmer.of(word.removeprefix(self._prefix)):
                    counts[term] = counts.get(term, 0.0) + weight
                    if weight == 1.0:
                        own.add(term)
        for term, count in counts.items():
            self._recent.setdefault(term, []).append((place, count, term in own))
        self._recent_places[key] = place
        length, near = words.count(" ") + 1 if words else 0, around.count(" ") + 1 if around else 0
        numpy = self._numpy
        self.keys = numpy.append(self.keys, key)
        self._speaker = numpy.append(self._speaker, numpy.int32(code))
        self._role = numpy.append(self._role, numpy.int8(_role_code(role)))
        self._said = numpy.append(self._said, numpy.int64(said_ms))
        self.lengths = numpy.append(self.lengths, numpy.float32(length))
        self._divisors = numpy.append(self._divisors, self._long_text_divisors(self.lengths[-1:]))
        self._full_lengths = numpy.append(self._full_lengths, numpy.float32(length + near))
        self._live = numpy.append(self._live, numpy.float32(1.0))

    def _code(self, speaker: str) -> int:
        """Return the number of a speaker's name. The first call for a name stores the stems of its words."""
        code = self._speakers.get(speaker)
        if code is None:
            code = self._speakers[speaker] = len(self._speaker_stems)
            words = [word for word in tokenizer.words_of(speaker) if word not in STOP_WORDS]
            self._speaker_stems.append(frozenset(term for word in words for term in self._stemmer.of(word)))
            for term in self._speaker_stems[code]:
                self._speakers_by_stem.setdefault(term, []).append(code)
                # Postings that were read before this speaker was known do not count the name.
                if (posting := self._terms.pop(term, None)) is not None:
                    self._term_bytes -= posting.size
        return code


def _role_code(role: str) -> int:
    """Return the number of a side. A damaged value counts as unknown."""
    return ROLES.index(role) if role in ROLES else 0


def _sizes(blob: bytes) -> tuple[int, int]:
    """Decode FTS5's record of the number of words in each of the two columns: two varints."""
    if len(blob) == 2:
        return blob[0], blob[1]
    found, value = [], 0
    for byte in blob:
        value = value << 7 | byte & 0x7F
        if byte < 0x80:
            found.append(value)
            value = 0
    return found[0], found[1]
