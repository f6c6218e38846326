"""kill -9 in a commit and in the middle of streams: the turn ends properly, each event and each memory is
there once. `tests.simulation` dies at every other place."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.e2e.client import Client, View
from tests.e2e.deaths import at_every, through_deaths
from tests.e2e.process import Server, serving
from wonder.v1 import conversation_pb2 as conversation
from wonder.v1 import conversation_service_pb2 as pb

pytestmark = pytest.mark.asyncio(loop_scope="session")

TEXTS = ("remember that I like tea", "My dog is called Rex and likes bones.")
MEMORIES = {"I like tea", "My dog is called Rex and likes bones."}
NAMES = [
    "conversation_started",
    # The first turn calls a tool, which writes to memory.
    "conversation_turn", "message.appended", "context_assembly.completed", "move.recorded",
    "tool.dispatched", "tool.completed", "move.recorded", "move.recorded", "message.appended",
    "turn.completed", "memory_extraction.completed",
    # The second only speaks; its extraction writes to memory.
    "conversation_turn", "message.appended", "context_assembly.completed", "move.recorded",
    "message.appended", "turn.completed", "memory_extraction.completed",
]  # fmt: skip
STEPS = 1 + 2 * len(TEXTS)
"""Steps that are on disk before the next begins: the conversation is opened, and of each turn the message is
answered, and its end is seen."""


async def two_turns(client: Client, view: View) -> None:
    """Play the whole story, which can be repeated."""
    conv = await client.open(request_id="open")
    for number, text in enumerate(TEXTS):
        said = await client.say(conv, text, f"say {number}")
        await client.settled(conv, said.turn.id, view)
    # The record says what the streams said.
    assert [(e.sequence, e.name) for e in await client.events(conv)] == list(enumerate(view.names, 1))
    messages = await client.messages(conv)
    assert [m.content for m in messages] == [m.content for m in view.messages.values()]
    assert [m.ordinal for m in messages] == list(range(1, len(messages) + 1))
    turns = (await client.conversations.ListTurns(pb.ListTurnsRequest(conversation_id=conv))).turns
    assert [turn.status for turn in turns] == [conversation.TURN_STATUS_COMPLETED] * 2
    assert not any(turn.operations or turn.issues.memory_extraction_failed for turn in turns)
    memories = await client.memories()
    assert len(memories) == len(MEMORIES) and set(memories) == MEMORIES


@pytest.mark.parametrize("point", ["in-commit", "committed"])
async def test_a_kill_at_any_commit_leaves_no_trace_in_the_record(
    point: str, fresh: Path, tmp_path: Path
) -> None:
    assert await at_every(point, tell, fresh=fresh, folder=tmp_path) >= STEPS


async def tell(data: Path, doom: str) -> int:
    view = View()
    deaths = await through_deaths(data, two_turns, view, doom, "")
    assert view.names == NAMES
    return deaths


SLOW = """
name: slow
model_profile: {provider: offline, model: offline, parameters: {token_delay_ms: 20}}
---
name: slow_speaker
persona:
  system_prompt: You speak slowly.
  model_profile_id: slow
  memory_extraction_workflow_id: none
"""


async def slow_agent(data: Path) -> None:
    async with serving(data) as server, server.client() as client:
        await client.apply("e2e/slow", SLOW)
        await client.agent("snail", "e2e/slow/slow_speaker")


async def test_a_message_killed_in_mid_stream_begins_again_and_says_so(data: Path) -> None:
    await slow_agent(data)

    async def story(client: Client, view: View) -> None:
        conv = await client.open("snail", request_id="open")
        said = await client.say(conv, "say 30 words", "say")
        async with client.listening(conv, view) as listener:
            await listener.until(lambda v: v.settled(said.turn.id))

    view = View()
    assert await through_deaths(data, story, view, "token:10", "token:20", "") == 2
    (attempts,) = view.restarts.values()
    assert attempts == [2, 3]
    assert view.text() == " ".join(f"word{n}" for n in range(1, 31))
    assert view.names.count("message.appended") == 2 and view.names[-1] == "turn.completed"


async def test_a_kill_from_outside_in_the_middle_of_many_streams(data: Path) -> None:
    await slow_agent(data)
    server = await Server(data).start()
    convs: list[tuple[str, str, View]] = []
    async with server.client() as client:
        for number in range(8):
            conv = await client.open("snail")
            said = await client.say(conv, f"say {20 + number} words")
            convs.append((conv, said.turn.id, View()))
        for conv, _, view in convs:
            async with client.listening(conv, view) as listener:
                await listener.until(lambda v: any(v.texts.values()))
        await server.kill()
    async with serving(data) as again, again.client() as client:
        for number, (conv, turn_id, view) in enumerate(convs):
            async with client.listening(conv, view) as listener:
                await listener.until(lambda v, turn_id=turn_id: v.settled(turn_id))
            assert view.text() == " ".join(f"word{n}" for n in range(1, 21 + number))
            assert view.names[-2:] == ["message.appended", "turn.completed"]
