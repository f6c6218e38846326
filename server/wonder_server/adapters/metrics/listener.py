"""The listener that serves ``/metrics``, ``/healthz`` for a supervisor without gRPC, and nothing else."""

from __future__ import annotations

import hmac
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from aiohttp import web

from wonder_server.core.errors import WonderError
from wonder_server.logs import logger

_log = logger("metrics")

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"


@dataclass(frozen=True, slots=True, kw_only=True)
class ListenerConfig:
    """Address and readers. ``token_file`` has the bearer token of a read, and is opened at each
    one, so that a changed token holds at once; None: everyone who can connect may read."""

    host: str
    port: int
    tls: tuple[Path, Path] | None = None
    """Certificate chain and private key."""
    token_file: Path | None = None


@asynccontextmanager
async def serve_metrics(config: ListenerConfig, render: Callable[[], Awaitable[bytes]]) -> AsyncIterator[int]:
    """Serve until exit. Yield the port. Raises OSError if the address or a file cannot be used."""
    context = None
    if config.tls is not None:
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(*config.tls)
    if config.token_file is not None and not _token(config.token_file):
        raise OSError(0, "it has no token", str(config.token_file))
    handlers = _Handlers(config, render)
    app = web.Application(client_max_size=1)
    app.add_routes([web.get("/metrics", handlers.metrics), web.get("/healthz", handlers.health)])
    runner = web.AppRunner(app, access_log=None, handle_signals=False, shutdown_timeout=1.0)
    await runner.setup()
    try:
        site = web.TCPSite(runner, config.host, config.port, ssl_context=context)
        await site.start()
        address: tuple[object, ...] = runner.addresses[0]
        yield int(str(address[1]))
    finally:
        await runner.cleanup()


class _Handlers:
    def __init__(self, config: ListenerConfig, render: Callable[[], Awaitable[bytes]]) -> None:
        self._config = config
        self._render = render

    async def health(self, _request: web.Request) -> web.Response:
        return web.Response(text="ok\n")

    async def metrics(self, request: web.Request) -> web.Response:
        if not self._is_allowed(request):
            return web.Response(
                status=401, text="A bearer token is required.\n", headers={"WWW-Authenticate": "Bearer"}
            )
        try:
            body = await self._render()
        except WonderError as problem:
            _log.warning("metrics_unreadable", reason=problem.fault.reason.value, problem=str(problem))
            return web.Response(status=503, text="The metrics cannot be read now.\n")
        return web.Response(body=body, headers={"Content-Type": CONTENT_TYPE})

    def _is_allowed(self, request: web.Request) -> bool:
        file = self._config.token_file
        if file is None:
            return True
        scheme, _, given = request.headers.get("Authorization", "").partition(" ")
        try:
            wanted = _token(file)
        except OSError as problem:
            _log.warning("metrics_token_unreadable", path=str(file), problem=problem.strerror or str(problem))
            return False
        return bool(wanted) and scheme.lower() == "bearer" and hmac.compare_digest(_bytes(given), wanted)


def _token(file: Path) -> bytes:
    return file.read_bytes().strip()


def _bytes(text: str) -> bytes:
    return text.strip().encode("utf-8", "surrogateescape")
