"""The action kinds of this server: one file each, one line here (feature H3)."""

from __future__ import annotations

from wonder_server.services.actions.assertion import ASSERT
from wonder_server.services.actions.context import CONTEXT
from wonder_server.services.actions.event import EVENT
from wonder_server.services.actions.http import HTTP
from wonder_server.services.actions.kind import (
    ActionCall,
    ActionKind,
    AgentMemory,
    ExecutionContext,
    Services,
)
from wonder_server.services.actions.llm import LLM
from wonder_server.services.actions.mcp import MCP
from wonder_server.services.actions.memory_read import MEMORY_READ
from wonder_server.services.actions.memory_search import MEMORY_SEARCH
from wonder_server.services.actions.memory_write import MEMORY_WRITE
from wonder_server.services.actions.sleep import SLEEP
from wonder_server.services.actions.worker import WORKER

__all__ = ["ACTIONS", "ActionCall", "ActionKind", "AgentMemory", "ExecutionContext", "Services"]

ACTIONS: dict[str, ActionKind] = {
    kind.name: kind
    for kind in (
        ASSERT,
        CONTEXT,
        EVENT,
        HTTP,
        LLM,
        MCP,
        MEMORY_READ,
        MEMORY_SEARCH,
        MEMORY_WRITE,
        SLEEP,
        WORKER,
    )
}
