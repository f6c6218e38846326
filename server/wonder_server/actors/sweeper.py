"""Every hour, and at a start: archive what has expired, and finish what a crash left half done (B11)."""

from __future__ import annotations

import asyncio
from typing import Final

from wonder_server.actors.attic import Attic
from wonder_server.actors.rooms import Rooms
from wonder_server.core.conversation.room_record import HALF_DONE_MS, due_ms
from wonder_server.core.conversation.values import Conversation
from wonder_server.core.errors import WonderError
from wonder_server.logs import logger
from wonder_server.ports.clock import Clock
from wonder_server.ports.records import Query, Records

_log = logger("actors")

EVERY_S: Final = 3_600
PAGE: Final = 100
_LAST = "\U0010ffff"


class Sweeper:
    """Looks for conversations whose time has come."""

    def __init__(
        self, *, attic: Attic, rooms: Rooms, records: Records, clock: Clock, every_s: int = EVERY_S
    ) -> None:
        self._attic = attic
        self._rooms = rooms
        self._records = records
        self._clock = clock
        self._every_s = every_s
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Sweep now, and every hour (``every_s``) from now on."""
        self._task = asyncio.get_running_loop().create_task(self._run())

    async def stop(self) -> None:
        """Sweep no more. What is half done is taken up by the next start."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait({self._task})

    async def finish(self) -> None:
        """See to what was half archived or brought back when the server died; before anybody is served."""
        await self._look(HALF_DONE_MS)

    async def sweep(self) -> int:
        """Look once; how many conversations were archived or deleted."""
        return await self._look(self._clock.now_ms())

    async def _look(self, now: int) -> int:
        done = 0
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
            for room in page:
                due = due_ms(room)
                if due > now:
                    return done
                after = (due, room.id)
                # Deleting may take its time.
                if not room.deleted_ms or now > HALF_DONE_MS:
                    done += await self._see_to(room)
            if len(page) < PAGE:
                return done

    async def _see_to(self, room: Conversation) -> bool:
        try:
            if room.spent:
                await self._attic.awake(room.id)
            if not room.deleted_ms:
                return await self._attic.put_away(room.id)
            await self._rooms.demolish(room.id)
        except WonderError as problem:
            _log.warning(
                "expiry_sweep_failed", conversation=room.id, reason=problem.fault.reason, problem=str(problem)
            )
            return False
        return True

    async def _run(self) -> None:
        while True:
            try:
                done = await self.sweep()
                if done:
                    _log.info("conversations_expired", conversations=done)
            except Exception:
                _log.exception("expiry_sweep_failed")
            await asyncio.sleep(self._every_s)
