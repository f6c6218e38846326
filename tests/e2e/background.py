"""Tools that run in the background, for tests that decide when they end, and agents that have them."""

from __future__ import annotations

import asyncio
import itertools
import json
from typing import Any

from tests.e2e.client import Client, View
from tests.e2e.scripted import Scripted
from tests.fakes.provider import Call, Script
from wonder.v1 import coordinator_service_pb2 as runs
from wonder.v1 import event_pb2, run_pb2

TEXT = "{type: object, properties: {text: {type: string}}, required: [text]}"
LIBRARY = f"""
name: research
description: Researches a topic. Takes long.
tool:
  target_type: workflow
  target_id: research_topic
  async: true
  input_schema: {{type: object, properties: {{topic: {{type: string}}}}, required: [topic]}}
---
name: research_topic
workflow:
  nodes:
    - {{id: dig, wait: {{signal: found}}}}
    - id: judge
      task_id: judge
      input_mapping: {{found: signals.found}}
      output_mapping: {{output.found: result.found}}
  transitions: [{{from_node_id: dig, to_node_id: judge}}]
---
name: judge
task:
  steps:
    - id: judge
      action: {{kind: assert}}
      input_mapping: {{condition: 'input.found != "nothing"', message: '"Nothing was found."'}}
    - {{id: tell, action: {{kind: context}}, output_mapping: {{output.found: input.found}}}}
---
name: slow_task
description: Takes a moment.
tool: {{target_type: task, target_id: nap, async: true, input_schema: {TEXT}}}
---
name: nap
task:
  steps:
    - {{id: sleep, action: {{kind: sleep, config: {{duration_ms: 50}}}}}}
    - {{id: say, action: {{kind: context}}, output_mapping: {{output.slept: input.text}}}}
---
name: failing_task
description: Takes a moment and fails.
tool: {{target_type: task, target_id: stumble, async: true, input_schema: {TEXT}}}
---
name: stumble
task:
  steps:
    - {{id: sleep, action: {{kind: sleep, config: {{duration_ms: 50}}}}}}
    - {{id: fall, action: {{kind: assert, config: {{condition: false, message: The ice was thin.}}}}}}
---
name: quick
description: Answers at once.
tool: {{target_type: task, target_id: echo, input_schema: {TEXT}}}
---
name: echo
task:
  steps:
    - {{id: say, action: {{kind: context}}, output_mapping: {{output.text: input.text}}}}
"""

_numbers = itertools.count(1)


async def prepared(client: Client) -> None:
    """Apply the tools; repeating it changes nothing."""
    await client.apply("e2e/background", LIBRARY)


def using(*names: str) -> tuple[str, ...]:
    return tuple(name if "/" in name else f"e2e/background/{name}" for name in names)


def call(tool: str, **arguments: Any) -> Call:
    return Call(name=tool, arguments=json.dumps(arguments))


async def asking(client: Client, agent: str, **spec: Any) -> tuple[str, str]:
    """Create a tool that calls an agent; return its reference and the name that models use."""
    name = f"ask_{next(_numbers)}"
    tool = {"target_type": "agent", "target_id": agent, **spec}
    document = {"name": name, "description": "Asks an agent.", "tool": tool}
    await client.apply("e2e/asking_tools", json.dumps(document))
    return f"e2e/asking_tools/{name}", name


async def constrained(scripted: Scripted, *scripts: Script, tools: tuple[str, ...], **limits: Any) -> str:
    """Create a scripted agent whose persona has these constraints; return its name."""
    agent = await scripted.agent(*scripts)
    persona = {
        "system_prompt": "You are held short.",
        "model_profile_id": f"profile_{agent.rpartition('_')[2]}",
        "memory_extraction_workflow_id": "none",
        "tool_ids": list(tools),
        "constraints": limits,
    }
    document = {"name": f"{agent}_short", "persona": persona}
    await scripted.client.apply("e2e/scripted", json.dumps(document))
    await scripted.client.agent(f"{agent}_short", f"e2e/scripted/{agent}_short")
    return f"{agent}_short"


def dispatched(view: View, tool: str) -> event_pb2.ToolDispatched:
    """Return the newest dispatch of a tool."""
    found = [e.tool_dispatched for e in view.events if e.tool_dispatched.tool_call.tool_name == tool]
    assert found, f"{tool} was not dispatched: {view.names}"
    return found[-1]


async def found(client: Client, run_id: str, what: str) -> None:
    """Signal the finding to the research run; wait for the run if it is not recorded yet."""
    signal = run_pb2.Signal(name="found")
    signal.payload.string_value = what
    request = runs.SignalRunRequest(run_id=run_id, signal=signal, request_id=f"found {what}")
    async with asyncio.timeout(60):
        await client.coordinator.SignalRun(request)
