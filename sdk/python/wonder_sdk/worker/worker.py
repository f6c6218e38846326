"""`Worker`: a process that executes its own kinds of action for a server.

::

    worker = Worker("ocr-1", max_concurrency=4)

    @worker.action("ocr", idempotent=True)
    async def ocr(page: Page, context: WorkerContext) -> Text:
        context.progress("reading", 0.5)
        ...

    worker.run_forever()

A task uses it with an action of kind ``worker`` whose config has ``name: ocr``. See docs/workers.md.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import logging
import signal
import threading
from collections.abc import Awaitable, Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypeVar, get_type_hints

from wonder_sdk import environment
from wonder_sdk._proto.wonder import v1
from wonder_sdk.client import Client
from wonder_sdk.errors import (
    DeadlineExceededError,
    ResourceExhaustedError,
    UnauthenticatedError,
    UnavailableError,
    WonderError,
)
from wonder_sdk.json_types import JsonObject
from wonder_sdk.transport.reconnect import Backoff, ReconnectPolicy
from wonder_sdk.values import to_struct
from wonder_sdk.worker.action_error import ActionError
from wonder_sdk.worker.schemas import schema_of
from wonder_sdk.worker.worker_connection import Action, WorkerConnection, WorkerContext

__all__ = ["ActionError", "Worker", "WorkerContext"]

_log = logging.getLogger("wonder_sdk.worker.worker")

Handler = TypeVar("Handler", bound=Callable[..., Awaitable[object]])

_NO_TIMEOUT_MS = 10**15


class Worker:
    """A worker process: register actions, then `run`.

    ``address``, ``token``, ``tls_root`` and ``tls`` are those of `Client`. ``max_concurrency`` limits the
    concurrent assignments. ``projects`` (ids or names) limits the worker to these projects; the default is
    all. A stopping worker has ``drain_seconds`` to finish its assignments.
    """

    def __init__(
        self,
        name: str,
        *,
        address: str | None = None,
        max_concurrency: int = 1,
        projects: Sequence[str] = (),
        token: str | None = None,
        tls_root: Path | str | bytes | None = None,
        tls: bool = False,
        reconnect: ReconnectPolicy | None = None,
        drain_seconds: float = 30.0,
    ) -> None:
        self.name = name
        self.address = address or environment.target()
        self.max_concurrency = max_concurrency
        self.projects = tuple(projects)
        self._new_client = partial(Client, self.address, token=token, tls_root=tls_root, tls=tls)
        self._reconnect = reconnect or ReconnectPolicy(timeout_ms=_NO_TIMEOUT_MS)
        self._drain_seconds = drain_seconds
        self._actions: dict[str, Action] = {}
        self._connection: WorkerConnection | None = None
        self._serving: asyncio.Task[None] | None = None
        self._stop_requested = asyncio.Event()

    def action(
        self,
        name: str,
        *,
        description: str = "",
        idempotent: bool = False,
        input_schema: JsonObject | None = None,
        output_schema: JsonObject | None = None,
        max_concurrency: int = 0,
    ) -> Callable[[Handler], Handler]:
        """Register an async function as the action ``name``.

        The function takes the input, and a `WorkerContext` as an optional second parameter. It returns an
        object.

        - ``description`` defaults to the function's docstring.
        - ``idempotent`` allows the server to assign the action again after it has lost a worker.
        - ``input_schema`` and ``output_schema`` default to the schemas of the type hints
          (`wonder_sdk.worker.schemas`). If the input's type is a dataclass, the function gets an instance.
        - ``max_concurrency`` limits this action; 0 means the worker's own limit.

        Raises ValueError for a registered ``name``, and TypeError for an unsupported function or type.
        """

        def register(handler: Handler) -> Handler:
            if name in self._actions:
                raise ValueError(f"The action {name!r} is already registered. Choose another name.")
            takes, gives, wants_context = _signature(handler)
            self._actions[name] = Action(
                kind=v1.WorkerActionKind(
                    name=name,
                    description=description or inspect.getdoc(handler) or "",
                    input_schema=to_struct(schema_of(takes) if input_schema is None else input_schema),
                    output_schema=to_struct(schema_of(gives) if output_schema is None else output_schema),
                    idempotent=idempotent,
                    max_concurrency=max_concurrency,
                ),
                handler=handler,
                input_type=takes,
                wants_context=wants_context,
            )
            return handler

        return register

    async def run(self) -> None:
        """Execute assignments until SIGTERM, `stop` or a cancellation, then finish the running ones.

        The worker restores a lost connection, without a time limit by default (``reconnect``). It cancels the
        assignments of that connection, because the server assigns them to another worker or fails them.
        Raises `WonderError` for a permanent error, such as a rejected registration.
        """
        if not self._actions:
            raise ValueError(f"Worker {self.name} has no actions. Register an action first.")
        if self._serving is not None:
            raise RuntimeError(f"Worker {self.name} is already running. Wait for run to return.")
        self._stop_requested = asyncio.Event()
        serving = self._serving = asyncio.create_task(self._serve(), name=f"wonder worker {self.name}")
        stopped = asyncio.create_task(self._stop_requested.wait())
        try:
            with _on_sigterm(self.stop):
                try:
                    await asyncio.wait({serving, stopped}, return_when=asyncio.FIRST_COMPLETED)
                finally:  # a cancellation drains too; a second one does not
                    await self._finish(serving)
        finally:
            stopped.cancel()
            serving.cancel()
            await asyncio.wait({serving})
            self._serving = None
        if not serving.cancelled():
            serving.result()

    def run_forever(self) -> None:
        """Call `run` in a program without asyncio. Return after SIGTERM or Ctrl-C and the drain.

        If the server rejects the worker, raises `SystemExit` with a one-line message and exit code 1. Its
        cause is the `WonderError`.
        """
        try:
            with contextlib.suppress(KeyboardInterrupt):
                asyncio.run(self.run())
        except WonderError as problem:
            hint = " Set WONDER_TOKEN." if isinstance(problem, UnauthenticatedError) else ""
            reason = f" ({problem.reason_name})" if problem.reason else ""
            raise SystemExit(f"worker {self.name}: {problem.message}{hint}{reason}") from problem

    def stop(self) -> None:
        """Stop accepting assignments, finish the running ones, and let `run` return.

        A second call stops immediately.
        """
        if self._stop_requested.is_set() and self._serving is not None:
            self._serving.cancel()
        self._stop_requested.set()

    async def _serve(self) -> None:
        """Connect, execute assignments, and reconnect until the worker stops."""
        backoff = Backoff(self._reconnect)
        async with self._new_client() as client:
            while True:
                connection = WorkerConnection(self._registration(), self._actions, backoff, client)
                self._connection = connection
                try:
                    await connection.run(client.executor.work)
                    problem: WonderError = UnavailableError("The server ended the stream.")
                except WonderError as refusal:
                    problem = refusal
                finally:
                    self._connection = None
                if self._stop_requested.is_set():
                    return
                _log.warning("worker %s: %s", self.name, problem)
                await backoff.wait_after(_is_transient(problem), wait_ms=connection.reconnect_after_ms)

    async def _finish(self, serving: asyncio.Task[None]) -> None:
        self._stop_requested.set()
        if self._connection is None:
            serving.cancel()
        else:
            self._connection.drain()
        await asyncio.wait({serving}, timeout=self._drain_seconds)

    def _registration(self) -> v1.RegisterWorker:
        return v1.RegisterWorker(
            name=self.name,
            kinds=[action.kind for action in self._actions.values()],
            max_concurrency=self.max_concurrency,
            project_ids=list(self.projects),
        )


def _signature(handler: Callable[..., object]) -> tuple[object, object, bool]:
    """Return the input type, the output type, and True if the handler takes a context."""
    if not inspect.iscoroutinefunction(handler):
        raise TypeError(
            f"{handler!r} is not an async function. Run blocking code with: await asyncio.to_thread(…)."
        )
    parameters = [
        each
        for each in inspect.signature(handler).parameters.values()
        if each.kind in (each.POSITIONAL_ONLY, each.POSITIONAL_OR_KEYWORD)
    ]
    if not 1 <= len(parameters) <= 2:
        raise TypeError(
            f"{handler!r} has {len(parameters)} parameters. "
            "Use one for the input and an optional second one for the context."
        )
    hints = get_type_hints(handler, include_extras=True)
    gives = hints.get("return", Any)
    return hints.get(parameters[0].name, Any), Any if gives is type(None) else gives, len(parameters) == 2


def _is_transient(problem: WonderError) -> WonderError:
    """Return ``problem``, as an UnavailableError if a reconnect can succeed.

    That is the case if the worker was silent for too long or the server has too many workers.
    """
    if isinstance(problem, DeadlineExceededError | ResourceExhaustedError):
        return UnavailableError(problem.message, retry_after_ms=problem.retry_after_ms)
    return problem


@contextlib.contextmanager
def _on_sigterm(stop: Callable[[], None]) -> Iterator[None]:
    """Call ``stop`` at SIGTERM, in the main thread and unless the program has its own handler."""
    is_free = (
        threading.current_thread() is threading.main_thread()
        and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    )
    if not is_free:
        yield
        return
    loop = asyncio.get_running_loop()
    try:
        loop.add_signal_handler(signal.SIGTERM, stop)
    except NotImplementedError:  # Windows
        yield
        return
    try:
        yield
    finally:
        loop.remove_signal_handler(signal.SIGTERM)
