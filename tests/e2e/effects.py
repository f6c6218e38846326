"""External HTTP server that counts its requests, and is busy, slow or silent on request."""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from aiohttp import web


class Effects:
    """Counts requests by their path. The path says what it does:

    ``/once/…``, ``/again/…``   answer with the count
    ``/busy/N/…``               status 503 to the first N requests, then as above
    ``/slow/MS/…``              answers after so many milliseconds
    ``/hang/…``                 answers when `release` is called
    """

    def __init__(self) -> None:
        self.url = ""
        self.counts: Counter[str] = Counter()
        self.keys: defaultdict[str, set[str]] = defaultdict(set)
        """The idempotency keys that came with each path."""
        self.closed: Counter[str] = Counter()
        """Requests whose sender hung up before it was answered."""
        self._changed = asyncio.Condition()
        self._released = asyncio.Event()

    @property
    def address(self) -> str:
        return self.url.removeprefix("http://")

    def of(self, prefix: str) -> dict[str, int]:
        """Return the number of requests for each path with this prefix."""
        return {path: count for path, count in self.counts.items() if path.startswith(prefix)}

    def release(self) -> None:
        """Answer all requests that hang."""
        self._released.set()
        self._released = asyncio.Event()

    async def until(self, condition: Callable[[], object]) -> None:
        """Wait until ``condition``, over what is counted, holds."""
        async with asyncio.timeout(60), self._changed:
            await self._changed.wait_for(condition)

    async def answer(self, request: web.Request) -> web.Response:
        path = request.path
        self.counts[path] += 1
        if "Idempotency-Key" in request.headers:
            self.keys[path].add(request.headers["Idempotency-Key"])
        await self._tell()
        try:
            return await self._answer(path)
        except asyncio.CancelledError:
            self.closed[path] += 1
            await self._tell()
            raise

    async def _answer(self, path: str) -> web.Response:
        _, verb, number, *_ = [*path.split("/"), "", ""]
        if verb == "busy" and self.counts[path] <= int(number):
            return web.Response(status=503)
        if verb == "slow":
            await asyncio.sleep(int(number) / 1000)
        if verb == "hang":
            await self._released.wait()
        return web.json_response({"path": path})

    async def _tell(self) -> None:
        async with self._changed:
            self._changed.notify_all()


@asynccontextmanager
async def counting() -> AsyncIterator[Effects]:
    """Start a counting server on this machine."""
    effects, app = Effects(), web.Application()
    app.router.add_route("*", "/{path:.*}", effects.answer)
    runner = web.AppRunner(app, handler_cancellation=True)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    effects.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    try:
        yield effects
    finally:
        effects.release()
        await runner.cleanup()
