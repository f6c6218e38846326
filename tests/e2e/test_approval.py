"""Tool calls that wait for people (feature M9): in the stream, in the inbox, over kills; what the model is
seen.
"""

from __future__ import annotations

import json
from pathlib import Path

import grpc
import pytest

from tests.e2e.background import call
from tests.e2e.client import Client, View, struct
from tests.e2e.deaths import at_every, through_deaths
from tests.e2e.journals import journals
from tests.e2e.process import serving
from tests.e2e.scripted import Scripted
from tests.fakes.provider import Provider, Script
from wonder.v1 import conversation_pb2 as conversation
from wonder.v1 import conversation_service_pb2 as pb
from wonder.v1 import coordinator_service_pb2 as runs
from wonder.v1 import errors_pb2, run_pb2
from wonder_server.core.conversation.model.decisions import DispatchTask

pytestmark = pytest.mark.asyncio(loop_scope="session")

TEXT = "{type: object, properties: {text: {type: string}}, required: [text]}"
LIBRARY = f"""
name: post
description: Posts a text. Cannot be undone.
tool: {{target_type: task, target_id: echo, approval: always, input_schema: {TEXT}}}
---
name: post_long
description: Posts a text.
tool:
  target_type: task
  target_id: echo
  approval: size(input.text) > 5
  input_schema: {TEXT}
---
name: echo
task:
  steps:
    - {{id: say, action: {{kind: context}}, output_mapping: {{output.posted: input.text}}}}
"""
AGENT = """
name: poster
persona:
  system_prompt: You post.
  memory_extraction_workflow_id: none
  tool_ids: [e2e/approval/post]
"""
STEPS = 4
"""Steps that are on disk before the next begins: the conversation, the gate, the answer, the end of the
turn.
"""


def opened(view: View) -> list[run_pb2.Gate]:
    """Return the gates of the events `gate.opened`, in order."""
    return [event.gate_opened for event in view.events if event.name == "gate.opened"]


async def inbox(client: Client, conversation_id: str) -> list[run_pb2.Gate]:
    request = runs.ListGatesRequest(conversation_id=conversation_id)
    return list((await client.coordinator.ListGates(request)).gates)


async def resolve(
    client: Client, gate: run_pb2.Gate, *, approve: bool = True, **fields: object
) -> run_pb2.Gate:
    decision = runs.GATE_DECISION_APPROVE if approve else runs.GATE_DECISION_REJECT
    request = runs.ResolveGateRequest(
        gate_id=gate.id,
        decision=decision,
        **{"shown_hash": gate.shown_hash, **fields},  # type: ignore[arg-type]
    )
    return (await client.coordinator.ResolveGate(request)).gate


async def story(client: Client, view: View) -> None:
    conv = await client.open("poster", request_id="open")
    turn = (await client.say(conv, "use the tool post with hello", "say")).turn.id
    async with client.listening(conv, view=view) as listener:
        await listener.until(opened)
    gate = opened(view)[0]
    assert (gate.conversation_id, gate.turn_id, gate.tool_name) == (conv, turn, "post")
    edited = await resolve(client, gate, answer=struct(text="hello, edited"), request_id="answer")
    assert edited.status == run_pb2.GATE_STATUS_APPROVED
    await client.settled(conv, turn, view)
    assert await inbox(client, conv) == []


@pytest.mark.parametrize("point", ["in-commit", "committed"])
async def test_an_edited_approval_survives_a_kill_at_any_commit(point: str, tmp_path: Path) -> None:
    fresh = tmp_path / "fresh"
    async with serving(fresh) as server, server.client() as client:
        await client.apply("e2e/approval", LIBRARY)
        await client.apply("e2e/poster", AGENT)
        await client.agent("poster", "e2e/poster/poster")

    async def tell(data: Path, doom: str) -> int:
        view = View()
        deaths = await through_deaths(data, story, view, doom, "")
        for name in ("gate.opened", "gate.resolved", "tool.completed", "turn.completed"):
            assert view.names.count(name) == 1, view.names
        (entries,) = [each for name, each in (await journals(data)).items() if name.startswith("conv_")]
        ran = [each for entry in entries for each in entry.decisions if isinstance(each, DispatchTask)]
        assert [each.operation.input for each in ran] == [{"text": "hello, edited"}]
        return deaths

    assert await at_every(point, tell, fresh=fresh, folder=tmp_path) >= STEPS


async def waiting_call(client: Client) -> tuple[str, str, run_pb2.Gate]:
    """Create the agent and a call of it that waits; return the conversation, the turn and the gate."""
    await client.apply("e2e/approval", LIBRARY)
    await client.apply("e2e/poster", AGENT)
    await client.agent("poster", "e2e/poster/poster")
    conv = await client.open("poster")
    turn = (await client.say(conv, "use the tool post with hello")).turn.id
    async with client.listening(conv) as listener:
        await listener.until(opened)
    (gate,) = await inbox(client, conv)
    return conv, turn, gate


async def test_a_call_waits_while_no_server_runs(tmp_path: Path) -> None:
    """The person sees the gate before a kill and answers it after two restarts."""
    async with serving(tmp_path) as server, server.client() as client:
        conv, turn, gate = await waiting_call(client)
        await server.kill()
    async with serving(tmp_path) as server, server.client() as client:
        assert await inbox(client, conv) == [gate]
    async with serving(tmp_path) as server, server.client() as client:
        await resolve(client, gate, approve=False, comment="Not today.")
        view = await client.settled(conv, turn)
        (failed,) = [event.tool_failed for event in view.events if event.name == "tool.failed"]
        assert "Not today." in failed.tool_result.error.message


@pytest.fixture
def scripted(client: Client, provider: Provider) -> Scripted:
    return Scripted(client, provider, "openai")


async def waiting(scripted: Scripted, *scripts: Script, tool: str = "post") -> tuple[str, str]:
    """Return a conversation and its turn, whose model's first answer is the first script."""
    client = scripted.client
    await client.apply("e2e/approval", LIBRARY)
    agent = await scripted.agent(*scripts, tools=(f"e2e/approval/{tool}",))
    conv = await client.open(agent)
    return conv, (await client.say(conv, "Post it.")).turn.id


async def test_the_model_sees_the_reason_of_a_rejection(scripted: Scripted) -> None:
    client = scripted.client
    conv, turn = await waiting(
        scripted, Script(calls=(call("post", text="hello"),)), Script(text="Then I leave it.")
    )
    async with client.listening(conv) as listener:
        await listener.until(opened)
        (gate,) = await inbox(client, conv)
        assert json.dumps({"text": "hello"}) == json.dumps(dict(gate.shown))
        rejected = await resolve(client, gate, approve=False, comment="Ask Ann first.", user_id="bob")
        assert rejected.resolution.user_id == "bob"
        await listener.until(lambda v: v.settled(turn))
    seen = json.dumps(scripted.requests[-1])
    assert "Ask Ann first." in seen and "PERMISSION_DENIED" in seen
    (closed,) = [e.gate_resolved for e in listener.view.events if e.name == "gate.resolved"]
    assert closed.status == run_pb2.GATE_STATUS_REJECTED
    assert [m.content for m in await client.messages(conv)][-1] == "Then I leave it."


async def test_the_model_learns_of_an_edit_and_the_record_has_both_arguments(scripted: Scripted) -> None:
    client = scripted.client
    conv, turn = await waiting(scripted, Script(calls=(call("post", text="hello"),)), Script(text="Done."))
    async with client.listening(conv) as listener:
        await listener.until(opened)
        (gate,) = await inbox(client, conv)
        await resolve(client, gate, answer=struct(text="safer"))
        await listener.until(lambda v: v.settled(turn))
    assert "with other arguments" in json.dumps(scripted.requests[-1])
    (move, _) = await client.moves(turn, conv)
    made = move.tool_calls[0]
    assert (dict(made.input), dict(made.edited_input)) == ({"text": "hello"}, {"text": "safer"})
    assert made.gate_id == gate.id and dict(move.tool_results[0].result.struct_value) == {"posted": "safer"}


async def test_parallel_calls_and_an_expression(scripted: Scripted) -> None:
    """Of two calls, one is small enough to run at once; the turn waits for the other."""
    client = scripted.client
    both = Script(calls=(call("post_long", text="short"), call("post_long", text="much longer")))
    conv, turn = await waiting(scripted, both, Script(text="Both."), tool="post_long")
    async with client.listening(conv) as listener:
        await listener.until(lambda v: opened(v) and "tool.completed" in v.names)
        (gate,) = await inbox(client, conv)
        assert dict(gate.shown) == {"text": "much longer"}
        found = (await client.conversations.GetTurn(pb.GetTurnRequest(turn_id=turn))).turn
        assert [operation.gate_id for operation in found.operations] == [gate.id]
        assert not found.operations[0].HasField("deadline")
        await resolve(client, gate)
        await listener.until(lambda v: v.settled(turn))


async def test_wrong_late_and_second_answers(scripted: Scripted) -> None:
    client = scripted.client
    conv, turn = await waiting(scripted, Script(calls=(call("post", text="hello"),)))
    async with client.listening(conv) as listener:
        await listener.until(opened)
    (gate,) = await inbox(client, conv)
    for fields, code, reason in (
        ({"shown_hash": "0" * 64}, "FAILED_PRECONDITION", "GATE_RESOLVED"),
        ({"answer": struct(text=7)}, "INVALID_ARGUMENT", "INPUT_INVALID"),
        ({"answer": struct()}, "INVALID_ARGUMENT", "INPUT_INVALID"),
    ):
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await resolve(client, gate, **fields)  # type: ignore[arg-type]
        assert refused.value.code().name == code and reason in str(refused.value.trailing_metadata())
    await client.conversations.CancelTurn(pb.CancelTurnRequest(turn_id=turn))
    with pytest.raises(grpc.aio.AioRpcError) as late:
        await resolve(client, gate)
    assert late.value.code() is grpc.StatusCode.FAILED_PRECONDITION
    one = (await client.coordinator.ListGates(runs.ListGatesRequest(gate_id=gate.id))).gates
    assert [each.status for each in one] == [run_pb2.GATE_STATUS_CANCELLED]
    ended = (await client.conversations.GetTurn(pb.GetTurnRequest(turn_id=turn))).turn
    assert ended.status == conversation.TURN_STATUS_CANCELLED


async def test_a_deleted_conversation_has_no_gate(scripted: Scripted) -> None:
    client = scripted.client
    conv, _ = await waiting(scripted, Script(calls=(call("post", text="hello"),)))
    async with client.listening(conv) as listener:
        await listener.until(opened)
    (gate,) = await inbox(client, conv)
    await client.conversations.DeleteConversation(pb.DeleteConversationRequest(conversation_id=conv))
    with pytest.raises(grpc.aio.AioRpcError) as gone:
        await resolve(client, gate)
    assert gone.value.code() is grpc.StatusCode.NOT_FOUND
    with pytest.raises(grpc.aio.AioRpcError) as unknown:
        await inbox(client, conv)
    assert errors_pb2.ErrorReason.Name(errors_pb2.ERROR_REASON_CONVERSATION_NOT_FOUND)[13:] in str(
        unknown.value.trailing_metadata()
    )


async def test_an_invalid_expression_is_refused_when_the_tool_is_saved(client: Client) -> None:
    for rule in ("input.", "now() > 1", "state.x", "x" * 5000):
        bad = LIBRARY.replace("approval: always", f"approval: {json.dumps(rule)}")
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await client.apply("e2e/approval_bad", bad)
        assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT
