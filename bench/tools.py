"""A turn of an agent that has 1,000 tools of an MCP server.

The numbers are the milliseconds of the assembly of the request, as its event says, and those until the first
text of an answer; the latter include storing and checking the request. The floor is the same turn of an agent
without tools, alternating with the measured one.
"""

from __future__ import annotations

import json
import statistics
import sys
import tempfile
from pathlib import Path

from client import Chat, Client
from measure import Effort, Number
from servers import wonder

from wonder.v1 import conversation_service_pb2 as pb

COUNT = 1_000
TURNS, QUICK_TURNS = 60, 10
WARM_UP_TURNS = 3
MOST_ASSEMBLY_MS = 10
LISTING_SERVER = Path(__file__).parent.parent / "tests" / "fakes" / "listing_mcp_server.py"


async def measure(effort: Effort) -> list[Number]:
    turns = QUICK_TURNS if effort.quick else TURNS
    with tempfile.TemporaryDirectory(prefix="wonder-bench-") as name:
        file = Path(name) / "pages"
        file.write_text(json.dumps([_tool(number) for number in range(COUNT)]), encoding="utf-8")
        server_of_tools = {"command": sys.executable, "args": [str(LISTING_SERVER), str(file)]}
        with wonder(environ={"WONDER_MCP_SERVERS": json.dumps({"lister": server_of_tools})}) as server:
            async with Client(server.address) as client:
                agents = [
                    await client.agent("bare", persona={}),
                    await client.agent("equipped", persona={"tool_sources": [{"mcp": "lister"}]}),
                ]
                ids = [await client.conversation(agent) for agent in agents]
                async with client.chat(ids[0]) as without, client.chat(ids[1]) as with_tools:
                    floor, value = await _alternating(without, with_tools, turns)
                assembly_floor, assembly = [await _assembly_ms(client, each) for each in ids]
    return [
        Number(name=f"milliseconds of an assembly, {COUNT:,} tools", value=assembly, unit="ms",
               floor=assembly_floor, floor_is="the same turn without tools",
               aim=MOST_ASSEMBLY_MS, aim_is="value"),
        Number(name=f"milliseconds until the first text, {COUNT:,} tools", value=value * 1000, unit="ms",
               floor=floor * 1000, floor_is="the same turn without tools"),
    ]  # fmt: skip


async def _alternating(without: Chat, with_tools: Chat, turns: int) -> tuple[float, float]:
    """Return the median seconds until the first text of both agents."""
    floors, values = list[float](), list[float]()
    for number in range(WARM_UP_TURNS + turns):
        for chat, seconds in ((without, floors), (with_tools, values)):
            taken = await chat.turn("say 1 words")
            if number >= WARM_UP_TURNS:
                seconds.append(taken)
    return statistics.median(floors), statistics.median(values)


async def _assembly_ms(client: Client, conversation_id: str) -> float:
    """Return the mean time of the assemblies of a conversation after its first turns."""
    request = pb.ListEventsRequest(conversation_id=conversation_id, page_size=1_000)
    events = (await client.conversations[0].ListEvents(request)).events
    times = [
        event.context_assembly_completed.duration_ms
        for event in events
        if event.HasField("context_assembly_completed")
    ]
    return statistics.mean(times[WARM_UP_TURNS:])


def _tool(number: int) -> dict[str, object]:
    fields = {f"field_{each}": {"type": "string", "description": "A field of the tool."} for each in range(6)}
    schema = {"type": "object", "properties": fields, "required": ["field_0"]}
    return {"name": f"tool_{number}", "description": "Does one of many things.", "inputSchema": schema}
