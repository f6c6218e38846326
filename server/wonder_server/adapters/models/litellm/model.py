"""`LiteLLMModel`: calls of all providers that LiteLLM supports, through a helper process.

LiteLLM's import takes seconds and 180 MB, and its streaming hundreds of microseconds a chunk, so it runs
outside the server's process. The helper (`litellm.worker`) starts with the first call, serves all calls over
one socket, and ends with the server. If it ends earlier, running calls fail with MODEL_UNAVAILABLE, which the
server retries, and the next call starts another helper.

The timeouts of calls are in the server, so that they also apply to a helper that hangs.
"""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
from collections.abc import AsyncGenerator, Mapping
from dataclasses import asdict

from wonder_server.adapters.egress.environments import helper_environment
from wonder_server.adapters.egress.proxy import Egress, Lease
from wonder_server.adapters.models import formats
from wonder_server.adapters.models.common import frames, provider_errors
from wonder_server.adapters.models.common.deadlines import CallDeadlines
from wonder_server.adapters.models.common.endpoints import (
    Endpoint,
    address_of,
    missing_key,
    network_of,
    refuse_remote,
)
from wonder_server.adapters.models.common.outages import Outages
from wonder_server.adapters.models.litellm.chat_fields import check_fields
from wonder_server.core.definitions.specs import ModelProfile
from wonder_server.core.errors import Fault, Reason, WonderError, error
from wonder_server.core.json_types import JsonDict
from wonder_server.core.model import Usage, from_provider
from wonder_server.core.network_address import host_port_of
from wonder_server.core.request_formats import anthropic_messages, openai_chat
from wonder_server.core.request_formats.parts import all_readable
from wonder_server.ports.model import Chunk, TextDelta, UsageUpdate

PASSED_ENVIRONMENT = (
    "HOME", "LANG", "LC_ALL", "LD_LIBRARY_PATH", "PATH", "TMPDIR", "TZ",
    "SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE",
)  # fmt: skip
"""The variables of the server's environment that compose may pass to the helper."""

_OWN_ENVIRONMENT = {
    "LITELLM_LOCAL_MODEL_COST_MAP": "True",
    "LITELLM_LOCAL_ANTHROPIC_BETA_HEADERS": "True",
    "LITELLM_TELEMETRY": "False",
    "LITELLM_LOG": "CRITICAL",
    "HF_HUB_OFFLINE": "1",
    "DO_NOT_TRACK": "1",
}

START_TIMEOUT_S = 60
_FORMATS = (openai_chat.FORMAT.name, anthropic_messages.FORMAT.name)
"""The formats for providers of Anthropic's API. All others have the first one only."""
_STOP_TIMEOUT_S = 2
_ENDED = provider_errors.unavailable("The helper process that reaches model providers ended unexpectedly.")
_NOT_STARTED = provider_errors.unavailable("The helper process that reaches model providers did not start.")


class LiteLLMModel:
    """A model for OpenAI chat and, at Anthropic, Anthropic messages. Implements the port ``Model``.

    - ``endpoints`` alone determines address and key of each provider.
    - ``egress`` is the proxy that all connections of the helper go through.
    - ``allow_remote``: if False, every address must be a loopback address. Tests use it to call no real
      provider.
    - ``environment`` holds variables for the helper, see `PASSED_ENVIRONMENT`.

    The request is sent with ``model``, ``stream``, and the profile's parameters that it does not set.
    """

    def __init__(
        self,
        endpoints: Mapping[str, Endpoint],
        egress: Egress,
        *,
        allow_remote: bool = True,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self._endpoints = dict(endpoints)
        self._egress = egress
        self._allow_remote = allow_remote
        self._environment = dict(environment or {})
        self._starting: asyncio.Task[_Helper] | None = None
        self._outages = Outages()
        self._closed = False

    async def stream(self, profile: ModelProfile, request: JsonDict) -> AsyncGenerator[Chunk, None]:
        """See `ports.model.Model.stream`."""
        url = self._endpoints.get(profile.provider, Endpoint()).api_base
        try:
            call_frame = self._build_call(profile, request)
            helper = await self._helper()
        except WonderError as problem:
            raise WonderError(_named(problem.fault, profile, url)) from None
        call = helper.start_call(call_frame, profile)
        try:
            while True:
                try:
                    message = await call.next()
                except WonderError as problem:
                    fault = self._with_connection_fault(profile.provider, problem.fault, helper)
                    self._outages.record(profile.provider, fault)
                    raise WonderError(_named(fault, profile, url)) from None
                if "text" in message:
                    yield TextDelta(message["text"])
                elif "reasoning" in message or "arguments" in message:
                    yield frames.aside_from_json(message)
                elif "counted" in message:
                    yield UsageUpdate(Usage(**message["counted"]), message["letters"])
                elif "result" in message:
                    yield frames.finished_from_json(message)
                    return
        finally:
            helper.end_call(call)

    async def close(self) -> None:
        """End the helper. Running and later calls fail."""
        self._closed = True
        starting, self._starting = self._starting, None
        if starting is None:
            return
        starting.cancel()
        await asyncio.wait({starting})
        if not starting.cancelled() and starting.exception() is None:
            await starting.result().stop()

    def _with_connection_fault(self, provider: str, fault: Fault, helper: _Helper) -> Fault:
        """Return the fault of a call, or a more precise one if the proxy could not connect to the provider.

        LiteLLM takes the proxy's error response for the provider's.
        """
        url = self._endpoints.get(provider, Endpoint()).api_base
        if fault.reason is not Reason.MODEL_UNAVAILABLE or not (why := helper.connection_problem(url)):
            return fault
        return provider_errors.unreachable(provider, url, why)

    def _check_key(self, provider: str) -> None:
        if problem := missing_key(provider, self._endpoints):
            raise WonderError(provider_errors.missing_key(problem))

    def _build_call(self, profile: ModelProfile, request: JsonDict) -> JsonDict:
        """Return the frame for a call.

        Raises `WonderError` for a call that is not allowed or not possible.
        """
        self._check_address(profile.provider)
        self._check_key(profile.provider)
        endpoint = self._endpoints.get(profile.provider, Endpoint())
        family = endpoint.family(profile.provider)
        format_name = profile.format or endpoint.default_format(profile.provider)
        formats.wire_format(format_name)
        supported = _FORMATS if family == "anthropic" else _FORMATS[:1]
        if format_name not in supported:
            raise error(
                Reason.MODEL_FAILED,
                f"{profile.provider} is not reached in the format {format_name}; use"
                f" {' or '.join(supported)}.",
                field="format",
            )
        full = all_readable(formats.apply_parameters(profile, request, format_name))
        if format_name == openai_chat.FORMAT.name:
            check_fields(full)
        return {
            "format": format_name,
            "provider": profile.provider,
            "known_as": family,
            "model": full.pop("model", "") or profile.model,
            "request": full,
            "timeout_ms": profile.timeout_ms,
        }

    def _check_address(self, provider: str) -> None:
        if self._closed:
            raise WonderError(provider_errors.unavailable("The server is stopping; no model can be called."))
        if not self._allow_remote:
            refuse_remote(provider, self._endpoints.get(provider, Endpoint()).api_base)

    async def _helper(self) -> _Helper:
        """Return the running helper, or start one. Cancelling a waiting caller does not stop the start."""
        starting = self._starting
        if starting is None or (starting.done() and not _is_usable(starting)):
            starting = self._starting = asyncio.create_task(self._start())
        return await asyncio.shield(starting)

    async def _start(self) -> _Helper:
        policy = network_of(self._endpoints.values(), allow_remote=self._allow_remote)
        lease = await self._egress.lease(policy, "model providers", chained=True)
        ours, theirs = socket.socketpair()
        with theirs:
            process = subprocess.Popen(  # noqa: ASYNC220 - a thread that watches the child costs more than it saves
                [sys.executable, "-m", "wonder_server.adapters.models.litellm.worker", str(theirs.fileno())],
                pass_fds=(theirs.fileno(),),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                env=self._child_environment(lease),
                start_new_session=True,
            )
        _, helper = await asyncio.get_running_loop().create_connection(
            lambda: _Helper(process, lease), sock=ours
        )
        hello = {
            "endpoints": {name: _endpoint_to_json(value) for name, value in self._endpoints.items()},
            "proxy_port": lease.port,
        }
        try:
            await helper.handshake(hello)
        except BaseException:
            await helper.stop()
            raise
        return helper

    def _child_environment(self, lease: Lease) -> dict[str, str]:
        path = os.pathsep.join(entry for entry in sys.path if entry)
        return {**self._environment, **_OWN_ENVIRONMENT, **helper_environment(lease), "PYTHONPATH": path}


class _Call:
    """A running call: its unread frames and its timeouts."""

    def __init__(self, call_id: int, profile: ModelProfile) -> None:
        self.id = call_id
        self.is_over = False
        self._arrived: asyncio.Queue[JsonDict | Fault] = asyncio.Queue()
        self._deadlines = CallDeadlines(profile, self._time_out)

    def receive(self, message: JsonDict) -> None:
        if "counted" not in message:
            self._deadlines.on_chunk()
        if "fault" in message:
            self.fail(frames.fault_from_json(message["fault"]))
        elif len(message) > 1:
            self.is_over = "result" in message
            self._arrived.put_nowait(message)

    def fail(self, fault: Fault) -> None:
        self.is_over = True
        self._arrived.put_nowait(fault)

    async def next(self) -> JsonDict:
        message = await self._arrived.get()
        if isinstance(message, Fault):
            raise WonderError(message)
        return message

    def stop_deadlines(self) -> None:
        self._deadlines.stop()

    def _time_out(self, fault: Fault) -> None:
        if not self.is_over:
            self._arrived.put_nowait(fault)


class _Helper(asyncio.Protocol):
    """The helper process and the socket to it."""

    def __init__(self, process: subprocess.Popen[bytes], lease: Lease) -> None:
        self._process = process
        self._lease = lease
        self._buffer = frames.FrameBuffer()
        self._calls: dict[int, _Call] = {}
        self._last_id = 0
        self._transport: asyncio.Transport | None = None
        self._ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._disconnected = asyncio.Event()
        self._reaped: asyncio.Future[int] | None = None

    @property
    def alive(self) -> bool:
        return not self._disconnected.is_set()

    @property
    def process_id(self) -> int:
        return self._process.pid

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        for message in self._buffer.feed(data):
            if "ready" in message:
                if not self._ready.done():
                    self._ready.set_result(None)
            elif call := self._calls.get(message["id"]):
                call.receive(message)

    def connection_lost(self, reason: Exception | None) -> None:
        self._disconnected.set()
        self._lease.close()
        self._reaped = asyncio.get_running_loop().run_in_executor(None, self._process.wait)
        for call in self._calls.values():
            call.fail(_ENDED)
        if not self._ready.done():
            self._ready.set_exception(WonderError(_NOT_STARTED))

    def connection_problem(self, url: str) -> str:
        """Return why the last connection to the host of ``url`` failed; empty if it did not fail."""
        try:
            problem = self._lease.recent_failures.get(host_port_of(url))
        except ValueError:
            return ""
        return "" if problem is None else provider_errors.connection_problem(problem)

    async def handshake(self, hello: JsonDict) -> None:
        self._write(hello)
        try:
            async with asyncio.timeout(START_TIMEOUT_S):
                await self._ready
        except TimeoutError:
            raise WonderError(_NOT_STARTED) from None

    def start_call(self, call_frame: JsonDict, profile: ModelProfile) -> _Call:
        self._last_id += 1
        call = _Call(self._last_id, profile)
        self._calls[call.id] = call
        if self.alive:
            self._write({"call": call.id, **call_frame})
        else:
            call.fail(_ENDED)
        return call

    def end_call(self, call: _Call) -> None:
        """Remove a call. If it is not complete, tell the helper to close its request."""
        call.stop_deadlines()
        del self._calls[call.id]
        if not call.is_over and self.alive:
            self._write({"cancel": call.id})

    async def stop(self) -> None:
        """Close the socket, which ends the helper; kill the helper after `_STOP_TIMEOUT_S`."""
        assert self._transport is not None
        self._ready.cancel()
        self._transport.close()
        await self._disconnected.wait()
        assert self._reaped is not None
        try:
            async with asyncio.timeout(_STOP_TIMEOUT_S):
                await asyncio.shield(self._reaped)
        except TimeoutError:
            self._process.kill()
            await self._reaped

    def _write(self, message: JsonDict) -> None:
        assert self._transport is not None
        self._transport.write(frames.encode(message))


def _is_usable(starting: asyncio.Task[_Helper]) -> bool:
    return not starting.cancelled() and starting.exception() is None and starting.result().alive


def _named(fault: Fault, profile: ModelProfile, url: str) -> Fault:
    return from_provider(fault, profile.provider, profile.model, address_of(url))


def _endpoint_to_json(endpoint: Endpoint) -> JsonDict:
    return {**asdict(endpoint), "secrets": endpoint.secrets}
