"""Record a data folder, so that tests show that later builds open it, go on, and replay it.

Run the script in a checkout of the build to record, and add the archive here::

    PYTHONPATH=.:server:gen .venv/bin/python PATH/record_folder.py folder-BUILD.tar.xz

The server of the folder is killed in the middle of a turn. The folder then holds:

- a conversation with two turns, a tool call and memories (``open``);
- a conversation in the middle of a turn (``cut``);
- an archived conversation (``away``);
- a run that has ended, one that waits at a gate, and one that waits for a signal.
"""

from __future__ import annotations

import asyncio
import sys
import tarfile
import tempfile
import time
from pathlib import Path

from google.protobuf.timestamp_pb2 import Timestamp

from tests.e2e.client import Client, struct
from tests.e2e.process import Server, serving
from wonder.v1 import conversation_service_pb2 as pb
from wonder.v1 import coordinator_service_pb2 as runs

LIBRARY = """
name: slow
model_profile: {provider: offline, model: offline, parameters: {token_delay_ms: 20}}
---
name: slow_speaker
persona: {system_prompt: You speak slowly., model_profile_id: slow, memory_extraction_workflow_id: none}
---
name: note
task:
  steps:
    - {id: note, action: {kind: context}, output_mapping: {output.value: input.value}}
---
name: fan
workflow:
  nodes:
    - {id: list, task_id: note, input_mapping: {value: '[1, 2, 3]'}, output_mapping: {state.n: result.value}}
    - {id: each, task_id: note, input_mapping: {value: item * 10}, output_mapping: {branch.n: result.value}}
    - id: meet
      task_id: note
      fan_in: {merges: [{source: branch.n, target: output.n}]}
      input_mapping: {value: output.n}
  transitions:
    - {from_node_id: list, to_node_id: each, for_each: {items: state.n}}
    - {from_node_id: each, to_node_id: meet}
---
name: gate
workflow:
  nodes:
    - {id: draft, task_id: note, input_mapping: {value: '"draft"'},
       output_mapping: {state.text: result.value}}
    - id: agree
      human_gate: {prompt: Agree., answer_schema: {type: object, properties: {text: {type: string}}}}
      input_mapping: {text: state.text}
      output_mapping: {output.text: result.input.text, output.decision: result.decision}
  transitions: [{from_node_id: draft, to_node_id: agree}]
---
name: signal
workflow:
  nodes:
    - {id: payment, wait: {signal: paid}, output_mapping: {output.paid: result.payload}}
"""


async def record(data: Path) -> None:
    """Write the folder."""
    async with serving(data) as server, server.client() as client:
        await client.apply("old", LIBRARY)
        await client.agent("snail", "old/slow_speaker")
        conv = await client.open(external_ref="open", request_id="open")
        await client.turn(conv, "remember that I like tea")
        await client.turn(conv, "My dog is called Rex and likes bones.")
        for name, wait_ms in (("fan", 10_000), ("gate", 0), ("signal", 0)):
            start = runs.StartRunRequest(workflow_id=f"old/{name}", input=struct(), wait_ms=wait_ms)
            start.request_id = name
            await client.coordinator.StartRun(start)
        soon = Timestamp(seconds=int(time.time()) + 2)
        away = await client.open(external_ref="away", expire_time=soon)
        await client.turn(away, "say 3 words")
    await asyncio.sleep(3)  # A server archives at its start what has expired.
    server = await Server(data).start()
    async with server.client() as client:
        while not await _is_archived(client, away):  # noqa: ASYNC110 - no event says so
            await asyncio.sleep(0.2)
        cut = await client.open("snail", external_ref="cut")
        await client.say(cut, "say 40 words")
        async with client.listening(cut) as listener:
            await listener.until(lambda view: any(view.texts.values()))
        await server.kill()


async def _is_archived(client: Client, conv: str) -> bool:
    request = pb.GetConversationRequest(conversation_id=conv)
    found = await client.conversations.GetConversation(request)
    return bool(found.conversation.HasField("archive_time"))


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        data = Path(folder) / "data"
        asyncio.run(record(data))
        with tarfile.open(sys.argv[1], "w:xz", preset=9) as archive:
            for path in sorted(data.rglob("*")):
                if path.is_file() and path.name not in ("LOCK", "ADDRESS", "RESERVE"):
                    archive.add(path, str(path.relative_to(data)))


if __name__ == "__main__":
    main()
