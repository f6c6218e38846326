"""Gates of called agents and of runs behind tools in the stream of the caller's conversation (feature M9)."""

from __future__ import annotations

from pathlib import Path

import grpc
import pytest
import pytest_asyncio

from tests.e2e.client import Client, View
from tests.e2e.deaths import at_every, through_deaths
from tests.e2e.process import Server, serving
from tests.e2e.test_approval import inbox, opened, resolve
from wonder.v1 import conversation_pb2 as conversation
from wonder.v1 import conversation_service_pb2 as pb
from wonder.v1 import run_pb2

pytestmark = pytest.mark.asyncio(loop_scope="session")

PERSONA = (
    "persona: {{system_prompt: You help., memory_extraction_workflow_id: none, tool_ids: [e2e/below/{}]}}"
)
LIBRARY = f"""
name: post
description: Posts a text.
tool:
  target_type: task
  target_id: echo
  approval: always
  input_schema: {{type: object, properties: {{text: {{type: string}}}}, required: [text]}}
---
name: echo
task: {{steps: [{{id: say, action: {{kind: context}}, output_mapping: {{output.posted: input.text}}}}]}}
---
name: sign
workflow: {{nodes: [{{id: sign, human_gate: {{prompt: "Sign?", user_ids: [ann]}}}}]}}
---
name: nested
workflow: {{nodes: [{{id: inner, workflow_id: sign}}]}}
---
name: ask_nested
description: Asks for a signature.
tool: {{target_type: workflow, target_id: nested}}
---
name: asking
workflow:
  nodes:
    - {{id: ask, agent_id: below_writer, input_mapping: {{text: "'use the tool post with hello'"}}}}
---
name: ask_in_run
description: Asks the writer in a run.
tool: {{target_type: workflow, target_id: asking}}
---
name: ask_writer
description: Asks the writer.
tool: {{target_type: agent, target_id: below_writer}}
---
name: ask_editor
description: Asks the editor.
tool: {{target_type: agent, target_id: below_editor}}
---
name: writer
{PERSONA.format("post")}
---
name: editor
{PERSONA.format("ask_writer")}
---
name: chief
{PERSONA.format("ask_editor, e2e/below/ask_nested, e2e/below/ask_in_run")}
"""
THROUGH_TWO = "use the tool ask_editor with use the tool ask_writer with use the tool post with hello"


async def staffed(client: Client) -> None:
    await client.apply("e2e/below", LIBRARY)
    for name in ("writer", "editor", "chief"):
        await client.agent(f"below_{name}", f"e2e/below/{name}")


def resolved(view: View) -> list[run_pb2.Gate]:
    return [event.gate_resolved for event in view.events if event.name == "gate.resolved"]


async def story(client: Client, view: View) -> None:
    conv = await client.open("below_chief", request_id="open")
    turn = (await client.say(conv, THROUGH_TWO, "say")).turn.id
    async with client.listening(conv, view=view) as listener:
        await listener.until(opened)
    (gate,) = opened(view)
    assert gate.tool_name == "post" and gate.conversation_id not in ("", conv) and gate.turn_id != turn
    (event,) = [event for event in view.events if event.name == "gate.opened"]
    assert (event.conversation_id, event.turn_id) == (conv, turn), "where it is shown"
    await resolve(client, gate, request_id="answer")
    await client.settled(conv, turn, view)


@pytest.mark.parametrize("point", ["in-commit", "committed"])
async def test_a_gate_two_levels_below_is_shown_through_a_kill_at_any_commit(
    point: str, tmp_path: Path
) -> None:
    fresh = tmp_path / "fresh"
    async with serving(fresh) as server, server.client() as client:
        await staffed(client)

    async def tell(data: Path, doom: str) -> int:
        view = View()
        deaths = await through_deaths(data, story, view, doom, "")
        for name in ("gate.opened", "gate.resolved", "turn.completed"):
            assert view.names.count(name) == 1, view.names
        assert view.names.index("gate.opened") < view.names.index("gate.resolved")
        # A report that a kill loses is made again, else the end of the work shows the gate as cancelled.
        assert [each.status for each in resolved(view)] == [run_pb2.GATE_STATUS_APPROVED]
        return deaths

    assert await at_every(point, tell, fresh=fresh, folder=tmp_path) >= 4


@pytest_asyncio.fixture(scope="module", loop_scope="session", autouse=True)
async def staff(server: Server) -> None:
    """Create the agents of the shared server."""
    async with server.client() as client:
        await staffed(client)


async def waiting(client: Client, text: str) -> tuple[str, str, run_pb2.Gate]:
    """Return a conversation, its turn, and the gate that it shows."""
    conv = await client.open("below_chief")
    turn = (await client.say(conv, text)).turn.id
    async with client.listening(conv) as listener:
        (gate,) = opened(await listener.until(opened))
    return conv, turn, gate


async def test_every_level_shows_the_gate_and_its_answer(client: Client) -> None:
    conv, turn, gate = await waiting(client, THROUGH_TWO)
    assert await inbox(client, gate.conversation_id) == [gate]
    await resolve(client, gate, approve=False, comment="Not today.", user_id="ann")
    view = await client.settled(conv, turn)
    (closed,) = resolved(view)
    assert (closed.id, closed.status, closed.resolution.user_id) == (
        gate.id,
        run_pb2.GATE_STATUS_REJECTED,
        "ann",
    )
    assert closed.shown == gate.shown
    # Who attaches later reads the same from the beginning.
    again = await client.events(conv)
    assert [event.name for event in again].count("gate.opened") == 1


async def test_a_gate_of_a_run_behind_a_tool(client: Client) -> None:
    conv, turn, gate = await waiting(client, "use the tool ask_nested")
    assert gate.run_id.startswith("run_") and gate.node_id == "sign" and not gate.conversation_id
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await resolve(client, gate, user_id="bob")
    assert refused.value.code() is grpc.StatusCode.PERMISSION_DENIED
    await resolve(client, gate, user_id="ann")
    view = await client.settled(conv, turn)
    assert [each.status for each in resolved(view)] == [run_pb2.GATE_STATUS_APPROVED]


async def test_a_gate_of_an_agent_that_a_run_calls(client: Client) -> None:
    conv, turn, gate = await waiting(client, "use the tool ask_in_run")
    assert gate.tool_name == "post" and gate.conversation_id != conv
    await resolve(client, gate)
    view = await client.settled(conv, turn)
    assert [each.status for each in resolved(view)] == [run_pb2.GATE_STATUS_APPROVED]


async def test_a_cancel_of_the_caller_closes_the_gate_everywhere(client: Client) -> None:
    conv, turn, gate = await waiting(client, THROUGH_TWO)
    await client.conversations.CancelTurn(pb.CancelTurnRequest(turn_id=turn))
    view = await client.settled(conv, turn)
    assert [each.status for each in resolved(view)] == [run_pb2.GATE_STATUS_CANCELLED]
    assert view.names.index("gate.resolved") < view.names.index("turn.cancelled")
    below = await client.settled(gate.conversation_id, gate.turn_id)
    assert [each.status for each in resolved(below)] == [run_pb2.GATE_STATUS_CANCELLED]
    with pytest.raises(grpc.aio.AioRpcError) as late:
        await resolve(client, gate)
    assert late.value.code() is grpc.StatusCode.FAILED_PRECONDITION
    found = (await client.conversations.GetTurn(pb.GetTurnRequest(turn_id=turn))).turn
    assert found.status == conversation.TURN_STATUS_CANCELLED
