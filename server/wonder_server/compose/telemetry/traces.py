"""Traces: the export of spans to the collector of the settings."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from wonder_server import __version__
from wonder_server.actors.usage.span_names import SCHEMA_URL
from wonder_server.adapters.otlp.exporter import FLUSH_S, OtlpExporter
from wonder_server.compose.background import open_background
from wonder_server.ports.web import Web
from wonder_server.settings import Settings


@asynccontextmanager
async def open_traces(settings: Settings, web: Web) -> AsyncIterator[OtlpExporter | None]:
    """Yield the exporter, None without a collector. On exit, export what waits, for a moment at most."""
    if not settings.otlp_endpoint:
        yield None
        return
    exporter = OtlpExporter(
        web,
        settings.otlp_endpoint,
        percent=settings.trace_percent,
        version=__version__,
        schema_url=SCHEMA_URL,
    )
    async with open_background() as background:
        background.start("traces", exporter.run())
        yield exporter
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(FLUSH_S):
            await exporter.flush()
