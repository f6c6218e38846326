"""One pool of workers for each tenant: workers execute no job of another tenant, and see no kind of it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import NamedTuple

from wonder_server.services.workers.pool import WorkerPool


class WorkerNumbers(NamedTuple):
    """Connected workers, the jobs that they accept at once and have now, and the jobs that wait for one."""

    connected: int
    capacity: int
    assignments: int
    waiting: int


class WorkerPools:
    """The pools by tenant, each made at its first use."""

    def __init__(self, make_pool: Callable[[], WorkerPool]) -> None:
        self._make_pool = make_pool
        self._pools: dict[str, WorkerPool] = {}
        self._is_closed = False

    def of(self, tenant_id: str) -> WorkerPool:
        """Return the pool of a tenant."""
        known = self._pools.get(tenant_id)
        if known is None:
            known = self._pools[tenant_id] = self._make_pool()
            if self._is_closed:
                known.close()
        return known

    def numbers(self) -> WorkerNumbers:
        """Return the numbers of this moment, of all tenants."""
        sessions = [session for pool in self._pools.values() for session in pool.sessions]
        return WorkerNumbers(
            connected=len(sessions),
            capacity=sum(session.max_concurrency for session in sessions),
            assignments=sum(len(session.assignments) for session in sessions),
            waiting=sum(pool.waiting_count for pool in self._pools.values()),
        )

    def drain(self, grace_ms: int) -> None:
        """See `WorkerPool.drain`."""
        for pool in self._pools.values():
            pool.drain(grace_ms)

    async def wait_until_idle(self) -> None:
        """Wait until no worker has an assignment."""
        await asyncio.gather(*(pool.wait_until_idle() for pool in self._pools.values()))

    def close(self) -> None:
        """See `WorkerPool.close`."""
        self._is_closed = True
        for pool in self._pools.values():
            pool.close()
