"""The ways into conversations: what is created once, sent once, cancelled, and whom a message is for."""

from __future__ import annotations

import asyncio

import pytest

from tests.actors.kit import Stage, TestJournal, origin, run_ready_tasks
from tests.core.conversation.conversation_kit import ASSEMBLED, agent, text_answer
from tests.replacing import replace
from wonder_server.actors.access import ActorAccess
from wonder_server.actors.conversation.conversations import Conversations, SendRequest, SendResult
from wonder_server.adapters.in_memory.journal import MemoryShards
from wonder_server.core import ids
from wonder_server.core.conversation.model.exchange import Quote
from wonder_server.core.conversation.model.inputs import ModelAnswered
from wonder_server.core.conversation.model.speakers import QUOTE_CHARS
from wonder_server.core.conversation.model.state import RECENT_TURNS
from wonder_server.core.conversation.model.values import Conversation, Participant, TurnStatus
from wonder_server.core.conversation.planning.start_turn import MAX_ACTIVE_TURNS
from wonder_server.core.definitions.specs import PinnedAgent
from wonder_server.core.errors import Reason, WonderError, error
from wonder_server.core.json_types import JsonDict


class Agents:
    """A library of three agents, by id and name, and one whose tool calls a missing agent. The names in
    ``deleted`` are no longer found."""

    def __init__(self, *deleted: str) -> None:
        self.deleted = deleted

    async def pin_agent(self, agent_ref: str) -> PinnedAgent:
        await asyncio.sleep(0)
        for number, name in enumerate(("helper", "poet", "judge"), start=1):
            if agent_ref in (name, f"agt_{number}") and name not in self.deleted:
                return replace(agent(extraction=False), agent_id=f"agt_{number}", name=name)
        if agent_ref == "asker":
            raise error(Reason.AGENT_NOT_FOUND, "There is no agent 'x', which the tool 'y' calls.", agent="x")
        raise error(Reason.AGENT_NOT_FOUND, f"There is no agent '{agent_ref}'.")


class ConversationStage(Stage):
    """A stage with the entry point of conversations."""

    def __init__(self, journal: TestJournal | None = None) -> None:
        super().__init__(journal)
        self.conversations = self.new_conversations()

    def new_conversations(self, *deleted: str) -> Conversations:
        """Return another entry point, as after a restart. The agents in ``deleted`` are gone."""
        shards = MemoryShards(self.journal)
        access = ActorAccess(
            directory=self.directory,
            journals=shards,
            records=shards,
            clock=self.clock,
        )
        return Conversations(access=access, agents=Agents(*deleted))

    async def create_conversation(
        self, *agents: str, users: tuple[str, ...] = (), **fields: object
    ) -> Conversation:
        created, _ = await self.conversations.creator.create(draft(*agents, users=users, **fields), origin())
        return created


def draft(*agents: str, users: tuple[str, ...] = (), **fields: object) -> Conversation:
    people = [Participant(type="agent", id="", name=name) for name in agents or ("helper",)]
    people += [Participant(type="user", id=name) for name in users]
    project_id = fields.pop("project", "proj_1")
    return Conversation(id="", project_id=project_id, participants=tuple(people), **fields)


def send_request(content: str = "hello", **fields: object) -> SendRequest:
    return SendRequest(content=content, metadata={}, **{"origin": origin(), **fields})


async def error_reason(work: object) -> Reason:
    with pytest.raises(WonderError) as refused:
        await work
    return refused.value.fault.reason


# --- create -----------------------------------------------------------------------------------------


async def test_a_creation_whose_caller_hangs_up_is_repeated_with_the_same_answer() -> None:
    stage = ConversationStage()
    stage.journal.hold()
    creator = stage.conversations.creator
    first = asyncio.get_running_loop().create_task(creator.create(draft(), origin("r-1")))
    await run_ready_tasks()
    first.cancel()
    again = asyncio.get_running_loop().create_task(creator.create(draft(), origin("r-1")))
    await run_ready_tasks()
    assert stage.journal.held == 1
    stage.journal.release()
    created, _ = await again
    assert list(stage.journal.actors) == [created.id]
    assert first.cancelled()


async def test_a_missing_participant_differs_from_a_missing_agent_of_a_tool() -> None:
    stage = ConversationStage()
    with pytest.raises(WonderError) as own:
        await stage.create_conversation("eve")
    assert own.value.fault.message == "There is no agent 'eve'."
    with pytest.raises(WonderError) as other:
        await stage.create_conversation("asker")
    assert other.value.fault.message == "There is no agent 'x', which the tool 'y' calls."


async def test_a_conversation_resolves_each_agent_once_by_id_or_name() -> None:
    stage = ConversationStage()
    created, existed = await stage.conversations.creator.create(
        draft("helper", "agt_2", "agt_1", users=("ann",)), origin()
    )
    assert not existed
    assert [(p.type, p.id, p.name) for p in created.participants] == [
        ("agent", "agt_1", "helper"),
        ("agent", "agt_2", "poet"),
        ("user", "ann", ""),
    ]
    assert await stage.conversations.lookup.get(created.id) == created
    assert (
        await error_reason(stage.conversations.creator.create(draft("missing"), origin()))
        is Reason.AGENT_NOT_FOUND
    )


async def test_concurrent_repeated_requests_create_one_conversation() -> None:
    stage = ConversationStage()
    made = await asyncio.gather(
        *(stage.conversations.creator.create(draft(), origin("r1")) for _ in range(5))
    )
    assert len({conversation.id for conversation, _ in made}) == 1
    assert (
        await error_reason(stage.conversations.creator.create(draft(title="other"), origin("r1")))
        is Reason.REQUEST_ID_REUSED
    )


async def test_a_repeated_creation_is_recognised_after_its_agent_was_deleted() -> None:
    stage = ConversationStage()
    created, _ = await stage.conversations.creator.create(draft(), origin("r1"))
    creator = stage.new_conversations("helper").creator
    assert await creator.create(draft(), origin("r1")) == (created, False)
    assert await error_reason(creator.create(draft(), origin("r2"))) is Reason.AGENT_NOT_FOUND


async def test_a_creation_by_an_earlier_version_is_recognised_when_it_is_repeated() -> None:
    """Earlier versions stored the fingerprint of the resolved participants."""
    stage = ConversationStage()
    resolved = await stage.conversations.creator.resolve_participants(draft())
    created, _ = await stage.conversations.creator.create(resolved, origin("r1"))
    assert await stage.conversations.creator.create(draft(), origin("r1")) == (created, False)
    other = stage.conversations.creator.create(draft(title="other"), origin("r1"))
    assert await error_reason(other) is Reason.REQUEST_ID_REUSED


async def test_concurrent_creations_with_one_external_ref_create_one_conversation() -> None:
    stage = ConversationStage()
    asking = [
        stage.conversations.creator.create(draft(external_ref="x"), origin(request_id))
        for request_id in ("", "r1", "r2", "")
    ]
    made = await asyncio.gather(*asking, return_exceptions=True)
    created = [each for each in made if isinstance(each, tuple)]
    refused = [each.fault.reason for each in made if isinstance(each, WonderError)]
    assert len(created) == 1
    assert refused == [Reason.ALREADY_EXISTS] * 3
    again, existed = await stage.conversations.creator.create(
        draft(external_ref="x"), origin(), return_existing=True
    )
    assert existed
    assert again.id == created[0][0].id


@pytest.mark.parametrize("return_existing", [False, True])
async def test_the_store_refuses_a_second_conversation_with_an_external_ref(return_existing: bool) -> None:
    """Two entry points do not share their locks, as two servers would not."""
    stage = ConversationStage()
    stage.journal.hold()
    creating = [
        asyncio.ensure_future(
            each.creator.create(draft(external_ref="x"), origin(), return_existing=return_existing)
        )
        for each in (stage.conversations, stage.new_conversations())
    ]
    await run_ready_tasks()
    assert stage.journal.held == 2
    stage.journal.release()
    first, second = await asyncio.gather(*creating, return_exceptions=True)
    assert isinstance(first, tuple) and not first[1]
    if return_existing:
        assert second == (first[0], True)
    else:
        assert isinstance(second, WonderError) and second.fault.reason is Reason.ALREADY_EXISTS
    assert ids.shard_of(first[0].id) == ids.spread("proj_1\nx"), "the home of the reference"


async def test_an_external_ref_is_scoped_to_its_project() -> None:
    stage = ConversationStage()
    first = await stage.create_conversation(external_ref="x", project="proj_1")
    none = await stage.create_conversation(external_ref="x", project="")
    assert await stage.conversations.lookup.find_by_external_ref("proj_1", "x") == first
    assert await stage.conversations.lookup.find_by_external_ref("", "x") == none
    assert await stage.conversations.lookup.find_by_external_ref("proj_2", "x") is None
    assert await stage.conversations.lookup.find_by_external_ref("proj_1", "") is None


async def test_creations_without_request_id_or_external_ref_do_not_wait_for_each_other() -> None:
    stage = ConversationStage()
    stage.journal.hold()
    creating = [
        asyncio.ensure_future(stage.conversations.creator.create(draft(), origin())) for _ in range(3)
    ]
    await run_ready_tasks()
    assert stage.loop.actor_count == 3
    stage.journal.release()
    assert len({conversation.id for conversation, _ in await asyncio.gather(*creating)}) == 3


async def test_a_creation_that_is_cancelled_while_it_waits_does_not_block_the_next() -> None:
    stage = ConversationStage()
    stage.journal.hold()
    creating = [
        asyncio.ensure_future(stage.conversations.creator.create(draft(), origin("r1"))) for _ in range(2)
    ]
    await run_ready_tasks()
    creating[1].cancel()
    await run_ready_tasks()
    stage.journal.release()
    created, _ = await creating[0]
    repeated, existed = await stage.conversations.creator.create(draft(), origin("r1"))
    assert repeated == created and not existed


# --- send -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fields", "answers"),
    [
        ({"content": "hello"}, "agt_1"),
        ({"content": "@poet sing"}, "agt_2"),
        ({"content": "sing, @poet"}, "agt_2"),
        ({"content": "What do you think, @poet."}, "agt_2"),
        ({"content": "@poet... sing"}, "agt_2"),
        ({"content": "mail me at ann@poet now"}, "agt_1"),
        ({"content": "@missing @judge decide"}, "agt_3"),
        ({"content": "@poet sing", "agent_id": "agt_3"}, "agt_3"),
        ({"content": "hello", "agent_id": "poet"}, "agt_2"),
    ],
)
async def test_the_addressed_agent_answers(fields: JsonDict, answers: str) -> None:
    stage = ConversationStage()
    conversation = await stage.create_conversation("helper", "poet", "judge")
    sent = await stage.conversations.send(conversation.id, send_request(**fields))
    assert sent.turn is not None
    assert sent.turn.agent_id == answers


async def test_a_reply_goes_to_the_author_of_the_message() -> None:
    stage = ConversationStage()
    conversation = await stage.create_conversation("helper", "poet")
    await stage.conversations.send(conversation.id, send_request("@poet sing"))
    stage.loop.report_success(conversation.id, stage.run_commands()[0].operation_id, ASSEMBLED)
    await run_ready_tasks()
    (model,) = stage.model_calls()
    stage.loop.tell(
        conversation.id, ModelAnswered(operation_id=model.operation_id, result=text_answer("la la"))
    )
    await run_ready_tasks()
    replying = send_request("again", reply_to_message_id=model.message_id)
    sent = await stage.conversations.send(conversation.id, replying)
    assert sent.turn is not None
    assert sent.turn.agent_id == "agt_2"
    assert stage.run_commands()[-1].input["reply_to"] == "la la"


async def test_a_reply_quotes_a_message_that_is_no_longer_in_memory() -> None:
    """The state holds the last `RECENT_TURNS` turns, so the quote comes from the record."""
    stage = ConversationStage()
    conversation = await stage.create_conversation("helper", users=("mia", "bob"))

    async def take_turn(content: str, **fields: object) -> SendResult:
        sent = await stage.conversations.send(conversation.id, send_request(content, user_id="mia", **fields))
        stage.loop.report_success(conversation.id, stage.run_commands()[-1].operation_id, ASSEMBLED)
        await run_ready_tasks()
        operation_id = stage.model_calls()[-1].operation_id
        stage.loop.tell(conversation.id, ModelAnswered(operation_id=operation_id, result=text_answer("Yes.")))
        await run_ready_tasks()
        return sent

    first = await take_turn("Which day?")
    for number in range(RECENT_TURNS):
        await take_turn(f"Number {number}.")
    assert first.turn_id not in (await stage.conversations.state(conversation.id)).turns
    replying = send_request("Friday.", user_id="bob", reply_to_message_id=first.message_id)
    sent = await stage.conversations.send(conversation.id, replying)
    received = stage.run_commands()[-1].input
    speaker = {"id": "mia", "kind": "user", "name": "", "label": "user mia"}
    assert (received["reply_to"], received["reply_to_speaker"]) == ("Which day?", speaker)
    # A restart builds the same input from the record of the turn.
    stored = await stage.conversations.lookup.turn(sent.turn_id)
    assert stored.quote == Quote(kind="user", author="mia", text="Which day?", turn_ordinal=1, line_bytes=37)


async def test_a_quote_is_the_beginning_of_a_long_message() -> None:
    stage = ConversationStage()
    conversation = await stage.create_conversation(users=("mia",))
    long = await stage.conversations.send(conversation.id, send_request("x" * (QUOTE_CHARS + 1)))
    await stage.conversations.send(conversation.id, send_request("?", reply_to_message_id=long.message_id))
    assert stage.run_commands()[-1].input["reply_to"] == "x" * QUOTE_CHARS


async def test_an_invalid_send_is_rejected_and_changes_nothing() -> None:
    stage = ConversationStage()
    conversation = await stage.create_conversation()
    empty = await stage.create_conversation(users=("ann",))
    lonely = replace(draft(), participants=())
    unknown, _ = await stage.conversations.creator.create(lonely, origin())
    commits = stage.journal.commits
    assert (
        await error_reason(stage.conversations.send(conversation.id, send_request("  \n")))
        is Reason.FIELD_INVALID
    )
    assert (
        await error_reason(stage.conversations.send(conversation.id, send_request("x" * (2 << 20))))
        is Reason.PAYLOAD_TOO_LARGE
    )
    assert (
        await error_reason(stage.conversations.send("conv_x", send_request()))
        is Reason.CONVERSATION_NOT_FOUND
    )
    assert await error_reason(stage.conversations.send(unknown.id, send_request())) is Reason.NO_AGENT
    elsewhere = send_request(agent_id="agt_3")
    with pytest.raises(WonderError) as refused:
        await stage.conversations.send(empty.id, elsewhere)
    assert refused.value.fault.reason is Reason.AGENT_NOT_FOUND
    assert refused.value.fault.metadata == {"id": "agt_3"}
    assert refused.value.fault.message.startswith(
        "There is no agent 'agt_3' among the participants of this conversation. Its agents are: "
    )
    missing = send_request(reply_to_message_id="msg_x")
    assert await error_reason(stage.conversations.send(conversation.id, missing)) is Reason.MESSAGE_NOT_FOUND
    assert stage.journal.commits == commits


async def test_a_repeated_send_gets_the_same_answer_and_starts_nothing() -> None:
    stage = ConversationStage()
    conversation = await stage.create_conversation(users=("ann",))
    first = await stage.conversations.send(conversation.id, send_request(origin=origin("r1")))
    again = await stage.conversations.send(conversation.id, send_request(origin=origin("r1")))
    assert (again.turn_id, again.message_id, again.sequence) == (
        first.turn_id,
        first.message_id,
        first.sequence,
    )
    assert first.turn is not None
    assert first.turn.caller.user_id == "ann"
    assert again.turn is None
    other = stage.conversations.send(conversation.id, send_request("other", origin=origin("r1")))
    assert await error_reason(other) is Reason.REQUEST_ID_REUSED
    assert len(stage.run_commands()) == 1


async def test_active_turns_are_listed_up_to_their_limit() -> None:
    stage = ConversationStage()
    conversation = await stage.create_conversation()
    for _ in range(MAX_ACTIVE_TURNS):
        await stage.conversations.send(conversation.id, send_request())
    assert len(await stage.conversations.lookup.active_turns(conversation.id)) == MAX_ACTIVE_TURNS


# --- cancel -----------------------------------------------------------------------------------------


async def test_a_cancel_keeps_the_partial_text_and_can_be_repeated() -> None:
    stage = ConversationStage()
    conversation = await stage.create_conversation()
    sent = await stage.conversations.send(conversation.id, send_request())
    stage.loop.report_success(conversation.id, stage.run_commands()[0].operation_id, ASSEMBLED)
    await run_ready_tasks()
    (model,) = stage.model_calls()
    stage.streams.begin_message(conversation.id, sent.turn_id, model.message_id, 1)
    stage.streams.append_text(conversation.id, sent.turn_id, model.message_id, "Once upon")
    turn, sequence = await stage.conversations.cancel(conversation.id, sent.turn_id, origin("r1"))
    assert turn.status is TurnStatus.CANCELLED
    assert (
        await stage.conversations.lookup.message(model.message_id, conversation.id)
    ).content == "Once upon"
    assert sequence == stage.sequences(conversation.id)[-1]
    assert await stage.conversations.cancel("", sent.turn_id, origin("r1")) == (turn, sequence)
    assert (
        await error_reason(stage.conversations.cancel(conversation.id, sent.turn_id, origin()))
        is Reason.TURN_NOT_ACTIVE
    )
    assert (
        await error_reason(stage.conversations.cancel(conversation.id, "turn_x", origin()))
        is Reason.TURN_NOT_FOUND
    )


async def test_a_turn_that_is_no_longer_in_memory_has_ended() -> None:
    stage = ConversationStage()
    conversation = await stage.create_conversation()
    sent = await stage.conversations.send(conversation.id, send_request())
    await stage.conversations.cancel(conversation.id, sent.turn_id, origin())
    for _ in range(RECENT_TURNS):
        later = await stage.conversations.send(conversation.id, send_request())
        await stage.conversations.cancel(conversation.id, later.turn_id, origin())
    assert sent.turn_id not in stage.state(conversation.id).turns
    assert (
        await error_reason(stage.conversations.cancel(conversation.id, sent.turn_id, origin()))
        is Reason.TURN_NOT_ACTIVE
    )
