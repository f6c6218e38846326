"""Agents called by services: the caller gets the ended turn, and a caller that disconnects cancels it."""

from __future__ import annotations

import asyncio

import pytest

from tests.actors.dispatch.test_handlers import Agents, HandlerStage
from tests.actors.kit import CONVERSATION_ID, origin, run_ready_tasks
from tests.core.conversation.conversation_kit import text_answer
from wonder_server.actors.conversation.call_agent import AgentCallRequest, AgentCallService
from wonder_server.actors.conversation.conversations import Conversations
from wonder_server.actors.dispatch.agent_calls import Delegation, delegate_conversation
from wonder_server.core.conversation.model.lifecycle_inputs import Leave
from wonder_server.core.conversation.model.values import Caller, Conversation, Turn, TurnStatus
from wonder_server.core.errors import Reason, WonderError, error
from wonder_server.core.frozen import stored_text
from wonder_server.core.idempotency import content_key
from wonder_server.core.ids import shard_of
from wonder_server.core.json_types import JsonValue
from wonder_server.ports.records import Query

ANN = Caller(user_id="ann")


class ServiceStage(HandlerStage):
    """A stage on which a service calls the agent ``helper``, whose model says ``Hello``."""

    def __init__(self) -> None:
        super().__init__()
        self.tasks_done.quick = True
        self.conversations = Conversations(access=self.access, agents=Agents())
        self.service = AgentCallService(access=self.access, conversations=self.conversations, agents=Agents())

    async def call(
        self, question: JsonValue = "Two or three?", *, request_id: str = "", **fields: object
    ) -> Turn:
        fields.setdefault("agent", "helper")
        async with asyncio.timeout(60):
            return await self.service.call(
                AgentCallRequest(input=question, caller=ANN, origin=origin(request_id), **fields)
            )

    async def all(self, table: str) -> list[object]:
        return await self.records.find(Query(table=table))


async def error_reason(work: object) -> Reason:
    with pytest.raises(WonderError) as refused:
        await work
    return refused.value.fault.reason


async def test_the_caller_gets_the_turn_with_its_output() -> None:
    stage = ServiceStage()
    turn = await stage.call({"question": "Two or three?"})
    assert (turn.status, turn.output, turn.input) == (TurnStatus.COMPLETED, "Hello", "Two or three?")
    assert (turn.caller, turn.depth) == (ANN, 1)
    conversation: Conversation = (await stage.all("conversations"))[0]
    assert (conversation.called_by, conversation.project_id) == ("ann", "proj_1")
    assert not stage.streams.count


async def test_a_failed_turn_is_returned() -> None:
    stage = ServiceStage()
    stage.model.ends = [error(Reason.MODEL_FAILED, "The key is not valid.")]
    turn = await stage.call()
    assert turn.status is TurnStatus.FAILED
    assert turn.fault is not None and turn.fault.reason is Reason.MODEL_FAILED


async def test_an_invalid_call_is_rejected_and_leaves_nothing() -> None:
    stage = ServiceStage()
    assert await error_reason(stage.call(agent="missing")) is Reason.AGENT_NOT_FOUND
    assert await error_reason(stage.call({})) is Reason.INPUT_INVALID
    assert await error_reason(stage.call(project_id="proj_9")) is Reason.FIELD_INVALID
    assert await error_reason(stage.call(conversation_id=CONVERSATION_ID)) is Reason.CONVERSATION_NOT_FOUND
    assert not stage.journal.actors


async def test_a_repeated_request_gets_the_same_turn_even_at_the_same_time() -> None:
    stage = ServiceStage()
    calls = await asyncio.gather(*(stage.call(request_id="r1") for _ in range(3)))
    assert len({turn.id for turn in calls}) == 1
    assert await stage.call(request_id="r1") == calls[0]
    assert len(await stage.all("turns")) == 1
    assert await error_reason(stage.call("Other?", request_id="r1")) is Reason.REQUEST_ID_REUSED


async def test_a_repeated_request_brings_its_conversation_back(monkeypatch: pytest.MonkeyPatch) -> None:
    stage = ServiceStage()
    turn = await stage.call(request_id="r1")
    opened = []
    find = stage.conversations.open

    async def open_conversation(conversation_id: str) -> Conversation:
        opened.append(conversation_id)
        return await find(conversation_id)

    monkeypatch.setattr(stage.conversations, "open", open_conversation)
    assert await stage.call(request_id="r1") == turn
    assert opened == [turn.conversation_id], "the conversation may be archived"


async def test_a_caller_that_disconnects_cancels_the_turn() -> None:
    stage = ServiceStage()
    stage.model.ends = ["wait"]
    calling = asyncio.ensure_future(stage.call())
    await run_ready_tasks()
    assert stage.handlers.running == 1
    calling.cancel()
    await run_ready_tasks()
    (turn,) = await stage.all("turns")
    assert turn.status is TurnStatus.CANCELLED
    assert stage.handlers.running == stage.streams.count == 0


async def test_a_caller_that_disconnects_before_the_commit_cancels_the_turn() -> None:
    stage = ServiceStage()
    stage.model.ends = ["wait"]
    stage.journal.hold()
    calling = asyncio.ensure_future(stage.call())
    await run_ready_tasks()
    calling.cancel()
    await run_ready_tasks()
    stage.journal.release()
    await run_ready_tasks()
    (turn,) = await stage.all("turns")
    assert turn.status is TurnStatus.CANCELLED


async def test_a_disconnected_caller_with_a_request_id_keeps_its_turn() -> None:
    stage = ServiceStage()
    stage.model.ends = ["wait"]
    calling = asyncio.ensure_future(stage.call(request_id="r1"))
    await run_ready_tasks()
    calling.cancel()
    await run_ready_tasks()
    (turn,) = await stage.all("turns")
    assert turn.status is TurnStatus.ACTIVE
    again = asyncio.ensure_future(stage.call(request_id="r1"))
    await run_ready_tasks()
    await stage.conversations.cancel(turn.conversation_id, turn.id, origin())
    assert (await again).status is TurnStatus.CANCELLED


async def test_a_turn_that_exceeds_its_timeout_is_cancelled_with_a_reason() -> None:
    stage = ServiceStage()
    stage.model.ends = ["wait"]
    turn = await stage.call(timeout_ms=1)
    assert turn.status is TurnStatus.CANCELLED
    assert turn.fault is not None and turn.fault.message == "The turn did not end within 1 ms."


async def test_the_output_of_a_looped_in_agent_is_its_last_message() -> None:
    stage = ServiceStage()
    await stage.wait_for_assembly()
    await run_ready_tasks()
    await stage.loop.ask(CONVERSATION_ID, Leave(type="agent", id="agt_1"))
    stage.model.ends = [text_answer("Bonjour")]
    stage.model.pieces = ["Bonjour"]
    turn = await stage.call("And you?", conversation_id=CONVERSATION_ID, request_id="r1")
    assert (turn.conversation_id, turn.output) == (CONVERSATION_ID, "Bonjour")
    assert (await stage.conversations.lookup.get(CONVERSATION_ID)).participants[-1].origin == "looped_in"
    assert await stage.call("And you?", conversation_id=CONVERSATION_ID, request_id="r1") == turn


async def test_draining_is_reported_to_the_caller() -> None:
    stage = ServiceStage()
    stage.model.ends = ["wait"]
    calling = asyncio.ensure_future(stage.call())
    await run_ready_tasks()
    stage.streams.drain()
    assert await error_reason(calling) is Reason.SERVER_DRAINING


async def test_a_repeated_request_sends_the_message_that_a_crash_lost() -> None:
    """The server died between the commit of the conversation and that of its message."""
    stage = ServiceStage()
    agent = await Agents().pin_agent("helper")
    delegation = Delegation(called_by="ann", project_id="", branch="", principal="")
    create = delegate_conversation(CONVERSATION_ID, agent, delegation, stage.clock.now)
    fields = {"agent": "helper", "content": "Two or three?", "project": ""}
    identity = content_key("calls", origin("r1"), **fields, caller=stored_text("Caller", ANN))
    await stage.loop.ask(CONVERSATION_ID, create, identity)
    turn = await stage.call(request_id="r1")
    assert (turn.conversation_id, turn.status, turn.output) == (
        CONVERSATION_ID,
        TurnStatus.COMPLETED,
        "Hello",
    )
    assert (await stage.call(request_id="r1")).id == turn.id
    assert len(await stage.all("turns")) == 1


async def test_a_node_without_the_shard_does_not_wait_for_a_turn() -> None:
    stage = ServiceStage()
    turn = await stage.call(request_id="r1")
    stage.loop.lose(shard_of(turn.conversation_id))
    with pytest.raises(WonderError) as moved, stage.access.directory.live(turn.conversation_id):
        pass
    assert moved.value.fault.reason is Reason.OWNER_MOVED
