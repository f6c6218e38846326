"""Handlers: each operation runs once, its result is reported, and a cancelled one ends at once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from tests.actors.kit import CONVERSATION_ID, Stage, TestJournal, run_ready_tasks
from tests.conformance.ports.journal_subjects import unfinished
from tests.core.conversation.conversation_kit import (
    ASSEMBLED,
    BUSINESS,
    RUN_ID,
    agent,
    call,
    task,
    text_answer,
    workflow,
)
from tests.replacing import replace
from tests.views import ForAll
from wonder_server.actors.access import ActorAccess
from wonder_server.actors.dispatch import handlers
from wonder_server.actors.dispatch.agent_calls import AgentCalls
from wonder_server.actors.dispatch.descendant_quota import DescendantQuota
from wonder_server.actors.dispatch.handlers import Handlers
from wonder_server.actors.dispatch.model_calls import ModelCalls
from wonder_server.actors.streaming.items import Delta, NodeProgress, PartKind
from wonder_server.adapters.in_memory.journal import MemoryShards
from wonder_server.adapters.in_memory.prices import MemoryPrices
from wonder_server.core import frozen
from wonder_server.core.actor.commands import RunTask, RunWorkflow, Scope
from wonder_server.core.content.answer_images import AnswerImage
from wonder_server.core.conversation.model.inputs import CancelTurn, TimerFired
from wonder_server.core.conversation.model.values import TurnStatus
from wonder_server.core.coordinator.model.inputs import EventEmitted, NodeFailed, NodeSucceeded
from wonder_server.core.definitions.specs import ModelProfile, Node, PinnedAgent, PinnedTask, Workflow
from wonder_server.core.errors import Fault, Reason, error
from wonder_server.core.json_types import JsonDict, JsonObject, JsonValue
from wonder_server.core.model import ModelResult
from wonder_server.ports.library import AgentPinning
from wonder_server.ports.model import ArgumentsDelta, Chunk, Finished, ReasoningDelta, TextDelta


class Outcome:
    def __init__(self, output: JsonDict | None = None, fault: Fault | None = None) -> None:
        self.output, self.fault = output, fault


class Tasks:
    """Tasks that return ``output``, or never end."""

    def __init__(self) -> None:
        self.output: JsonValue = ASSEMBLED
        self.scopes: list[Scope] = []
        self.wait = False
        self.quick = False
        """True for tasks that run inline."""
        self.inline_count = 0
        self.progress: list[object] = []
        self.events: list[tuple[str, str, JsonObject]] = []
        """Progress that each task reports."""

    def execute_inline(self, task: PinnedTask, given: JsonObject, scope: Scope, /) -> Outcome | None:
        if not self.quick:
            return None
        self.inline_count += 1
        if isinstance(self.output, Exception):
            raise self.output
        return Outcome(fault=self.output) if isinstance(self.output, Fault) else Outcome(self.output)

    async def execute(
        self,
        task: PinnedTask,
        given: JsonObject,
        scope: Scope,
        on_progress: object,
        on_event: object,
        /,
    ) -> Outcome:
        self.scopes.append(scope)
        for item in self.progress:
            on_progress(item)
        for event in self.events:
            on_event(*event)
        if self.wait:
            await asyncio.Event().wait()
        if isinstance(self.output, Exception):
            raise self.output
        return Outcome(fault=self.output) if isinstance(self.output, Fault) else Outcome(self.output)


class Model:
    """A model that streams pieces, then ends with each of ``ends`` in turn."""

    def __init__(self) -> None:
        self.pieces = ["Hel", "lo"]
        self.asides: list[ReasoningDelta | ArgumentsDelta] = []
        self.ends: list[object] = []
        self.closed = 0
        self.calls = 0

    async def stream(self, profile: ModelProfile, request: JsonDict) -> AsyncIterator[Chunk]:
        self.calls += 1
        try:
            for aside in self.asides:
                yield aside
            for piece in self.pieces:
                yield TextDelta(piece)
            end = self.ends.pop(0) if self.ends else text_answer("Hello")
            if end == "wait":
                await asyncio.Event().wait()
            elif isinstance(end, Exception):
                raise end
            elif isinstance(end, ModelResult | Finished):
                yield end if isinstance(end, Finished) else Finished(end)
        finally:
            self.closed += 1

    async def close(self) -> None:
        pass


class Memory:
    async def apply(self, operation: JsonObject, scope: Scope) -> JsonDict:
        return {}


class Agents:
    """A library of the agent ``agt_1``, named helper. Its context assembly returns its task's output."""

    async def pin_agent(self, ref: str) -> PinnedAgent:
        await asyncio.sleep(0)
        if ref not in ("agt_1", "helper"):
            raise error(Reason.AGENT_NOT_FOUND, "No agent has this id or name.")
        node = Node(id="n", task_id="t", output_mapping={"output.request": "result.request"})
        assembly = replace(workflow(), spec=Workflow(nodes=(node,), initial_node_id="n"))
        return replace(agent(extraction=False), assembly=assembly)


class HandlerStage(Stage):
    """A stage with real handlers over fake tasks and a fake model."""

    def __init__(self, journal: TestJournal | None = None, agents: AgentPinning | None = None) -> None:
        super().__init__(journal)
        self.tasks_done, self.model = Tasks(), Model()
        self.records = MemoryShards(self.journal)
        self.access = ActorAccess(
            directory=self.directory,
            journals=self.records,
            records=self.records,
            clock=self.clock,
        )
        self.model_executor = ModelCalls(
            directory=self.directory, model=self.model, prices=MemoryPrices(), streams=self.streams
        )
        self.quota = DescendantQuota()
        self.handlers = Handlers(
            access=self.access,
            tasks=self.tasks_done,
            memory=Memory(),
            model_calls=self.model_executor,
            agent_calls=AgentCalls(access=self.access, agents=ForAll(agents or Agents())),
            quota=self.quota,
        )
        self.runs_by_hand = False
        """True if the test starts the runs that are dispatched."""

    def _dispatch(self, actor_id: str, command: object) -> None:
        super()._dispatch(actor_id, command)
        if not (self.runs_by_hand and isinstance(command, RunWorkflow)):
            self.handlers.dispatch(actor_id, command)

    def _on_result(self, operation_id: str) -> None:
        self.quota.release(operation_id)

    async def wait_for_assembly(self) -> None:
        """Start a turn and wait until its model is called."""
        self.runs_by_hand = True
        await self.open()
        await self.send(extraction=False)
        (operation_id,) = self.state().operations
        self.runs_by_hand = False
        self.loop.report_success(CONVERSATION_ID, operation_id, ASSEMBLED)

    def status(self) -> TurnStatus:
        (turn,) = self.state().turns.values()
        return turn.status


async def test_an_answer_is_streamed_and_then_reported() -> None:
    stage = HandlerStage()
    reader, _ = stage.streams.subscribe(CONVERSATION_ID)
    await stage.wait_for_assembly()
    await run_ready_tasks()
    assert stage.status() is TurnStatus.COMPLETED
    said_so_far = "".join(getattr(item, "text", "") for item in reader.take())
    assert said_so_far == "Hello"
    assert stage.handlers.running == 0
    assert stage.model.closed == 1
    assert not stage.streams._open_messages


async def test_arguments_stream_and_reasoning_does_not_unless_the_persona_shows_it() -> None:
    stage = HandlerStage()
    stage.model.asides = [ReasoningDelta("Hm"), ArgumentsDelta(0, "call_1", "find", '{"q"')]
    reader, _ = stage.streams.subscribe(CONVERSATION_ID, kinds=tuple(PartKind))
    await stage.wait_for_assembly()
    await run_ready_tasks()
    assert stage.status() is TurnStatus.COMPLETED
    parts = [(item.part.kind, item.text) for item in reader.take() if isinstance(item, Delta) and item.part]
    assert parts == [(PartKind.ARGUMENTS, '{"q"')]

    (command,) = stage.model_calls()
    assert not command.shows_reasoning
    await stage.model_executor.call(CONVERSATION_ID, frozen.replace(command, shows_reasoning=True))
    parts = [(item.part.kind, item.text) for item in reader.take() if isinstance(item, Delta) and item.part]
    assert parts == [(PartKind.REASONING, "Hm"), (PartKind.ARGUMENTS, '{"q"')]


async def test_an_image_that_no_store_takes_is_described_in_the_stream_and_in_the_answer() -> None:
    stage = HandlerStage()
    image = AnswerImage(number=1, data="AAAA" * 1000, media_type="image/png", position=5)
    stage.model.ends = [Finished(text_answer("Hello"), images=(image,))]
    reader, _ = stage.streams.subscribe(CONVERSATION_ID)
    await stage.wait_for_assembly()
    await run_ready_tasks()
    assert stage.status() is TurnStatus.COMPLETED
    words = "[image: image-1.png, image/png, 3 KB; not stored: This server stores no files.]"
    assert "".join(getattr(item, "text", "") for item in reader.take()) == f"Hello\n{words}"
    (turn,) = stage.state().turns.values()
    message = stage.state().messages[turn.id][-1]
    assert (message.content, message.parts) == (f"Hello\n{words}", ())
    assert "AAAA" not in repr(stage.state())


async def test_a_cancelled_turn_closes_its_model_call_at_once() -> None:
    stage = HandlerStage()
    stage.model.ends = ["wait"]
    await stage.wait_for_assembly()
    await run_ready_tasks()
    assert stage.handlers.running == 1
    (turn_id,) = stage.state().turns
    await stage.loop.ask(
        CONVERSATION_ID,
        CancelTurn(turn_id=turn_id),
    )
    await run_ready_tasks()
    assert stage.model.closed == 1
    assert stage.handlers.running == 0
    assert stage.names()[-2:] == ["message.appended", "turn.cancelled"]


@pytest.mark.parametrize("end", ["nothing", error(Reason.MODEL_UNAVAILABLE, "Busy.", transient=True)])
async def test_an_incomplete_answer_is_requested_again(end: object) -> None:
    stage = HandlerStage()
    stage.model.ends = [end, text_answer("Hello")]
    reader, _ = stage.streams.subscribe(CONVERSATION_ID)
    await stage.wait_for_assembly()
    await run_ready_tasks()
    (operation,) = stage.state().operations.values()
    assert operation.attempt == 2
    reader.take()
    stage.clock.now = operation.wake_ms
    stage.loop.tell(CONVERSATION_ID, TimerFired(operation_id=operation.id))
    await run_ready_tasks()
    again, *_ = reader.take()
    assert again.restarted  # type: ignore[union-attr]
    assert stage.status() is TurnStatus.COMPLETED


@pytest.mark.usefixtures("_without_logs")
async def test_an_unexpected_error_of_a_handler_is_reported_without_details() -> None:
    stage = HandlerStage()
    stage.model.ends = [ZeroDivisionError("secret")]
    await stage.wait_for_assembly()
    await run_ready_tasks()
    (turn,) = stage.state().turns.values()
    assert turn.fault is not None
    assert turn.fault.reason is Reason.INTERNAL
    assert "secret" not in turn.fault.message


@pytest.mark.parametrize(
    ("output", "text"),
    [
        ({"n": 1}, '{"n":1}'),
        (Fault(reason=Reason.TASK_FAILED, message="No."), "EXECUTION_FAILED"),
        (error(Reason.PERMISSION_DENIED, "Not yours."), "PERMISSION_DENIED"),
    ],
)
async def test_a_tools_end_reaches_the_model(output: JsonValue, text: str) -> None:
    stage = HandlerStage()
    stage.model.ends = [text_answer("", call("find")), text_answer("Hello")]
    stage.tasks_done.output = output
    await stage.wait_for_assembly()
    await run_ready_tasks()
    assert text in stage.model_calls()[-1].request["messages"][-1]["content"]
    assert stage.status() is TurnStatus.COMPLETED


async def test_a_hook_is_a_run_and_its_cancellation_cancels_its_children() -> None:
    stage = HandlerStage()
    stage.tasks_done.wait = True
    await stage.open()
    sent = await stage.send()
    await run_ready_tasks()
    assert stage.handlers.running == 1
    assert stage.tasks_done.scopes[0].conversation_id == CONVERSATION_ID
    await stage.loop.ask(CONVERSATION_ID, CancelTurn(turn_id=sent.answer["turn_id"]))
    await run_ready_tasks()
    assert stage.handlers.running == 0
    assert stage.status() is TurnStatus.CANCELLED
    (command,) = stage.run_commands()
    assert stage.loop.peek(command.run_id) is None
    assert stage.recorded(command.run_id)[-1] == "workflow.cancelled"


async def test_an_operation_that_is_cancelled_before_its_start_leaves_nothing() -> None:
    stage = HandlerStage()
    await stage.open()
    await stage.send()
    await run_ready_tasks()
    stage.handlers.dispatch(CONVERSATION_ID, stage.commands[-1])
    await stage.handlers.stop()
    assert stage.handlers.running == 0


async def test_after_stop_nothing_is_reported_and_nothing_started() -> None:
    stage = HandlerStage()
    stage.model.ends = ["wait"]
    await stage.wait_for_assembly()
    await run_ready_tasks()
    commits = stage.journal.commits
    await stage.handlers.stop()
    stage.handlers.dispatch(CONVERSATION_ID, stage.model_calls()[0])
    await run_ready_tasks()
    assert stage.model.closed == stage.model.calls == 1
    assert stage.journal.commits == commits
    assert await unfinished(stage.journal) == [CONVERSATION_ID]


# --- inline tasks -----------------------------------------------------------------------------------


def task_of(run_id: str) -> RunTask:
    return RunTask(
        operation_id="op_1",
        task=task(),
        input={},
        scope=Scope(key=f"{run_id}/n/1"),
        node_id="n",
    )


class RecordingStage(HandlerStage):
    """A stage that records inputs instead of sending them."""

    def __init__(self) -> None:
        super().__init__()
        self.reports: list[object] = []
        self.loop.tell = lambda actor, event, *_, **__: self.reports.append((actor, event))  # type: ignore[method-assign]


@pytest.mark.parametrize(
    ("output", "report"),
    [
        ({"n": 1}, NodeSucceeded(operation_id="op_1", output={"n": 1})),
        (BUSINESS, NodeFailed(operation_id="op_1", fault=BUSINESS)),
    ],
)
async def test_a_task_without_io_runs_inline(output: JsonValue, report: Any) -> None:
    stage = RecordingStage()
    stage.tasks_done.quick, stage.tasks_done.output = True, output
    stage.handlers.dispatch(RUN_ID, task_of(RUN_ID))
    assert stage.reports == [(RUN_ID, report)]
    assert stage.handlers.running == 0


async def test_tasks_run_inline_only_for_a_time_slice(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stage = RecordingStage()
    stage.tasks_done.quick = True
    monkeypatch.setattr(handlers, "MAX_INLINE_S", 0.0)
    for _ in range(3):
        stage.handlers.dispatch(RUN_ID, task_of(RUN_ID))
    assert stage.tasks_done.inline_count == 1
    await run_ready_tasks()
    assert len(stage.reports) == 2, "both late commands are one operation"
    stage.handlers.dispatch(RUN_ID, task_of(RUN_ID))
    assert stage.tasks_done.inline_count == 2


@pytest.mark.usefixtures("_without_logs")
async def test_an_unexpected_error_of_an_inline_task_is_reported_without_details() -> None:
    stage = RecordingStage()
    stage.tasks_done.quick, stage.tasks_done.output = True, ZeroDivisionError("secret")
    stage.handlers.dispatch(RUN_ID, task_of(RUN_ID))
    ((_, failed),) = stage.reports
    assert failed.fault.reason is Reason.INTERNAL
    assert "secret" not in failed.fault.message


async def test_events_of_a_runs_task_are_reported_before_its_result() -> None:
    stage = RecordingStage()
    watcher, _ = stage.streams.subscribe(RUN_ID, wants_progress=True)
    stage.tasks_done.progress = ["half"]
    stage.tasks_done.events = [("k/s", "counted", {"n": 3})]
    stage.tasks_done.output = {"n": 3}
    stage.handlers.dispatch(RUN_ID, task_of(RUN_ID))
    await run_ready_tasks()
    assert stage.reports == [
        (RUN_ID, EventEmitted(operation_id="op_1", key="k/s", name="counted", payload={"n": 3})),
        (RUN_ID, NodeSucceeded(operation_id="op_1", output={"n": 3})),
    ]
    assert list(watcher.take()) == [NodeProgress(node_id="n", execution_id="op_1", item="half")]
