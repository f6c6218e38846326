"""Clients: models, embedder, prices, web, MCP servers, sandbox and git.

`open_clients` makes those that the settings choose. The rest of the server sees the ports in `Clients`, so a
test can use others instead.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import asdict, dataclass
from importlib import import_module
from typing import Final

from wonder_server.adapters.egress.environments import PROXY_VARIABLES
from wonder_server.adapters.egress.proxy import Egress
from wonder_server.adapters.mcp.config import ServerConfig
from wonder_server.adapters.mcp.servers import McpServers
from wonder_server.adapters.models.prices import LiteLLMPrices
from wonder_server.adapters.otlp.exporter import OtlpExporter
from wonder_server.adapters.sandbox.bubblewrap import BubblewrapSandbox
from wonder_server.adapters.sandbox.mounts import Host, Limits
from wonder_server.adapters.web.guarded import GuardedWeb
from wonder_server.compose.git import ExecutorFactory, GitStores, open_git
from wonder_server.compose.models import (
    ModelProviders,
    bounded,
    make_embedder,
    make_model,
    model_providers,
    own_prices,
    unknown_cost,
)
from wonder_server.compose.telemetry.traces import open_traces
from wonder_server.logs import logger
from wonder_server.ports.embedder import Embedder
from wonder_server.ports.mcp import Mcp
from wonder_server.ports.model import Model
from wonder_server.ports.prices import Prices
from wonder_server.ports.sandbox import Sandbox
from wonder_server.ports.web import Web
from wonder_server.settings import Settings, inherited_environment

_log = logger("server")

PRELOADED: Final = ("aiohttp", "yarl", "encodings.idna", "tempfile", "subprocess", "grpc_status.rpc_status")
"""Modules that adapters and the standard library import at first use. The import of aiohttp takes 150 ms, so
the server imports them in a thread after the start."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Clients:
    """The ways to everything outside of the stores, by their ports."""

    providers: ModelProviders
    model: Model
    bounded_model: Model
    """The same model, with answers limited in size: the one that turns use."""
    prices: Prices
    embedder: Embedder
    web: Web
    mcp: Mcp
    sandbox: Sandbox
    git: GitStores
    unavailable_actions: Callable[[], Awaitable[Mapping[str, str]]]
    """Return the action kinds that cannot run on this machine, each with the reason."""
    preload: Callable[[], None]
    """Import the modules that the clients need at first use. Blocks: call it in a thread."""
    exporter: OtlpExporter | None = None
    """Sends spans to the collector; None without one."""


@asynccontextmanager
async def open_egress() -> AsyncIterator[Egress]:
    """Yield the one way of outgoing connections, with the operator's proxies."""
    egress = Egress(environment=inherited_environment(sorted(PROXY_VARIABLES)))
    try:
        yield egress
    finally:
        await egress.close()


@asynccontextmanager
async def open_clients(
    settings: Settings, egress: Egress, new_executor: ExecutorFactory
) -> AsyncIterator[Clients]:
    """Make the clients of the settings. On exit, end their processes, sessions and threads."""
    async with AsyncExitStack() as stack:
        sandbox = make_sandbox(settings, egress)
        stack.push_async_callback(sandbox.close)
        sandbox.probe()
        providers = model_providers(settings)
        embedder = make_embedder(settings, providers.endpoints, egress)
        stack.push_async_callback(embedder.close)
        git = await stack.enter_async_context(open_git(settings, egress, new_executor))
        model = make_model(settings, providers.endpoints, egress)
        stack.push_async_callback(model.close)
        web = GuardedWeb(egress.dialer)
        stack.push_async_callback(web.close)
        mcp = McpServers([ServerConfig(**asdict(each)) for each in settings.mcp_servers], web)
        stack.push_async_callback(mcp.close)

        async def unavailable_actions() -> Mapping[str, str]:
            problem = await asyncio.shield(sandbox.probe())
            return {"shell": problem.fault.message} if problem is not None else {}

        exporter = await stack.enter_async_context(open_traces(settings, web))
        yield Clients(
            exporter=exporter,
            providers=providers,
            model=model,
            bounded_model=bounded(model, settings),
            prices=LiteLLMPrices(own_prices(settings), unknown_cost(settings)),
            embedder=embedder,
            web=web,
            mcp=mcp,
            sandbox=sandbox,
            git=git,
            unavailable_actions=unavailable_actions,
            preload=preload,
        )


def make_sandbox(settings: Settings, egress: Egress) -> BubblewrapSandbox:
    """Return the sandbox of shell commands, with the limits of the settings."""
    return BubblewrapSandbox(
        limits=Limits(
            memory_bytes=settings.sandbox_memory_bytes,
            processes=settings.sandbox_max_processes,
            file_bytes=settings.sandbox_max_file_bytes,
        ),
        host=Host(folders=settings.sandbox_read_only_paths, hidden=(settings.data_dir,)),
        idle_timeout_s=settings.sandbox_idle_timeout_seconds,
        max_instances=settings.sandbox_max_instances,
        egress=egress,
    )


def preload() -> None:
    """Import `PRELOADED`. Without this, a first import fails while the process has no free descriptors."""
    for name in PRELOADED:
        try:
            import_module(name)
        except ImportError as problem:
            _log.warning("preload_failed", module=name, problem=str(problem))
    _log.debug("modules_preloaded")
