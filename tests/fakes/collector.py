"""A collector of traces: OTLP over HTTP, as JSON."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web


@dataclass
class Collector:
    """The spans that arrived. ``status`` is that of every answer, ``url`` the endpoint for servers."""

    url: str = ""
    status: int = 200
    spans: list[dict[str, Any]] = field(default_factory=list)
    bodies: list[str] = field(default_factory=list)
    changed: asyncio.Condition = field(default_factory=asyncio.Condition)

    async def post(self, request: web.Request) -> web.Response:
        """Take one export request."""
        text = await request.text()
        async with self.changed:
            self.bodies.append(text)
            if self.status == 200:
                for resource in json.loads(text)["resourceSpans"]:
                    for scope in resource["scopeSpans"]:
                        self.spans += scope["spans"]
            self.changed.notify_all()
        return web.json_response({}, status=self.status)

    async def named(self, *prefixes: str) -> list[dict[str, Any]]:
        """Wait for one span of each name, by its beginning, and return them."""

        def found() -> list[dict[str, Any]]:
            firsts = (next((s for s in self.spans if s["name"].startswith(p)), None) for p in prefixes)
            return [each for each in firsts if each is not None]

        async with self.changed:
            await self.changed.wait_for(lambda: len(found()) == len(prefixes))
        return found()


@asynccontextmanager
async def collecting() -> AsyncIterator[Collector]:
    """Serve a collector on a free port."""
    collector = Collector()
    app = web.Application(client_max_size=64 << 20)
    app.add_routes([web.post("/v1/traces", collector.post)])
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=1.0)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        collector.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
        yield collector
    finally:
        await runner.cleanup()
