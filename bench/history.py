"""CPU that a long history adds to a turn.

An agent with `recent_turns_limit: 200` takes turns that call two tools each, until its requests contain 200
turns with 400 results. Then turns without tools are compared with those of a new conversation of the same
agent: the difference is the whole cost of the history, from its selection to the stored request.
"""

from __future__ import annotations

from client import LIBRARY, Client
from measure import Effort, Number, load
from servers import wonder

TURNS = 200
MOST_MS = 10.0
COMPARED = 20
CALL = 'use the tool note with {"text": "milk and bread"}'
PLAIN = "say 5 words about the weather in the mountains"

NOTE = [
    {
        "name": "write-note",
        "task": {
            "steps": [
                {
                    "id": "write",
                    "action": {"kind": "context"},
                    "output_mapping": {"output.said": '"Noted for later: " + input.text'},
                }
            ]
        },
    },
    {
        "name": "note",
        "description": "Notes a text.",
        "tool": {
            "target_type": "TARGET_TYPE_TASK",
            "target_id": "write-note",
            "input_schema": {"type": "object", "properties": {"text": {"type": "string"}}},
        },
    },
]


async def measure(_: Effort) -> list[Number]:
    with wonder() as server:
        async with Client(server.address) as client:
            await client.apply(NOTE)
            persona = {
                "tool_ids": [f"{LIBRARY}/note"],
                "recent_turns_limit": 200,
                "memory_extraction_workflow_id": "none",
            }
            agent = await client.agent("keeper", persona=persona)
            async with (
                client.chat(await client.conversation(agent), 0) as new,
                client.chat(await client.conversation(agent), 1, tail_only=True) as old,
            ):
                for _ in range(TURNS - COMPARED):
                    await old.turn(f"{CALL}\n{CALL}")
                short = await load(server.pid, 1, COMPARED, lambda _: new.turn(PLAIN))
                for _ in range(COMPARED):
                    await old.turn(f"{CALL}\n{CALL}")
                long = await load(server.pid, 1, COMPARED, lambda _: old.turn(PLAIN))
    history = f"{TURNS} turns with {2 * TURNS} tool results"
    floor_is = "a new conversation"
    return [
        Number(name=f"CPU that a history adds to a turn, {history}", value=long.cpu_ms - short.cpu_ms,
               unit="ms", aim=MOST_MS),
        Number(name=f"time to first token p50, {history}", value=long.p50_ms, unit="ms",
               floor=short.p50_ms, floor_is=floor_is),
    ]  # fmt: skip
