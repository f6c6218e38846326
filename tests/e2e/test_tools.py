"""Tools that the turn waits for: tasks and workflows, alone and side by side, good, failing and too slow."""

from __future__ import annotations

import json

import pytest

from tests.e2e.background import call
from tests.e2e.client import Client
from tests.e2e.scripted import PROVIDERS, Scripted
from tests.fakes.provider import Provider, Script
from wonder.v1 import conversation_pb2 as conversation

pytestmark = pytest.mark.asyncio(loop_scope="session")

COMPLETED = conversation.TURN_STATUS_COMPLETED
EXECUTION_FAILED = conversation.TOOL_ERROR_CODE_EXECUTION_FAILED

TEXT = "{type: object, properties: {text: {type: string}}, required: [text]}"
LIBRARY = f"""
name: echo
description: Says it again.
tool: {{target_type: task, target_id: echo_task, input_schema: {TEXT}}}
---
name: echo_task
task:
  steps:
    - {{id: rest, action: {{kind: sleep, config: {{duration_ms: 20}}}}}}
    - {{id: say, action: {{kind: context}}, output_mapping: {{output.text: input.text}}}}
---
name: dig
description: Digs, and says what was found.
tool: {{target_type: workflow, target_id: dig_workflow, input_schema: {TEXT}}}
---
name: dig_workflow
workflow:
  nodes:
    - id: first
      task_id: echo_task
      input_mapping: {{text: input.text}}
      output_mapping: {{state.found: result.text}}
    - id: second
      task_id: echo_task
      input_mapping: {{text: 'state.found + " twice"'}}
      output_mapping: {{output.found: result.text}}
  transitions: [{{from_node_id: first, to_node_id: second}}]
---
name: fall
description: Fails.
tool:
  target_type: task
  target_id: fall_task
  input_schema: {TEXT}
  retry: {{max_attempts: 3, backoff_ms: 1}}
---
name: fall_task
task:
  steps:
    - {{id: fall, action: {{kind: assert, config: {{condition: false, message: The ice was thin.}}}}}}
---
name: sink
description: Fails further down.
tool: {{target_type: workflow, target_id: sink_workflow, input_schema: {TEXT}}}
---
name: sink_workflow
workflow:
  nodes: [{{id: fall, task_id: fall_task}}]
---
name: dawdle
description: Takes too long.
tool: {{target_type: task, target_id: dawdle_task, input_schema: {TEXT}, retry: {{timeout_ms: 50}}}}
---
name: dawdle_task
task:
  steps:
    - {{id: rest, action: {{kind: sleep, config: {{duration_ms: 20000}}}}}}
"""


@pytest.fixture(params=PROVIDERS)
def scripted(client: Client, provider: Provider, request: pytest.FixtureRequest) -> Scripted:
    return Scripted(client, provider, request.param)


async def using(scripted: Scripted, *scripts: Script) -> str:
    await scripted.client.apply("e2e/tools", LIBRARY)
    names = ("echo", "dig", "fall", "sink", "dawdle")
    return await scripted.agent(*scripts, tools=tuple(f"e2e/tools/{name}" for name in names))


async def test_a_workflow_is_waited_for_and_its_output_goes_on(scripted: Scripted) -> None:
    client = scripted.client
    agent = await using(scripted, Script(calls=(call("dig", text="gold"),)), Script(text="Gold, twice."))
    conv = await client.open(agent)
    turn, view = await client.turn(conv, "Dig.")
    assert turn.status == COMPLETED and view.text() == "Gold, twice." and not turn.issues.tool_failures
    first, _ = await client.moves(turn.id, conv)
    (result,) = first.tool_results
    assert result.success and dict(result.result.struct_value) == {"found": "gold twice"}
    assert "gold twice" in json.dumps(scripted.requests[1])
    dispatched = next(e.tool_dispatched for e in view.events if e.name == "tool.dispatched")
    assert dispatched.operation.run_id.startswith("run_")


@pytest.mark.parametrize("tool", ["fall", "sink"])
async def test_the_model_receives_the_failure_of_a_tool_and_goes_on(scripted: Scripted, tool: str) -> None:
    """A business fault: it is not tried again, whatever the tool's retry says."""
    client = scripted.client
    agent = await using(scripted, Script(calls=(call(tool, text="x"),)), Script(text="It broke."))
    conv = await client.open(agent)
    turn, view = await client.turn(conv, "Walk.")
    assert turn.status == COMPLETED and view.text() == "It broke." and turn.issues.tool_failures == 1
    (failed,) = (e.tool_failed.tool_result for e in view.events if e.name == "tool.failed")
    assert failed.error.code == EXECUTION_FAILED and not failed.error.retriable
    assert "The ice was thin." in failed.error.message and failed.attempts == 1
    prompt = json.dumps(scripted.requests[1])
    assert "The ice was thin." in prompt and "EXECUTION_FAILED" in prompt
    assert len(scripted.requests) == 2


async def test_calls_of_one_answer_run_concurrently_and_each_is_reported_once(scripted: Scripted) -> None:
    client = scripted.client
    wanted = {
        "echo": 0,
        "fall": EXECUTION_FAILED,
        "dig": 0,
        "dawdle": conversation.TOOL_ERROR_CODE_TIMEOUT,
        "sink": EXECUTION_FAILED,
        "vanish": conversation.TOOL_ERROR_CODE_NOT_FOUND,
    }
    calls = tuple(call(name, text=f"for {name}") for name in wanted)
    agent = await using(scripted, Script(calls=calls), Script(text="That is all."))
    conv = await client.open(agent)
    turn, view = await client.turn(conv, "Everything.")
    assert turn.status == COMPLETED and view.text() == "That is all." and turn.issues.tool_failures == 4
    first, second = await client.moves(turn.id, conv)
    names = {called.id: called.tool_name for called in first.tool_calls}
    assert {names[r.tool_call_id]: r.error.code for r in first.tool_results} == wanted
    assert len(first.tool_results) == len(wanted) and not second.tool_results
    # No call waits for another: the server dispatches all before the first completes.
    steps = [name for name in view.of_turn(turn.id) if name in ("tool.dispatched", "tool.completed")]
    assert steps == ["tool.dispatched"] * 5 + ["tool.completed"] * 2
    prompt = json.dumps(scripted.requests[1])
    assert [prompt.count(code) for code in ("EXECUTION_FAILED", "TIMEOUT", "NOT_FOUND")] == [2, 1, 1]
