"""Conversations that have a past, one of them with an hour to live; and what clients see of them."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from google.protobuf.timestamp_pb2 import Timestamp

from tests.e2e.client import Client
from tests.e2e.process import serving
from wonder.v1 import conversation_pb2 as conversation
from wonder.v1 import conversation_service_pb2 as pb
from wonder.v1 import coordinator_service_pb2 as runs

AHEAD = "7200"
"""Seconds by which a server's clock is ahead so that the conversation has expired."""

LIBRARY = """
name: slow
model_profile: {provider: offline, model: offline, parameters: {token_delay_ms: 20}}
---
name: slow_speaker
persona: {system_prompt: You speak slowly., model_profile_id: slow, memory_extraction_workflow_id: none}
---
name: helper
persona: {system_prompt: You help., memory_extraction_workflow_id: none}
"""
BOSS = """
name: ask_helper
description: Asks another agent.
tool:
  target_type: agent
  target_id: helper
  input_schema: {type: object, properties: {text: {type: string}}, required: [text]}
---
name: ask_snail
description: Asks an agent that speaks slowly.
tool:
  target_type: agent
  target_id: snail
  input_schema: {type: object, properties: {text: {type: string}}, required: [text]}
---
name: boss
persona: {system_prompt: You ask., tool_ids: [ask_helper, ask_snail]}
"""


@dataclass(frozen=True)
class Past:
    """A conversation, one turn of it, and all that clients see of that."""

    conv: str
    turn: str
    before: list[Any]


@dataclass(frozen=True)
class Populated:
    """``data`` is a folder, to copy; ``doomed`` expires within the hour, with ``delegated`` that it led to;
    ``kept`` never does."""

    data: Path
    doomed: Past
    delegated: Past
    kept: str


async def populate(data: Path) -> Populated:
    """Create a populated folder."""
    async with serving(data) as server, server.client() as client:
        await client.apply("e2e/archived", LIBRARY)
        await client.agent("snail", "e2e/archived/slow_speaker")
        await client.agent("helper", "e2e/archived/helper")
        await client.apply("e2e/archived", BOSS)
        await client.agent("boss", "e2e/archived/boss")
        when = Timestamp(seconds=int(time.time()) + 3600)
        conv = await client.open("boss", expire_time=when, external_ref="doomed")
        turn, _ = await client.turn(conv, "use the tool ask_helper with say 3 words")
        assert turn.status == conversation.TURN_STATUS_COMPLETED and not turn.issues.tool_failures
        kept = await client.open()
        await client.turn(kept, "say 2 words")
        turns = (await client.conversations.ListTurns(pb.ListTurnsRequest())).turns
        (helped,) = [each for each in turns if each.conversation_id not in (conv, kept)]
        return Populated(
            data,
            Past(conv, turn.id, await shown(client, conv, turn.id)),
            Past(helped.conversation_id, helped.id, await shown(client, helped.conversation_id, helped.id)),
            kept,
        )


async def shown(client: Client, conv: str, turn_id: str) -> list[Any]:
    """Return the part of a conversation that clients see up to the end of its first turn."""
    request = pb.GetTurnRequest(turn_id=turn_id, conversation_id=conv)
    turn = (await client.conversations.GetTurn(request)).turn
    run = runs.GetRunRequest(run_id=turn.context_assembly_run_id)
    messages = [each for each in await client.messages(conv) if each.turn_id == turn_id]
    events = [e for e in await client.events(conv) if e.turn_id == turn_id]
    found = (await client.coordinator.GetRun(run)).run
    decisions = await client.decisions(conv, turn_id)
    return [turn, messages, await client.moves(turn_id, conv), found, events, decisions]


async def is_away(client: Client, conv: str) -> bool:
    """Return True if the whole conversation is archived."""
    request = pb.ListConversationsRequest(page_size=200)
    listed = (await client.conversations.ListConversations(request)).conversations
    found = await client.conversations.GetConversation(pb.GetConversationRequest(conversation_id=conv))
    return found.conversation.HasField("archive_time") and conv not in [each.id for each in listed]


def objects(data: Path) -> list[Path]:
    """Return the files of the object store."""
    return [path for path in (data / "blobs").glob("??/*") if path.is_file()]
