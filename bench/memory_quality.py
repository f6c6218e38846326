"""``make bench-memory``: measure the quality of search, beside plain FTS5, plain FAISS and rank fusion.

make bench-memory                                        the conversations in bench/data
make bench-memory ARGS="--data qmsum.jsonl"              any data set; see docs/memory.md for its form
make bench-memory ARGS="--data qmsum.jsonl --most-evidence 10 --json result.json"

One line of the file is one agent. All of its messages become memories, which the memory service of a server
writes and searches: SQLite, FAISS, the embedder. A question searches the memories of its agent only.

The figures are means over the questions:

- recall@10: share of a question's evidence among the first ten hits
- MRR: one over the rank of the first evidence, 0 beyond 100
- nDCG@10: gain of the first ten hits relative to the best order

The first, third, … agents are `seen`: constants may have been tuned on them. The others are `held out` and
show whether the tuning holds for other data.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import math
import re
import sqlite3
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import faiss
import numpy

from wonder_server.adapters.embedders.hashing import HashingEmbedder
from wonder_server.adapters.faiss.vectors import FaissVectors
from wonder_server.adapters.in_memory.blobs import MemoryBlobs
from wonder_server.adapters.sqlite.memory.maintenance import SqliteMemoryMaintenance
from wonder_server.adapters.sqlite.memory.store import SqliteMemories
from wonder_server.core.json_types import JsonDict
from wonder_server.core.memory.records import Draft, Source, Weights
from wonder_server.ports.embedder import Embedder
from wonder_server.services.memory.large_contents import LargeContents
from wonder_server.services.memory.semantic_index import SemanticIndex
from wonder_server.services.memory.service import MAX_BATCH, MAX_HITS, MemoryService

OURS: Final = Path(__file__).parent / "data" / "conversations.jsonl"
METHODS: Final = ("wonder", "plain FTS5", "plain FAISS", "rank fusion")
AT: Final = 10
RANK_FUSION_K: Final = 60
_WORD: Final = re.compile(r"\w+")


@dataclass(frozen=True, slots=True)
class Question:
    text: str
    evidence: frozenset[str]


@dataclass(frozen=True, slots=True)
class Agent:
    """Content of one line."""

    name: str
    messages: tuple[JsonDict, ...]
    questions: tuple[Question, ...]


@dataclass(frozen=True, slots=True)
class Quality:
    """One question's figures, each 0 to 1."""

    recall: float
    mrr: float
    ndcg: float


def agents(path: Path, most_evidence: int) -> Iterator[Agent]:
    """Yield the agents of a file, without questions that have no evidence or more than ``most_evidence``.

    Raises `SystemExit` if the file has another form.
    """
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        if not line.strip():
            continue
        try:
            given = json.loads(line)
            messages = tuple(given["messages"])
            ids = {message["id"] for message in messages}
            for message in messages:
                message["content"].strip()
            questions = [Question(each["query"], frozenset(each["evidence"])) for each in given["questions"]]
        except (ValueError, KeyError, TypeError, AttributeError) as problem:
            raise SystemExit(
                f"{path}, line {number}, is not an agent in the form of docs/memory.md: {problem!r}"
            ) from None
        unknown = {id for question in questions for id in question.evidence} - ids
        if unknown or len(ids) < len(messages):
            raise SystemExit(
                f"{path}, line {number}: ids are not unique, or evidence has unknown ids: "
                f"{sorted(unknown)[:3]}"
            )
        kept = (question for question in questions if 1 <= len(question.evidence) <= most_evidence)
        yield Agent(str(given.get("agent", number)), messages, tuple(kept))


def quality(found: Sequence[str], evidence: frozenset[str]) -> Quality:
    """Return the figures of one ranked list."""
    hits = [id in evidence for id in found]
    first = next((1 / rank for rank, hit in enumerate(hits[:MAX_HITS], 1) if hit), 0.0)
    gain = sum(1 / math.log2(rank + 1) for rank, hit in enumerate(hits[:AT], 1) if hit)
    best = sum(1 / math.log2(rank + 1) for rank in range(1, min(AT, len(evidence)) + 1))
    return Quality(sum(hits[:AT]) / len(evidence), first, gain / best)


class Clock:
    """A fixed time, since the data has no times."""

    def now_ms(self) -> int:
        return 1_700_000_000_000


async def ours(agent: Agent, embedder: Embedder, weights: Weights, times: list[float]) -> list[list[str]]:
    """Return the answers of the memory service by message id; ``times`` gets the seconds of each search."""
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
        messages = [message for message in agent.messages if message["content"].strip()]
        drafts = [_draft(message, place) for place, message in enumerate(messages, 1)]
        for start in range(0, len(drafts), MAX_BATCH):
            await service.write_all(agent.name, drafts[start : start + MAX_BATCH])
        answers = []
        for question in agent.questions:
            began = time.perf_counter()
            hits = await service.search(agent.name, question.text, limit=MAX_HITS, weights=weights)
            times.append(time.perf_counter() - began)
            answers.append([hit.memory.metadata["message"] for hit in hits])
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
        ),
    )


def _message_text(message: JsonDict) -> str:
    return (
        f"{message['speaker']}: {message['content']}" if message.get("speaker") else str(message["content"])
    )


def full_text(agent: Agent) -> list[list[str]]:
    """Search with plain FTS5: ``speaker: content``, Porter stems, any word of the question, its own bm25."""
    with sqlite3.connect(":memory:") as connection:
        connection.execute("CREATE VIRTUAL TABLE texts USING fts5 (content, tokenize='porter unicode61')")
        rows = [(place, _message_text(message)) for place, message in enumerate(agent.messages)]
        connection.executemany("INSERT INTO texts (rowid, content) VALUES (?, ?)", rows)
        answers = []
        for question in agent.questions:
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
    index.add(_matrix(await embedder.embed([_message_text(message) for message in agent.messages]), embedder))
    if not agent.questions:
        return []
    asked = _matrix(await embedder.embed([question.text for question in agent.questions]), embedder)
    _, found = index.search(asked, min(MAX_HITS, len(agent.messages)))
    return [[agent.messages[place]["id"] for place in row] for row in found.tolist()]


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
    times: list[float] = []
    messages = 0
    for number, agent in enumerate(agents(path, most_evidence)):
        messages += len(agent.messages)
        words, near = full_text(agent), await nearest(agent, embedder)
        answers = {
            "wonder": await ours(agent, embedder, weights, times),
            "plain FTS5": words,
            "plain FAISS": near,
            "rank fusion": [fused(left, right) for left, right in zip(words, near, strict=True)],
        }
        for method, found in answers.items():
            for question, ids in zip(agent.questions, found, strict=True):
                figures = quality(ids, question.evidence)
                for part in ("all", "held out" if number % 2 else "seen"):
                    parts.setdefault((method, part), []).append(figures)
    return {
        "data": path.name,
        "messages": messages,
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
    }


def show(report: JsonDict) -> None:
    print(f"\n{report['data']}: {report['messages']:,} messages, {report['questions']:,} questions, "
          f"embedder {report['embedder']}, search p50 {report['search_p50_ms']:.2f} ms")  # fmt: skip
    print(f"  {'':14} {'part':10} {'questions':>9} {f'recall@{AT}':>10} {'MRR':>7} {f'nDCG@{AT}':>8}")
    for row in report["figures"]:
        print(
            f"  {row['method']:14} {row['part']:10} {row['questions']:9} "
            f"{row[f'recall@{AT}']:10.3f} {row['mrr']:7.3f} {row[f'ndcg@{AT}']:8.3f}"
        )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument(
        "--data",
        type=Path,
        action="append",
        metavar="FILE",
        help="read the agents of this JSONL file; may be repeated",
    )
    parser.add_argument("--most-evidence", type=int, default=1_000_000, metavar="N",
                        help="omit questions with more than N messages of evidence")  # fmt: skip
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
