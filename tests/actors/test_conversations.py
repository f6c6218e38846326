"""The ways into conversations: what is created once, sent once, cancelled, and whom a message is for."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.actors.kit import Stage, rest
from tests.core.conversation_kit import ASSEMBLED, agent, said
from tests.replacing import replace
from wonder_server.actors.conversations import Conversations, Saying
from wonder_server.actors.streams import Streams
from wonder_server.adapters.in_memory.journal import MemoryShards
from wonder_server.core.conversation.inputs import ModelAnswered
from wonder_server.core.conversation.sending import MAX_ACTIVE_TURNS
from wonder_server.core.conversation.values import Conversation, Participant, TurnStatus
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


class House:
    """Conversations on a stage."""

    def __init__(self) -> None:
        self.stage = Stage()
        self.streams = Streams(1000, 1_000_000)
        self.rooms = self.conversations()

    def conversations(self) -> Conversations:
        shards = MemoryShards(self.stage.journal)
        return Conversations(
            loop=self.stage.loop,
            shards=shards,
            records=shards,
            streams=self.streams,
            agents=Agents(),
            clock=self.stage.clock,
        )

    async def room(self, *agents: str, users: tuple[str, ...] = (), **fields: Any) -> Conversation:
        created, _ = await self.rooms.create(draft(*agents, users=users, **fields), "")
        return created


def draft(*agents: str, users: tuple[str, ...] = (), **fields: Any) -> Conversation:
    people = [Participant(type="agent", id="", name=name) for name in agents or ("helper",)]
    people += [Participant(type="user", id=name) for name in users]
    project_id = fields.pop("project", "proj_1")
    return Conversation(id="", project_id=project_id, participants=tuple(people), **fields)


def saying(content: str = "hello", **fields: Any) -> Saying:
    return Saying(content=content, metadata={}, **fields)


async def reason_of(work: Any) -> Reason:
    with pytest.raises(WonderError) as refused:
        await work
    return refused.value.fault.reason


# --- create -----------------------------------------------------------------------------------------


async def test_a_participant_who_is_missing_is_told_apart_from_an_agent_that_a_tool_misses() -> None:
    house = House()
    with pytest.raises(WonderError) as own:
        await house.room("eve")
    assert own.value.fault.message == "There is no agent 'eve'."
    with pytest.raises(WonderError) as other:
        await house.room("asker")
    assert other.value.fault.message == "There is no agent 'x', which the tool 'y' calls."


async def test_a_room_knows_its_agents_by_id_and_name_each_once() -> None:
    house = House()
    created, existed = await house.rooms.create(draft("helper", "agt_2", "agt_1", users=("ann",)), "")
    assert not existed
    assert [(p.type, p.id, p.name) for p in created.participants] == [
        ("agent", "agt_1", "helper"),
        ("agent", "agt_2", "poet"),
        ("user", "ann", ""),
    ]
    assert await house.rooms.get(created.id) == created
    assert await reason_of(house.rooms.create(draft("nobody"), "")) is Reason.AGENT_NOT_FOUND


async def test_a_repeated_request_creates_one_room_even_at_the_same_time() -> None:
    house = House()
    made = await asyncio.gather(*(house.rooms.create(draft(), "r1") for _ in range(5)))
    assert len({room.id for room, _ in made}) == 1
    assert await reason_of(house.rooms.create(draft(title="other"), "r1")) is Reason.REQUEST_ID_REUSED


async def test_a_reference_names_one_room_of_its_project_whoever_asks_at_the_same_time() -> None:
    house = House()
    asking = [house.rooms.create(draft(external_ref="x"), request_id) for request_id in ("", "r1", "r2", "")]
    made = await asyncio.gather(*asking, return_exceptions=True)
    rooms = [each for each in made if isinstance(each, tuple)]
    refused = [each.fault.reason for each in made if isinstance(each, WonderError)]
    assert len(rooms) == 1
    assert refused == [Reason.ALREADY_EXISTS] * 3
    again, existed = await house.rooms.create(draft(external_ref="x"), "", return_existing=True)
    assert existed
    assert again.id == rooms[0][0].id


async def test_a_reference_means_another_room_in_another_project_and_in_none() -> None:
    house = House()
    first = await house.room(external_ref="x", project="proj_1")
    none = await house.room(external_ref="x", project="")
    assert await house.rooms.by_reference("proj_1", "x") == first
    assert await house.rooms.by_reference("", "x") == none
    assert await house.rooms.by_reference("proj_2", "x") is None
    assert await house.rooms.by_reference("proj_1", "") is None


async def test_rooms_without_request_or_reference_do_not_wait_for_each_other() -> None:
    house = House()
    house.stage.journal.hold()
    creating = [asyncio.ensure_future(house.rooms.create(draft(), "")) for _ in range(3)]
    await rest()
    assert house.stage.loop.live == 3
    house.stage.journal.release()
    assert len({room.id for room, _ in await asyncio.gather(*creating)}) == 3


async def test_a_creation_that_was_given_up_while_it_waited_leaves_nothing_behind() -> None:
    house = House()
    house.stage.journal.hold()
    creating = [asyncio.ensure_future(house.rooms.create(draft(), "r1")) for _ in range(2)]
    await rest()
    creating[1].cancel()
    await rest()
    house.stage.journal.release()
    await creating[0]
    assert not house.rooms._creations._locks


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
async def test_who_is_to_answer(fields: dict[str, Any], answers: str) -> None:
    house = House()
    room = await house.room("helper", "poet", "judge")
    sent = await house.rooms.send(room.id, saying(**fields))
    assert sent.turn is not None
    assert sent.turn.agent_id == answers


async def test_a_reply_goes_to_whoever_said_what_is_replied_to() -> None:
    house = House()
    room = await house.room("helper", "poet")
    await house.rooms.send(room.id, saying("@poet sing"))
    house.stage.loop.succeeded(room.id, house.stage.run_commands()[0].operation_id, ASSEMBLED)
    await rest()
    (model,) = house.stage.model_calls()
    house.stage.loop.tell(room.id, ModelAnswered(operation_id=model.operation_id, result=said("la la")))
    await rest()
    replying = saying("again", reply_to_message_id=model.message_id)
    sent = await house.rooms.send(room.id, replying)
    assert sent.turn is not None
    assert sent.turn.agent_id == "agt_2"
    assert house.stage.run_commands()[-1].input["reply_to"] == "la la"


async def test_a_send_that_cannot_be_is_refused_and_leaves_no_trace() -> None:
    house = House()
    room = await house.room()
    empty = await house.room(users=("ann",))
    lonely = replace(draft(), participants=())
    nobody, _ = await house.rooms.create(lonely, "")
    commits = house.stage.journal.commits
    assert await reason_of(house.rooms.send(room.id, saying("  \n"))) is Reason.FIELD_INVALID
    assert await reason_of(house.rooms.send(room.id, saying("x" * (2 << 20)))) is Reason.PAYLOAD_TOO_LARGE
    assert await reason_of(house.rooms.send("conv_x", saying())) is Reason.CONVERSATION_NOT_FOUND
    assert await reason_of(house.rooms.send(nobody.id, saying())) is Reason.NO_AGENT
    elsewhere = saying(agent_id="agt_3")
    assert await reason_of(house.rooms.send(empty.id, elsewhere)) is Reason.AGENT_NOT_FOUND
    missing = saying(reply_to_message_id="msg_x")
    assert await reason_of(house.rooms.send(room.id, missing)) is Reason.MESSAGE_NOT_FOUND
    assert house.stage.journal.commits == commits


async def test_a_repeated_send_is_told_the_same_and_starts_nothing() -> None:
    house = House()
    room = await house.room(users=("ann",))
    first = await house.rooms.send(room.id, saying(request_id="r1"))
    again = await house.rooms.send(room.id, saying(request_id="r1"))
    assert (again.turn_id, again.message_id, again.sequence) == (
        first.turn_id,
        first.message_id,
        first.sequence,
    )
    assert first.turn is not None
    assert first.turn.caller.user_id == "ann"
    assert again.turn is None
    other = house.rooms.send(room.id, saying("other", request_id="r1"))
    assert await reason_of(other) is Reason.REQUEST_ID_REUSED
    assert len(house.stage.run_commands()) == 1


async def test_active_turns_are_all_listed_as_many_as_there_may_be() -> None:
    house = House()
    room = await house.room()
    for _ in range(MAX_ACTIVE_TURNS):
        await house.rooms.send(room.id, saying())
    assert len(await house.rooms.active_turns(room.id)) == MAX_ACTIVE_TURNS


# --- cancel -----------------------------------------------------------------------------------------


async def test_a_cancel_keeps_what_was_said_so_far_and_can_be_repeated() -> None:
    house = House()
    room = await house.room()
    sent = await house.rooms.send(room.id, saying())
    house.stage.loop.succeeded(room.id, house.stage.run_commands()[0].operation_id, ASSEMBLED)
    await rest()
    (model,) = house.stage.model_calls()
    house.streams.begin(room.id, sent.turn_id, model.message_id, 1)
    house.streams.say(room.id, model.message_id, "Once upon")
    turn, sequence = await house.rooms.cancel(room.id, sent.turn_id, "r1")
    assert turn.status is TurnStatus.CANCELLED
    assert (await house.rooms.message(model.message_id, room.id)).content == "Once upon"
    assert sequence == house.stage.sequences(room.id)[-1]
    assert await house.rooms.cancel("", sent.turn_id, "r1") == (turn, sequence)
    assert await reason_of(house.rooms.cancel(room.id, sent.turn_id, "")) is Reason.TURN_NOT_ACTIVE
    assert await reason_of(house.rooms.cancel(room.id, "turn_x", "")) is Reason.TURN_NOT_FOUND


async def test_a_turn_too_old_to_be_at_hand_is_known_to_have_ended() -> None:
    house = House()
    room = await house.room()
    sent = await house.rooms.send(room.id, saying())
    await house.rooms.cancel(room.id, sent.turn_id, "")
    for _ in range(51):
        later = await house.rooms.send(room.id, saying())
        await house.rooms.cancel(room.id, later.turn_id, "")
    assert sent.turn_id not in house.stage.state(room.id).turns
    assert await reason_of(house.rooms.cancel(room.id, sent.turn_id, "")) is Reason.TURN_NOT_ACTIVE
