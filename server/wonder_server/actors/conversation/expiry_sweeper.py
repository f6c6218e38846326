"""The expiry sweep: archive expired conversations and finish interrupted archiving and deletions (B11)."""

from __future__ import annotations

import asyncio
from typing import Final

from wonder_server.actors.archive.archiver import Archiver
from wonder_server.actors.conversation.deletions import Deletions
from wonder_server.actors.directory import Directory
from wonder_server.core.actor.queries import Forget
from wonder_server.core.conversation.model.histories.staging import Discard
from wonder_server.core.conversation.model.status import is_staged
from wonder_server.core.conversation.model.values import Conversation
from wonder_server.core.conversation.output.lifecycle_record import RECOVERY_DUE_MS, due_ms
from wonder_server.core.errors import WonderError
from wonder_server.logs import logger
from wonder_server.ports.clock import Clock
from wonder_server.ports.records import Query
from wonder_server.ports.scoped import ScopedRecords

_log = logger("actors")

INTERVAL_S: Final = 3_600
PAGE: Final = 100
MAX_CREATION_MS: Final = 3_600_000
"""Age at which an incomplete conversation is removed: longer than any creation takes."""
_LAST = "\U0010ffff"


class ExpirySweeper:
    """Processes conversations whose expiry, archiving or deletion is due."""

    def __init__(
        self,
        *,
        archiver: Archiver,
        deletions: Deletions,
        directory: Directory,
        records: ScopedRecords,
        clock: Clock,
        interval_s: float = INTERVAL_S,
    ) -> None:
        self._directory = directory
        self._archiver = archiver
        self._deletions = deletions
        self._records = records
        self._clock = clock
        self._interval_s = interval_s
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Start to sweep now and then every ``interval_s`` seconds."""
        self._task = asyncio.get_running_loop().create_task(self._run())

    async def stop(self) -> None:
        """Stop sweeping. The next start resumes interrupted work."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait({self._task})

    async def recover(self) -> None:
        """Finish what was being archived or restored when the server stopped. Call it before the first
        request."""
        await self._sweep_until(RECOVERY_DUE_MS)

    async def sweep(self) -> int:
        """Sweep once and return the number of archived or deleted conversations."""
        count = await self._sweep_until(self._clock.now_ms())
        for conversation_id in await self._archiver.with_registered_objects():
            await self._remove_unnamed(conversation_id)
        return count

    async def _remove_unnamed(self, conversation_id: str) -> None:
        try:
            await self._archiver.remove_unnamed(conversation_id)
        except WonderError as problem:
            _warn(conversation_id, problem)

    async def _sweep_until(self, now: int) -> int:
        count = 0
        after = (0, _LAST)
        while True:
            query = Query(
                table="conversations",
                by_ordinal=True,
                newest_first=False,
                after=after,
                limit=PAGE,
                lenient=True,
            )
            page: list[Conversation] = await self._records.find(query)
            for conversation in page:
                due = due_ms(conversation)
                if due > now:
                    return count
                after = (due, conversation.id)
                if not self._directory.owns(conversation.id):
                    continue
                if is_staged(conversation):
                    await self._discard(conversation, now)
                # Skip deletions during recovery: they may take long.
                elif not conversation.deleted_ms or now > RECOVERY_DUE_MS:
                    count += await self._process(conversation)
            if len(page) < PAGE:
                return count

    async def _discard(self, conversation: Conversation, now: int) -> None:
        """Remove a conversation whose creation a crash has interrupted. After the start, one may be in
        progress."""
        origin = conversation.origin
        staged_ms = 0 if origin is None else origin.staged_ms
        if now > RECOVERY_DUE_MS and now - staged_ms < MAX_CREATION_MS:
            return
        try:
            await self._directory.ask(conversation.id, Discard())
            await self._directory.query(conversation.id, Forget())
        except WonderError as problem:
            _warn(conversation.id, problem)

    async def _process(self, conversation: Conversation) -> bool:
        try:
            if conversation.stale_archive:
                await self._archiver.ensure_restored(conversation.id)
            if not conversation.deleted_ms:
                return await self._archiver.archive(conversation.id)
            await self._deletions.finish(conversation.id)
        except WonderError as problem:
            _warn(conversation.id, problem)
            return False
        return True

    async def _run(self) -> None:
        while True:
            try:
                count = await self.sweep()
                if count:
                    _log.info("conversations_expired", conversations=count)
            except Exception:
                _log.exception("expiry_sweep_failed")
            await asyncio.sleep(self._interval_s)


def _warn(conversation_id: str, problem: WonderError) -> None:
    _log.warning(
        "expiry_sweep_failed",
        conversation=conversation_id,
        reason=problem.fault.reason,
        problem=str(problem),
    )
