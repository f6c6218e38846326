"""``wonder.v1.BackupService``: backups of the data folder."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from typing import Final

from wonder.v1 import backup_service_pb2 as pb
from wonder_server.ports.backups import BackupProgress, Backups, BackupSummary
from wonder_server.rpc.shared.call_context import CallContext
from wonder_server.rpc.shared.times import to_timestamp

DEFAULT_NAME: Final = "latest"
PROGRESS_S: Final = 0.5


class BackupServicer:
    """Methods of the BackupService; see ``backup_service.proto``."""

    def __init__(self, backups: Backups) -> None:
        self._backups = backups

    async def create_backup(
        self, request: pb.CreateBackupRequest, _context: CallContext
    ) -> AsyncIterator[pb.CreateBackupResponse]:
        return self._progress(request.name or DEFAULT_NAME)

    async def _progress(self, name: str) -> AsyncIterator[pb.CreateBackupResponse]:
        newest: deque[BackupProgress] = deque(maxlen=1)
        task = asyncio.create_task(self._backups.create(name, newest.append))
        try:
            while not task.done():
                await asyncio.wait({task}, timeout=PROGRESS_S)
                if newest and not task.done():
                    progress = newest.pop()
                    yield pb.CreateBackupResponse(
                        progress=pb.BackupProgress(
                            step=progress.step, files=progress.files, bytes=progress.bytes
                        )
                    )
            yield pb.CreateBackupResponse(backup=_to_proto(task.result()))
        finally:
            task.cancel()
            await asyncio.wait({task})


def _to_proto(made: BackupSummary) -> pb.Backup:
    return pb.Backup(
        name=made.name,
        create_time=to_timestamp(made.created_ms),
        files=made.files,
        bytes=made.bytes,
        new_bytes=made.new_bytes,
        objects_elsewhere=made.objects_elsewhere,
    )
