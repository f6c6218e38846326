"""Orphaned child runs: runs whose parents stopped waiting just before the server ended."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.actors.kit import origin
from tests.actors.run_kit import RunStage, pinned
from tests.conformance.ports.journal_subjects import commit, conversation, put_conversation
from wonder_server.actors.dispatch.orphans import orphaned_runs
from wonder_server.core.actor.changes import Put
from wonder_server.core.actor.commands import Parent, Scope
from wonder_server.core.conversation.model.values import Caller, Turn, TurnStatus
from wonder_server.core.coordinator.model.values import Run
from wonder_server.ports.records import Query

TURN = "turn_01HF7YAT000000000000000010"
RUN = "run_01HF7YAT000000000000000020"


async def test_a_child_is_waited_for_until_its_parent_is_cancelled(stage: RunStage) -> None:
    held = pinned("held", "hold", nodes={"hold": {"wait": {"signal": "go"}}})
    outer = pinned("outermost", "sub", nodes={"sub": {"workflow_id": "w"}})
    stage.workflows.known.append(replace(outer, workflows={"w": held}))
    parent = await stage.start("team/outermost")
    await stage.wait_until_idle()
    everything = await stage.shards.find(Query(table="runs"))
    (child,) = (run for run in everything if run.parent is not None)
    ids = [run.id for run in everything]
    assert await orphaned_runs(stage.shards, ids) == []
    # This stage executes no Stop command, as when the server ends right after the commit.
    await stage.runs.cancel(parent.run.id, "Enough.", "", origin())
    assert await orphaned_runs(stage.shards, ids) == [child.id]
    assert await orphaned_runs(stage.shards, [parent.run.id]) == []


@pytest.mark.parametrize(
    ("status", "extraction", "orphaned"),
    [
        (TurnStatus.ACTIVE, "", False),
        (TurnStatus.CANCELLED, "", True),
        (TurnStatus.COMPLETED, "", True),
        (TurnStatus.COMPLETED, RUN, False),
    ],
)
async def test_a_turn_waits_for_its_runs_while_it_is_active_and_then_for_extraction(
    stage: RunStage, status: TurnStatus, extraction: str, orphaned: bool
) -> None:
    parent = conversation(1)
    turn = Turn(
        id=TURN, conversation_id=parent.id, ordinal=1, caller=Caller(), agent_id="a", agent_name="a",
        persona="p", input="hi", status=status, memory_extraction_run_id=extraction,
    )  # fmt: skip
    run = Run(
        id=RUN,
        workflow_ref="team/one@1",
        workflow_id="def_one",
        scope=Scope(project_id="p", conversation_id=parent.id, turn_id=TURN),
        parent=Parent(actor_id=parent.id, operation_id="op_x"),
    )
    await stage.put(
        commit(parent.id, put_conversation(parent), Put("turns", TURN, turn, ordinal=1)),
        commit(RUN, Put("runs", RUN, run, status="running", live=True)),
    )
    assert await orphaned_runs(stage.shards, [RUN]) == ([RUN] if orphaned else [])
