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
from wonder_server.core.memory.ranking import Weights


def load(name: str, path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


data = load("memory_data", ROOT / "bench" / "memory_data.py")
bench = load("memory_quality", ROOT / "bench" / "memory_quality.py")


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
        list(data.agents(tmp_path / "data.jsonl", 10))


def test_a_folder_without_data_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="has no"):
        list(data.agents(tmp_path, 10))


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
    path.write_text(json.dumps(meeting))
    [agent] = data.agents(path, 10)
    assert agent.messages[1] == {
        "id": "1", "conversation": "data-1", "ordinal": 2, "speaker": "ID", "content": "It is red."
    }  # fmt: skip
    assert agent.questions == (data.Question("Which colour?", frozenset({"1"}), 2),)


def test_months_of_chats_become_an_agent_whose_questions_see_earlier_messages_only(tmp_path: Path) -> None:
    turns = (("s1", "user", "I like tea."), ("s1", "assistant", "Noted."), ("s2", "user", "What do I like?"))
    chats = {
        "agent": "Ada_L",
        "messages": [
            {"id": f"Ada_L/{place}", "session": session, "date": f"2026-01-0{place + 1}",
             "role": role, "text": text}
            for place, (session, role, text) in enumerate(turns)
        ],
        "questions": [
            {"id": "q", "text": "What do I like?", "before": 2, "evidence": ["Ada_L/0"]},
            {"id": "p", "text": "Again?", "before": 1, "evidence": ["Ada_L/0"]},
        ],
    }  # fmt: skip
    for name in ("test", "val"):
        (tmp_path / f"{name}.jsonl").write_text(json.dumps(chats))
    [seen, held_out] = data.agents(tmp_path, 10)
    assert (seen.held_out, held_out.held_out) == (False, True)
    assert seen.messages[2] == {
        "id": "Ada_L/2", "conversation": "s2", "ordinal": 1, "speaker": "Ada L", "role": "user",
        "said_at": "2026-01-03", "content": "What do I like?",
    }  # fmt: skip
    assert [(each.text, each.before) for each in seen.questions] == [("Again?", 1), ("What do I like?", 2)]
    assert seen.questions[1].now_ms == data.time_ms("2026-01-03T00:00:00+00:00")


async def test_a_question_searches_only_the_messages_that_existed(tmp_path: Path) -> None:
    messages = [
        {"id": str(place), "content": f"the kettle is {colour}"}
        for place, colour in enumerate(("red", "blue"))
    ]
    questions = [{"query": "kettle blue", "evidence": ["0"], "before": 1}]
    path = tmp_path / "data.jsonl"
    path.write_text(json.dumps({"agent": "a", "messages": messages, "questions": questions}))
    report = await bench.measure(path, 10, HashingEmbedder(), Weights())
    assert {row["method"]: row["mrr"] for row in report["figures"] if row["part"] == "all"} == dict.fromkeys(
        bench.METHODS, 1.0
    )


async def test_relevance_tells_own_questions_from_those_of_another_agent() -> None:
    report = await bench.measure(bench.OURS, 10, HashingEmbedder(), Weights())
    [injected] = [row for row in report["relevance"] if row["least"] == 0.05]
    assert injected["evidence"] == injected["own"] == 1.0
    assert injected["foreign"] < 0.5
