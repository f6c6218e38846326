"""The principals of cancellations and changes, as the entry points record them."""

from __future__ import annotations

from tests.actors.conversation.test_conversations import ConversationStage, send_request
from tests.actors.kit import origin
from tests.replacing import replace
from wonder_server.core.actor.commands import Parent
from wonder_server.core.conversation.model.inputs import CancelCall
from wonder_server.core.conversation.model.lifecycle_inputs import Complete
from wonder_server.core.identity import SERVER
from wonder_server.ports.records import Query


async def test_a_cancelled_turn_names_the_caller_of_the_cancellation() -> None:
    stage = ConversationStage()
    conversation = await stage.create_conversation()
    sent = await stage.conversations.send(conversation.id, send_request())
    assert (await stage.conversations.lookup.turn(sent.turn_id)).cancelled_by == ""
    turn, _ = await stage.conversations.cancel(conversation.id, sent.turn_id, origin("r1", "bob"))
    assert (turn.principal, turn.cancelled_by) == ("anonymous", "token:bob")
    again, _ = await stage.conversations.cancel(conversation.id, sent.turn_id, origin("r1", "bob"))
    assert again == turn


async def test_a_completion_that_cancels_turns_names_its_caller_in_both() -> None:
    stage = ConversationStage()
    conversation = await stage.create_conversation()
    sent = await stage.conversations.send(conversation.id, send_request())
    complete = Complete(cancel_turns=True, principal="token:bob")
    await stage.conversations.ask(conversation.id, complete)
    assert (await stage.conversations.lookup.turn(sent.turn_id)).cancelled_by == "token:bob"
    assert (await stage.conversations.lookup.get(conversation.id)).updated_by == "token:bob"


async def test_the_server_cancels_a_call_whose_caller_no_longer_waits() -> None:
    stage = ConversationStage()
    conversation = await stage.create_conversation()
    sent = await stage.conversations.send(conversation.id, send_request())
    parent = Parent(actor_id="run_1", operation_id="op_1")
    called = await stage.conversations.prepare_send(conversation.id, send_request())
    await stage.conversations.ask(conversation.id, replace(called, parent=parent))
    await stage.conversations.ask(conversation.id, CancelCall(operation_id="op_1", principal=SERVER.text))
    turns = await stage.conversations.lookup.records.find(Query(table="turns", actor=conversation.id))
    assert {turn.id == sent.turn_id: turn.cancelled_by for turn in turns} == {True: "", False: "server"}
