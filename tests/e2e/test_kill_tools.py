"""kill -9 at every commit of turns with tools that are waited for, tools in the background, and agents.

The record afterwards is that of an uninterrupted run: the same events, moves, results and messages, whatever
the order in which results came back, and each effect once.
"""

from __future__ import annotations

import asyncio
import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
from google.protobuf.json_format import MessageToDict

from tests.e2e.client import Client, View
from tests.e2e.deaths import through_deaths
from tests.e2e.process import serving
from wonder.v1 import conversation_pb2 as conversation
from wonder.v1 import conversation_service_pb2 as pb

pytestmark = pytest.mark.asyncio(loop_scope="session")

TEXT = "{type: object, properties: {text: {type: string}}, required: [text]}"
LIBRARY = f"""
name: note
description: Notes.
tool: {{target_type: task, target_id: write_note, input_schema: {TEXT}}}
---
name: write_note
task:
  steps:
    - id: write
      action: {{kind: memory.write}}
      input_mapping: {{content: input.text}}
---
name: note_later
description: Notes, after a while.
tool: {{target_type: workflow, target_id: nap_and_note, async: true, input_schema: {TEXT}}}
---
name: nap_and_note
workflow:
  nodes:
    - {{id: nap, wait: {{duration_ms: 60}}}}
    - {{id: write, task_id: write_note, input_mapping: {{text: input.text}}}}
  transitions: [{{from_node_id: nap, to_node_id: write}}]
---
name: colleague
description: Asks a colleague.
tool: {{target_type: agent, target_id: colleague, input_schema: {TEXT}}}
---
name: colleague_later
description: Asks a colleague, who answers later.
tool: {{target_type: agent, target_id: colleague, async: true, input_schema: {TEXT}}}
---
name: join
description: Has a colleague join.
tool: {{target_type: agent, target_id: colleague, invocation_mode: loop_in, input_schema: {TEXT}}}
---
name: slow
model_profile: {{provider: offline, model: offline, parameters: {{token_delay_ms: 8}}}}
---
name: worker
persona:
  system_prompt: You work.
  model_profile_id: slow
  memory_extraction_workflow_id: none
---
name: host
persona:
  system_prompt: You have tools.
  memory_extraction_workflow_id: none
  tool_ids: [note, note_later, colleague, colleague_later, join]
"""

STORIES = {
    "delegate": "use the tool note with tea\nuse the tool colleague with say 4 words",
    "workflow in the background": "use the tool note_later with tea",
    "agent in the background": "use the tool colleague_later with say 4 words",
    "loop in": "use the tool join with say 4 words",
    "all at once": "use the tool note with tea\nuse the tool note_later with milk\n"
    "use the tool colleague with say 3 words\nuse the tool colleague_later with say 4 words",
}
SURE = {"delegate": 9, "workflow in the background": 9, "agent in the background": 9, "loop in": 8,
        "all at once": 10}  # fmt: skip
"""Commits that each story makes at least, one after the other."""
_IDS = re.compile(r"\b[a-z]+_[0-9A-Z]{26}\b")


async def prepare(data: Path) -> None:
    async with serving(data) as server, server.client() as client:
        await client.apply("e2e/kill", LIBRARY)
        await client.agent("host", "e2e/kill/host")
        await client.agent("colleague", "e2e/kill/worker")


def plain(text: str) -> str:
    """Without what is different each time."""
    return _IDS.sub("ID", text)


class Told:
    """A story: one turn of the host. ``record`` is what is left of it."""

    def __init__(self, words: str) -> None:
        self.words = words
        self.view = View()
        self.record: dict[str, Any] = {}

    async def __call__(self, client: Client, view: View) -> None:
        room = await client.open("host", request_id="open")
        said = await client.say(room, self.words, "say")
        await client.settled(room, said.turn.id, view)
        record = await client.events(room)
        assert [(e.sequence, e.name) for e in record] == list(enumerate(view.names, 1))
        turns = (await client.conversations.ListTurns(pb.ListTurnsRequest())).turns
        assert not any(turn.operations for turn in turns)
        moves = await client.moves(said.turn.id, room)
        results = [result for move in moves for result in move.tool_results]
        called = [call for move in moves for call in move.tool_calls]
        # Each call was carried out and told once.
        assert len(called) == len(results) == view.names.count("tool.dispatched")
        assert len(results) == view.names.count("tool.completed") + view.names.count("tool.failed")
        self.record = {
            "turns": sorted((t.status, t.caller.WhichOneof("caller"), t.output.string_value) for t in turns),
            "results": sorted(
                plain(json.dumps(MessageToDict(r.result), sort_keys=True)) for r in results if r.success
            ),
            "failures": [r.error.code for r in results if not r.success],
            "memories": sorted(await client.memories("host")),
            "people": [p.agent.name for p in (await room_of(client, room)).participants],
            "said": sorted(plain(m.content) for m in await client.messages(room)),
        }


async def room_of(client: Client, conversation_id: str) -> conversation.Conversation:
    request = pb.GetConversationRequest(conversation_id=conversation_id)
    return (await client.conversations.GetConversation(request)).conversation


_prepared = Path()
"""A data folder with the agents in it, made once."""
_whole: dict[str, tuple[dict[str, Any], list[str]]] = {}


async def whole(name: str, folders: pytest.TempPathFactory) -> tuple[dict[str, Any], list[str]]:
    """The record of an uninterrupted run, and the names of its events."""
    global _prepared
    if not _prepared.name:
        _prepared = folders.mktemp("prepared") / "data"
        await prepare(_prepared)
    if name not in _whole:
        folder = folders.mktemp("whole") / "data"
        shutil.copytree(_prepared, folder)
        story, view = Told(STORIES[name]), View()
        assert await through_deaths(folder, story, view, "") == 0
        assert all(status == conversation.TURN_STATUS_COMPLETED for status, *_ in story.record["turns"])
        _whole[name] = (story.record, sorted(view.names))
    return _whole[name]


@pytest.mark.parametrize("name", STORIES)
@pytest.mark.parametrize("number", range(1, 12))
@pytest.mark.parametrize("word", ["before", "after"])
async def test_a_kill_at_any_commit_leaves_the_record_of_an_uninterrupted_run(
    data: Path, tmp_path_factory: pytest.TempPathFactory, name: str, number: int, word: str
) -> None:
    record, names = await whole(name, tmp_path_factory)
    shutil.copytree(_prepared, data)
    story, view = Told(STORIES[name]), View()
    deaths = await through_deaths(data, story, view, f"{word}-commit:{number}", "")
    assert deaths == 1 or number > SURE[name]
    if name == "all at once":
        # The model is told of some things together or apart, and answers accordingly.
        record, story.record = ({**each, "said": []} for each in (record, story.record))
    else:
        assert sorted(view.names) == names
    assert story.record == record


async def cancel_it(client: Client, _: View) -> None:
    """Ask the host, cancel its turn once its colleague speaks, and see the colleague stop."""
    room = await client.open("host", request_id="open")
    said = await client.say(room, "use the tool colleague with say 1000 words", "say")
    async with asyncio.timeout(20):
        while not (asked := [turn for turn in await turns_of(client) if turn.conversation_id != room]):
            pass  # Its conversation comes a commit later.
    async with client.listening(asked[0].conversation_id) as listener:
        await listener.until(lambda v: any(v.texts.values()) or "turn.cancelled" in v.names)
        await client.conversations.CancelTurn(
            pb.CancelTurnRequest(conversation_id=room, turn_id=said.turn.id, request_id="stop")
        )
        await listener.until(lambda v: "turn.cancelled" in v.names)
    cancelled = conversation.TURN_STATUS_CANCELLED
    assert [turn.status for turn in await turns_of(client)] == [cancelled, cancelled]


@pytest.mark.parametrize("doom", ["before-commit:7", "after-commit:7", "before-commit:8", "after-commit:8"])
async def test_a_kill_around_a_cancel_does_not_leave_the_colleague_working(data: Path, doom: str) -> None:
    """The seventh commit is the host's, the eighth its colleague's."""
    await prepare(data)
    assert await through_deaths(data, cancel_it, View(), doom, "") == 1


async def turns_of(client: Client) -> list[conversation.Turn]:
    return list((await client.conversations.ListTurns(pb.ListTurnsRequest())).turns)
