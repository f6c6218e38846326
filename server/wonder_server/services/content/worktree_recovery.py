"""Removal of the worktrees of deleted conversations that remain after a crash."""

from __future__ import annotations

from typing import Protocol

from wonder_server.core import ids
from wonder_server.logs import logger
from wonder_server.ports.scoped import ScopedRecords

_log = logger("server")


class WorktreeOwners(Protocol):
    """The methods of `BranchWorktrees` that recovery needs."""

    def conversations(self) -> dict[str, str]:
        """Return the ids of the conversations that have a worktree, by the key of the worktree."""
        ...

    async def delete_conversation_work(self, conversation_id: str) -> None:
        """Remove the branches and files of a conversation."""
        ...


async def remove_orphaned_worktrees(owners: WorktreeOwners, records: ScopedRecords) -> None:
    """Remove the worktrees of conversations that were deleted just before the server stopped.

    A branch whose name only resembles that of a conversation (``wonder/conv-zzz``) stays. An error is
    logged and does not affect other worktrees; the next start tries again."""
    for conversation_id in sorted(set(owners.conversations().values())):
        if not ids.is_id("conv", conversation_id):
            continue
        try:
            if await records.get("conversations", conversation_id, conversation_id) is None:
                await owners.delete_conversation_work(conversation_id)
                _log.info("orphaned_worktree_removed", conversation=conversation_id)
        except Exception:
            _log.exception("orphaned_worktree_removal_failed", conversation=conversation_id)
