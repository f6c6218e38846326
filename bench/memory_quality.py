"""``make bench-memory``: measure the quality of search, beside plain FTS5, plain FAISS and rank fusion.

make bench-memory                                          the conversations in bench/data
make bench-memory ARGS="--data qmsum --data realmem"       these folders or files, with one configuration
make bench-memory ARGS="--data qmsum --json result.json"

`memory_data` reads the sets: agents with messages and questions. All messages become memories, which the
memory service of a server writes and searches: SQLite, FAISS, the embedder. A question searches the memories
of its agent that existed when it was asked.

The figures are means over the questions:

- recall@10: share of a question's evidence among the first ten hits
- MRR: one over the rank of the first evidence, 0 beyond 100
- nDCG@10: gain of the first ten hits relative to the best order

The agents of a file `test.jsonl` are `held out`, without such a file every second agent. Constants were
chosen on the others, which are `seen`.

The figures of relevance show if its values mean the same for all questions. Each question is also asked of
another agent, whose memories do not answer it:

- evidence: share of the evidence among the first six hits with at least this relevance
- own, foreign: share of the questions, asked of their own and of the other agent, with such a hit
"""

from __future__ import annotations

import argparse
import asyncio
import dataclasses
import json
import math
import re
import sqlite3
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import faiss
import numpy
from memory_data import Agent, Question, agents, time_ms

from wonder_server.adapters.embedders.hashing import HashingEmbedder
from wonder_server.adapters.faiss.vectors import FaissVectors
from wonder_server.adapters.in_memory.blobs import MemoryBlobs
from wonder_server.adapters.sqlite.memory.maintenance import SqliteMemoryMaintenance
from wonder_server.adapters.sqlite.memory.store import SqliteMemories
from wonder_server.core.json_types import JsonDict
from wonder_server.core.memory.ranking import Hit, Weights
from wonder_server.core.memory.records import Draft, Source
from wonder_server.ports.embedder import Embedder
from wonder_server.services.memory.large_contents import LargeContents
from wonder_server.services.memory.semantic_index import SemanticIndex
from wonder_server.services.memory.service import MAX_BATCH, MAX_HITS, MemoryService

OURS: Final = Path(__file__).parent / "data" / "conversations.jsonl"
METHODS: Final = ("wonder", "plain FTS5", "plain FAISS", "rank fusion")
AT: Final = 10
RANK_FUSION_K: Final = 60
INJECTED: Final = 6
"""Number of hits that the standard context assembly requests."""
LEAST_RELEVANCES: Final = (0.05, 0.1, 0.2, 0.3, 0.5)
_STRIDE: Final = 7
"""Distance of the foreign questions that are asked in turn: neighbours are about one subject."""
_WORD: Final = re.compile(r"\w+")


@dataclass(frozen=True, slots=True)
class Quality:
    """One question's figures, each 0 to 1."""

    recall: float
    mrr: float
    ndcg: float


def quality(found: Sequence[str], evidence: frozenset[str]) -> Quality:
    """Return the figures of one ranked list."""
    hits = [id in evidence for id in found]
    first = next((1 / rank for rank, hit in enumerate(hits[:MAX_HITS], 1) if hit), 0.0)
    gain = sum(1 / math.log2(rank + 1) for rank, hit in enumerate(hits[:AT], 1) if hit)
    best = sum(1 / math.log2(rank + 1) for rank in range(1, min(AT, len(evidence)) + 1))
    return Quality(sum(hits[:AT]) / len(evidence), first, gain / best)


@dataclass(frozen=True, slots=True)
class Answer:
    """The ids of a question's hits, best first, with the relevance of each. ``foreign`` is the relevance of
    the best hit of a foreign question, asked at the same time."""

    found: list[str]
    relevance: list[float]
    foreign: float


class Clock:
    """A fixed time: recency and dates count from the times of the data."""

    def now_ms(self) -> int:
        return 1_700_000_000_000


class Searched:
    """The memory service of a server with the messages of one agent."""

    def __init__(self, agent: Agent, service: MemoryService, weights: Weights) -> None:
        self._agent, self._service, self._weights = agent, service, weights
        self._written = 0

    async def write(self, before: int) -> None:
        """Write the messages up to ``before``."""
        numbered = list(enumerate(self._agent.messages[:before], 1))[self._written :]
        drafts = [_draft(message, place) for place, message in numbered if message["content"].strip()]
        for start in range(0, len(drafts), MAX_BATCH):
            await self._service.write_all(self._agent.name, drafts[start : start + MAX_BATCH])
        self._written = max(self._written, before)

    async def search(self, question: Question) -> list[Hit]:
        return await self._service.search(
            self._agent.name, question.text, limit=MAX_HITS, weights=self._weights, now_ms=question.now_ms
        )


async def ours(
    agent: Agent, foreign: Sequence[Question], embedder: Embedder, weights: Weights, times: list[float]
) -> list[Answer]:
    """Return the answers of the memory service. ``times`` gets the seconds of each search."""
    with tempfile.TemporaryDirectory() as folder:
        store = await SqliteMemories.open(Path(folder) / "memory.db")
        vectors = FaissVectors(store, embedder.name, embedder.dimensions)
        overflow = LargeContents(MemoryBlobs(), SqliteMemoryMaintenance(store))
        service = MemoryService(
            memories=store,
            large_contents=overflow,
            index=SemanticIndex(vectors=vectors, source=store, embedder=embedder),
            clock=Clock(),
        )
        searched = Searched(agent, service, weights)
        answers = []
        for number, question in enumerate(agent.questions):
            await searched.write(question.before)
            await searched.search(question)  # The first search of a word reads its postings.
            began = time.perf_counter()
            hits = await searched.search(question)
            times.append(time.perf_counter() - began)
            other = foreign[number * _STRIDE % len(foreign)] if foreign else question
            others = await searched.search(dataclasses.replace(other, now_ms=question.now_ms))
            answers.append(
                Answer(
                    [hit.memory.metadata["message"] for hit in hits],
                    [hit.relevance for hit in hits],
                    max((hit.relevance for hit in others[:INJECTED]), default=0.0),
                )
            )
        await overflow.close()
        await vectors.close()
        await store.close()
        return answers


def _draft(message: JsonDict, place: int) -> Draft:
    return Draft(
        type=message.get("type", "message"),
        content=message["content"],
        metadata={"message": message["id"]},
        source=Source(
            conversation_id=str(message.get("conversation", "conversation")),
            speaker=message.get("speaker", ""),
            ordinal=int(message.get("ordinal", place)),
            role=message.get("role", ""),
        ),
        said_ms=time_ms(message["said_at"]) if "said_at" in message else None,
    )


def _message_text(message: JsonDict) -> str:
    return (
        f"{message['speaker']}: {message['content']}" if message.get("speaker") else str(message["content"])
    )


def full_text(agent: Agent) -> list[list[str]]:
    """Search with plain FTS5: ``speaker: content``, Porter stems, any word of the question, its own bm25."""
    with sqlite3.connect(":memory:") as connection:
        connection.execute("CREATE VIRTUAL TABLE texts USING fts5 (content, tokenize='porter unicode61')")
        written = 0
        answers = []
        for question in agent.questions:
            new = list(enumerate(agent.messages[: question.before]))[written:]
            rows = [(place, _message_text(message)) for place, message in new]
            connection.executemany("INSERT INTO texts (rowid, content) VALUES (?, ?)", rows)
            written = max(written, question.before)
            any_word = " OR ".join(f'"{word}"' for word in _WORD.findall(question.text)) or '""'
            found = connection.execute(
                "SELECT rowid FROM texts WHERE texts MATCH ? ORDER BY rank, rowid LIMIT ?",
                (any_word, MAX_HITS),
            )
            answers.append([agent.messages[row[0]]["id"] for row in found])
        return answers


async def nearest(agent: Agent, embedder: Embedder) -> list[list[str]]:
    """Search a flat FAISS index with one vector for each message, ``speaker: content``."""
    index = faiss.IndexFlatIP(embedder.dimensions)
    vectors = _matrix(await embedder.embed([_message_text(message) for message in agent.messages]), embedder)
    answers = []
    for question in agent.questions:
        index.add(vectors[index.ntotal : question.before])
        asked = _matrix(await embedder.embed([question.text]), embedder)
        _, found = index.search(asked, min(MAX_HITS, index.ntotal))
        answers.append([agent.messages[place]["id"] for place in found[0].tolist()])
    return answers


def _matrix(vectors: Sequence[bytes], embedder: Embedder) -> numpy.ndarray:
    return numpy.frombuffer(b"".join(vectors), dtype="<f4").reshape(len(vectors), embedder.dimensions)


def fused(left: list[str], right: list[str]) -> list[str]:
    """Merge two ranked lists by reciprocal rank fusion."""
    scores: dict[str, float] = {}
    for found in (left, right):
        for rank, id in enumerate(found, 1):
            scores[id] = scores.get(id, 0.0) + 1 / (RANK_FUSION_K + rank)
    return sorted(scores, key=lambda id: -scores[id])


async def measure(path: Path, most_evidence: int, embedder: Embedder, weights: Weights) -> JsonDict:
    """Return the figures by method and part of the data."""
    parts: dict[tuple[str, str], list[Quality]] = {}
    answered: list[tuple[Question, Answer]] = []
    times: list[float] = []
    every = list(agents(path, most_evidence))
    for number, agent in enumerate(every):
        words, near = full_text(agent), await nearest(agent, embedder)
        others = [asked for each in every[number + 1 :] + every[:number] for asked in each.questions]
        found = await ours(agent, others, embedder, weights, times)
        answered += zip(agent.questions, found, strict=True)
        answers = {
            "wonder": [answer.found for answer in found],
            "plain FTS5": words,
            "plain FAISS": near,
            "rank fusion": [fused(left, right) for left, right in zip(words, near, strict=True)],
        }
        for method, lists in answers.items():
            for question, ids in zip(agent.questions, lists, strict=True):
                figures = quality(ids, question.evidence)
                for part in ("all", "held out" if agent.held_out else "seen"):
                    parts.setdefault((method, part), []).append(figures)
    return {
        "data": path.name,
        "messages": sum(len(agent.messages) for agent in every),
        "questions": len(times),
        "embedder": embedder.name,
        "search_p50_ms": statistics.median(times) * 1000 if times else 0.0,
        "figures": [
            {
                "method": method,
                "part": part,
                "questions": len(found),
                f"recall@{AT}": statistics.mean(each.recall for each in found),
                "mrr": statistics.mean(each.mrr for each in found),
                f"ndcg@{AT}": statistics.mean(each.ndcg for each in found),
            }
            for (method, part), found in sorted(parts.items(), key=lambda item: METHODS.index(item[0][0]))
        ],
        "relevance": [_kept(answered, least) for least in LEAST_RELEVANCES],
    }


def _kept(answered: Sequence[tuple[Question, Answer]], least: float) -> JsonDict:
    """Return what remains of the first hits with a minimum of relevance."""
    evidence = [
        relevance
        for question, answer in answered
        for id, relevance in zip(answer.found[:INJECTED], answer.relevance, strict=False)
        if id in question.evidence
    ]
    own = [max(answer.relevance[:INJECTED], default=0.0) for _, answer in answered]

    def share(values: Sequence[float]) -> float:
        return sum(value >= least for value in values) / len(values) if values else 0.0

    foreign = [answer.foreign for _, answer in answered]
    return {"least": least, "evidence": share(evidence), "own": share(own), "foreign": share(foreign)}


def show(report: JsonDict) -> None:
    print(f"\n{report['data']}: {report['messages']:,} messages, {report['questions']:,} questions, "
          f"embedder {report['embedder']}, search p50 {report['search_p50_ms']:.2f} ms")  # fmt: skip
    print(f"  {'':14} {'part':10} {'questions':>9} {f'recall@{AT}':>10} {'MRR':>7} {f'nDCG@{AT}':>8}")
    for row in report["figures"]:
        print(
            f"  {row['method']:14} {row['part']:10} {row['questions']:9} "
            f"{row[f'recall@{AT}']:10.3f} {row['mrr']:7.3f} {row[f'ndcg@{AT}']:8.3f}"
        )

    print(f"  {'':14} {'relevance':10} {'evidence':>9} {'own':>10} {'foreign':>7}")
    for row in report["relevance"]:
        print(
            f"  {'':14} {'>= ' + format(row['least'], '.2f'):10} {row['evidence']:9.3f} "
            f"{row['own']:10.3f} {row['foreign']:7.3f}"
        )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument(
        "--data",
        type=Path,
        action="append",
        metavar="PATH",
        help="read the agents of this JSONL file or folder; may be repeated",
    )
    parser.add_argument(
        "--most-evidence",
        type=int,
        default=10,
        metavar="N",
        help="omit questions with more than N messages of evidence (default: 10)",
    )
    parser.add_argument("--vector", type=float, metavar="SHARE", help="weight of vectors, 0 to 1")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures to FILE too")
    given = parser.parse_args()
    reports = []
    for path in given.data or [OURS]:
        weights = Weights(vector=given.vector)
        reports.append(asyncio.run(measure(path, given.most_evidence, HashingEmbedder(), weights)))
        show(reports[-1])
    if given.json:
        given.json.write_text(json.dumps(reports, indent=2) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
