"""Forks: a new run that continues another run's record from a chosen point (feature G9).

A fork replays the record from its start. Recorded decisions, not today's planner, change a new state and
write rows, as they did then. The rows at the point become the past of the new run. A point is between two
journal entries, since the decisions of one entry take effect together. An event stands for the end of its
entry. A node execution stands for the end of the entry before its dispatch, so it runs again, as does
everything else that was in progress.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Protocol

import msgspec

from wonder_server.actors.runs.lookup import ENDED, RunLookup, RunView
from wonder_server.actors.runs.starts import RunStarter, StartedBy
from wonder_server.core.actor.changes import Delete, Emit, Put
from wonder_server.core.actor.commands import Scope
from wonder_server.core.coordinator.model.inputs import ForkSource, StartFork
from wonder_server.core.coordinator.model.values import (
    ContextValue,
    ExecutionStatus,
    FanOut,
    NodeExecution,
    Pinned,
    Run,
    Signal,
    Token,
)
from wonder_server.core.coordinator.planner import RUN
from wonder_server.core.coordinator.planning.plan_builder import ROOT
from wonder_server.core.definitions.specs import PinnedWorkflow
from wonder_server.core.errors import Reason, WonderError, error, not_found
from wonder_server.core.frozen import replace
from wonder_server.core.idempotency import Origin, content_key
from wonder_server.core.json_types import JsonDict
from wonder_server.core.schema import schemas
from wonder_server.ports.journal import Entry
from wonder_server.ports.library import WorkflowPinning

MAX_EXECUTIONS = 2_000
MAX_EXECUTION_BYTES = 8 << 20
"""Limits of ended node executions that a fork copies, newest first: their number, and their bytes. They are
history that no workflow can refer to."""


class Branches(Protocol):
    """The repositories, as forks use them: the files of a run."""

    async def fork(self, old: Scope, new: Scope) -> None:
        """Create the branch of ``new`` with the current files of ``old``."""
        ...

    async def delete_fork(self, new: Scope) -> None:
        """Delete the branch of a rejected fork."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ForkRequest:
    """A fork to create: the contract's ``ForkRunRequest``.

    One of ``after_sequence`` and ``before_execution``, an ordinal, is 0. None and revision 0 keep the run's
    own values.
    """

    run_id: str
    after_sequence: int = 0
    before_execution: int = 0
    input: JsonDict | None = None
    state: JsonDict | None = None
    revision: int = 0

    @property
    def field(self) -> str:
        """Name of the request's field that holds the point."""
        return "before_node_execution" if self.before_execution else "after_sequence"


class Forks:
    """Creates forks of runs."""

    def __init__(
        self,
        *,
        lookup: RunLookup,
        workflows: WorkflowPinning,
        starter: RunStarter,
        branches: Branches | None = None,
    ) -> None:
        self._branches = branches
        self._lookup = lookup
        self._workflows = workflows
        self._starter = starter

    async def fork(self, fork_request: ForkRequest, origin: Origin) -> RunView:
        """Create a fork and return the new run, which is on disk.

        Errors: RUN_NOT_FOUND, CURSOR_OUT_OF_RANGE, INPUT_INVALID, DEFINITION_NOT_FOUND, REQUEST_ID_REUSED.
        """
        identity = content_key(
            "runs",
            origin,
            fork=fork_request.run_id,
            after=fork_request.after_sequence,
            before=fork_request.before_execution,
            input=fork_request.input,
            state=fork_request.state,
            revision=fork_request.revision,
        )

        branch_scopes: list[Scope] = []

        async def build(run_id: str) -> StartFork:
            start = await self._input(run_id, fork_request, origin)
            if self._branches is not None:
                # Fork the files before the run is on disk: its first node may need them.
                branch_scopes.append(replace(start.scope, run_id=run_id))
                await self._branches.fork(replace(start.scope, run_id=fork_request.run_id), branch_scopes[0])
            return start

        try:
            self._lookup.check_id(fork_request.run_id)
            # The source has the shard of its conversation, and the fork belongs to the same conversation.
            started = StartedBy(identity, origin.principal.caller, fork_request.run_id)
            return await self._starter.start(started, build)
        except WonderError as problem:
            if branch_scopes and self._branches is not None and problem.fault.reason is Reason.INPUT_INVALID:
                await self._branches.delete_fork(branch_scopes[0])
            raise

    async def _input(self, run_id: str, fork_request: ForkRequest, origin: Origin) -> StartFork:
        restored = await self._restore_at(fork_request)
        _check_root(restored)
        run, workflow = restored.run, restored.pinned.workflow
        if fork_request.revision:
            workflow = await self._revision(run, fork_request.revision)
            _check_nodes(workflow, restored)
        if fork_request.state is not None:
            _check_state(workflow, fork_request.state)
        return StartFork(
            run_id=run_id,
            workflow=workflow,
            input=run.input if fork_request.input is None else fork_request.input,
            scope=replace(run.scope, run_id="", key="", principal=origin.principal.text),
            source=restored.fork_source(run_id, fork_request.state),
            metadata=run.metadata,
        )

    async def _restore_at(self, fork_request: ForkRequest) -> _RestoredRun:
        """Replay the record up to the point."""
        view, restored = await self._lookup.snapshot(fork_request.run_id), _RestoredRun()
        head = view.head
        last = head.executions if fork_request.before_execution else head.sequence
        if max(fork_request.before_execution, fork_request.after_sequence) > last:
            yet = "" if view.run.status in ENDED else " yet"
            raise _out_of_range(fork_request, _beyond(fork_request, last, yet))
        async for page in self._lookup.journal(fork_request.run_id):
            for entry in page:
                restored.step(entry)
                if 0 < fork_request.after_sequence <= restored.events:
                    _check_open(restored, fork_request)
                    return restored
                if 0 < fork_request.before_execution <= restored.ordinal:
                    _check_runs(restored, fork_request)
                    return restored
        raise AssertionError("the record ends before its head")

    async def _revision(self, run: Run, revision: int) -> PinnedWorkflow:
        try:
            return await self._workflows.pin_workflow(f"{run.workflow_id}@{revision}")
        except WonderError as problem:
            if problem.fault.reason is not Reason.DEFINITION_NOT_FOUND:
                raise
            raise not_found(
                Reason.DEFINITION_NOT_FOUND,
                f"{run.workflow_ref.partition('@')[0]}@{revision}",
                field="workflow_revision",
                noun="workflow",
                next_step="List its revisions with ListRevisions, or omit the revision for that of the run.",
            ) from None


@dataclass(slots=True)
class _RestoredRun:
    """The rows of a run after the replayed entries."""

    events: int = 0
    ordinal: int = 0
    """The highest ordinal of its node executions."""
    _state: object = field(default_factory=RUN.new_state)
    _rows: dict[str, dict[str, Put]] = field(default_factory=lambda: {table: {} for table in RUN.row_types})

    @property
    def run(self) -> Run:
        (put,) = self._rows["runs"].values()
        run: Run = put.value
        return run

    @property
    def pinned(self) -> Pinned:
        (put,) = self._rows["works"].values()
        pinned: Pinned = put.value
        return pinned

    @property
    def tokens(self) -> tuple[Token, ...]:
        return tuple(self._values("tokens"))

    @property
    def fan_outs(self) -> tuple[FanOut, ...]:
        return tuple(self._values("forks"))

    @property
    def executions(self) -> Iterator[NodeExecution]:
        return (put.value for put in self._rows["executions"].values())

    def step(self, entry: Entry) -> None:
        """Apply the decisions of an entry."""
        for decision in entry.decisions:
            RUN.apply(self._state, decision)
            for change in RUN.record(self._state, decision):
                if isinstance(change, Emit):
                    self.events += 1
                elif isinstance(change, Delete):
                    self._rows[change.table].pop(change.id, None)
                elif isinstance(change, Put):
                    self._put(change)
        if len(self._rows["executions"]) > 2 * MAX_EXECUTIONS:
            self._rows["executions"] = {put.id: put for put in self._retained()}

    def fork_source(self, run_id: str, state: JsonDict | None) -> ForkSource:
        """Return the past of a fork with this id. ``state`` replaces the run's workflow state, if given."""
        branches = {"", *self._rows["tokens"]}
        context: list[ContextValue] = [
            entry for entry in self._values("context") if entry.token_id in branches
        ]
        if state is not None:
            context = [entry for entry in context if entry.section != "state"]
            context += [
                ContextValue(run_id=run_id, section="state", key=key, value=value)
                for key, value in state.items()
            ]
        # A signal's row is as old as its first signal. The fork receives signals in the order of their
        # arrival.
        signals: list[Signal] = sorted(self._values("signals"), key=lambda each: each.number)
        return ForkSource(
            run_id=self.run.id,
            tokens=self.tokens,
            fan_outs=self.fan_outs,
            executions=tuple(put.value for put in self._retained()),
            context=tuple(context),
            signals=tuple(signals),
        )

    def _put(self, put: Put) -> None:
        rows = self._rows[put.table]
        if put.table == "executions":
            self.ordinal = max(self.ordinal, put.ordinal)
        elif not put.live and put.table not in ("runs", "context"):
            rows.pop(put.id, None)
            return
        rows[put.id] = put

    def _retained(self) -> list[Put]:
        """Return the executions that a fork copies: all running ones, and the newest ended ones."""
        retained: list[Put] = []
        count, remaining_bytes = MAX_EXECUTIONS, MAX_EXECUTION_BYTES
        for put in sorted(self._rows["executions"].values(), key=lambda put: -put.ordinal):
            if put.value.status is not ExecutionStatus.RUNNING:
                count, remaining_bytes = count - 1, remaining_bytes - len(msgspec.json.encode(put.value))
                if count < 0 or remaining_bytes < 0:
                    continue
            retained.append(put)
        return retained[::-1]

    def _values(self, table: str) -> Iterator[Any]:
        return (put.value for put in self._rows[table].values())


def _check_open(restored: _RestoredRun, fork_request: ForkRequest) -> None:
    """Raise INPUT_INVALID if the run had ended at the point."""
    if restored.run.status in ENDED:
        raise error(
            Reason.INPUT_INVALID,
            f"The run had ended at event {fork_request.after_sequence}. Choose an earlier event, or a node "
            f"execution with `before_node_execution`; the last one is {restored.ordinal}.",
            field="after_sequence",
        )


def _check_runs(restored: _RestoredRun, fork_request: ForkRequest) -> None:
    """Raise CURSOR_OUT_OF_RANGE if the execution started and ended within one entry."""
    for execution in restored.executions:
        if execution.ordinal == fork_request.before_execution:
            if execution.status is ExecutionStatus.RUNNING:
                return
            break
    raise _out_of_range(
        fork_request,
        f"Node execution {fork_request.before_execution} started and ended within one journal entry. Choose "
        "another one, or an event with `after_sequence`.",
    )


def _check_root(restored: _RestoredRun) -> None:
    """Raise INPUT_INVALID for a run of an older version, whose tokens are not a tree."""
    if all(token.id != ROOT for token in restored.tokens):
        message = "An older version of Wonder recorded the run, so it cannot be forked. Start a new run."
        raise error(Reason.INPUT_INVALID, message, field="run_id")


def _check_nodes(workflow: PinnedWorkflow, restored: _RestoredRun) -> None:
    """Raise INPUT_INVALID if the workflow lacks a node of a token or of a branch that has not started."""
    node_ids = {node.id for node in workflow.spec.nodes}
    needed = {token.node_id: None for token in restored.tokens}
    for fan_out in restored.fan_outs:
        needed.update(dict.fromkeys((fan_out.node_id, *(start.node_id for start in fan_out.branches))))
    missing = [node_id for node_id in needed if node_id not in node_ids]
    if missing:
        raise error(
            Reason.INPUT_INVALID,
            f"{workflow.pin} has no node `{missing[0]}`, which the run had reached. Choose another revision "
            "or another point.",
            field="workflow_revision",
            node=missing[0],
        )


def _check_state(workflow: PinnedWorkflow, state: JsonDict) -> None:
    """Raise INPUT_INVALID if a new state does not match the workflow's state schema."""
    schema = workflow.spec.state_schema
    problems = schemas.validate(schema, state) if schema else []
    if problems:
        message = f"The state does not match the workflow's schema: {'; '.join(problems[:5])}"
        raise error(Reason.INPUT_INVALID, message, field="state")


def _beyond(fork_request: ForkRequest, last: int, yet: str) -> str:
    """Return the message for a point after the last one."""
    if fork_request.before_execution:
        given, unit = fork_request.before_execution, "node execution"
    else:
        given, unit = fork_request.after_sequence, "event"
    count = f"{last} {unit}" if last == 1 else f"{last} {unit}s"
    remedy = f"Choose a number from 1 to {last}." if last else "Fork it later."
    return f"The run has no {unit} {given}{yet}; it has {count}. {remedy}"


def _out_of_range(fork_request: ForkRequest, sentence: str) -> WonderError:
    return error(Reason.CURSOR_OUT_OF_RANGE, sentence, field=fork_request.field)
