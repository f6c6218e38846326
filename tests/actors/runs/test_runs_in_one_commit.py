"""Runs of clients that start and end in one commit: compact, without a difference to readers."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.actors.kit import TestJournal, run_ready_tasks
from tests.actors.run_kit import GATE, RunStage, open_stage, pinned
from tests.actors.runs.test_runs import SOON
from tests.core.conversation.conversation_kit import workflow
from tests.replacing import replace
from tests.sqlite_journals import SqliteJournals
from wonder_server.actors.streaming.attachment import CaughtUp
from wonder_server.adapters.in_memory.journal import MemoryShards
from wonder_server.core.actor.changes import Erase
from wonder_server.core.actor.commands import RunTask, Scope
from wonder_server.core.actor.gates import GateStatus
from wonder_server.core.coordinator.model.inputs import CancelRun, Start
from wonder_server.core.coordinator.model.values import RunStatus
from wonder_server.core.errors import Reason, WonderError
from wonder_server.core.json_types import JsonDict
from wonder_server.ports.journal import Event
from wonder_server.ports.records import Query

SUB = {"sub": {"workflow_id": "w"}}
RUN_ID = "run_01HF7YAT000000000000000010"


def instantly(command: RunTask) -> JsonDict:
    return {"n": 1}


def instant_stage() -> tuple[RunStage, TestJournal]:
    journal = TestJournal()
    stage = RunStage(MemoryShards(journal))
    stage.instant_output = instantly
    return stage, journal


async def events_of(stage: RunStage, run_id: str, after: int = 0) -> list[str]:
    """Return the names of the events that a new reader receives, up to the live ones."""
    attachment = await stage.runs.attach(run_id, after)
    names: list[str] = []
    while True:
        items = await attachment.take()
        names += [item.emit.name for item in items if isinstance(item, Event)]
        if any(isinstance(item, CaughtUp) for item in items):
            attachment.close()
            return names


async def test_a_run_that_ends_in_its_first_commit_is_compact() -> None:
    stage, journal = instant_stage()
    view = await stage.start("team/chain", "once", wait_ms=SOON)
    assert view.run.status is RunStatus.COMPLETED and view.executions == 3
    ((written,),) = journal.transactions
    assert written.compact and not written.events and len(written.requests) == 1
    assert [change.table for change in written.changes if not isinstance(change, Erase)] == ["runs"]
    assert view.head.sequence == written.event_head == len(journal.actors[view.run.id].events)
    assert stage.loop.peek(view.run.id) is None, "an ended run leaves memory"
    await stage.loop.stop()


async def test_a_run_that_waits_for_a_task_is_stored_in_full() -> None:
    stage, journal = instant_stage()
    stage.instant_output = None
    call = asyncio.ensure_future(stage.start("team/one", wait_ms=SOON))
    await stage.finish("a")
    await call
    assert [commit.compact for written in journal.transactions for commit in written] == [False, False]
    await stage.loop.stop()


async def test_a_run_with_a_gate_is_stored_in_full_although_it_ends_in_its_first_commit() -> None:
    stage, journal = instant_stage()
    workflow = pinned("asks", "ask>b", nodes={"ask": GATE})
    start = Start(run_id=RUN_ID, workflow=workflow, input={}, scope=Scope())
    starting = asyncio.ensure_future(stage.loop.ask(RUN_ID, start, fresh=True))
    await asyncio.sleep(0)
    stage.loop.tell(RUN_ID, CancelRun())
    await starting
    ((written,),) = journal.transactions
    assert len(written.entries) == 2 and not written.compact
    # Gates are listed across runs, where a compact run has no row.
    (gate,) = await stage.runs.gates.find(Query(table="gates"))
    assert gate.status is GateStatus.CANCELLED
    await stage.loop.stop()


async def test_the_answer_of_a_start_counts_the_events_of_its_own_input() -> None:
    stage, journal = instant_stage()
    view = await stage.start("team/chain")
    first = journal.actors[view.run.id].entries[0]
    started = stage.runs.planner.event_count(first.decisions)
    assert view.head.sequence == started < len(journal.actors[view.run.id].events)
    await stage.loop.stop()


async def test_a_caller_that_waits_receives_the_failure_of_a_compact_run() -> None:
    stage, journal = instant_stage()
    stage.instant_output = lambda command: ["no object"]
    view = await stage.start("team/one", wait_ms=SOON)
    assert view.run.status is RunStatus.FAILED and view.run.fault is not None
    ((written,),) = journal.transactions
    assert written.compact
    await stage.loop.stop()


async def test_readers_of_a_compact_run_see_every_event(tmp_path: Path) -> None:
    async with open_stage("sqlite", tmp_path) as stage:
        assert isinstance(stage.shards, SqliteJournals)
        stage.instant_output = instantly
        view = await stage.start("team/fan", wait_ms=SOON)
        run_id = view.run.id
        names = await events_of(stage, run_id)
        assert names[0] == "workflow_started" and names[-1] == "workflow_completed"
        assert len(names) == view.head.sequence
        assert await events_of(stage, run_id, 3) == names[3:]
        assert await stage.runs.lookup.snapshot(run_id) == view
        details = (await stage.runs.lookup.with_details(run_id)).details
        assert details is not None and len(details.executions) == 4
        assert await events_of(stage, run_id) == names, "the expanded run has the same events"
        assert (await stage.runs.replay(run_id)).difference is None


# --- child runs -------------------------------------------------------------------------------------


async def test_a_child_that_ends_at_once_shares_the_commit_of_its_parent() -> None:
    stage, journal = instant_stage()
    view = await stage.start("team/outer", wait_ms=SOON)
    assert view.run.status is RunStatus.COMPLETED
    ((child, parent),) = journal.transactions
    assert parent.actor_id == view.run.id and child.actor_id != view.run.id
    assert parent.compact and child.compact
    for run_id in (parent.actor_id, child.actor_id):
        assert (await stage.runs.replay(run_id)).difference is None
    await stage.loop.stop()


async def test_a_child_works_while_the_commit_that_starts_it_is_in_progress() -> None:
    stage, journal = instant_stage()
    stage.instant_output = None
    journal.hold()
    starting = asyncio.ensure_future(stage.start("team/outer", wait_ms=SOON))
    (actor, command) = await stage.task("a")
    stage.loop.report_success(actor, command.operation_id, {})
    (child, command) = await stage.task("n")
    assert child != actor and journal.held, "its task has no side effect"
    stage.loop.report_success(child, command.operation_id, {})
    await run_ready_tasks()
    journal.release()
    assert (await starting).run.status is RunStatus.COMPLETED
    assert [commit.actor_id for written in journal.transactions for commit in written] == [
        actor,
        child,
        actor,
    ]
    await stage.loop.stop()


async def test_a_child_with_a_side_effect_waits_until_its_start_is_on_disk() -> None:
    stage, journal = instant_stage()
    with_effect = workflow(action="shell")
    stage.workflows.known.append(replace(pinned("effect", "sub", nodes=SUB), workflows={"w": with_effect}))
    stage.instant_output = None
    journal.hold()
    starting = asyncio.ensure_future(stage.start("team/effect", wait_ms=SOON))
    await run_ready_tasks()
    assert not stage.tasks, "the task is not dispatched before the commit"
    journal.release()
    await stage.finish("n")
    assert (await starting).run.status is RunStatus.COMPLETED
    parent, child = [commit.actor_id for commit in journal.transactions[0]]
    assert parent == (await starting).run.id and child != parent
    await stage.loop.stop()


async def test_a_child_of_a_start_that_cannot_be_written_never_existed() -> None:
    stage, journal = instant_stage()
    stage.instant_output = None
    stage.workflows.known.append(pinned("sub", "sub", nodes=SUB))
    journal.fails = True
    with pytest.raises(WonderError) as refused:
        await stage.start("team/sub", wait_ms=SOON)
    assert refused.value.fault.reason is Reason.STORAGE_UNAVAILABLE
    ((child, _),) = stage.tasks
    assert stage.loop.peek(child) is None and not journal.actors
    journal.fails = False
    await stage.wait_until_idle()
    assert not journal.actors
    await stage.loop.stop()
