"""Shared parts of the runs' tests: workflows, and a stage whose executor is the test."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from tests.actors.kit import EVERYWHERE, LIMITS, FakeClock, origin, run_ready_tasks
from tests.conformance.ports.journal_subjects import Shards, opened
from tests.core.conversation.conversation_kit import task, workflow
from tests.core.coordinator.flows import workflow as flow
from wonder_server.actors.access import ActorAccess
from wonder_server.actors.directory import Directory
from wonder_server.actors.dispatch.descendant_quota import DescendantQuota
from wonder_server.actors.dispatch.handlers import Handlers
from wonder_server.actors.runs.lookup import RunView
from wonder_server.actors.runs.runs import Runs, StartRunRequest
from wonder_server.actors.runtime.limits import LoopLimits
from wonder_server.actors.runtime.loop import LoopPorts
from wonder_server.actors.streaming.hub import StreamHub
from wonder_server.core.actor.commands import Command, RunTask, RunWorkflow, Scope, Stop
from wonder_server.core.conversation.planner import CONVERSATION
from wonder_server.core.coordinator.model.inputs import Start
from wonder_server.core.coordinator.planner import RUN
from wonder_server.core.definitions.references import parse_reference
from wonder_server.core.definitions.specs import Pin, PinnedWorkflow
from wonder_server.core.errors import Fault, Reason, error
from wonder_server.core.json_types import JsonValue
from wonder_server.ports.journal import Commit

INPUT = {"type": "object", "properties": {"n": {"type": "integer"}}}
GATE = {"human_gate": {"prompt": "Ship it?", "user_ids": ["ann", "bob"]}}


def pinned(name: str, transitions: str, revision: int = 1, **fields: object) -> PinnedWorkflow:
    """Build a pinned workflow in the notation of `tests.core.coordinator.flows`. Its nodes may name the task
    ``t`` or the workflow ``w``."""
    nodes = fields.pop("nodes", None)
    edges = fields.pop("edges", None)
    spec = flow(transitions, nodes, edges, initial_node_id=transitions.split(">")[0].split()[0], **fields)
    pin = Pin(definition_id=f"def_{name}", library="team", name=name, revision=revision)
    return PinnedWorkflow(pin=pin, spec=spec, tasks={"t": task()}, workflows={"w": workflow()})


WORKFLOWS = (
    pinned("one", "a", input_schema=INPUT, state_schema={"properties": {"a": {"type": "object"}}}),
    pinned("chain", "a>b b>c"),
    pinned("chain", "a>b b>d", revision=2),
    pinned("fan", "a>b a>c b>d c>d", nodes={"a": {"fan_out": True}, "d": {"fan_in": {}}}),
    pinned("gate", "a>ask ask>b", nodes={"ask": GATE}),
    pinned("wait", "a>hold hold>b", nodes={"hold": {"wait": {"signal": "go"}}}),
    pinned("outer", "a>sub", nodes={"sub": {"workflow_id": "w"}}),
    pinned("loop", "a>a", edges={"a>a": {"loop_limit": 5000, "condition": "state.a.n < input.n"}}),
)


class KnownWorkflows:
    """A library of the workflows above and those that a test adds, by id or name, with or without a
    revision."""

    def __init__(self) -> None:
        self.known = list(WORKFLOWS)

    async def pin_workflow(self, reference: str) -> PinnedWorkflow:
        base, _, revision = reference.partition("@")
        found = [
            each
            for each in self.known
            if base in (each.pin.definition_id, f"team/{each.pin.name}")
            and revision in ("", str(each.pin.revision))
        ]
        if not found or (parse_reference(reference) is None and not base.startswith("def_")):
            raise error(Reason.DEFINITION_NOT_FOUND, f"There is no workflow '{reference}'.")
        return max(found, key=lambda each: each.pin.revision)


class RunStage:
    """Runs on a real loop. Tasks wait until the test ends them; children start as handlers start them."""

    def __init__(self, shards: Shards, limits: LoopLimits = LIMITS) -> None:
        self.shards = shards
        self.clock = FakeClock()
        self.streams = StreamHub(limit_items=200, limit_bytes=1 << 20)
        self.workflows = KnownWorkflows()
        self.tasks: list[tuple[str, RunTask]] = []
        self._dispatched = asyncio.Event()
        self.cancelled: list[str] = []
        self.instant_output: JsonValue = None
        """A function from a command to its output, for tasks that end at once; None for tasks that wait."""
        self.on_failpoint: dict[str, Callable[[], None]] = {}
        """Called when the work reaches a failpoint of this name."""
        self.handlers: Handlers | None = None
        """Handlers that execute the commands; None leaves them to the test."""
        self.quota = DescendantQuota()
        self.directory = Directory(self.streams, shards)
        self.loop = self.directory.start_loops(
            (CONVERSATION, RUN),
            LoopPorts(
                journal_of=shards.of,
                clock=self.clock,
                dispatch=self._dispatch,
                publish=self.streams.publish,
                on_result=self.quota.release,
                failpoints=self,
            ),
            limits,
            EVERYWHERE,
        )
        self.access = ActorAccess(
            directory=self.directory,
            journals=shards,
            records=shards,
            clock=self.clock,
        )
        self.runs = Runs(access=self.access, workflows=self.workflows)

    def reach(self, point: str, subject: str = "") -> None:
        if act := self.on_failpoint.get(point):
            act()

    def _dispatch(self, actor_id: str, command: Command) -> None:
        if self.handlers is not None:
            self.handlers.dispatch(actor_id, command)
            return
        match command:
            case RunTask() if self.instant_output is not None:
                self.loop.report_success(actor_id, command.operation_id, self.instant_output(command))
            case RunTask():
                self.tasks.append((actor_id, command))
                self._dispatched.set()
            case RunWorkflow():
                self.loop.tell(
                    command.run_id,
                    Start(
                        run_id=command.run_id,
                        workflow=command.workflow,
                        input=command.input,
                        scope=command.scope,
                        parent=command.parent,
                        volatile=command.volatile,
                    ),
                    fresh=command.fresh,
                )
            case Stop():
                self.cancelled.append(command.operation_id)

    async def start(self, workflow: str = "team/one", request_id: str = "", **fields: object) -> RunView:
        fields.setdefault("input", {})
        fields.setdefault("metadata", {})
        fields.setdefault("scope", Scope(project_id="proj_default"))
        wait_ms = fields.pop("wait_ms", 0)
        start_request = StartRunRequest(workflow=workflow, **fields)
        return await self.runs.start(start_request, origin(request_id), wait_ms=wait_ms)

    async def task(self, node_id: str, run_id: str = "") -> tuple[str, RunTask]:
        """Remove and return the oldest waiting task of this node."""
        async with asyncio.timeout(60):
            while True:
                for index, (actor, command) in enumerate(self.tasks):
                    if command.node_id == node_id and run_id in ("", actor):
                        return self.tasks.pop(index)
                self._dispatched.clear()
                await self._dispatched.wait()

    async def finish(self, node_id: str, output: JsonValue = None, run_id: str = "") -> None:
        """End the oldest task of this node and wait until the loop is idle."""
        actor, command = await self.task(node_id, run_id)
        self.loop.report_success(actor, command.operation_id, output or {})
        await self.wait_until_idle()

    async def fail(self, node_id: str) -> None:
        actor, command = await self.task(node_id)
        self.loop.report_failure(actor, command.operation_id, Fault(reason=Reason.TASK_FAILED, message="No."))
        await self.wait_until_idle()

    async def wait_until_idle(self) -> None:
        """Wait until all ready work is done and committed."""
        await run_ready_tasks()
        while not self.loop.is_idle:
            await self.loop.wait_until_idle()
            await run_ready_tasks()

    async def put(self, *commits: Commit) -> None:
        """Write commits as another part of the server would."""
        for commit in commits:
            await self.shards.of(commit.actor_id).commit([commit])


@asynccontextmanager
async def open_stage(
    kind: str = "memory", folder: Path | None = None, limits: LoopLimits = LIMITS
) -> AsyncIterator[RunStage]:
    """Yield a stage on shards in memory or in files."""
    async with opened(kind, folder) as shards:
        stage = RunStage(shards, limits)
        yield stage
        await stage.loop.stop()
