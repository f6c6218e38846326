"""Embedders that run in a helper process, for libraries that the server must not import.

Importing LiteLLM takes seconds and 180 MB, sentence-transformers more. The helper (`worker`) starts with the
first call and ends with the server. If it dies, running calls fail with MODEL_UNAVAILABLE, and the next call
starts another. Keys are sent over its socket, never on the command line or in the environment.
"""

from __future__ import annotations

import asyncio
import base64
import os
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from typing import Final

from wonder_server.adapters.egress.environments import helper_environment
from wonder_server.adapters.egress.proxy import Egress, Lease
from wonder_server.adapters.models.common import frames, provider_errors
from wonder_server.adapters.models.common.endpoints import Endpoint, network_of, refuse_remote
from wonder_server.core.errors import Fault, Reason, WonderError, error
from wonder_server.core.frozen import Value
from wonder_server.core.json_types import JsonDict

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
_STOPPING: Final = provider_errors.unavailable("The server is stopping and embeds no more texts.")


class HelperConfig(Value, frozen=True, kw_only=True):
    """The embedder that a helper process runs.

    ``kind`` is ``litellm`` (``model`` is ``provider/model``) or ``local`` (``model`` is the folder of a
    sentence-transformers model, which uses no network). With ``ask_dimensions``, calls request the number of
    ``dimensions``. ``share`` is the weight of its cosines beside full text, from 0 to 1.
    """

    kind: str
    model: str
    dimensions: int
    endpoint: Endpoint = Endpoint()
    ask_dimensions: bool = False
    allow_remote: bool = True
    share: float = 0.5

    @property
    def provider(self) -> str:
        """The provider of a LiteLLM model; empty for a local model."""
        return self.model.partition("/")[0] if self.kind == "litellm" else ""


class HelperEmbedder:
    """Implements `Embedder` with a helper process.

    Errors: MODEL_UNAVAILABLE and TIMEOUT (transient); MODEL_FAILED, also if the vectors have other
    dimensions.
    """

    def __init__(
        self, config: HelperConfig, egress: Egress, *, environment: Mapping[str, str] | None = None
    ) -> None:
        self.name = f"{config.kind}:{config.model}:{config.dimensions}"
        self.dimensions = config.dimensions
        self.share = config.share
        self._config = config
        self._hello = _hello(config)
        self._egress = egress
        self._environment = dict(environment or {})
        self._starting: asyncio.Task[_Helper] | None = None
        self._closed = False

    async def embed(self, texts: Sequence[str]) -> list[bytes]:
        if not texts:
            return []
        if self._closed:
            raise WonderError(_STOPPING)
        if self._config.provider and not self._config.allow_remote:
            refuse_remote(self._config.provider, self._config.endpoint.api_base)
        helper = await self._helper()
        try:
            async with asyncio.timeout(CALL_TIMEOUT_S):
                vectors = await helper.embed(texts)
        except TimeoutError:
            raise error(
                Reason.TIMEOUT,
                f"The embedder did not answer within {CALL_TIMEOUT_S:g} s. Try again.",
                transient=True,
            ) from None
        if len(vectors) != len(texts) or any(len(vector) != 4 * self.dimensions for vector in vectors):
            sizes = sorted({len(vector) // 4 for vector in vectors})
            raise error(
                Reason.MODEL_FAILED,
                f"The embedder returned {len(vectors)} vectors of {sizes} numbers instead of {len(texts)} of "
                f"{self.dimensions}. Set embedder_dimensions to the size of its vectors.",
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
        if self._config.provider:
            policy = network_of([self._config.endpoint], allow_remote=self._config.allow_remote)
            lease = await self._egress.lease(policy, "the embedder", chained=True)
        own_end, helper_end = socket.socketpair()
        with helper_end:
            process = subprocess.Popen(  # noqa: ASYNC220 - a thread to watch a child costs more than it saves
                [sys.executable, "-m", "wonder_server.adapters.embedders.worker", str(helper_end.fileno())],
                pass_fds=(helper_end.fileno(),),
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
            lambda: _Helper(process, lease), sock=own_end
        )
        try:
            await helper.handshake({**self._hello, "proxy_port": lease.port if lease is not None else 0})
        except BaseException:
            await helper.stop()
            raise
        return helper


def _hello(config: HelperConfig) -> JsonDict:
    """Return the first message to the helper."""
    endpoint = config.endpoint
    provider, _, rest = config.model.partition("/")
    return {
        "kind": config.kind,
        "model": f"{endpoint.family(provider)}/{rest}" if config.kind == "litellm" else config.model,
        "ask_dimensions": config.dimensions if config.ask_dimensions else 0,
        "api_key": endpoint.api_key,
        "api_base": endpoint.api_base,
        "options": dict(endpoint.options),
        "headers": dict(endpoint.headers),
        "secrets": list(endpoint.secrets),
    }


class _Helper(asyncio.Protocol):
    """A helper process and the socket to it."""

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

    async def handshake(self, hello: JsonDict) -> None:
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

    def _on_ready(self, message: JsonDict) -> None:
        if self._ready.done():
            return
        if "fault" in message:
            fault: Fault = frames.fault_from_json(message["fault"])
            self._ready.set_exception(WonderError(fault))
        else:
            self._ready.set_result(None)

    def _write(self, message: JsonDict) -> None:
        assert self._transport is not None
        self._transport.write(frames.encode(message))


def _is_usable(starting: asyncio.Task[_Helper]) -> bool:
    return not starting.cancelled() and starting.exception() is None and starting.result().alive
