"""Changing, leaving, completing, reopening, resetting and deleting conversations (B1, B8, B10)."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from google.protobuf.field_mask_pb2 import FieldMask
from google.protobuf.timestamp_pb2 import Timestamp
from grpc import aio

from tests.e2e.client import Client, Listener, View, struct
from tests.e2e.process import serving
from tests.e2e.scripted import Scripted
from tests.fakes.provider import Provider, Script
from tests.rpc.rpc_kit import rejected
from wonder.v1 import conversation_pb2 as conversation
from wonder.v1 import conversation_service_pb2 as pb
from wonder.v1 import conversation_service_pb2_grpc as pb_grpc
from wonder.v1 import coordinator_service_pb2 as runs
from wonder.v1 import errors_pb2

pytestmark = pytest.mark.asyncio(loop_scope="session")

ENDLESS = Script(text=" ".join(f"word{n}" for n in range(2000)), delay_ms=20)
ACTIVE, COMPLETED = conversation.CONVERSATION_STATUS_ACTIVE, conversation.CONVERSATION_STATUS_COMPLETED


async def get(client: Client, conv: str) -> conversation.Conversation:
    answer = await client.conversations.GetConversation(pb.GetConversationRequest(conversation_id=conv))
    found: conversation.Conversation = answer.conversation
    return found


def user(user_id: str) -> conversation.Participant:
    return conversation.Participant(user=conversation.UserParticipant(user_id=user_id))


def agent(agent_id: str) -> conversation.Participant:
    return conversation.Participant(agent=conversation.AgentParticipant(agent_id=agent_id))


async def add(client: Client, conv: str, who: conversation.Participant, request_id: str = "") -> Any:
    request = pb.AddParticipantRequest(conversation_id=conv, participant=who, request_id=request_id)
    return (await client.conversations.AddParticipant(request)).conversation


async def remove(client: Client, conv: str, **who: str) -> Any:
    request = pb.RemoveParticipantRequest(conversation_id=conv, **who)  # type: ignore[arg-type]
    return (await client.conversations.RemoveParticipant(request)).conversation


async def say_to(client: Client, conv: str, text: str, **fields: str) -> pb.SendMessageResponse:
    request = pb.SendMessageRequest(conversation_id=conv, send=pb.ConverseSend(content=text, **fields))  # type: ignore[arg-type]
    answer: pb.SendMessageResponse = await client.conversations.SendMessage(request)
    return answer


# --- participants -----------------------------------------------------------------------------------


async def test_users_and_agents_join_are_addressed_and_leave(client: Client, provider: Provider) -> None:
    first, second = Scripted(client, provider, "openai"), Scripted(client, provider, "anthropic")
    ada = await first.agent(Script(text="Ada."), Script(text="Ada again."))
    bob = await second.agent(Script(text="Bob."), Script(text="Bob by id."))
    conv = await client.open(ada)
    async with client.listening(conv) as listener:
        joined = await add(client, conv, agent(bob), "r1")
        assert await add(client, conv, agent(bob), "r1") == joined
        assert (await add(client, conv, agent(bob))).participants == joined.participants
        silent = await add(client, conv, user("zoe"))
        assert [p.WhichOneof("participant") for p in silent.participants] == ["agent", "agent", "user"]
        assert silent.participants[1].origin == conversation.PARTICIPANT_ORIGIN_ADDED
        assert silent.etag != joined.etag
        bob_id = silent.participants[1].agent.agent_id
        said = await say_to(client, conv, f"What do you think, @{bob}?", user_id="zoe")
        assert said.turn.agent_id == bob_id
        await listener.until(lambda v: v.settled(said.turn.id))
        reply = next(m for m in reversed(listener.view.messages.values()) if m.author == bob_id)
        by_id = await say_to(client, conv, "And you?", agent_id=bob_id)
        await listener.until(lambda v: v.settled(by_id.turn.id))
        left = await remove(client, conv, agent_id=bob)
        assert [p.WhichOneof("participant") for p in left.participants] == ["agent", "user"]
        assert await remove(client, conv, agent_id=bob) == left
        # Neither its name, nor its id, nor a reply addresses it any more.
        assert (await rejected(say_to(client, conv, "Hello", agent_id=bob_id)))[0] == "AGENT_NOT_FOUND"
        again = await say_to(client, conv, f"@{bob}?", reply_to_message_id=reply.id)
        assert again.turn.agent_id == left.participants[0].agent.agent_id
        view = await listener.until(lambda v: v.settled(again.turn.id))
    assert view.names.count("participant.joined") == 2
    event = next(e for e in view.events if e.name == "participant.left")
    assert event.participant_left.agent.name == bob
    # No agent is left to answer.
    await remove(client, conv, agent_id=ada)
    assert (await rejected(say_to(client, conv, "Hello?")))[0] == "NO_AGENT"
    assert len(second.requests) == 2


async def test_removing_an_agent_cancels_its_turns_and_no_others(client: Client, provider: Provider) -> None:
    talker, other = Scripted(client, provider, "openai"), Scripted(client, provider, "openai")
    name = await talker.agent(ENDLESS)
    quiet = await other.agent(Script(text="Still here.", delay_ms=100))
    conv = await client.open(name)
    await add(client, conv, agent(quiet))
    async with client.listening(conv) as listener:
        said = await say_to(client, conv, "Speak without end.", agent_id=name)
        await listener.until(lambda v: any(text.count(" ") > 3 for text in v.texts.values()))
        others = await say_to(client, conv, "And you?", agent_id=quiet)
        await remove(client, conv, agent_id=name)
        await talker.until_closed_early()
        view = await listener.until(lambda v: v.settled(said.turn.id) and v.settled(others.turn.id))
    assert view.of_turn(said.turn.id)[-2:] == ["message.appended", "turn.cancelled"]
    assert "turn.completed" in view.of_turn(others.turn.id)
    partial = next(m for m in view.messages.values() if m.partial)
    assert partial.content.startswith("word0 word1")


async def test_a_participant_that_cannot_be_added_or_removed_is_refused_with_a_message(
    client: Client,
) -> None:
    conv, missing = await client.open(), "conv_01M80B4FQSR67S4TVYMV1BGX37"
    empty = conversation.Participant()
    assert await rejected(add(client, conv, empty)) == ("FIELD_INVALID", ["participant"])
    assert await rejected(add(client, conv, user(""))) == ("FIELD_INVALID", ["participant.user.user_id"])
    assert (await rejected(add(client, conv, agent("absent"))))[0] == "AGENT_NOT_FOUND"
    assert (await rejected(add(client, missing, user("x"))))[0] == "CONVERSATION_NOT_FOUND"
    assert (await rejected(remove(client, missing, user_id="x")))[0] == "CONVERSATION_NOT_FOUND"
    assert (await rejected(remove(client, conv)))[0] == "FIELD_INVALID"
    assert (await remove(client, conv, user_id="stranger")).participants
    for number in range(99):
        await add(client, conv, user(f"u{number}"))
    assert (await rejected(add(client, conv, user("one more"))))[0] == "LIMIT_EXCEEDED"


# --- the conversation ---------------------------------------------------------------------------------------


async def update(client: Client, *paths: str, request_id: str = "", **fields: Any) -> Any:
    request = pb.UpdateConversationRequest(
        conversation=conversation.Conversation(**fields),
        update_mask=FieldMask(paths=paths) if paths else None,
        request_id=request_id,
    )
    return (await client.conversations.UpdateConversation(request)).conversation


async def test_what_is_named_is_changed_and_nothing_else(client: Client) -> None:
    conv = await client.open(title="Old", metadata=struct(a=1))
    before = await get(client, conv)
    changed = await update(client, id=conv, title="New", etag=before.etag, request_id="r1")
    assert (changed.title, dict(changed.metadata)) == ("New", {"a": 1})
    assert await update(client, id=conv, title="New", etag=before.etag, request_id="r1") == changed
    assert (await rejected(update(client, id=conv, title="Late", etag=before.etag)))[0] == "ETAG_MISMATCH"
    assert (await rejected(update(client, id=conv, title="Late", etag="nonsense")))[0] == "ETAG_MISMATCH"
    emptied = await update(client, "title", "metadata", id=conv, title="", metadata=struct(b=2))
    assert (emptied.title, dict(emptied.metadata)) == ("", {"b": 2})
    assert await rejected(update(client, "status", id=conv)) == ("FIELD_MASK_UNSUPPORTED", ["update_mask"])
    assert (await rejected(update(client, id="", title="x")))[0] == "FIELD_INVALID"
    assert (await rejected(update(client, id=conv, title="x" * 501)))[0] == "FIELD_INVALID"
    past = Timestamp(seconds=1)
    assert await rejected(update(client, id=conv, expire_time=past)) == (
        "FIELD_INVALID", ["conversation.expire_time"],
    )  # fmt: skip
    names = [e.name for e in await client.events(conv)]
    assert names == ["conversation_started", "conversation.updated", "conversation.updated"]


async def test_an_external_ref_belongs_to_one_conversation(client: Client) -> None:
    one, two = await client.open(external_ref="ticket-77"), await client.open()
    assert (await rejected(update(client, id=two, external_ref="ticket-77")))[0] == "ALREADY_EXISTS"
    await update(client, "external_ref", id=one, external_ref="")
    assert (await update(client, id=two, external_ref="ticket-77")).external_ref == "ticket-77"
    by_reference = pb.GetConversationRequest(external_ref="ticket-77")
    assert (await client.conversations.GetConversation(by_reference)).conversation.id == two


async def complete(client: Client, conv: str, **fields: Any) -> Any:
    request = pb.CompleteConversationRequest(conversation_id=conv, **fields)
    return (await client.conversations.CompleteConversation(request)).conversation


async def reopen(client: Client, conv: str, **fields: Any) -> Any:
    request = pb.ReopenConversationRequest(conversation_id=conv, **fields)
    return (await client.conversations.ReopenConversation(request)).conversation


async def test_a_completed_conversation_takes_nothing_until_it_is_reopened(client: Client) -> None:
    conv = await client.open()
    await client.turn(conv, "say 2 words")
    done = await complete(client, conv, request_id="r1")
    assert done.status == COMPLETED
    assert await complete(client, conv, request_id="r1") == done
    for call in (
        client.say(conv, "Hello?"), add(client, conv, user("late")), complete(client, conv),
    ):  # fmt: skip
        assert (await rejected(call))[0] == "CONVERSATION_NOT_ACTIVE"
    async with client.listening(conv) as listener:
        view = await listener.until(lambda v: "conversation_ended" in v.names)
    assert view.events[-1].conversation_ended.status == COMPLETED
    wanted = pb.ListConversationsRequest(statuses=[COMPLETED], page_size=100)
    assert conv in [c.id for c in (await client.conversations.ListConversations(wanted)).conversations]
    opened = await reopen(client, conv)
    assert opened.status == ACTIVE and opened.etag != done.etag
    assert await reopen(client, conv) == opened
    turn, view = await client.turn(conv, "say 3 words")
    assert turn.ordinal == 2 and view.names.count("conversation.updated") == 1


async def test_completing_does_not_wait_and_cancels_turns_only_on_request(
    client: Client, provider: Provider
) -> None:
    scripted = Scripted(client, provider, "openai")
    conv = await client.open(await scripted.agent(ENDLESS))
    async with client.listening(conv) as listener:
        said = await client.say(conv, "Speak.")
        await listener.until(lambda v: any(text.count(" ") > 3 for text in v.texts.values()))
        assert (await rejected(complete(client, conv)))[0] == "RESOURCE_IN_USE"
        done = await complete(client, conv, cancel_turns=True)
        assert done.status == COMPLETED and not done.active_turn_ids
        await scripted.until_closed_early()
        view = await listener.until(lambda v: "conversation_ended" in v.names)
    assert view.names[-3:] == ["message.appended", "turn.cancelled", "conversation_ended"]
    turn = (await client.conversations.GetTurn(pb.GetTurnRequest(turn_id=said.turn.id))).turn
    assert turn.error.reason == errors_pb2.ERROR_REASON_CANCELLED
    ordinals = [m.ordinal for m in await client.messages(conv)]
    await reopen(client, conv)
    provider.script(scripted.model, Script(text="Back."))
    await client.turn(conv, "Again.")
    assert [m.ordinal for m in await client.messages(conv)][: len(ordinals)] == ordinals
    assert len({m.ordinal for m in await client.messages(conv)}) == len(ordinals) + 2


WAITS = """
name: gate
workflow:
  initial_node_id: ask
  nodes:
    - id: ask
      human_gate: {prompt: "May I?"}
---
name: may_i
description: Asks a person.
tool: {target_type: workflow, target_id: gate, input_schema: {type: object}, retry: {timeout_ms: 600000}}
"""


# --- reset ------------------------------------------------------------------------------------------


PERSONA = """
name: {name}
persona:
  system_prompt: {prompt}
  model_profile_id: {profile}
  memory_extraction_workflow_id: none
"""


def texts(request: dict[str, Any]) -> list[str]:
    return [str(message["content"]) for message in request["messages"]]


async def reset(client: Client, conv: str, **fields: Any) -> Any:
    request = pb.ResetConversationRequest(conversation_id=conv, **fields)
    return (await client.conversations.ResetConversation(request)).conversation


async def test_after_a_reset_agents_see_only_what_came_since(client: Client, provider: Provider) -> None:
    scripted = Scripted(client, provider, "openai")
    name = await scripted.agent(*(Script(text=f"Answer {n}.") for n in range(4)), tools=())
    conv = await client.open(name)
    profile = f"profile_{name.rpartition('_')[2]}"
    await client.turn(conv, "My name is Ann.")
    await client.apply("e2e/scripted", PERSONA.format(name=name, prompt="Changed since.", profile=profile))
    before = await get(client, conv)
    kept = await reset(client, conv, keep_system_message=True, etag=before.etag, request_id="r1")
    assert await reset(client, conv, keep_system_message=True, etag=before.etag, request_id="r1") == kept
    assert (await rejected(reset(client, conv, etag=before.etag)))[0] == "ETAG_MISMATCH"
    await client.turn(conv, "Who am I?")
    await client.turn(conv, "Really?")
    system, *rest = texts(scripted.requests[-1])
    assert system.startswith("You are played by a script.")
    assert rest == ["Who am I?", "Answer 1.", "Really?"]
    await reset(client, conv)
    await client.turn(conv, "And now?")
    system, *rest = texts(scripted.requests[-1])
    assert system.startswith("Changed since.") and rest == ["And now?"]
    # The record stays, and says what was done.
    assert len(await client.messages(conv)) == 8
    done = [e.conversation_reset for e in await client.events(conv) if e.name == "conversation.reset"]
    assert [(d.keep_system_message, d.last_turn_ordinal) for d in done] == [(True, 1), (False, 3)]


async def test_a_conversation_is_not_reset_under_a_working_agent(client: Client, provider: Provider) -> None:
    scripted = Scripted(client, provider, "openai")
    conv = await client.open(await scripted.agent(ENDLESS))
    said = await client.say(conv, "Speak.")
    assert (await rejected(reset(client, conv)))[0] == "RESOURCE_IN_USE"
    await client.conversations.CancelTurn(pb.CancelTurnRequest(turn_id=said.turn.id))
    assert (await reset(client, conv)).id == conv


# --- deleting ---------------------------------------------------------------------------------------


def deletion(conv: str, **fields: str) -> pb.DeleteConversationRequest:
    return pb.DeleteConversationRequest(conversation_id=conv, **fields)  # type: ignore[arg-type]


async def test_a_deleted_conversation_is_gone_from_everywhere(client: Client, provider: Provider) -> None:
    scripted = Scripted(client, provider, "openai")
    conv = await client.open(await scripted.agent(Script(text="One."), ENDLESS), external_ref="to-go")
    first, _ = await client.turn(conv, "First.")
    call = client.conversations.Converse()
    await call.write(pb.ConverseRequest(attach=pb.ConverseAttach(conversation_id=conv)))
    listener = Listener(call, View())
    said = await client.say(conv, "Speak.")
    await listener.until(lambda v: any(text.count(" ") > 3 for text in v.texts.values()))
    stale = deletion(conv, etag="99")
    assert (await rejected(client.conversations.DeleteConversation(stale)))[0] == "ETAG_MISMATCH"
    await client.conversations.DeleteConversation(deletion(conv, request_id="bye"))
    # Said again, by the same request; another one finds nothing.
    await client.conversations.DeleteConversation(deletion(conv, request_id="bye"))
    again = client.conversations.DeleteConversation(deletion(conv))
    assert (await rejected(again))[0] == "CONVERSATION_NOT_FOUND"
    view = await listener.rest()
    assert view.words[-1].end.reason == pb.STREAM_END_REASON_DELETED
    assert "turn.cancelled" in view.of_turn(said.turn.id)
    await scripted.until_closed_early()
    for missing in (
        get(client, conv), client.say(conv, "Hello?"), client.events(conv), client.messages(conv),
        add(client, conv, user("x")), reopen(client, conv), reset(client, conv),
        client.conversations.GetConversation(pb.GetConversationRequest(external_ref="to-go")),
    ):  # fmt: skip
        assert (await rejected(missing))[0] == "CONVERSATION_NOT_FOUND"
    with pytest.raises(aio.AioRpcError) as unnamed:
        await client.conversations.GetConversation(pb.GetConversationRequest(external_ref="to-go"))
    said_so = "There is no conversation with the external_ref 'to-go' in the project. List the conversations"
    assert str(unnamed.value.details()).startswith(said_so)
    gone = client.conversations.GetTurn(pb.GetTurnRequest(turn_id=first.id))
    assert (await rejected(gone))[0] == "TURN_NOT_FOUND"
    run = client.coordinator.GetRun(runs.GetRunRequest(run_id=first.context_assembly_run_id))
    assert (await rejected(run))[0] == "RUN_NOT_FOUND"
    everything = pb.ListEventsRequest(page_size=200)
    assert conv not in {e.conversation_id for e in (await client.conversations.ListEvents(everything)).events}
    listed = pb.ListConversationsRequest(page_size=200, include_archived=True)
    assert conv not in {c.id for c in (await client.conversations.ListConversations(listed)).conversations}
    # The name is free again, the id is not.
    assert await client.open(external_ref="to-go") != conv


async def test_of_many_who_delete_one_does_and_the_others_find_nothing(client: Client) -> None:
    conv = await client.open()
    await client.turn(conv, "say 2 words")
    work = [client.conversations.DeleteConversation(deletion(conv)) for _ in range(8)]
    ended = await asyncio.gather(*work, return_exceptions=True)
    assert sum(not isinstance(each, BaseException) for each in ended) == 1
    assert (await rejected(get(client, conv)))[0] == "CONVERSATION_NOT_FOUND"


# --- how long things may be -------------------------------------------------------------------------


def person(user_id: str = "ann", name: str = "") -> conversation.Participant:
    return conversation.Participant(user=conversation.UserParticipant(user_id=user_id, display_name=name))


TOO_LONG: list[tuple[str, dict[str, Any], str]] = [
    ("title", {"title": "ä" * 251}, "FIELD_INVALID"),
    ("external_ref", {"external_ref": "x" * 257}, "FIELD_INVALID"),
    ("metadata", {"metadata": struct(x="x" * 66_000)}, "PAYLOAD_TOO_LARGE"),
    ("participants[0].user.user_id", {"participants": [person("u" * 129)]}, "FIELD_INVALID"),
    ("participants[0].user.display_name", {"participants": [person(name="n" * 257)]}, "FIELD_INVALID"),
]


@pytest.mark.parametrize(("field", "given", "reason"), TOO_LONG, ids=[each[0] for each in TOO_LONG])
async def test_what_is_longer_than_the_contract_says_is_refused(
    client: Client, field: str, given: dict[str, Any], reason: str
) -> None:
    conv = conversation.Conversation(**given)
    made = client.conversations.CreateConversation(pb.CreateConversationRequest(conversation=conv))
    assert await rejected(made) == (reason, [f"conversation.{field}"])
    if "participants" in given:
        return
    conv.id = await client.open()
    changed = client.conversations.UpdateConversation(pb.UpdateConversationRequest(conversation=conv))
    assert await rejected(changed) == (reason, [f"conversation.{field}"])


async def test_a_message_with_too_much_beside_it_is_refused(client: Client) -> None:
    conv = await client.open()
    for field, send, reason in (
        ("user_id", pb.ConverseSend(content="x", user_id="u" * 129), "FIELD_INVALID"),
        ("metadata", pb.ConverseSend(content="x", metadata=struct(x="x" * 66_000)), "PAYLOAD_TOO_LARGE"),
    ):
        request = pb.SendMessageRequest(conversation_id=conv, send=send)
        assert await rejected(client.conversations.SendMessage(request)) == (reason, [field])


async def test_no_user_joins_a_full_conversation_by_sending(client: Client) -> None:
    participants = [person(f"user {number}") for number in range(99)]
    agent = conversation.Participant(agent=conversation.AgentParticipant(agent_id="assistant"))
    conv = conversation.Conversation(participants=[agent, *participants])
    made = await client.conversations.CreateConversation(pb.CreateConversationRequest(conversation=conv))
    send = pb.ConverseSend(content="say 1 word", user_id="one more")
    request = pb.SendMessageRequest(conversation_id=made.conversation.id, send=send)
    assert (await rejected(client.conversations.SendMessage(request)))[0] == "LIMIT_EXCEEDED"
    request.send.user_id = "user 3"
    turn = (await client.conversations.SendMessage(request)).turn
    await client.settled(made.conversation.id, turn.id)


async def test_a_message_without_a_user_comes_from_the_authenticated_caller(data: Path) -> None:
    tokens = data.parent / f"{data.name}.tokens"
    tokens.write_text("a-token-of-some-length ada\n")
    flags = ("--auth-tokens-file", str(tokens), "--act-as", "ada", "--insecure")
    async with serving(data, *flags) as server:
        async with aio.insecure_channel(server.address) as channel:
            metadata = aio.Metadata(("authorization", "Bearer a-token-of-some-length"))
            stub = pb_grpc.ConversationServiceStub(channel)
            conv = conversation.Conversation(participants=[agent("assistant")])
            made = await stub.CreateConversation(
                pb.CreateConversationRequest(conversation=conv), metadata=metadata
            )
            for user_id, speaker in (("", "ada"), ("bob", "bob")):
                send = pb.ConverseSend(content="say 1 word", user_id=user_id)
                request = pb.SendMessageRequest(conversation_id=made.conversation.id, send=send)
                said = await stub.SendMessage(request, metadata=metadata)
                assert (said.turn.caller.user.user_id, said.message.author) == (speaker, speaker)
            asked = pb.CallAgentRequest(agent_id="assistant")
            asked.input.string_value = "say 1 word"
            answer = await stub.CallAgent(asked, metadata=metadata)
            assert answer.turn.caller.user.user_id == "ada"
