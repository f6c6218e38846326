"""The ways into conversations: what is created once, sent once, cancelled, and whom a message is for."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.actors.kit import Stage, run_ready_tasks
from tests.core.conversation.conversation_kit import ASSEMBLED, agent, text_answer
from tests.replacing import replace
from wonder_server.actors.access import ActorAccess
from wonder_server.actors.conversation.conversations import Conversations, SendRequest
from wonder_server.actors.streaming.hub import StreamHub
from wonder_server.adapters.in_memory.journal import MemoryShards
from wonder_server.core.conversation.model.inputs import ModelAnswered
from wonder_server.core.conversation.model.values import Conversation, Participant, TurnStatus
from wonder_server.core.conversation.planning.start_turn import MAX_ACTIVE_TURNS
from wonder_server.core.definitions.specs import PinnedAgent
from wonder_server.core.errors import Reason, WonderError, error


class Agents:
    """Three agents, by id and by name, and one whose tool calls an agent that is not there."""

    async def pin_agent(self, agent_ref: str) -> PinnedAgent:
        await asyncio.sleep(0)
        for number, name in enumerate(("helper", "poet", "judge"), start=1):
            if agent_ref in (name, f"agt_{number}"):
                return replace(agent(extraction=False), agent_id=f"agt_{number}", name=name)
        if agent_ref == "asker":
            raise error(Reason.AGENT_NOT_FOUND, "There is no agent 'x', which the tool 'y' calls.", agent="x")
        raise error(Reason.AGENT_NOT_FOUND, f"There is no agent '{agent_ref}'.")


class ConversationStage:
    """Conversations on a stage."""

    def __init__(self) -> None:
        self.stage = Stage()
        self.streams = StreamHub(1000, 1_000_000)
        self.rooms = self.conversations()

    def conversations(self) -> Conversations:
        shards = MemoryShards(self.stage.journal)
        access = ActorAccess(
            directory=self.stage.directory,
            journals=shards,
            records=shards,
            streams=self.streams,
            clock=self.stage.clock,
        )
        return Conversations(access=access, agents=Agents())

    async def create_conversation(
        self, *agents: str, users: tuple[str, ...] = (), **fields: Any
    ) -> Conversation:
        created, _ = await self.rooms.creator.create(draft(*agents, users=users, **fields), "")
        return created


def draft(*agents: str, users: tuple[str, ...] = (), **fields: Any) -> Conversation:
    people = [Participant(type="agent", id="", name=name) for name in agents or ("helper",)]
    people += [Participant(type="user", id=name) for name in users]
    project_id = fields.pop("project", "proj_1")
    return Conversation(id="", project_id=project_id, participants=tuple(people), **fields)


def send_request(content: str = "hello", **fields: Any) -> SendRequest:
    return SendRequest(content=content, metadata={}, **fields)


async def error_reason(work: Any) -> Reason:
    with pytest.raises(WonderError) as refused:
        await work
    return refused.value.fault.reason


# --- create -----------------------------------------------------------------------------------------


async def test_a_missing_participant_differs_from_a_missing_agent_of_a_tool() -> None:
    house = ConversationStage()
    with pytest.raises(WonderError) as own:
        await house.create_conversation("eve")
    assert own.value.fault.message == "There is no agent 'eve'."
    with pytest.raises(WonderError) as other:
        await house.create_conversation("asker")
    assert other.value.fault.message == "There is no agent 'x', which the tool 'y' calls."


async def test_a_conversation_resolves_each_agent_once_by_id_or_name() -> None:
    house = ConversationStage()
    created, existed = await house.rooms.creator.create(draft("helper", "agt_2", "agt_1", users=("ann",)), "")
    assert not existed
    assert [(p.type, p.id, p.name) for p in created.participants] == [
        ("agent", "agt_1", "helper"),
        ("agent", "agt_2", "poet"),
        ("user", "ann", ""),
    ]
    assert await house.rooms.lookup.get(created.id) == created
    assert await error_reason(house.rooms.creator.create(draft("nobody"), "")) is Reason.AGENT_NOT_FOUND


async def test_concurrent_repeated_requests_create_one_conversation() -> None:
    house = ConversationStage()
    made = await asyncio.gather(*(house.rooms.creator.create(draft(), "r1") for _ in range(5)))
    assert len({room.id for room, _ in made}) == 1
    assert (
        await error_reason(house.rooms.creator.create(draft(title="other"), "r1")) is Reason.REQUEST_ID_REUSED
    )


async def test_concurrent_creations_with_one_external_ref_create_one_conversation() -> None:
    house = ConversationStage()
    asking = [
        house.rooms.creator.create(draft(external_ref="x"), request_id) for request_id in ("", "r1", "r2", "")
    ]
    made = await asyncio.gather(*asking, return_exceptions=True)
    rooms = [each for each in made if isinstance(each, tuple)]
    refused = [each.fault.reason for each in made if isinstance(each, WonderError)]
    assert len(rooms) == 1
    assert refused == [Reason.ALREADY_EXISTS] * 3
    again, existed = await house.rooms.creator.create(draft(external_ref="x"), "", return_existing=True)
    assert existed
    assert again.id == rooms[0][0].id


async def test_an_external_ref_is_scoped_to_its_project() -> None:
    house = ConversationStage()
    first = await house.create_conversation(external_ref="x", project="proj_1")
    none = await house.create_conversation(external_ref="x", project="")
    assert await house.rooms.lookup.find_by_external_ref("proj_1", "x") == first
    assert await house.rooms.lookup.find_by_external_ref("", "x") == none
    assert await house.rooms.lookup.find_by_external_ref("proj_2", "x") is None
    assert await house.rooms.lookup.find_by_external_ref("proj_1", "") is None


async def test_creations_without_request_id_or_external_ref_do_not_wait_for_each_other() -> None:
    house = ConversationStage()
    house.stage.journal.hold()
    creating = [asyncio.ensure_future(house.rooms.creator.create(draft(), "")) for _ in range(3)]
    await run_ready_tasks()
    assert house.stage.loop.actor_count == 3
    house.stage.journal.release()
    assert len({room.id for room, _ in await asyncio.gather(*creating)}) == 3


async def test_a_creation_that_is_cancelled_while_it_waits_does_not_block_the_next() -> None:
    house = ConversationStage()
    house.stage.journal.hold()
    creating = [asyncio.ensure_future(house.rooms.creator.create(draft(), "r1")) for _ in range(2)]
    await run_ready_tasks()
    creating[1].cancel()
    await run_ready_tasks()
    house.stage.journal.release()
    created, _ = await creating[0]
    repeated, existed = await house.rooms.creator.create(draft(), "r1")
    assert repeated == created and not existed


# --- send -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fields", "answers"),
    [
        ({"content": "hello"}, "agt_1"),
        ({"content": "@poet sing"}, "agt_2"),
        ({"content": "sing, @poet"}, "agt_2"),
        ({"content": "mail me at ann@poet now"}, "agt_1"),
        ({"content": "@nobody @judge decide"}, "agt_3"),
        ({"content": "@poet sing", "agent_id": "agt_3"}, "agt_3"),
        ({"content": "hello", "agent_id": "poet"}, "agt_2"),
    ],
)
async def test_the_addressed_agent_answers(fields: dict[str, Any], answers: str) -> None:
    house = ConversationStage()
    room = await house.create_conversation("helper", "poet", "judge")
    sent = await house.rooms.send(room.id, send_request(**fields))
    assert sent.turn is not None
    assert sent.turn.agent_id == answers


async def test_a_reply_goes_to_the_author_of_the_message() -> None:
    house = ConversationStage()
    room = await house.create_conversation("helper", "poet")
    await house.rooms.send(room.id, send_request("@poet sing"))
    house.stage.loop.report_success(room.id, house.stage.run_commands()[0].operation_id, ASSEMBLED)
    await run_ready_tasks()
    (model,) = house.stage.model_calls()
    house.stage.loop.tell(
        room.id, ModelAnswered(operation_id=model.operation_id, result=text_answer("la la"))
    )
    await run_ready_tasks()
    replying = send_request("again", reply_to_message_id=model.message_id)
    sent = await house.rooms.send(room.id, replying)
    assert sent.turn is not None
    assert sent.turn.agent_id == "agt_2"
    assert house.stage.run_commands()[-1].input["reply_to"] == "la la"


async def test_a_send_that_cannot_be_is_refused_and_leaves_no_trace() -> None:
    house = ConversationStage()
    room = await house.create_conversation()
    empty = await house.create_conversation(users=("ann",))
    lonely = replace(draft(), participants=())
    nobody, _ = await house.rooms.creator.create(lonely, "")
    commits = house.stage.journal.commits
    assert await error_reason(house.rooms.send(room.id, send_request("  \n"))) is Reason.FIELD_INVALID
    assert (
        await error_reason(house.rooms.send(room.id, send_request("x" * (2 << 20))))
        is Reason.PAYLOAD_TOO_LARGE
    )
    assert await error_reason(house.rooms.send("conv_x", send_request())) is Reason.CONVERSATION_NOT_FOUND
    assert await error_reason(house.rooms.send(nobody.id, send_request())) is Reason.NO_AGENT
    elsewhere = send_request(agent_id="agt_3")
    assert await error_reason(house.rooms.send(empty.id, elsewhere)) is Reason.AGENT_NOT_FOUND
    missing = send_request(reply_to_message_id="msg_x")
    assert await error_reason(house.rooms.send(room.id, missing)) is Reason.MESSAGE_NOT_FOUND
    assert house.stage.journal.commits == commits


async def test_a_repeated_send_gets_the_same_answer_and_starts_nothing() -> None:
    house = ConversationStage()
    room = await house.create_conversation(users=("ann",))
    first = await house.rooms.send(room.id, send_request(request_id="r1"))
    again = await house.rooms.send(room.id, send_request(request_id="r1"))
    assert (again.turn_id, again.message_id, again.sequence) == (
        first.turn_id,
        first.message_id,
        first.sequence,
    )
    assert first.turn is not None
    assert first.turn.caller.user_id == "ann"
    assert again.turn is None
    other = house.rooms.send(room.id, send_request("other", request_id="r1"))
    assert await error_reason(other) is Reason.REQUEST_ID_REUSED
    assert len(house.stage.run_commands()) == 1


async def test_active_turns_are_all_listed_as_many_as_there_may_be() -> None:
    house = ConversationStage()
    room = await house.create_conversation()
    for _ in range(MAX_ACTIVE_TURNS):
        await house.rooms.send(room.id, send_request())
    assert len(await house.rooms.lookup.active_turns(room.id)) == MAX_ACTIVE_TURNS


# --- cancel -----------------------------------------------------------------------------------------


async def test_a_cancel_keeps_the_partial_text_and_can_be_repeated() -> None:
    house = ConversationStage()
    room = await house.create_conversation()
    sent = await house.rooms.send(room.id, send_request())
    house.stage.loop.report_success(room.id, house.stage.run_commands()[0].operation_id, ASSEMBLED)
    await run_ready_tasks()
    (model,) = house.stage.model_calls()
    house.streams.begin_message(room.id, sent.turn_id, model.message_id, 1)
    house.streams.append_text(room.id, model.message_id, "Once upon")
    turn, sequence = await house.rooms.cancel(room.id, sent.turn_id, "r1")
    assert turn.status is TurnStatus.CANCELLED
    assert (await house.rooms.lookup.message(model.message_id, room.id)).content == "Once upon"
    assert sequence == house.stage.sequences(room.id)[-1]
    assert await house.rooms.cancel("", sent.turn_id, "r1") == (turn, sequence)
    assert await error_reason(house.rooms.cancel(room.id, sent.turn_id, "")) is Reason.TURN_NOT_ACTIVE
    assert await error_reason(house.rooms.cancel(room.id, "turn_x", "")) is Reason.TURN_NOT_FOUND


async def test_a_turn_too_old_to_be_at_hand_is_known_to_have_ended() -> None:
    house = ConversationStage()
    room = await house.create_conversation()
    sent = await house.rooms.send(room.id, send_request())
    await house.rooms.cancel(room.id, sent.turn_id, "")
    for _ in range(51):
        later = await house.rooms.send(room.id, send_request())
        await house.rooms.cancel(room.id, later.turn_id, "")
    assert sent.turn_id not in house.stage.state(room.id).turns
    assert await error_reason(house.rooms.cancel(room.id, sent.turn_id, "")) is Reason.TURN_NOT_ACTIVE
