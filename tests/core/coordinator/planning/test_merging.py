"""Workflows that merge their branch: as the last node, once, and only if they complete (feature F6)."""

from __future__ import annotations

from tests.core.conversation.conversation_kit import BUSINESS
from tests.core.coordinator.coordinator_kit import Driven, diamond, graph, node, transition
from wonder_server.core.coordinator.model.values import RunStatus
from wonder_server.core.definitions.document import parse_draft
from wonder_server.core.definitions.index import DefinitionIndex
from wonder_server.core.definitions.pinning import pin_workflow
from wonder_server.core.definitions.resources import Definition
from wonder_server.core.definitions.specs import MERGE_NODE, Node, PinnedWorkflow
from wonder_server.core.errors import Fault, Reason
from wonder_server.core.task.action_effects import is_repeatable

MERGE: Node = node(MERGE_NODE)
CONFLICT = Fault(reason=Reason.MERGE_CONFLICT, message="2 files conflict.")


def driven(flow: PinnedWorkflow) -> Driven:
    made = Driven()
    made.start(flow, {})
    return made


def test_the_merge_runs_as_the_last_node() -> None:
    run = driven(graph(node("a"), node("b"), MERGE, transitions=[transition("a>b")]))
    run.succeed("a")
    run.succeed("b")
    assert run.at == [MERGE_NODE]
    run.succeed(MERGE_NODE)
    assert run.status is RunStatus.COMPLETED
    run.replayed()


def test_the_merge_runs_once_after_a_fan_out() -> None:
    flow = diamond("b", "c")
    spec = flow.spec
    flow = graph(*spec.nodes, MERGE, transitions=spec.transitions)
    run = driven(flow)
    merges = 0
    while run.status is RunStatus.RUNNING:
        at = run.at[0]
        merges += at == MERGE_NODE
        run.succeed(at)
    assert merges == 1 and run.status is RunStatus.COMPLETED
    run.replayed()


def test_merge_conflicts_fail_the_run_with_their_reason() -> None:
    run = driven(graph(node("a"), MERGE))
    run.succeed("a")
    run.fail(MERGE_NODE, CONFLICT)
    assert run.status is RunStatus.FAILED and run.fault.reason is Reason.MERGE_CONFLICT


def test_a_failing_run_does_not_merge() -> None:
    run = driven(graph(node("a"), MERGE))
    run.fail("a", BUSINESS)
    assert run.status is RunStatus.FAILED and run.at == []


def test_a_run_with_invalid_output_does_not_merge() -> None:
    run = driven(graph(node("a"), MERGE, output_mapping={"x": "state.missing"}))
    run.succeed("a")
    assert run.status is RunStatus.FAILED and run.at == []


def test_a_merge_after_a_crash_has_the_same_key() -> None:
    run = driven(graph(node("a"), MERGE))
    run.succeed("a")
    key = run.operation(MERGE_NODE).key
    run.reload()
    run.restart()
    assert run.operation(MERGE_NODE).key == key
    run.succeed(MERGE_NODE)
    assert run.status is RunStatus.COMPLETED


def test_only_a_workflow_with_the_setting_merges() -> None:
    for merges in (False, True):
        workflow = {"nodes": [{"id": "n", "wait": {"signal": "s"}}], "merge_branch_on_completion": merges}
        draft = parse_draft({"name": "w", "workflow": workflow})
        definition = Definition(
            id="def_1", library_id="lib_1", library="team", revision=1, draft=draft, content_hash=""
        )
        pinned = pin_workflow(definition, DefinitionIndex(), {})
        assert [each.id for each in pinned.spec.nodes] == (["n", MERGE_NODE] if merges else ["n"])
        assert pinned.spec.initial_node_id == "n"
        assert not merges or is_repeatable(pinned.tasks[MERGE_NODE])
