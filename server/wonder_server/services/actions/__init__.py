"""The action kinds of this server: one file each, one line here (feature H3)."""

from __future__ import annotations

from wonder_server.services.actions.artifact_history import ARTIFACT_HISTORY
from wonder_server.services.actions.artifact_index import ARTIFACT_INDEX
from wonder_server.services.actions.artifact_list import ARTIFACT_LIST
from wonder_server.services.actions.artifact_merge import ARTIFACT_MERGE
from wonder_server.services.actions.artifact_read import ARTIFACT_READ
from wonder_server.services.actions.artifact_search import ARTIFACT_SEARCH
from wonder_server.services.actions.artifact_write import ARTIFACT_WRITE
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
from wonder_server.services.actions.memory_delete import MEMORY_DELETE
from wonder_server.services.actions.memory_list import MEMORY_LIST
from wonder_server.services.actions.memory_read import MEMORY_READ
from wonder_server.services.actions.memory_search import MEMORY_SEARCH
from wonder_server.services.actions.memory_supersede import MEMORY_SUPERSEDE
from wonder_server.services.actions.memory_update import MEMORY_UPDATE
from wonder_server.services.actions.memory_write import MEMORY_WRITE
from wonder_server.services.actions.repo_commit import REPO_COMMIT
from wonder_server.services.actions.repo_diff import REPO_DIFF
from wonder_server.services.actions.repo_index import REPO_INDEX
from wonder_server.services.actions.repo_merge import REPO_MERGE
from wonder_server.services.actions.repo_read import REPO_READ
from wonder_server.services.actions.repo_search import REPO_SEARCH
from wonder_server.services.actions.repo_tree import REPO_TREE
from wonder_server.services.actions.repo_update import REPO_UPDATE
from wonder_server.services.actions.repo_write import REPO_WRITE
from wonder_server.services.actions.shell import SHELL
from wonder_server.services.actions.sleep import SLEEP
from wonder_server.services.actions.worker import WORKER

__all__ = ["ACTIONS", "ActionCall", "ActionKind", "AgentMemory", "ExecutionContext", "Services"]

ACTIONS: dict[str, ActionKind] = {
    kind.name: kind
    for kind in (
        ARTIFACT_HISTORY,
        ARTIFACT_INDEX,
        ARTIFACT_LIST,
        ARTIFACT_MERGE,
        ARTIFACT_READ,
        ARTIFACT_SEARCH,
        ARTIFACT_WRITE,
        ASSERT,
        CONTEXT,
        EVENT,
        HTTP,
        LLM,
        MCP,
        MEMORY_DELETE,
        MEMORY_LIST,
        MEMORY_READ,
        MEMORY_SEARCH,
        MEMORY_SUPERSEDE,
        MEMORY_UPDATE,
        MEMORY_WRITE,
        REPO_COMMIT,
        REPO_DIFF,
        REPO_INDEX,
        REPO_MERGE,
        REPO_READ,
        REPO_SEARCH,
        REPO_TREE,
        REPO_UPDATE,
        REPO_WRITE,
        SHELL,
        SLEEP,
        WORKER,
    )
}
