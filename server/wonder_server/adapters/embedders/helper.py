"""Embedders that need what the server's process must not import: a helper process runs them.

LiteLLM's import takes seconds and 180 MB, that of sentence-transformers more. The helper (`worker`) starts
with the first call and ends with the server; if it dies, the calls in flight fail as MODEL_UNAVAILABLE, and
the next one starts another. Keys go over its socket, never on the command line or in the environment.
"""

from __future__ import annotations

import asyncio
import base64
import os
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from typing import Any, Final

from wonder_server.adapters.egress.environments import helper_environment
from wonder_server.adapters.egress.proxy import Egress, Lease
from wonder_server.adapters.models.common import frames, provider_errors
from wonder_server.adapters.models.common.endpoints import Endpoint, network_of, refuse_remote
from wonder_server.core.errors import Fault, Reason, WonderError, error

_ENVIRONMENT: Final = {
    "LITELLM_LOCAL_MODEL_COST_MAP": "True",
    "LITELLM_TELEMETRY": "False",
    "LITELLM_LOG": "CRITICAL",
    "HF_HUB_OFFLINE": "1",
    "TRANSFORMERS_OFFLINE": "1",
    "TOKENIZERS_PARALLELISM": "false",
    "DO_NOT_TRACK": "1",
}
START_TIMEOUT_S: Final = 60.0
CALL_TIMEOUT_S: Final = 60.0
_ENDED: Final = provider_errors.unavailable("The helper process that runs the embedder ended unexpectedly.")
_NOT_STARTED: Final = provider_errors.unavailable("The helper process that runs the embedder did not start.")
_STOPPING: Final = provider_errors.unavailable("The server is stopping; nothing can be embedded.")


class HelperEmbedder:
    """`Embedder` by a helper process.

    ``kind`` is ``litellm`` (``model`` is ``provider/model``) or ``local`` (``model`` is a folder with a
    sentence-transformers model, which connects to nothing). ``share``: what its cosines are worth beside
    full text. Errors: MODEL_UNAVAILABLE and TIMEOUT, which pass; MODEL_FAILED, also where it answers with
    vectors of other ``dimensions``.
    """

    def __init__(
        self,
        kind: str,
        model: str,
        dimensions: int,
        egress: Egress,
        *,
        endpoint: Endpoint | None = None,
        ask_dimensions: bool = False,
        allow_remote: bool = True,
        environment: Mapping[str, str] | None = None,
        share: float = 0.5,
    ) -> None:
        self.name = f"{kind}:{model}:{dimensions}"
        self.dimensions = dimensions
        self.share = share
        self._endpoint = endpoint or Endpoint()
        provider, _, rest = model.partition("/")
        self._hello = {
            "kind": kind,
            "model": f"{self._endpoint.family(provider)}/{rest}" if kind == "litellm" else model,
            "ask_dimensions": dimensions if ask_dimensions else 0,
            "api_key": self._endpoint.api_key,
            "api_base": self._endpoint.api_base,
            "options": dict(self._endpoint.options),
            "headers": dict(self._endpoint.headers),
            "secrets": list(self._endpoint.secrets),
        }
        self._egress = egress
        self._provider = model.partition("/")[0] if kind == "litellm" else ""
        self._allow_remote = allow_remote
        self._environment = dict(environment or {})
        self._starting: asyncio.Task[_Helper] | None = None
        self._closed = False

    async def embed(self, texts: Sequence[str]) -> list[bytes]:
        if not texts:
            return []
        if self._closed:
            raise WonderError(_STOPPING)
        if self._provider and not self._allow_remote:
            refuse_remote(self._provider, self._endpoint.api_base)
        helper = await self._helper()
        try:
            async with asyncio.timeout(CALL_TIMEOUT_S):
                vectors = await helper.embed(texts)
        except TimeoutError:
            raise error(Reason.TIMEOUT, "The embedder did not answer in time.", transient=True) from None
        if len(vectors) != len(texts) or any(len(vector) != 4 * self.dimensions for vector in vectors):
            sizes = sorted({len(vector) // 4 for vector in vectors})
            raise error(
                Reason.MODEL_FAILED,
                f"The embedder was to answer {len(texts)} vectors of {self.dimensions} numbers, and answered "
                f"{len(vectors)} of {sizes}; set embedder_dimensions to what it makes.",
                kind="dimensions",
            )
        return vectors

    async def close(self) -> None:
        self._closed = True
        starting, self._starting = self._starting, None
        if starting is not None:
            starting.cancel()
            await asyncio.wait({starting})
            if not starting.cancelled() and starting.exception() is None:
                await starting.result().stop()

    async def _helper(self) -> _Helper:
        starting = self._starting
        if starting is None or (starting.done() and not _is_usable(starting)):
            starting = self._starting = asyncio.create_task(self._start())
        return await asyncio.shield(starting)

    async def _start(self) -> _Helper:
        lease = None
        if self._provider:
            policy = network_of([self._endpoint], allow_remote=self._allow_remote)
            lease = await self._egress.lease(policy, "the embedder", chained=True)
        ours, theirs = socket.socketpair()
        with theirs:
            process = subprocess.Popen(  # noqa: ASYNC220 - a thread to watch a child costs more than it saves
                [sys.executable, "-m", "wonder_server.adapters.embedders.worker", str(theirs.fileno())],
                pass_fds=(theirs.fileno(),),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                env={
                    **self._environment,
                    **_ENVIRONMENT,
                    **helper_environment(lease),
                    "PYTHONPATH": os.pathsep.join(entry for entry in sys.path if entry),
                },
                start_new_session=True,
            )
        _, helper = await asyncio.get_running_loop().create_connection(
            lambda: _Helper(process, lease), sock=ours
        )
        try:
            await helper.handshake({**self._hello, "proxy_port": lease.port if lease is not None else 0})
        except BaseException:
            await helper.stop()
            raise
        return helper


class _Helper(asyncio.Protocol):
    """The process, and the socket to it."""

    def __init__(self, process: subprocess.Popen[bytes], lease: Lease | None) -> None:
        self._process = process
        self._lease = lease
        self._buffer = frames.FrameBuffer()
        self._calls: dict[int, asyncio.Future[list[bytes]]] = {}
        self._last_id = 0
        self._transport: asyncio.Transport | None = None
        self._ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._disconnected = asyncio.Event()

    @property
    def alive(self) -> bool:
        return not self._disconnected.is_set()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        for message in self._buffer.feed(data):
            if "id" not in message:
                self._on_ready(message)
            elif (call := self._calls.pop(message["id"], None)) is not None and not call.done():
                if "fault" in message:
                    call.set_exception(WonderError(frames.fault_from_json(message["fault"])))
                else:
                    call.set_result([base64.b64decode(vector) for vector in message["vectors"]])

    def connection_lost(self, reason: Exception | None) -> None:
        self._disconnected.set()
        if self._lease is not None:
            self._lease.close()
        asyncio.get_running_loop().run_in_executor(None, self._process.wait)
        for call in self._calls.values():
            if not call.done():
                call.set_exception(WonderError(_ENDED))
        if not self._ready.done():
            self._ready.set_exception(WonderError(_NOT_STARTED))

    async def handshake(self, hello: dict[str, Any]) -> None:
        self._write(hello)
        try:
            async with asyncio.timeout(START_TIMEOUT_S):
                await self._ready
        except TimeoutError:
            raise WonderError(_NOT_STARTED) from None

    async def embed(self, texts: Sequence[str]) -> list[bytes]:
        if not self.alive:
            raise WonderError(_ENDED)
        self._last_id += 1
        number = self._last_id
        call: asyncio.Future[list[bytes]] = asyncio.get_running_loop().create_future()
        self._calls[number] = call
        self._write({"id": number, "texts": list(texts)})
        try:
            return await call
        finally:
            self._calls.pop(number, None)

    async def stop(self) -> None:
        assert self._transport is not None
        self._ready.cancel()
        self._transport.close()
        await self._disconnected.wait()
        self._process.kill()

    def _on_ready(self, message: dict[str, Any]) -> None:
        if self._ready.done():
            return
        if "fault" in message:
            fault: Fault = frames.fault_from_json(message["fault"])
            self._ready.set_exception(WonderError(fault))
        else:
            self._ready.set_result(None)

    def _write(self, message: dict[str, Any]) -> None:
        assert self._transport is not None
        self._transport.write(frames.encode(message))


def _is_usable(starting: asyncio.Task[_Helper]) -> bool:
    return not starting.cancelled() and starting.exception() is None and starting.result().alive
