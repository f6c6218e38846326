"""Deep records can be read: transcripts, states and gate answers that are deeper than a Struct may be."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from google.protobuf.json_format import MessageToDict

from tests.e2e.client import PATIENCE_S, Client, struct
from tests.e2e.run_view import RunView
from tests.e2e.scripted import Scripted
from tests.fakes.provider import Provider, Script
from tests.fakes.provider_formats import Call
from wonder.v1 import conversation_pb2 as conversation
from wonder.v1 import coordinator_service_pb2 as runs
from wonder.v1 import run_pb2

pytestmark = pytest.mark.asyncio(loop_scope="session")

LIBRARY = """
name: echo
task:
  steps: [{id: a, action: {kind: context}, input_mapping: {v: input.v}, output_mapping: {output.v: result.v}}]
---
name: say_again
description: Says it again.
tool: {target_type: task, target_id: echo, input_schema: {type: object, properties: {v: {}}}}
---
name: speaker
persona: {system_prompt: x, tool_ids: [say_again]}
---
name: keep
workflow:
  nodes: [{id: a, task_id: echo, input_mapping: {v: '1'}, output_mapping: {state.a.b.c.d: input.v}}]
---
name: ask
workflow:
  nodes: [{id: g, human_gate: {prompt: Well, answer_schema: {type: object}}}]
"""


def nested(levels: int) -> Any:
    value: Any = "core"
    for _ in range(levels):
        value = [value]
    return value


def opened(value: Any) -> Any:
    """A value with the text that stands for its depth read again."""
    if isinstance(value, dict):
        return {name: opened(member) for name, member in value.items()}
    if isinstance(value, list):
        return [opened(item) for item in value]
    return json.loads(value) if isinstance(value, str) and value.startswith(("[", "{")) else value


async def read(client: Client, run_id: str) -> tuple[run_pb2.Run, RunView]:
    """The run, which every way of reading runs shows."""
    view = RunView(run_id)
    async with asyncio.timeout(PATIENCE_S):
        await view.watch(client)
    listed = runs.ListRunsRequest(include_children=True, page_size=500)
    assert run_id in [run.id for run in (await client.coordinator.ListRuns(listed)).runs]
    return (await client.coordinator.GetRun(runs.GetRunRequest(run_id=run_id))).run, view


async def started(client: Client, workflow: str, **given: Any) -> str:
    await client.apply("e2e/deep", LIBRARY)
    request = runs.StartRunRequest(workflow_id=f"e2e/deep/{workflow}", input=struct(**given))
    return str((await client.coordinator.StartRun(request)).run.id)


async def test_a_tool_call_of_many_levels_leaves_every_run_readable(client: Client) -> None:
    await client.apply("e2e/deep", LIBRARY)
    conv = await client.open(await client.agent("deep-speaker", "e2e/deep/speaker"))
    value = nested(28)

    turn, _ = await client.turn(conv, f"use the tool say_again with {json.dumps({'v': value})}")

    assert turn.status == conversation.TURN_STATUS_COMPLETED
    run, view = await read(client, turn.memory_extraction_run_id)
    (call,) = MessageToDict(run.input)["transcript"][0]["tool_calls"]
    assert call["input"] != {"v": value} and opened(call["input"]) == {"v": value}
    assert view.events[0].workflow_started.input == run.input
    await client.moves(turn.id, conv)
    assert await client.events(conv)
    assert (await client.turn(conv, "hello"))[0].status == conversation.TURN_STATUS_COMPLETED


@pytest.mark.parametrize("speaks", ["openai", "responses", "anthropic", "gemini"])
async def test_the_turns_after_a_tool_call_of_many_levels_go_on(
    client: Client, provider: Provider, speaks: str
) -> None:
    await client.apply("e2e/deep", LIBRARY)
    scripted = Scripted(client, provider, speaks)
    call = Call(name="say_again", arguments=json.dumps({"v": nested(29)}))
    scripts = Script(calls=(call,)), Script(text="Said."), Script(text="Hello.")
    conv = await client.open(await scripted.agent(*scripts, tools=("e2e/deep/say_again",)))

    for text in ("Say it again.", "Hello"):
        turn, _ = await client.turn(conv, text)
        assert turn.status == conversation.TURN_STATUS_COMPLETED, turn.error
    # The whole value is in the history, the deepest part as text.
    said = json.dumps(scripted.requests[-1])
    assert said.count("core") == 2 and "say_again" in said


async def test_a_state_that_its_targets_make_deeper_is_readable(client: Client) -> None:
    run_id = await started(client, "keep", v=nested(27))
    run, _ = await read(client, run_id)
    assert opened(MessageToDict(run.state)) == {"a": {"b": {"c": {"d": nested(27)}}}}


async def test_the_deepest_answer_of_a_gate_is_readable(client: Client) -> None:
    run_id = await started(client, "ask")
    view = RunView(run_id)
    async with asyncio.timeout(PATIENCE_S):
        watching = asyncio.create_task(view.watch(client))
        await view.until(lambda: view.gate("g"))
        gate = view.gate("g")
        assert gate is not None
        request = runs.ResolveGateRequest(
            gate_id=gate.id, decision=runs.GATE_DECISION_APPROVE, shown_hash=gate.shown_hash
        )
        request.answer.CopyFrom(struct(v=nested(29)))
        await client.coordinator.ResolveGate(request)
        await watching
    _, seen = await read(client, run_id)
    (resolved,) = [event.gate_resolved for event in seen.events if event.HasField("gate_resolved")]
    assert opened(MessageToDict(resolved.resolution.answer)) == {"v": nested(29)}
