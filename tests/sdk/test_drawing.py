"""Drawings of workflows: recorded drawings, properties of random graphs, and the command."""

from __future__ import annotations

import itertools
import random
import re
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.sdk.drawings import record
from tests.sdk.fake_server import serving
from wonder.v1 import library_service_pb2 as service
from wonder.v1 import library_service_pb2_grpc as rpc
from wonder_sdk import cli, v1
from wonder_sdk.drawing import graph, mermaid, text

CORPUS = list(record.workflows())


@pytest.mark.parametrize("workflow", CORPUS, ids=lambda each: each.name)
def test_a_drawing_equals_the_recorded_one(workflow: v1.Definition) -> None:
    for file, drawing in record.drawings(workflow).items():
        assert file.is_file(), f"record it: python -m tests.sdk.drawings.record ({file.name})"
        assert drawing == file.read_text(encoding="utf-8")


def test_no_recorded_drawing_is_unused() -> None:
    expected = {file.name for each in CORPUS for file in record.drawings(each)}
    there = {file.name for file in record.HERE.iterdir() if file.suffix in (".txt", ".mmd")}
    assert there == expected


def a_graph(seed: int) -> v1.Definition:
    """Return a strategy of random graphs with cycles, fan-outs and transitions to missing nodes."""
    chance = random.Random(seed)
    names = [f"n{number}" for number in range(chance.randint(1, 40))]
    nodes = [
        v1.Node(
            id=name,
            task_id="work",
            fan_out=chance.random() < 0.3,
            fan_in=v1.FanIn() if chance.random() < 0.3 else None,
        )
        for name in names
    ]
    ways = [
        v1.Transition(
            from_node_id=chance.choice(names),
            to_node_id=chance.choice(names),
            condition=chance.choice(["", "state.x"]),
            priority=chance.randint(0, 2),
            for_each=v1.ForEach(items="input.x") if chance.random() < 0.1 else None,
        )
        for _ in range(chance.randint(0, 2 * len(names)))
    ]
    return v1.Definition(name="random", workflow=v1.WorkflowSpec(nodes=nodes, transitions=ways))


@pytest.mark.parametrize("seed", range(200))
def test_every_node_and_every_transition_is_drawn_once(seed: int) -> None:
    drawn = graph.of(a_graph(seed))
    chart = mermaid.draw(drawn)
    assert sum(bool(re.match(r'  n_\w+\["', line)) for line in chart.splitlines()) == len(drawn.nodes)
    arrows = len(re.findall(r"(?:-->|==>|-\.->)", chart)) - 1
    assert arrows == sum(len(ways) for ways in drawn.transitions.values())

    lines = text.draw(drawn).splitlines()[2:]
    homes = [re.match(r"[│├└╞╘─═ ]*\[(\w+)\]  +task", line) for line in lines]
    assert sorted(found[1] for found in homes if found) == sorted(drawn.nodes)
    assert text.draw(graph.of(a_graph(seed))).splitlines()[2:] == lines, "the same graph, the same drawing"
    reached = set(drawn.order())
    back = sum(edge.is_back for edge in drawn.edges() if edge.source in reached)
    assert sum(line.count("↺") for line in lines) == back
    lost = set(drawn.nodes) - reached
    assert ("never reached:" in lines) == bool(lost)


def test_a_long_chain_and_a_wide_fan_out_are_drawn() -> None:
    names = [f"n{number}" for number in range(500)]
    chain = [v1.Transition(from_node_id=one, to_node_id=other) for one, other in itertools.pairwise(names)]
    guards = [
        v1.Transition(from_node_id=each, to_node_id=names[-1], condition="!state.ok", priority=-1)
        for each in names[:-1]
    ]
    nodes = [v1.Node(id=each, task_id="work") for each in names]
    for ways in (
        chain,
        chain + guards,
        [v1.Transition(from_node_id="n0", to_node_id=each) for each in names[1:]],
    ):
        spec = v1.WorkflowSpec(nodes=nodes, transitions=ways)
        lines = text.draw(graph.of(v1.Definition(name="long", workflow=spec))).splitlines()
        assert max(map(len, lines)) < 60, "it does not wander off to the right"


def test_only_workflows_with_nodes_can_be_drawn() -> None:
    with pytest.raises(ValueError, match="x is a model profile; only workflows can be drawn"):
        graph.of(v1.Definition(name="x", model_profile=v1.ModelProfileSpec(provider="offline")))
    with pytest.raises(ValueError, match="x has no nodes"):
        graph.of(v1.Definition(name="x", workflow=v1.WorkflowSpec()))


def test_files_are_drawn_without_a_server(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WONDER_SERVER", "127.0.0.1:1")
    golden = (record.HERE / "diamond.txt").read_text(encoding="utf-8")
    assert cli.main(["workflow", "draw", str(record.EXAMPLES / "diamond.yaml")]) == 0
    assert capsys.readouterr().out == golden
    assert cli.main(["workflow", "draw", str(record.EXAMPLES)]) == 0
    assert golden in capsys.readouterr().out
    only = ["--only", "diamond", "--format", "mermaid"]
    assert cli.main(["workflow", "draw", str(record.EXAMPLES), *only]) == 0
    assert capsys.readouterr().out == (record.HERE / "diamond.mmd").read_text(encoding="utf-8")

    (tmp_path / "a.yaml").write_text("name: a\naction: {kind: context}\n")
    for argv, output in (
        (
            [str(record.EXAMPLES), "--only", "nothing"],
            f"wonder: {record.EXAMPLES} has no workflow nothing; it has:",
        ),
        ([str(tmp_path)], f"wonder: {tmp_path} contains no workflows"),
        ([str(tmp_path / "no.yaml")], f"wonder: {tmp_path}/no.yaml: No such file or directory"),
    ):
        assert cli.main(["workflow", "draw", *argv]) == 1
        assert capsys.readouterr().err.startswith(output)
    (tmp_path / "a.yaml").write_text("name: [")
    assert cli.main(["workflow", "draw", str(tmp_path)]) == 1
    assert capsys.readouterr().err.startswith(f"{tmp_path}/a.yaml:1: ")


class FakeLibrary(rpc.LibraryServiceServicer):
    async def GetDefinition(self, request: Any, context: object) -> service.GetDefinitionResponse:
        workflow = next(each for each in CORPUS if each.name == "sequence")
        answer = service.GetDefinitionResponse()
        answer.definition.ParseFromString(bytes(workflow))
        answer.definition.library, _, name = request.definition_id.rpartition("/")
        answer.definition.name, _, revision = name.partition("@")
        answer.definition.revision = int(revision)
        return answer


async def test_a_workflow_of_a_server_is_drawn_by_name_and_revision(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    import asyncio

    monkeypatch.setattr(sys, "stdin", None)
    async with serving(library=FakeLibrary()) as address:
        argv = ["workflow", "draw", "acme/flows/sequence@3", "--server", address]
        assert await asyncio.to_thread(cli.main, argv) == 0
    golden = (record.HERE / "sequence.txt").read_text(encoding="utf-8")
    assert capsys.readouterr().out == f"acme/flows/sequence@3{golden.removeprefix('sequence')}"
