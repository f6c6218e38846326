"""The action kinds of this server: one module and one line of this table each (feature H3)."""

from __future__ import annotations

from wonder_server.services.actions.artifact.history import ARTIFACT_HISTORY
from wonder_server.services.actions.artifact.index import ARTIFACT_INDEX
from wonder_server.services.actions.artifact.list import ARTIFACT_LIST
from wonder_server.services.actions.artifact.merge import ARTIFACT_MERGE
from wonder_server.services.actions.artifact.read import ARTIFACT_READ
from wonder_server.services.actions.artifact.search import ARTIFACT_SEARCH
from wonder_server.services.actions.artifact.write import ARTIFACT_WRITE
from wonder_server.services.actions.basic.assertion import ASSERT
from wonder_server.services.actions.basic.context import CONTEXT
from wonder_server.services.actions.basic.event import EVENT
from wonder_server.services.actions.basic.file import FILE_WRITE
from wonder_server.services.actions.basic.sleep import SLEEP
from wonder_server.services.actions.contract.kind import ActionCall, ActionKind, ExecutionContext
from wonder_server.services.actions.contract.services import (
    ContentAccess,
    ExecutionAccess,
    ModelAccess,
    NetworkAccess,
    Services,
)
from wonder_server.services.actions.external.http import HTTP
from wonder_server.services.actions.external.llm import LLM
from wonder_server.services.actions.external.mcp import MCP
from wonder_server.services.actions.external.shell import SHELL
from wonder_server.services.actions.external.worker import WORKER
from wonder_server.services.actions.history.read import HISTORY_READ
from wonder_server.services.actions.history.read_result import HISTORY_READ_RESULT
from wonder_server.services.actions.history.search import HISTORY_SEARCH
from wonder_server.services.actions.memory.block_append import MEMORY_BLOCK_APPEND
from wonder_server.services.actions.memory.block_list import MEMORY_BLOCK_LIST
from wonder_server.services.actions.memory.block_replace import MEMORY_BLOCK_REPLACE
from wonder_server.services.actions.memory.delete import MEMORY_DELETE
from wonder_server.services.actions.memory.list import MEMORY_LIST
from wonder_server.services.actions.memory.read import MEMORY_READ
from wonder_server.services.actions.memory.search import MEMORY_SEARCH
from wonder_server.services.actions.memory.supersede import MEMORY_SUPERSEDE
from wonder_server.services.actions.memory.update import MEMORY_UPDATE
from wonder_server.services.actions.memory.write import MEMORY_WRITE
from wonder_server.services.actions.repo.commit import REPO_COMMIT
from wonder_server.services.actions.repo.diff import REPO_DIFF
from wonder_server.services.actions.repo.index import REPO_INDEX
from wonder_server.services.actions.repo.merge import REPO_MERGE
from wonder_server.services.actions.repo.read import REPO_READ
from wonder_server.services.actions.repo.search import REPO_SEARCH
from wonder_server.services.actions.repo.tree import REPO_TREE
from wonder_server.services.actions.repo.update import REPO_UPDATE
from wonder_server.services.actions.repo.write import REPO_WRITE

__all__ = [
    "ACTIONS",
    "ActionCall",
    "ActionKind",
    "ContentAccess",
    "ExecutionAccess",
    "ExecutionContext",
    "ModelAccess",
    "NetworkAccess",
    "Services",
]

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
        FILE_WRITE,
        HISTORY_READ,
        HISTORY_READ_RESULT,
        HISTORY_SEARCH,
        HTTP,
        LLM,
        MCP,
        MEMORY_BLOCK_APPEND,
        MEMORY_BLOCK_LIST,
        MEMORY_BLOCK_REPLACE,
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
