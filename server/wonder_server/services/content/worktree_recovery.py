"""What a server that ended in between has left: files of conversations that are no more."""

from __future__ import annotations

from typing import Protocol

from wonder_server.core import ids
from wonder_server.logs import logger
from wonder_server.ports.records import Records

_log = logger("server")


class WorktreeOwners(Protocol):
    """What is needed of `Repos`."""

    def conversations(self) -> dict[str, str]:
        """The conversations that there are files of, by the key of their worktree."""
        ...

    async def delete_conversation_work(self, conversation_id: str) -> None:
        """Remove the branches and the files of a conversation."""
        ...


async def remove_orphaned_worktrees(owners: WorktreeOwners, records: Records) -> None:
    """Remove the files of conversations that were deleted just before the server ended.

    A branch that is only called like a conversation's (``wonder/conv-zzz``) is somebody's, and stays. What
    cannot be removed is logged, and tried again at the next start; the others are removed all the same."""
    for conversation_id in sorted(set(owners.conversations().values())):
        if not ids.is_id("conv", conversation_id):
            continue
        try:
            if await records.get("conversations", conversation_id, conversation_id) is None:
                await owners.delete_conversation_work(conversation_id)
                _log.info("orphaned_worktree_removed", conversation=conversation_id)
        except Exception:
            _log.exception("orphaned_worktree_removal_failed", conversation=conversation_id)
