"""Recovery of worktrees: the next start removes those of deleted conversations and no others."""

from __future__ import annotations

from pathlib import Path

from structlog.testing import capture_logs

from tests.conformance.ports.journal_subjects import (
    commit,
    conversation,
    conversation_id,
    opened,
    put_conversation,
)
from wonder_server.core.errors import Reason, error
from wonder_server.services.content.worktree_recovery import remove_orphaned_worktrees


class FixedWorktrees:
    """Worktrees by name; the removal of ``stuck`` fails."""

    def __init__(self, *conversations: str, stuck: str = "") -> None:
        self.there = list(conversations)
        self.stuck = stuck

    def conversations(self) -> dict[str, str]:
        return {f"proj_1-{name}": name for name in self.there}

    async def delete_conversation_work(self, conversation_id: str) -> None:
        if conversation_id == self.stuck:
            raise error(Reason.STORAGE_UNAVAILABLE, "The disk is full.")
        self.there.remove(conversation_id)


async def test_recovery_skips_unusual_names_and_continues_after_an_error(tmp_path: Path) -> None:
    kept, stuck, gone = conversation_id(0), conversation_id(1), conversation_id(2)
    async with opened("sqlite", tmp_path) as records:
        await records.of(kept).commit([commit(kept, put_conversation(conversation(0)))])
        works = FixedWorktrees("conv_", "conv_0zz", "conv_zzz", kept, stuck, gone, stuck=stuck)
        with capture_logs() as lines:
            await remove_orphaned_worktrees(works, records)
    assert works.there == ["conv_", "conv_0zz", "conv_zzz", kept, stuck]
    # The log level decides whether successes are logged, so only errors are compared.
    assert [line["conversation"] for line in lines if line["log_level"] == "error"] == [stuck]


async def test_an_invalid_id_belongs_to_no_shard(tmp_path: Path) -> None:
    async with opened("sqlite", tmp_path) as records:
        for odd in ("conv_zzz", "conv_é", "", "z"):
            assert not records.holds(odd)
            assert await records.head(odd) is None and await records.heads([odd]) == {}
            assert await records.get("conversations", odd, odd or "z") is None
