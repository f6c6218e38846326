"""Requests of two callers that change memory blocks and delete a memory, for the tests of callers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from wonder.v1 import memory_service_pb2 as pb

MEMORY_REQUESTS: Mapping[str, Callable[[Any, Any, str], Any]] = {
    "SetMemoryBlock": lambda _, client, who: client.memory.SetMemoryBlock(
        pb.SetMemoryBlockRequest(
            request_id="r-SetMemoryBlock", agent_id="assistant", block={"label": "notes", "content": who}
        )
    ),
    "DeleteMemoryBlock": lambda _, client, __: client.memory.DeleteMemoryBlock(
        pb.DeleteMemoryBlockRequest(request_id="r-DeleteMemoryBlock", agent_id="assistant", label="notes")
    ),
    "DeleteMemory": lambda house, client, _: client.memory.DeleteMemory(
        pb.DeleteMemoryRequest(request_id="r-DeleteMemory", agent_id="assistant", memory_id=house.memory)
    ),
}
