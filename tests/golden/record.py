"""Record the golden journals: ``python -m tests.golden.record``, with this checkout alone.

A server runs a few short stories, and the journals of its actors are written beside this file. An argument
(``run-``) limits the journals to those with that prefix. A second one (``-progress``) ends their names, so
that the journals of earlier versions stay.
"""

from __future__ import annotations

import asyncio
import json
import sys
import tempfile
from contextlib import AsyncExitStack
from pathlib import Path

from tests.e2e.background import LIBRARY as BACKGROUND
from tests.e2e.background import dispatched, found
from tests.e2e.client import Client, View, struct
from tests.e2e.journals import PLANNERS, journals
from tests.e2e.process import Server, serving
from tests.fakes.provider import Call, Provider, Script, running_provider
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
name: scripted
model_profile: {provider: openai, model: repaired, format: openai_chat}
---
name: typed
persona:
  system_prompt: Count.
  model_profile_id: scripted
  memory_extraction_workflow_id: none
  output_schema: {type: object, properties: {total: {type: number}}, required: [total]}
---
name: echo
description: Says it again.
tool:
  target_type: task
  target_id: say_again
  max_result_bytes: 1024
  input_schema: {type: object, properties: {text: {type: string}}, required: [text]}
---
name: say_again
task:
  steps: [{id: say, action: {kind: context}, output_mapping: {output.text: input.text}}]
---
name: long
model_profile: {provider: openai, model: long, format: openai_chat}
---
name: reader
persona:
  system_prompt: Read.
  model_profile_id: long
  memory_extraction_workflow_id: none
  tool_ids: [echo, wonder/std/read_result]
---
name: late
persona:
  system_prompt: Wait.
  model_profile_id: slow
  context_assembly_workflow_id: small_assembly
  memory_extraction_workflow_id: none
  tool_ids: [e2e/background/research]
  constraints: {max_moves_per_turn: 3}
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


async def repaired(client: Client, provider: Provider) -> str:
    """Repair an answer that does not satisfy the output schema, and fail at a second such answer."""
    invalid, valid = Script(text="It was five."), Script(text='{"total": 5}')
    provider.script("repaired", invalid, valid, invalid)
    conversation_id = await client.open("typed")
    await client.turn(conversation_id, "What did it cost?")
    await client.turn(conversation_id, "And yesterday?")
    return conversation_id


async def large_result(client: Client, provider: Provider) -> str:
    """Cut a large result of a tool for the model, which reads it on and then asks for too much."""
    text = " ".join(f"word{number}" for number in range(400))
    call = Call(name="echo", arguments=json.dumps({"text": text}))
    unknown = Call(name="read_result", arguments=json.dumps({"result_id": "move_0.0"}))
    provider.script("long", Script(calls=(call,)), Script(calls=(unknown,)), Script(text="It is long."))
    conversation_id = await client.open("reader")
    await client.turn(conversation_id, "Say it again.")
    return conversation_id


async def late_result(client: Client) -> str:
    """Get a result in the background after another turn; the next call is the last one of its turn."""
    conversation_id = await client.open("late")
    async with client.listening(conversation_id) as listener:
        asked = (await client.say(conversation_id, "use the tool research with flights")).turn.id
        view = await listener.until(lambda v: v.of_turn(asked).count("message.appended") >= 2)
        other = (await client.say(conversation_id, "say 3 words before nine")).turn.id
        await listener.until(lambda v: v.settled(other))
        await found(client, dispatched(view, "research").operation.run_id, "two flights")
        await listener.until(lambda v: v.settled(asked))
    return conversation_id


async def replied(client: Client) -> str:
    """Return a conversation of two people in which a message replies to another."""
    conversation_id = await client.open("small")
    first = pb.ConverseSend(content="say 2 words", user_id="mia")
    asked = pb.SendMessageRequest(conversation_id=conversation_id, send=first)
    sent = await client.conversations.SendMessage(asked)
    await client.settled(conversation_id, sent.turn.id)
    second = pb.ConverseSend(content="say 3 words", user_id="bob", reply_to_message_id=sent.message.id)
    asked = pb.SendMessageRequest(conversation_id=conversation_id, send=second)
    answered = await client.conversations.SendMessage(asked)
    await client.settled(conversation_id, answered.turn.id)
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


async def record(prefix: str = "", suffix: str = "") -> None:
    names: dict[str, str] = {}
    async with AsyncExitStack() as stack:
        provider = await stack.enter_async_context(running_provider())
        data = Path(stack.enter_context(tempfile.TemporaryDirectory())) / "data"
        environment = {"OPENAI_API_KEY": "none", "WONDER_OPENAI_BASE_URL": f"{provider.url}/v1"}
        server = await Server(data, environment=environment).start()
        async with server.client() as client:
            await client.apply("e2e/background", BACKGROUND)
            await client.apply("golden", LIBRARY)
            await client.agent("small", "golden/small")
            await client.agent("typed", "golden/typed")
            await client.agent("reader", "golden/reader")
            await client.agent("late", "golden/late")
            names[await late_result(client)] = "conversation-late-result"
            names[await large_result(client, provider)] = "conversation-large-result"
            names[await repaired(client, provider)] = "conversation-repaired"
            names[await tools_and_limits(client, server)] = "conversation-tools-and-limits"
            names[await cancelled(client, server)] = "conversation-cancelled"
            names[await called(client)] = "conversation-called"
            names[await replied(client)] = "conversation-replied"
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
                (HERE / f"{names[actor_id]}{suffix}.jsonl").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    asyncio.run(record(*sys.argv[1:]))
