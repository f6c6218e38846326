"""Agents called by services: the caller gets the turn's end, or leaves and the turn with it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.actors.dispatch.test_handlers import Agents, HandlerStage
from tests.actors.kit import CONVERSATION_ID, run_ready_tasks
from tests.core.conversation.conversation_kit import text_answer
from wonder_server.actors.conversation.call_agent import AgentCallRequest, AgentCallService
from wonder_server.actors.conversation.conversations import Conversations
from wonder_server.core.conversation.model.lifecycle_inputs import Leave
from wonder_server.core.conversation.model.values import Caller, Conversation, Turn, TurnStatus
from wonder_server.core.errors import Reason, WonderError, error
from wonder_server.ports.records import Query

ANN = Caller(user_id="ann")


class ServiceStage(HandlerStage):
    """A stage on which a service calls the agent ``helper``, whose model says ``Hello``."""

    def __init__(self) -> None:
        super().__init__()
        self.tasks_done.quick = True
        self.conversations = Conversations(access=self.access, agents=Agents())
        self.service = AgentCallService(access=self.access, conversations=self.conversations, agents=Agents())

    async def call(self, question: Any = "Two or three?", **fields: Any) -> Turn:
        fields.setdefault("agent", "helper")
        async with asyncio.timeout(60):
            return await self.service.call(AgentCallRequest(input=question, caller=ANN, **fields))

    async def all(self, table: str) -> list[Any]:
        return await self.records.find(Query(table=table))


async def error_reason(work: Any) -> Reason:
    with pytest.raises(WonderError) as refused:
        await work
    return refused.value.fault.reason


async def test_the_caller_gets_the_turn_with_its_output() -> None:
    office = ServiceStage()
    turn = await office.call({"question": "Two or three?"})
    assert (turn.status, turn.output, turn.input) == (TurnStatus.COMPLETED, "Hello", "Two or three?")
    assert (turn.caller, turn.depth) == (ANN, 1)
    room: Conversation = (await office.all("conversations"))[0]
    assert (room.called_by, room.project_id) == ("ann", "proj_1")
    assert not office.streams.count


async def test_a_turn_that_fails_is_an_answer_too() -> None:
    office = ServiceStage()
    office.model.ends = [error(Reason.MODEL_FAILED, "The key is not valid.")]
    turn = await office.call()
    assert turn.status is TurnStatus.FAILED
    assert turn.fault is not None and turn.fault.reason is Reason.MODEL_FAILED


async def test_a_call_that_cannot_be_is_refused_and_leaves_nothing() -> None:
    office = ServiceStage()
    assert await error_reason(office.call(agent="nobody")) is Reason.AGENT_NOT_FOUND
    assert await error_reason(office.call({})) is Reason.INPUT_INVALID
    assert await error_reason(office.call(project_id="proj_9")) is Reason.FIELD_INVALID
    assert await error_reason(office.call(conversation_id=CONVERSATION_ID)) is Reason.CONVERSATION_NOT_FOUND
    assert not office.journal.actors


async def test_a_repeated_request_gets_the_same_turn_even_at_the_same_time() -> None:
    office = ServiceStage()
    calls = await asyncio.gather(*(office.call(request_id="r1") for _ in range(3)))
    assert len({turn.id for turn in calls}) == 1
    assert await office.call(request_id="r1") == calls[0]
    assert len(await office.all("turns")) == 1
    assert await error_reason(office.call("Other?", request_id="r1")) is Reason.REQUEST_ID_REUSED


async def test_a_repeated_request_brings_its_conversation_back(monkeypatch: pytest.MonkeyPatch) -> None:
    office = ServiceStage()
    turn = await office.call(request_id="r1")
    opened = []
    find = office.conversations.open

    async def open_room(conversation_id: str) -> Conversation:
        opened.append(conversation_id)
        return await find(conversation_id)

    monkeypatch.setattr(office.conversations, "open", open_room)
    assert await office.call(request_id="r1") == turn
    assert opened == [turn.conversation_id], "it may have been archived since"


async def test_a_caller_that_goes_away_stops_the_turn() -> None:
    office = ServiceStage()
    office.model.ends = ["wait"]
    calling = asyncio.ensure_future(office.call())
    await run_ready_tasks()
    assert office.handlers.running == 1
    calling.cancel()
    await run_ready_tasks()
    (turn,) = await office.all("turns")
    assert turn.status is TurnStatus.CANCELLED
    assert office.handlers.running == office.streams.count == 0


async def test_a_caller_that_goes_away_before_the_turn_is_on_disk_stops_it_as_well() -> None:
    office = ServiceStage()
    office.model.ends = ["wait"]
    office.journal.hold()
    calling = asyncio.ensure_future(office.call())
    await run_ready_tasks()
    calling.cancel()
    await run_ready_tasks()
    office.journal.release()
    await run_ready_tasks()
    (turn,) = await office.all("turns")
    assert turn.status is TurnStatus.CANCELLED


async def test_a_disconnected_caller_with_a_request_id_keeps_its_turn() -> None:
    office = ServiceStage()
    office.model.ends = ["wait"]
    calling = asyncio.ensure_future(office.call(request_id="r1"))
    await run_ready_tasks()
    calling.cancel()
    await run_ready_tasks()
    (turn,) = await office.all("turns")
    assert turn.status is TurnStatus.ACTIVE
    again = asyncio.ensure_future(office.call(request_id="r1"))
    await run_ready_tasks()
    await office.conversations.cancel(turn.conversation_id, turn.id, "")
    assert (await again).status is TurnStatus.CANCELLED


async def test_a_turn_that_exceeds_its_timeout_is_cancelled_with_a_reason() -> None:
    office = ServiceStage()
    office.model.ends = ["wait"]
    turn = await office.call(timeout_ms=1)
    assert turn.status is TurnStatus.CANCELLED
    assert turn.fault is not None and turn.fault.message == "The turn did not end within 1 ms."


async def test_the_output_of_a_looped_in_agent_is_its_last_message() -> None:
    office = ServiceStage()
    await office.wait_for_assembly()
    await run_ready_tasks()
    await office.loop.ask(CONVERSATION_ID, Leave(type="agent", id="agt_1"))
    office.model.ends = [text_answer("Bonjour")]
    office.model.pieces = ["Bonjour"]
    turn = await office.call("And you?", conversation_id=CONVERSATION_ID, request_id="r1")
    assert (turn.conversation_id, turn.output) == (CONVERSATION_ID, "Bonjour")
    assert (await office.conversations.lookup.get(CONVERSATION_ID)).participants[-1].origin == "looped_in"
    assert await office.call("And you?", conversation_id=CONVERSATION_ID, request_id="r1") == turn


async def test_draining_is_reported_to_the_caller() -> None:
    office = ServiceStage()
    office.model.ends = ["wait"]
    calling = asyncio.ensure_future(office.call())
    await run_ready_tasks()
    office.streams.drain()
    assert await error_reason(calling) is Reason.SERVER_DRAINING
