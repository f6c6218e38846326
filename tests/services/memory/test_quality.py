"""`make bench-memory`: its metrics, and search results above their minimum on example conversations."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType

import pytest

from tests.paths import ROOT
from wonder_server.adapters.embedders.hashing import HashingEmbedder
from wonder_server.core.memory.records import Weights


def load(name: str, path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


bench = load("memory_quality", ROOT / "bench" / "memory_quality.py")
qmsum = load("qmsum", ROOT / "tools" / "qmsum.py")


def test_the_figures_of_a_ranked_list() -> None:
    figures = bench.quality(["x", "a", "y", "b"], frozenset("abc"))
    assert figures.recall == pytest.approx(2 / 3)
    assert figures.mrr == 0.5
    assert figures.ndcg == pytest.approx((1 / 1.58496 + 1 / 2.32193) / (1 + 1 / 1.58496 + 0.5), rel=1e-4)
    assert bench.quality([], frozenset("a")) == bench.Quality(0, 0, 0)


async def test_search_finds_more_than_full_text_vectors_or_rank_fusion_alone() -> None:
    report = await bench.measure(bench.OURS, 10, HashingEmbedder(), Weights())
    figures = {row["method"]: row for row in report["figures"] if row["part"] == "all"}
    assert set(figures) == set(bench.METHODS)
    for floor in bench.METHODS[1:]:
        for figure in ("recall@10", "mrr", "ndcg@10"):
            assert figures["wonder"][figure] > figures[floor][figure] + 0.05


@pytest.mark.parametrize(
    "line",
    [
        "{",
        "[]",
        '{"messages": [{"id": "1"}], "questions": []}',
        '{"messages": [{"id": "1", "content": "x"}], "questions": [{"query": "x", "evidence": ["2"]}]}',
        '{"messages": [{"id": "1", "content": "x"}, {"id": "1", "content": "y"}], "questions": []}',
    ],
)
def test_data_in_another_form_is_refused_with_its_line(tmp_path: Path, line: str) -> None:
    (tmp_path / "data.jsonl").write_text("\n" + line + "\n")
    with pytest.raises(SystemExit, match="line 2"):
        list(bench.agents(tmp_path / "data.jsonl", 10))


def test_a_meeting_becomes_an_agent_in_the_documented_form(tmp_path: Path) -> None:
    meeting = {
        "meeting_transcripts": [
            {"speaker": "PM", "content": "Hi."},
            {"speaker": "ID", "content": "It is red."},
        ],
        "specific_query_list": [
            {"query": "Which colour?", "answer": "Red", "relevant_text_span": [["1", "1"], ["1", "7"]]}
        ],
    }
    path = tmp_path / "data.jsonl"
    path.write_text(json.dumps(qmsum.converted(meeting, "m")))
    [agent] = bench.agents(path, 10)
    assert agent.messages[1] == {
        "id": "1", "conversation": "m", "ordinal": 2, "speaker": "ID", "content": "It is red."
    }  # fmt: skip
    assert agent.questions == (bench.Question("Which colour?", frozenset({"1"})),)
