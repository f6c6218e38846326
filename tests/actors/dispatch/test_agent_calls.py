"""Agents called by nodes of runs, on a stage with real planners and handlers."""

from __future__ import annotations

import dataclasses
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from tests.actors.dispatch.test_handlers import Agents, HandlerStage
from tests.actors.kit import CONVERSATION_ID, SHARD, TestJournal, run_ready_tasks
from tests.core.conversation.conversation_kit import ASSEMBLED, pin
from tests.views import ForAll
from wonder_server.actors.archive.archiver import NullArchive
from wonder_server.actors.dispatch.agent_calls import AgentCalls, input_text
from wonder_server.core.actor.commands import MAX_DEPTH, CallAgent, Scope, Stop
from wonder_server.core.conversation.model.inputs import MAX_CONTENT_BYTES
from wonder_server.core.conversation.model.lifecycle_inputs import Leave
from wonder_server.core.conversation.model.state import ConversationState
from wonder_server.core.conversation.model.values import Conversation, Turn, TurnStatus
from wonder_server.core.conversation.planner import CONVERSATION
from wonder_server.core.coordinator.model.inputs import CancelRun, Start
from wonder_server.core.coordinator.model.values import Run, RunStatus
from wonder_server.core.coordinator.planner import RUN
from wonder_server.core.definitions.specs import Node, PinnedAgent, PinnedWorkflow, Retry, Workflow
from wonder_server.core.errors import Reason, WonderError, error
from wonder_server.core.frozen import replace
from wonder_server.core.ids import shard_of
from wonder_server.core.json_types import JsonDict, JsonValue
from wonder_server.ports.library import AgentPinning
from wonder_server.ports.records import Query

RUN_ID = f"run_01HF7YAT00000000000000001{SHARD}"


class CallStage(HandlerStage):
    """A stage on which runs call the agent ``helper``, whose model says ``Hello``."""

    def __init__(self, journal: TestJournal | None = None, agents: AgentPinning | None = None) -> None:
        super().__init__(journal, agents)
        self.tasks_done.quick = True

    def calls(self) -> list[CallAgent]:
        return [command for command in self.commands if isinstance(command, CallAgent)]

    async def run(self, scope: Scope | None = None, agent: str = "agt_1", **node: object) -> None:
        """Start a run of one node, which calls an agent."""
        node.setdefault("input_mapping", {"question": "input.question"})
        spec = Workflow(nodes=(Node(id="ask", agent_id="helper", **node),), initial_node_id="ask")
        workflow = PinnedWorkflow(pin=pin("asking"), spec=spec, agents={"helper": agent})
        start = Start(
            run_id=RUN_ID,
            workflow=workflow,
            input={"question": "Two or three?"},
            scope=scope or Scope(project_id="proj_9"),
        )
        await self.loop.ask(RUN_ID, start)
        await run_ready_tasks()

    async def wait_for_end(self) -> Run:
        await run_ready_tasks()
        run: Run | None = await self.records.get("runs", RUN_ID, RUN_ID)
        assert run is not None
        return run

    async def result(self) -> JsonDict:
        run = await self.wait_for_end()
        assert run.status is RunStatus.COMPLETED, run.fault
        (execution,) = await self.records.find(Query(table="executions", actor=RUN_ID))
        output: JsonDict = execution.output
        return output

    async def turns(self, conversation_id: str) -> list[Turn]:
        return await self.records.find(Query(table="turns", actor=conversation_id, newest_first=False))

    async def restart(self) -> CallStage:
        """Return the stage of another process on the same journal."""
        await self.handlers.stop()
        await self.loop.stop()
        return CallStage(self.journal)


# --- delegate ---------------------------------------------------------------------------------------


async def test_a_delegated_turn_has_a_conversation_of_its_own_and_answers_the_run() -> None:
    stage = CallStage()
    await stage.run()
    output = await stage.result()
    (command,) = stage.calls()
    assert output["text"] == "Hello"
    assert (output["agent_id"], output["conversation_id"]) == ("agt_1", command.conversation_id)
    conversation: Conversation | None = await stage.records.get("conversations", command.conversation_id)
    assert conversation is not None
    assert [(p.type, p.id) for p in conversation.participants] == [("agent", "agt_1")]
    assert (conversation.project_id, conversation.called_by) == ("proj_9", RUN_ID)
    (turn,) = await stage.turns(command.conversation_id)
    assert turn.id == output["turn_id"]
    assert (turn.input, turn.output, turn.depth) == ("Two or three?", "Hello", 1)
    assert (turn.caller.type, turn.caller.run_id) == ("workflow", RUN_ID)
    (hook,) = stage.run_commands()
    assert hook.input["history"] == []
    assert (hook.scope.agent_id, hook.scope.depth, hook.scope.project_id) == ("agt_1", 1, "proj_9")


async def test_the_conversation_and_its_turn_take_one_commit() -> None:
    stage = CallStage()
    await stage.run()
    await stage.result()
    (command,) = stage.calls()
    written = [
        [c for c in commits if c.actor_id == command.conversation_id]
        for commits in stage.journal.transactions
    ]
    (first, *_) = [commits[0] for commits in written if commits]
    assert [type(entry.input).__name__ for entry in first.entries[:2]] == ["Create", "Send"]


async def test_a_deleted_agent_fails_the_node() -> None:
    stage = CallStage()
    await stage.run(agent="agt_9")
    run = await stage.wait_for_end()
    assert run.fault is not None and run.fault.reason is Reason.AGENT_NOT_FOUND
    assert not [a for a in stage.journal.actors if a.startswith("conv_")]


async def test_a_turn_that_fails_fails_the_node_with_its_reason() -> None:
    stage = CallStage()
    stage.model.ends = [error(Reason.MODEL_FAILED, "The key is not valid.")]
    await stage.run()
    run = await stage.wait_for_end()
    assert run.fault is not None and run.fault.reason is Reason.MODEL_FAILED
    assert run.fault.metadata["conversation_id"] == stage.calls()[0].conversation_id


async def test_the_depth_of_agent_calls_is_limited() -> None:
    stage = CallStage()
    await stage.run(Scope(depth=MAX_DEPTH - 1))
    assert (await stage.result())["text"] == "Hello"
    deeper = CallStage()
    await deeper.run(Scope(depth=MAX_DEPTH))
    run = await deeper.wait_for_end()
    assert run.fault is not None and run.fault.reason is Reason.LIMIT_EXCEEDED


async def test_an_agent_whose_context_assembly_calls_itself_fails() -> None:
    class Narcissus(Agents):
        async def pin_agent(self, ref: str) -> PinnedAgent:
            pinned = await super().pin_agent(ref)
            node = Node(id="ask", agent_id="helper", input_mapping={"question": "input.user_message"})
            spec = Workflow(nodes=(node,), initial_node_id="ask")
            mirror = PinnedWorkflow(pin=pin("mirror"), spec=spec, agents={"helper": "agt_1"})
            return dataclasses.replace(pinned, assembly=mirror)

    stage = CallStage(agents=Narcissus())
    await stage.run()
    run = await stage.wait_for_end()
    assert run.fault is not None and run.fault.reason is Reason.CONTEXT_ASSEMBLY_FAILED
    assert "in a cycle" in run.fault.message
    assert [turn.depth for turn in await stage.records.find(Query(table="turns"))] == [1]


# --- after a crash ----------------------------------------------------------------------------------


async def test_a_run_that_asks_again_while_the_agent_works_waits_for_the_same_turn() -> None:
    stage = CallStage()
    stage.model.ends = ["wait"]
    await stage.run()
    restarted = await stage.restart()
    await restarted.loop.resume()
    await run_ready_tasks()
    assert (await restarted.result())["text"] == "Hello"
    (command,) = restarted.calls()
    assert command.dispatches == 2
    assert len(await restarted.turns(command.conversation_id)) == 1


async def test_a_lost_answer_is_repeated() -> None:
    stage = CallStage()
    await stage.run()
    output = await stage.result()
    (command,) = stage.calls()
    reports: list[object] = []
    stage.loop.tell = lambda actor, event, *_, **__: reports.append((actor, event))  # type: ignore[method-assign]
    stage.handlers.dispatch(RUN_ID, replace(command, dispatches=2))
    await run_ready_tasks()
    ((actor, event),) = reports
    assert (actor, event.operation_id) == (RUN_ID, command.operation_id)
    assert event.output == output


class RestoringArchive(NullArchive):
    """An archive that brings the turns of a conversation back to disk for the time of `on_disk`."""

    def __init__(self, stage: CallStage, conversation_id: str) -> None:
        self._turns = stage.journal.memory.tables["turns"]
        self._archived = self._turns.pop(conversation_id)

    @asynccontextmanager
    async def on_disk(self, conversation_id: str) -> AsyncIterator[None]:
        self._turns[conversation_id] = self._archived
        yield
        del self._turns[conversation_id]


@pytest.mark.parametrize("mode", ["delegate", "loop_in"])
async def test_a_lost_answer_is_repeated_from_an_archived_conversation(mode: str) -> None:
    stage = CallStage()
    await stage.run()
    output = await stage.result()
    (command,) = stage.calls()
    archive = RestoringArchive(stage, command.conversation_id)
    inputs: list[tuple[str, object]] = []
    stage.loop.tell = lambda actor, event, *_, **__: inputs.append((actor, event))  # type: ignore[method-assign]
    agent_calls = AgentCalls(access=stage.access, agents=ForAll(Agents()), archive=archive)
    await agent_calls.begin(replace(command, dispatches=2, mode=mode))
    ((actor, event),) = inputs
    assert (actor, event.output) == (RUN_ID, output)  # type: ignore[attr-defined]


async def test_a_retry_after_an_infrastructure_fault_gets_its_own_conversation() -> None:
    stage = CallStage()
    busy = error(Reason.MODEL_UNAVAILABLE, "Busy.", transient=True)
    stage.model.ends = [busy]
    await stage.run(retry=Retry(max_attempts=2, backoff_ms=50, timeout_ms=0))
    for _ in range(10):
        stage.clock.now += 60_000
        for actor_id in list(stage.journal.actors):
            planner = RUN if actor_id.startswith("run_") else CONVERSATION
            for operation in list(getattr(stage.loop.peek(actor_id), "operations", {}).values()):
                stage.loop.tell(actor_id, planner.timer_fired(operation.id))
        stage.model.ends = [busy] if len(stage.calls()) < 2 else []
        await run_ready_tasks()
    assert (await stage.result())["text"] == "Hello"
    first, second = stage.calls()
    assert first.operation_id == second.operation_id
    assert first.conversation_id != second.conversation_id


# --- cancellation -----------------------------------------------------------------------------------


async def test_a_cancelled_run_stops_its_agents_model_and_keeps_the_partial_text() -> None:
    stage = CallStage()
    stage.model.ends = ["wait"]
    await stage.run()
    assert stage.handlers.running == 1
    await stage.loop.ask(RUN_ID, CancelRun())
    await run_ready_tasks()
    assert stage.handlers.running == 0
    assert stage.model.closed == 1
    conversation_id = stage.calls()[0].conversation_id
    (turn,) = await stage.turns(conversation_id)
    assert turn.status is TurnStatus.CANCELLED
    assert stage.names(conversation_id)[-2:] == ["message.appended", "turn.cancelled"]


async def test_a_cancel_whose_stop_was_lost_with_the_server_reaches_the_agent_after_the_next_start() -> None:
    stage = CallStage()
    stage.model.ends = ["wait"]
    await stage.run()
    await stage.handlers.stop()  # The server stops before it executes the command.
    await stage.loop.ask(RUN_ID, CancelRun())
    restarted = await stage.restart()
    restarted.model.ends = ["wait"]
    resumed = await restarted.loop.resume(restarted.handlers)
    assert resumed.orphans == 1
    await run_ready_tasks()
    (turn,) = await restarted.turns(stage.calls()[0].conversation_id)
    assert turn.status is TurnStatus.CANCELLED
    assert restarted.handlers.running == 0


async def test_a_called_turn_that_is_on_disk_only_is_cancelled_with_its_run() -> None:
    stage = CallStage()
    stage.model.ends = ["wait"]
    await stage.run()
    restarted = await stage.restart()
    conversation_id = stage.calls()[0].conversation_id
    await restarted.loop.ask(RUN_ID, CancelRun())
    assert restarted.loop.peek(conversation_id) is None
    await run_ready_tasks()
    (turn,) = await restarted.turns(conversation_id)
    assert turn.status is TurnStatus.CANCELLED
    assert (await restarted.loop.resume(restarted.handlers)).dispatched == 0


async def test_a_turn_with_a_waiting_parent_is_not_cancelled_as_an_orphan() -> None:
    stage = CallStage()
    stage.model.ends = ["wait"]
    await stage.run()
    await stage.wait_for_assembly()
    restarted = await stage.restart()
    resumed = await restarted.loop.resume(restarted.handlers)
    assert resumed.orphans == 0
    await run_ready_tasks()
    assert (await restarted.result())["text"] == "Hello"


async def test_a_call_that_is_cancelled_before_its_agent_is_resolved_leaves_no_conversation() -> None:
    stage = CallStage()
    await stage.run()
    (command,) = stage.calls()
    other = replace(command, operation_id="op_x", conversation_id=CONVERSATION_ID)
    stage.handlers.dispatch(RUN_ID, other)
    stage.handlers.dispatch(RUN_ID, Stop(operation_id="op_x", child_id=CONVERSATION_ID))
    await run_ready_tasks()
    assert CONVERSATION_ID not in stage.journal.actors


async def test_a_cancel_of_a_turn_of_another_owner_is_dropped() -> None:
    stage = CallStage()
    stage.loop.lose(shard_of(CONVERSATION_ID))
    agent_calls = AgentCalls(access=stage.access, agents=ForAll(Agents()))
    await agent_calls.cancel(CONVERSATION_ID, "op_x")
    assert stage.loop.is_idle


# --- loop in ----------------------------------------------------------------------------------------


async def test_a_looped_in_agent_joins_the_runs_conversation_and_stays() -> None:
    stage = CallStage()
    await stage.wait_for_assembly()
    await run_ready_tasks()
    stage.tasks_done.output = ASSEMBLED
    await stage.loop.ask(CONVERSATION_ID, Leave(type="agent", id="agt_1"))
    await stage.run(Scope(conversation_id=CONVERSATION_ID), invocation_mode="loop_in")
    output = await stage.result()
    assert (output["text"], output["conversation_id"]) == ("Hello", CONVERSATION_ID)
    state = stage.loop.peek(CONVERSATION_ID)
    assert isinstance(state, ConversationState) and state.conversation is not None
    member = state.conversation.participants[-1]
    assert (member.id, member.origin) == ("agt_1", "looped_in")
    assert member.added_by is not None and member.added_by.run_id == RUN_ID
    assert "participant.joined" in stage.names(CONVERSATION_ID)
    assert state.conversation.called_by == ""
    assert [m["content"] for m in stage.run_commands()[-1].input["history"]] == ["hello", "Hello"]


@pytest.mark.parametrize("conversation_id", ["conv_x", CONVERSATION_ID])
async def test_an_agent_cannot_join_a_missing_conversation(conversation_id: str) -> None:
    stage = CallStage()
    await stage.run(Scope(conversation_id=conversation_id), invocation_mode="loop_in")
    run = await stage.wait_for_end()
    assert run.fault is not None and run.fault.reason is Reason.CONVERSATION_NOT_FOUND
    assert conversation_id not in stage.journal.actors


# --- the agent's input ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "content"),
    [
        ({"question": "Two?"}, "Two?"),
        ("Two?", "Two?"),
        ({"question": "Two?", "unit": "cm"}, '{"question": "Two?", "unit": "cm"}'),
        ({"n": 2}, '{"n": 2}'),
        ({"word": "süß", "n": 1}, '{"word": "süß", "n": 1}'),
        ([1, 2], "[1, 2]"),
        (0, "0"),
    ],
)
def test_an_input_becomes_a_message(given: JsonValue, content: str) -> None:
    assert input_text(given) == content


@pytest.mark.parametrize("given", [{}, "", {"question": " \n"}])
def test_an_agent_call_with_empty_input_is_rejected(given: JsonValue) -> None:
    with pytest.raises(WonderError) as refused:
        input_text(given)
    assert refused.value.fault.reason is Reason.INPUT_INVALID


def test_an_agent_call_with_too_large_input_is_rejected() -> None:
    with pytest.raises(WonderError) as refused:
        input_text({"text": "ü" * (MAX_CONTENT_BYTES // 2 + 1)})
    assert refused.value.fault.reason is Reason.PAYLOAD_TOO_LARGE
