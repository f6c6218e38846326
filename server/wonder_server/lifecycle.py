"""The life of a server process: lock the folder, recover, serve, drain, exit.

On SIGTERM or SIGINT the server stops in these steps:

1. Health reports NOT_SERVING and new calls are refused.
2. The application notifies its streams and releases the turns in progress, which the next start resumes.
3. Calls that still run are cancelled.
4. The stores close.

The stop takes at most ``shutdown_grace_seconds``; then the process ends by force, with every acknowledged
request on disk. A second signal ends the process immediately.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sqlite3
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from typing import Protocol

from wonder_server import __version__
from wonder_server.core.errors import WonderError
from wonder_server.data_folder import DataFolder, DataFolderError
from wonder_server.logs import logger
from wonder_server.rpc.server.server import CallNumbers, ListenError, RpcServer, check_bindable
from wonder_server.services.tenancy.directory import PrincipalDirectory
from wonder_server.services.tenancy.logins import Logins
from wonder_server.services.tenancy.visibility import Visibility
from wonder_server.settings import Settings, unknown_variables

_log = logger("server")


class App(Protocol):
    """A started application: everything behind the contract."""

    @property
    def servicers(self) -> Mapping[str, object]:
        """Servicers by full service name, ``wonder.v1.MemoryService``."""

    @property
    def logins(self) -> Logins | None:
        """Callers with tokens of issuers."""

    @property
    def visibility(self) -> Visibility | None:
        """The rule about what a refused caller may know."""

    @property
    def principals(self) -> PrincipalDirectory:
        """The stored principals, with their keys."""

    def disk_full_error(self) -> WonderError | None:
        """Return STORAGE_UNAVAILABLE while the disk is full, else None."""

    def metrics(self, calls: Callable[[], CallNumbers]) -> AbstractAsyncContextManager[None]:
        """Serve metrics until exit, if the settings name an address."""

    async def drain(self, grace_seconds: float) -> None:
        """Notify open streams and stop the work within the grace. Pending operations stay in the outbox."""


OpenApp = Callable[[Settings], AbstractAsyncContextManager[App]]
"""Starts an application and closes it on exit. Closes what it opened if the start fails."""


async def run_server(
    settings: Settings, open_app: OpenApp, *, started_at: float, stop: asyncio.Event | None = None
) -> None:
    """Run one server until a signal, or until ``stop`` is set if it is given.

    ``started_at`` is the `time.monotonic` of the process's start. Raises `DataFolderError`, `ListenError` or
    `SettingsError` if the server cannot start.
    """
    # Before everything else: a signal during recovery must end in a stop, not in a kill.
    stop_requested = stop or _stop_on_signal(settings.shutdown_grace_seconds * 0.95)
    folder = DataFolder.acquire(settings.data_dir, settings.listen)
    try:
        _log_warnings(settings)
        async with _serving(settings, open_app, folder) as (server, app, address):
            _log.info(
                "ready", address=address, data=str(folder.path), version=__version__,
                model=settings.model_choice, sqlite=sqlite3.sqlite_version,
                seconds=round(time.monotonic() - started_at, 2),
            )  # fmt: skip
            await stop_requested.wait()
            await _drain(settings.shutdown_grace_seconds, server, app)
    finally:
        folder.release()
    _log.info("stopped")


@asynccontextmanager
async def _serving(
    settings: Settings, open_app: OpenApp, folder: DataFolder
) -> AsyncIterator[tuple[RpcServer, App, str]]:
    """Bind the port, start the application and serve. Yield the server, the application and the address."""
    server = RpcServer(settings)
    async with AsyncExitStack() as stack:
        try:
            # A port in use is refused before anything is recovered.
            address = server.bind()
            if settings.metrics_address:
                check_bindable(settings.metrics_address, "--metrics-address")
            app = await _open(stack, open_app(settings), folder)
            await server.start(app.servicers, app.disk_full_error, app.principals, app.logins, app.visibility)
            await _serve_metrics(stack, settings, app, server)
            folder.publish_address(address)
        except BaseException:
            # A bound server must be stopped while its event loop runs.
            await server.stop(0)
            raise
        yield server, app, address


async def _open(stack: AsyncExitStack, opening: AbstractAsyncContextManager[App], folder: DataFolder) -> App:
    """Start the application. A folder or file that the system refuses raises `DataFolderError`."""
    try:
        return await stack.enter_async_context(opening)
    except OSError as problem:
        where = problem.filename or folder.path
        raise DataFolderError(f"{where} cannot be used: {problem.strerror or problem}.") from problem


async def _serve_metrics(stack: AsyncExitStack, settings: Settings, app: App, server: RpcServer) -> None:
    """Serve the metrics. An address or a file that cannot be used raises `ListenError`."""
    if not settings.metrics_address:
        return
    try:
        await stack.enter_async_context(app.metrics(server.numbers))
    except OSError as problem:
        where = problem.filename or settings.metrics_address
        raise ListenError(
            f"The metrics cannot be served: {where}: {problem.strerror or problem}."
        ) from problem


async def _drain(seconds: int, server: RpcServer, app: App) -> None:
    _log.info("draining", calls=server.active_calls, seconds=seconds)
    _force_exit_after(seconds * 0.95)
    await server.drain()
    await _run_bounded(seconds * 0.6, "drain", app.drain(seconds * 0.5))
    await server.stop(seconds * 0.2)


async def _run_bounded(seconds: float, step: str, work: Awaitable[None]) -> None:
    """Await ``work`` for at most ``seconds``. Log a timeout or an error, so that the stop continues."""
    try:
        async with asyncio.timeout(seconds):
            await work
    except TimeoutError:
        _log.warning("shutdown_step_timed_out", step=step, seconds=seconds)
    except Exception:
        _log.exception("shutdown_step_failed", step=step)


def _stop_on_signal(force_after: float) -> asyncio.Event:
    """Return an event that the first SIGTERM or SIGINT sets. The second signal ends the process.

    Python's own signal handler ends the process and wakes the thread that ends it by force, since the event
    loop may be blocked. That thread is started beforehand: a signal handler must not start one, because it
    may have interrupted the start of another.
    """
    stop_requested = asyncio.Event()
    read_end, write_end = os.pipe()
    first = True

    def watch() -> None:
        os.read(read_end, 1)
        _force_exit_after(force_after)

    def on_signal(_number: int, _frame: object) -> None:
        nonlocal first
        if not first:
            os._exit(1)
        first = False
        os.write(write_end, b"!")

    threading.Thread(target=watch, name="force", daemon=True).start()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop_requested.set)
        # Replaces the loop's handler, which does nothing: signals reach the loop through a wakeup descriptor.
        signal.signal(number, on_signal)
        signal.siginterrupt(number, False)
    return stop_requested


def _force_exit_after(seconds: float) -> None:
    """End the process after ``seconds`` from a thread, since the event loop may be blocked."""

    def end() -> None:
        _log.error("shutdown_forced", seconds=seconds)
        os._exit(1)

    timer = threading.Timer(seconds, end)
    timer.daemon = True
    timer.start()


def _log_warnings(settings: Settings) -> None:
    for name, near in unknown_variables().items():
        _log.warning("unknown_setting", variable=name, **({"did_you_mean": near} if near else {}))
    for root in settings.repository_roots:
        if not root.is_dir():
            _log.warning("repository_root_missing", path=str(root), effect="its repositories are unreachable")
    if not settings.is_loopback and not settings.has_tls:
        _log.warning("tls_disabled", listen=settings.listen)
    if not settings.is_loopback and not settings.has_auth:
        _log.warning("authentication_disabled", listen=settings.listen)
