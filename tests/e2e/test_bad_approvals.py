"""Answers at the gate of a tool call that are wrong, late, repeated or another's (feature M9)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.protobuf.struct_pb2 import Struct

from tests.e2e.background import call
from tests.e2e.callers import calling_with
from tests.e2e.client import Client, struct
from tests.e2e.scripted import Scripted
from tests.e2e.test_approval import LIBRARY, inbox, opened, resolve
from tests.e2e.test_approval_gates import gated
from tests.e2e.test_identity import give, key, place, principal
from tests.fakes.provider import Provider, Script
from tests.rpc.rpc_kit import deep_struct, rejected
from wonder.v1 import conversation_pb2 as conversation
from wonder.v1 import conversation_service_pb2 as pb
from wonder.v1 import coordinator_service_pb2 as runs
from wonder.v1 import library_service_pb2 as library
from wonder.v1 import run_pb2

pytestmark = pytest.mark.asyncio(loop_scope="session")

POST = Script(calls=(call("post", text="hello"),))
STRICT = LIBRARY.replace("required: [text]", "required: [text], additionalProperties: false")


@pytest.fixture
def scripted(client: Client, provider: Provider) -> Scripted:
    return Scripted(client, provider, "openai")


async def waiting(scripted: Scripted, *scripts: Script, **of_persona: Any) -> tuple[str, str, run_pb2.Gate]:
    """Return a conversation, its turn and the gate at which its call waits."""
    client = scripted.client
    await client.apply("e2e/bad_approvals", STRICT)
    agent = await scripted.agent(POST, *scripts, tools=("e2e/bad_approvals/post",), **of_persona)
    conv = await client.open(agent)
    turn = (await client.say(conv, "Post it.")).turn.id
    async with client.listening(conv) as listener:
        await listener.until(opened)
    (gate,) = await inbox(client, conv)
    return conv, turn, gate


def nested(levels: int) -> Struct:
    """Return arguments with a text and a value of many levels."""
    deep = Struct.FromString(deep_struct(levels))
    deep.fields["text"].string_value = "hello"
    return deep


async def test_edited_arguments_that_cannot_be_used_are_refused_and_the_call_waits_on(
    scripted: Scripted,
) -> None:
    client = scripted.client
    conv, turn, gate = await waiting(scripted, Script(text="Posted."))
    before = len(await client.events(conv))
    for answer, reason in (
        (struct(text=None), "INPUT_INVALID"),
        (struct(text=["hello"]), "INPUT_INVALID"),
        (struct(text={"text": "hello"}), "INPUT_INVALID"),
        (struct(text="hello", to="all"), "INPUT_INVALID"),
        (struct(text="x" * (1 << 20)), "PAYLOAD_TOO_LARGE"),
        (struct(**{"text": "hello", **{f"k{number}": number for number in range(20_000)}}), "INPUT_INVALID"),
        (nested(25), "INPUT_INVALID"),
    ):
        found, _ = await rejected(resolve(client, gate, answer=answer))
        assert found == reason, (found, str(answer)[:80])
    assert await inbox(client, conv) == [gate] and len(await client.events(conv)) == before
    await resolve(client, gate, answer=struct(text="fine"))
    await client.settled(conv, turn)
    (move, _) = await client.moves(turn, conv)
    assert dict(move.tool_results[0].result.struct_value) == {"posted": "fine"}


async def test_large_edited_arguments_are_used_whole_and_shortened_for_the_model(scripted: Scripted) -> None:
    client = scripted.client
    conv, turn, gate = await waiting(scripted, Script(text="Posted."))
    text = "long \u202e\u0000 text " * 20_000
    await resolve(client, gate, answer=struct(text=text))
    await client.settled(conv, turn)
    (move, _) = await client.moves(turn, conv)
    assert move.tool_calls[0].edited_input["text"] == text
    assert len(json.dumps(scripted.requests[-1])) < 200_000


async def test_an_answer_for_another_call_is_refused(scripted: Scripted) -> None:
    """The hash that a person saw at one gate opens no other gate, and neither does a part of it."""
    client = scripted.client
    conv, _, gate = await waiting(scripted)
    other = Scripted(client, scripted.provider, "anthropic")
    _, _, second = await waiting(other)
    changed = run_pb2.Gate(id=gate.id, shown_hash=gate.shown_hash[:-1])
    for wrong in (changed, run_pb2.Gate(id=gate.id, shown_hash="x" * 5_000)):
        for approve in (True, False):
            assert (await rejected(resolve(client, wrong, approve=approve)))[0] in (
                "GATE_RESOLVED",
                "FIELD_INVALID",
            )
    assert (await rejected(resolve(client, run_pb2.Gate(id=gate.id))))[0] == "FIELD_INVALID"
    unknown = run_pb2.Gate(id=f"{gate.id[:-4]}0000", shown_hash=gate.shown_hash)
    assert (await rejected(resolve(client, unknown)))[0] == "GATE_NOT_FOUND"
    assert await inbox(client, conv) == [gate] and second.id != gate.id


async def test_a_second_answer_is_refused_and_a_repeated_one_is_the_first(scripted: Scripted) -> None:
    client = scripted.client
    conv, turn, gate = await waiting(scripted, Script(text="Posted."))
    first = await resolve(client, gate, request_id="once")
    assert await resolve(client, gate, request_id="once") == first
    assert (await rejected(resolve(client, gate)))[0] == "GATE_RESOLVED"
    assert (await rejected(resolve(client, gate, approve=False, request_id="other")))[0] == "GATE_RESOLVED"
    reused, _ = await rejected(resolve(client, gate, approve=False, request_id="once"))
    assert reused == "REQUEST_ID_REUSED"
    await client.settled(conv, turn)
    assert await resolve(client, gate, request_id="once") == first
    assert (await rejected(resolve(client, gate)))[0] == "GATE_RESOLVED"
    names = [event.name for event in await client.events(conv)]
    assert names.count("gate.resolved") == names.count("tool.completed") == 1


@pytest.mark.parametrize("end", ["cancel", "expiry", "deletion", "rejection"])
async def test_an_answer_after_the_end_changes_nothing(scripted: Scripted, end: str) -> None:
    client = scripted.client
    if end == "expiry":
        await client.apply("e2e/bad_expiry", gated(expire_after_ms=100))
        agent = await scripted.agent(POST, Script(text="Then not."), tools=("e2e/bad_expiry/post",))
        conv = await client.open(agent)
        turn = (await client.say(conv, "Post it.")).turn.id
        (gate,) = opened(await client.settled(conv, turn))
    else:
        conv, turn, gate = await waiting(scripted, Script(text="Then not."))
    if end == "cancel":
        await client.conversations.CancelTurn(pb.CancelTurnRequest(turn_id=turn))
    elif end == "deletion":
        await client.conversations.DeleteConversation(pb.DeleteConversationRequest(conversation_id=conv))
    elif end == "rejection":
        await resolve(client, gate, approve=False, comment="No.")
        await client.settled(conv, turn)
    reason = "GATE_NOT_FOUND" if end == "deletion" else "GATE_RESOLVED"
    before = [] if end == "deletion" else await client.events(conv)
    for fields in ({}, {"answer": struct(text="mine")}, {"approve": False}, {"request_id": f"late-{end}"}):
        assert (await rejected(resolve(client, gate, **fields)))[0] == reason  # type: ignore[arg-type]
    if before:
        assert await client.events(conv) == before
        assert "tool.completed" not in [event.name for event in before]


async def test_a_fork_beside_an_open_gate_has_no_gate_and_the_source_waits_on(scripted: Scripted) -> None:
    client = scripted.client
    conv, turn, gate = await waiting(scripted, Script(text="Forked."), Script(text="Posted."))
    request = pb.ForkConversationRequest(conversation_id=conv)
    fork = (await client.conversations.ForkConversation(request)).conversation
    assert await inbox(client, fork.id) == [] and not fork.active_turn_ids
    assert await inbox(client, conv) == [gate]
    answered, _ = await client.turn(fork.id, "And here?")
    assert answered.status == conversation.TURN_STATUS_COMPLETED
    await resolve(client, gate)
    await client.settled(conv, turn)
    assert [each.content for each in await client.messages(conv)][-1] == "Posted."
    assert "Posted." not in [each.content for each in await client.messages(fork.id)]


async def test_callers_of_other_projects_and_other_users_answer_no_gate(tmp_path: Path) -> None:
    async with place(tmp_path) as at:
        tokens = {}
        for name, project in (("ann", "red"), ("bob", "blue"), ("cleo", "red")):
            made = await principal(at.root, "user", name)
            await give(at.root, made, "member", at.projects[project])
            _, tokens[name] = await key(at.root, made)
        persona = "memory_extraction_workflow_id: none, system_prompt: You post."
        await at.root.apply(
            "e2e/approval",
            f"{gated(user_ids=['cleo'])}\n---\nname: poster\npersona: {{{persona}, tool_ids: [post]}}",
        )
        agent = {
            "name": "poster",
            "persona_id": "e2e/approval/poster",
            "project_ids": [at.projects["red"]],
        }
        await at.root.library.CreateAgent(library.CreateAgentRequest(agent=agent))
        async with (
            calling_with(at.server, tokens["ann"]) as ann,
            calling_with(at.server, tokens["bob"]) as bob,
            calling_with(at.server, tokens["cleo"]) as cleo,
        ):
            conv = await ann.open("poster", project_id=at.projects["red"])
            turn = (await ann.say(conv, "use the tool post with hello")).turn.id
            async with ann.listening(conv) as listener:
                await listener.until(opened)
            (gate,) = await inbox(ann, conv)
            # Of another project: as if there were no such gate.
            for fields in ({}, {"approve": False}, {"answer": struct(text="mine")}):
                assert (await rejected(resolve(bob, gate, **fields)))[0] == "GATE_NOT_FOUND"  # type: ignore[arg-type]
            assert await rejected(resolve(bob, gate, user_id="cleo")) == ("PERMISSION_DENIED", ["user_id"])
            assert (await rejected(inbox(bob, conv)))[0] == "CONVERSATION_NOT_FOUND"
            everything = await bob.coordinator.ListGates(runs.ListGatesRequest())
            assert not everything.gates
            # Of the same project, but not one of the named users, nor in the name of one.
            assert (await rejected(resolve(ann, gate)))[0] == "PERMISSION_DENIED"
            assert await rejected(resolve(ann, gate, user_id="cleo")) == ("PERMISSION_DENIED", ["user_id"])
            assert await inbox(ann, conv) == [gate]
            done = await resolve(cleo, gate)
            assert done.resolution.principal.subject == "cleo"
            view = await ann.settled(conv, turn)
            assert view.names.count("gate.resolved") == 1
            with pytest.raises(grpc.aio.AioRpcError):
                await resolve(ann, gate)


async def test_a_tool_that_changes_while_its_call_waits_runs_as_the_person_saw_it(
    scripted: Scripted,
) -> None:
    """The call has the revision of the tool that its turn pinned: its schema, its rule and its task."""
    client = scripted.client
    await client.apply("e2e/changing_tool", STRICT)
    agent = await scripted.agent(POST, Script(text="Posted."), tools=("e2e/changing_tool/post",))
    conv = await client.open(agent)
    turn = (await client.say(conv, "Post it.")).turn.id
    async with client.listening(conv) as listener:
        await listener.until(opened)
    (gate,) = await inbox(client, conv)
    changed = (
        STRICT.replace("{text:", "{words:").replace("[text]", "[words]").replace("input.text", "input.words")
    )
    await client.apply("e2e/changing_tool", changed)
    assert await inbox(client, conv) == [gate]
    assert (await rejected(resolve(client, gate, answer=struct(words="hello"))))[0] == "INPUT_INVALID"
    await resolve(client, gate, answer=struct(text="as shown"))
    await client.settled(conv, turn)
    (move, _) = await client.moves(turn, conv)
    assert dict(move.tool_results[0].result.struct_value) == {"posted": "as shown"}
