"""Record the golden journals: ``python -m tests.golden.record``, with this checkout alone.

A server runs a few short stories, and the journals of its actors are written beside this file. An argument
(``run-``) limits the journals to those with that prefix.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
from pathlib import Path

from tests.e2e.client import Client, View, struct
from tests.e2e.journals import PLANNERS, journals
from tests.e2e.process import Server, serving
from tests.golden import run_stories
from tests.golden.journals import dump
from wonder.v1 import conversation_service_pb2 as pb
from wonder.v1 import coordinator_service_pb2 as runs

HERE = Path(__file__).parent

LIBRARY = """
name: slow
model_profile: {provider: offline, model: offline, parameters: {token_delay_ms: 5}}
---
name: note
description: Keeps a note.
tool:
  target_type: task
  target_id: keep
  input_schema: {type: object, properties: {text: {type: string}}, required: [text]}
---
name: keep
task:
  steps:
    - {id: write, action: {kind: memory.write}, input_mapping: {content: input.text}}
---
name: write_request
task:
  steps:
    - id: write
      action: {kind: context}
      output_mapping:
        output.request: >-
          {"model": "offline", "messages": [{"role": "user", "content": input.user_message}],
           "tools": input.tools.map(t, {"type": "function", "function":
             {"name": t.name, "description": t.description, "parameters": t.input_schema}})}
---
name: small_assembly
workflow:
  nodes:
    - id: write
      task_id: write_request
      input_mapping: {user_message: input.user_message, tools: input.tool_definitions}
      output_mapping: {output.request: result.request}
---
name: keep_facts
task:
  steps:
    - id: facts
      action: {kind: context}
      output_mapping:
        output.memory_operations: '[{"op": "write", "type": "fact", "content": input.user_message}]'
---
name: small_extraction
workflow:
  nodes:
    - id: keep
      task_id: keep_facts
      input_mapping: {user_message: input.user_message}
      output_mapping: {output.memory_operations: result.memory_operations}
---
name: refuse
task:
  steps: [{id: refuse, action: {kind: assert, config: {condition: false, message: No.}}}]
---
name: branching
workflow:
  nodes:
    - {id: first, task_id: keep_facts, input_mapping: {user_message: input.user_message}}
    - {id: refused, task_id: refuse}
  transitions:
    - {from_node_id: first, to_node_id: refused, condition: input.user_message == "no"}
---
name: asking
workflow:
  nodes:
    - id: ask
      agent_id: small
      input_mapping: {question: input.question}
      output_mapping: {output.conversation_id: result.conversation_id}
---
name: small
persona:
  system_prompt: Small.
  model_profile_id: slow
  context_assembly_workflow_id: small_assembly
  memory_extraction_workflow_id: small_extraction
  tool_ids: [note]
  constraints: {max_moves_per_turn: 3}
"""


async def tools_and_limits(client: Client, _: Server) -> str:
    """Run a plain turn, a tool call, invalid arguments beside valid ones, and a turn up to its limit of
    moves.
    """
    conversation_id = await client.open("small")
    for text in (
        "say 3 words",
        "use the tool note with tea is nice",
        'run note {"wrong": 1}\nrun note {"text": "in parallel"}',
        "keep using the tool note with again",
    ):
        await client.turn(conversation_id, text)
    return conversation_id


async def cancelled(client: Client, _: Server) -> str:
    """Cancel a turn during its answer, beside one that continues."""
    conversation_id = await client.open("small")
    async with client.listening(conversation_id) as listener:
        long = await client.say(conversation_id, "say 500 words")
        other = await client.say(conversation_id, "say 4 words")
        await listener.until(lambda v: any(text.count(" ") > 3 for text in v.texts.values()))
        await client.conversations.CancelTurn(pb.CancelTurnRequest(turn_id=long.turn.id))
        await listener.until(lambda v: v.settled(long.turn.id) and v.settled(other.turn.id))
    return conversation_id


async def interrupted(client: Client, server: Server) -> str:
    """Kill the server during an answer; the next server finds the turn in the outbox."""
    conversation_id = await client.open("small")
    async with client.listening(conversation_id, View()) as listener:
        await client.say(conversation_id, "say 60 words")
        await listener.until(lambda v: any(text.count(" ") > 3 for text in v.texts.values()))
    await server.kill()
    return conversation_id


async def called(client: Client) -> str:
    """Return the conversation of a turn that a node of a run waits for."""
    run_id = await run(client, "asking", question="say 3 words")
    output = (await client.coordinator.GetRun(runs.GetRunRequest(run_id=run_id))).run.output
    conversation_id = str(output["conversation_id"])
    turns = (await client.conversations.ListTurns(pb.ListTurnsRequest(conversation_id=conversation_id))).turns
    await client.settled(conversation_id, turns[0].id)
    return conversation_id


async def run(client: Client, workflow: str, **given: str) -> str:
    start = runs.StartRunRequest(workflow_id=f"golden/{workflow}", input=struct(**given))
    run_id = str((await client.coordinator.StartRun(start)).run.id)
    async for _ in client.coordinator.WatchRun(runs.WatchRunRequest(run_id=run_id)):
        pass
    return run_id


async def record(prefix: str = "") -> None:
    names: dict[str, str] = {}
    with tempfile.TemporaryDirectory() as folder:
        data = Path(folder) / "data"
        server = await Server(data).start()
        async with server.client() as client:
            await client.apply("golden", LIBRARY)
            await client.agent("small", "golden/small")
            names[await tools_and_limits(client, server)] = "conversation-tools-and-limits"
            names[await cancelled(client, server)] = "conversation-cancelled"
            names[await called(client)] = "conversation-called"
            names[await run(client, "branching", user_message="yes")] = "run-completed"
            names[await run(client, "branching", user_message="no")] = "run-failed"
            await client.apply("golden/runs", run_stories.LIBRARY)
            for name, story in run_stories.STORIES.items():
                names[await story(client)] = name
            conversation_id = await interrupted(client, server)
            names[conversation_id] = "conversation-killed"
        async with serving(data) as again, again.client() as client:
            turns = (
                await client.conversations.ListTurns(pb.ListTurnsRequest(conversation_id=conversation_id))
            ).turns
            await client.settled(conversation_id, turns[0].id)
        for actor_id, entries in (await journals(data)).items():
            if actor_id in names and names[actor_id].startswith(prefix):
                text = dump(PLANNERS[actor_id.partition("_")[0]], entries)
                (HERE / f"{names[actor_id]}.jsonl").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    asyncio.run(record(*sys.argv[1:]))
