"""Adapters and background jobs, made from the settings."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, Final

from wonder_server.adapters.egress.dialing import Dialer
from wonder_server.adapters.egress.environments import PROXY_VARIABLES
from wonder_server.adapters.egress.proxy import Egress
from wonder_server.adapters.embedders.batched import BatchedEmbedder
from wonder_server.adapters.embedders.hashing import HashingEmbedder
from wonder_server.adapters.embedders.helper import HelperEmbedder
from wonder_server.adapters.files.blobs import FileBlobs
from wonder_server.adapters.files.disk_space import DiskSpaceGuard, free_bytes
from wonder_server.adapters.git.origins import GitOrigins
from wonder_server.adapters.git.repositories import GitRepositories
from wonder_server.adapters.git.storage.command import ThreadPool
from wonder_server.adapters.models.common.endpoints import Endpoint
from wonder_server.adapters.models.defaults import endpoints
from wonder_server.adapters.models.litellm.model import PASSED_ENVIRONMENT, LiteLLMModel
from wonder_server.adapters.models.native.model import NativeModel
from wonder_server.adapters.models.native.requests import ROUTES
from wonder_server.adapters.models.offline.model import OfflineModel
from wonder_server.adapters.models.routing import ANY_FORMAT, RoutedModel
from wonder_server.adapters.s3.blobs import S3Blobs, S3Config
from wonder_server.adapters.sandbox.bubblewrap import BubblewrapSandbox
from wonder_server.adapters.sandbox.mounts import Host, Limits
from wonder_server.adapters.sqlite.database import Database
from wonder_server.core.errors import WonderError
from wonder_server.logs import logger
from wonder_server.ports.embedder import Embedder
from wonder_server.ports.model import Model
from wonder_server.settings import Settings, inherited_environment

_log = logger("server")

DAY_S: Final = 86_400

DISK_CHECK_INTERVAL_S: Final = 1.0
"""Seconds between two looks at the room on the disk."""

PRELOADED: Final = ("aiohttp", "yarl", "encodings.idna", "tempfile", "subprocess", "grpc_status.rpc_status")
"""Modules that adapters and the standard library import when they are first needed. Of the outside ones,
aiohttp takes 150 ms: it is imported when the server is ready, in a thread."""


def make_endpoints(settings: Settings) -> dict[str, Endpoint]:
    """The providers of models: those with a key or address of their own setting, and the operator's list."""
    listed = {
        each.name: Endpoint(
            format=each.format,
            api_key=each.key,
            api_base=each.base_url,
            headers=each.headers,
            options=each.options,
        )
        for each in settings.providers
    }
    return {**endpoints(settings.provider_environment()), **listed}


def make_egress() -> Egress:
    """The way out for subprocesses, with the operator's proxies."""
    return Egress(environment=inherited_environment(sorted(PROXY_VARIABLES)))


def make_origins(
    settings: Settings, repositories: GitRepositories, near: ThreadPool, far: ThreadPool, egress: Egress
) -> GitOrigins:
    """Return the repositories of projects: URLs, in the threads of ``far``, and folders below the operator's
    roots, in those of ``near``."""
    return GitOrigins(
        repositories,
        near,
        settings.data_dir,
        egress,
        settings.repository_roots,
        updates_checkouts=settings.repository_update_checkouts,
        remote_pool=far,
    )


def make_embedder(settings: Settings, egress: Egress) -> Embedder:
    """The built-in one, or one that a helper process reaches."""
    kind, _, folder = settings.embedder.partition(":")
    dimensions, environment = settings.embedder_dimensions, inherited_environment(PASSED_ENVIRONMENT)
    if not settings.embedder:
        return HashingEmbedder()
    if kind == "local":
        return BatchedEmbedder(HelperEmbedder("local", folder, dimensions, egress, environment=environment))
    provider = settings.embedder.partition("/")[0]
    inner = HelperEmbedder(
        "litellm",
        settings.embedder,
        dimensions,
        egress,
        endpoint=make_endpoints(settings).get(provider),
        allow_remote=settings.allow_remote_models,
        environment=environment,
    )
    return BatchedEmbedder(inner)


def make_model(settings: Settings, known: Mapping[str, Endpoint], egress: Egress) -> RoutedModel:
    """Every way of reaching a model, by provider and format."""
    remote, environment = settings.allow_remote_models, inherited_environment(PASSED_ENVIRONMENT)
    proxies = inherited_environment(sorted(PROXY_VARIABLES))
    native = NativeModel(known, allow_remote=remote, environment=proxies, dialer=egress.dialer)
    routes: dict[tuple[str, str], Model] = {("offline", ANY_FORMAT): OfflineModel()}
    # A provider of the operator's list goes one way only, in whatever format it is asked.
    routes |= {(name, format_): native for name, format_ in ROUTES if not known.get(name, Endpoint()).format}
    routes |= {
        (name, ANY_FORMAT): native for name, each in known.items() if each.format and not each.uses_litellm
    }
    return RoutedModel(
        routes,
        known=settings.provider_names,
        default=LiteLLMModel(known, egress, allow_remote=remote, environment=environment),
    )


async def open_blobs(settings: Settings, dialer: Dialer) -> FileBlobs | S3Blobs:
    if not settings.s3_endpoint:
        return await FileBlobs.open(settings.data_dir / "blobs")
    return S3Blobs(
        S3Config(
            endpoint=settings.s3_endpoint,
            bucket=settings.s3_bucket,
            region=settings.s3_region,
            access_key=settings.s3_access_key,
            secret_key=settings.s3_secret_key,
        ),
        dialer=dialer,
    )


def make_sandbox(settings: Settings, egress: Egress) -> BubblewrapSandbox:
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


async def pack_daily(repositories: GitRepositories) -> None:
    """Once a day: keep repositories small."""
    while True:
        try:
            await repositories.pack()
        except WonderError as problem:
            _log.warning("repository_packing_failed", problem=str(problem))
        await asyncio.sleep(DAY_S)


async def log_failure(name: str, work: Coroutine[Any, Any, None]) -> None:
    """Work in the background of which nobody awaits the end: that it failed is logged."""
    try:
        await work
    except Exception:
        _log.exception("background_task_failed", work=name)


async def watch_disk(disk_space: DiskSpaceGuard, data: Path, databases: Sequence[Database]) -> None:
    """Look every second how much room there is. While there is hardly any, fold the logs of the stores, which
    takes room first; while there is none, give back what was deleted."""
    while True:
        await asyncio.sleep(DISK_CHECK_INTERVAL_S)
        is_full = disk_space.update()
        for database in databases:
            await database.overwrite_within(0 if is_full else free_bytes(data))
        logs = sorted(databases, key=Database.log_bytes)
        if is_full or disk_space.should_fold_logs(sum(database.log_bytes() for database in logs)):
            await checkpoint_logs(data, logs)
        for database in logs if is_full else ():
            try:
                given = await database.shrink(free_bytes(data))
            except WonderError as problem:
                _log.warning("store_not_shrunk", store=database.path.name, problem=str(problem))
            else:
                if given:
                    _log.info("store_shrunk", store=database.path.name, bytes=given)


async def checkpoint_logs(data: Path, databases: Sequence[Database]) -> None:
    """Fold what logs there are, the smallest first: each makes room for the next."""
    for database in databases:
        try:
            if database.log_bytes():
                await database.checkpoint(free_bytes(data))
        except WonderError as problem:
            _log.warning("store_not_shrunk", store=database.path.name, problem=str(problem))


def preload() -> None:
    """Import what is first needed later: an import fails while there are no descriptors left."""
    for name in PRELOADED:
        try:
            import_module(name)
        except ImportError as problem:
            _log.warning("preload_failed", module=name, problem=str(problem))
    _log.debug("modules_preloaded")
