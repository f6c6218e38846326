"""Tests of the progress of a run and of the end of a node execution: what decisions about them carry."""

from __future__ import annotations

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from tests.replacing import replace
from wonder_server.core.actor.commands import Scope
from wonder_server.core.coordinator.model.progress import (
    ExecutionEnd,
    RunProgress,
    ended,
    progress_of,
    with_progress,
)
from wonder_server.core.coordinator.model.values import ExecutionStatus, NodeExecution, Run, RunStatus
from wonder_server.core.errors import Fault, Reason

RUN = Run(
    id="run_1",
    workflow_ref="shop/order@1",
    workflow_id="def_1",
    scope=Scope(project_id="proj_1"),
    input={"question": "Which colour?"},
    created_ms=4,
    deadline_ms=90,
)
EXECUTION = NodeExecution(
    id="op_1", run_id="run_1", ordinal=3, node_id="ask", input={"question": "Which colour?"}, started_ms=5
)
COUNTS = st.integers(0, 1 << 40)
FAULTS = st.none() | st.builds(Fault, reason=st.sampled_from(Reason), message=st.text())
PROGRESS = st.builds(
    RunProgress,
    id=st.just(RUN.id),
    status=st.sampled_from(RunStatus),
    output=st.dictionaries(st.text(), st.integers()),
    fault=FAULTS,
    executions=COUNTS,
    updated_ms=COUNTS,
    completed_ms=COUNTS,
    cancelled_by=st.text(),
)
ENDS = st.builds(
    ExecutionEnd,
    id=st.just(EXECUTION.id),
    status=st.sampled_from(ExecutionStatus),
    output=st.none() | st.text() | st.dictionaries(st.text(), st.integers()),
    fault=FAULTS,
    completed_ms=COUNTS,
)


@given(PROGRESS, PROGRESS)
def test_a_run_takes_over_every_field_of_a_progress_and_keeps_the_others(
    earlier: RunProgress, later: RunProgress
) -> None:
    before = with_progress(RUN, earlier)
    after = replace(before, **{name: getattr(later, name) for name in RunProgress.__struct_fields__})
    assert with_progress(before, later) == after
    assert progress_of(after) == later


@given(PROGRESS)
def test_a_whole_run_of_an_older_journal_is_read_as_its_progress(progress: RunProgress) -> None:
    whole = msgspec.json.encode(with_progress(RUN, progress))
    assert msgspec.json.decode(whole, type=RunProgress) == progress


@given(ENDS)
def test_a_node_execution_takes_over_its_end_and_an_older_journal_is_read_as_it(end: ExecutionEnd) -> None:
    after = replace(EXECUTION, **{name: getattr(end, name) for name in ExecutionEnd.__struct_fields__})
    assert ended(EXECUTION, end) == after
    assert msgspec.json.decode(msgspec.json.encode(after), type=ExecutionEnd) == end


def test_neither_repeats_the_input() -> None:
    assert b"colour" not in msgspec.json.encode(progress_of(RUN))
    assert "input" not in ExecutionEnd.__struct_fields__
