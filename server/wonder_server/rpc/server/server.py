"""The gRPC server: the contract's services from their descriptors, health, and reflection.

The generated descriptors of ``wonder.v1`` give the services and methods. A method of the contract therefore
always exists; without an implementation it answers NOT_IMPLEMENTED.
"""

from __future__ import annotations

import asyncio
import errno
import importlib
import pkgutil
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple

import grpc
from google.protobuf.descriptor import ServiceDescriptor
from grpc import aio
from grpc_health.v1 import health, health_pb2, health_pb2_grpc

from wonder_server.core.errors import Reason, WonderError
from wonder_server.core.suggestions import closest
from wonder_server.logs import logger
from wonder_server.rpc.server.admission import Admission, CallLimits
from wonder_server.rpc.server.authentication import CHECK_INTERVAL_S, Authentication, Credential, TokensFile
from wonder_server.rpc.server.authorization import TokenGrants
from wonder_server.rpc.server.call_pipeline import CallPipeline
from wonder_server.rpc.server.event_pipe import drained_event_pipes
from wonder_server.rpc.server.reflection import Reflection
from wonder_server.rpc.server.rejection_log import RejectionLog
from wonder_server.services.tenancy.directory import PrincipalDirectory
from wonder_server.services.tenancy.logins import Logins
from wonder_server.services.tenancy.visibility import Visibility
from wonder_server.settings import Settings, SettingsError
from wonder_server.settings.kinds import split_address

_MIN_PENDING_CALLS: Final = 16_384
"""Minimum number of accepted calls that wait to be served.

`Admission` limits those being served, with a reason.
"""


_log = logger("rpc")


class ListenError(Exception):
    """The server cannot listen on the address. The message is a sentence for the operator."""


def contract_services() -> tuple[ServiceDescriptor, ...]:
    """Return the services of ``wonder.v1``, sorted by module."""
    package = importlib.import_module("wonder.v1")
    names = sorted(m.name for m in pkgutil.iter_modules(package.__path__) if m.name.endswith("_service_pb2"))
    modules = [importlib.import_module(f"wonder.v1.{name}") for name in names]
    return tuple(service for m in modules for service in m.DESCRIPTOR.services_by_name.values())


class CallNumbers(NamedTuple):
    """Calls of the contract that are served now, the streams among them, and those since the start that were
    rejected, by reason."""

    active: int
    streams: int
    rejected: Mapping[Reason, int]


class RpcServer:
    """One gRPC server: ``bind``, ``start``, then ``drain`` and ``stop``.

    The port is bound before the servicers exist, so that a port in use is refused before anything starts.
    """

    def __init__(self, settings: Settings, services: Sequence[ServiceDescriptor] | None = None) -> None:
        """Create the server of ``services``, by default those of the contract."""
        self._settings = settings
        self._services = contract_services() if services is None else tuple(services)
        self._names = [service.full_name for service in self._services]
        self._rejections = RejectionLog()
        self._grants = TokenGrants.from_settings(settings)
        self._limits = CallLimits.from_settings(settings)
        self._admission = Admission(self._limits)
        self._health = health.aio.HealthServicer()
        self._tokens = TokensFile(settings.auth_tokens_file) if settings.auth_tokens_file else None
        self._authentication = (
            Authentication(self._tokens, self._grants, self._rejections) if settings.has_auth else None
        )
        self._watch_task: asyncio.Task[None] | None = None
        with drained_event_pipes():
            self._server = aio.server(
                options=_options(settings.max_request_bytes, settings.max_concurrent_rpcs),
                interceptors=[self._authentication] if self._authentication else (),
            )
        health_pb2_grpc.add_HealthServicer_to_server(self._health, self._server)
        Reflection(self._services, self._is_valid).add_to(self._server)

    def _is_valid(self, found: Credential) -> bool:
        return self._authentication is None or self._authentication.is_valid(found)

    @property
    def active_calls(self) -> int:
        """Number of calls of the contract served now, including open streams."""
        return self._admission.active_calls

    def numbers(self) -> CallNumbers:
        """Return the numbers of this moment."""
        return CallNumbers(self._admission.active_calls, self._admission.streams, self._rejections.calls)

    def bind(self) -> str:
        """Bind the address of the settings and return it with the actual port.

        Raises `ListenError`, or `SettingsError` if a TLS file cannot be read.
        """
        address = self._settings.listen
        check_bindable(address)
        credentials = _credentials(self._settings)
        try:
            if credentials is None:
                port = self._server.add_insecure_port(address)
            else:
                port = self._server.add_secure_port(address, credentials)
        except RuntimeError:
            port = 0
        if port == 0:
            hint = ", or the TLS certificate and key do not match" if credentials else ""
            raise ListenError(
                f"The server cannot listen on {address}: another program has just taken it{hint}."
            )
        return f"{address.rpartition(':')[0]}:{port}"

    async def start(
        self,
        servicers: Mapping[str, object],
        storage_full: Callable[[], WonderError | None] = lambda: None,
        principals: PrincipalDirectory | None = None,
        logins: Logins | None = None,
        visibility: Visibility | None = None,
    ) -> None:
        """Start serving, and report SERVING on the health service.

        ``servicers`` maps full service names (``wonder.v1.MemoryService``) to servicers; see `call_pipeline`.
        ``storage_full`` returns the error for calls that write while the disk is full, else None.
        ``principals`` are the stored ones, and ``logins`` finds those with tokens of issuers.
        ``visibility`` as in `CallPipeline`.
        """
        if self._authentication is not None and principals is not None:
            self._authentication.principals = principals
            principals.on_changed = self._end_revoked
            self._authentication.logins = logins
        pipeline = CallPipeline(
            self._limits,
            self._admission,
            rejections=self._rejections,
            storage_full=storage_full,
            visibility=visibility,
        )
        for service in self._services:
            self._add(service, servicers.get(service.full_name), pipeline)
        await self._server.start()
        if self._authentication is not None:
            self._watch_task = asyncio.create_task(self._watch_credentials())
            self._warn_without_administrator(principals)
        self._warn_of_unused_grants()
        await self._announce(health_pb2.HealthCheckResponse.SERVING)

    async def drain(self) -> None:
        """Report NOT_SERVING and reject new calls; open calls continue."""
        self._admission.close()
        await self._announce(health_pb2.HealthCheckResponse.NOT_SERVING)

    async def stop(self, grace_seconds: float) -> None:
        """Stop the server; calls that are open after ``grace_seconds`` are cancelled."""
        if self._watch_task is not None:
            self._watch_task.cancel()
        await self._server.stop(grace_seconds)
        self._rejections.flush()

    async def _watch_credentials(self) -> None:
        """End the open calls of tokens that were removed from the file, and of keys that expired."""
        tokens = self._tokens.current() if self._tokens is not None else None
        while True:
            await asyncio.sleep(CHECK_INTERVAL_S)
            if self._tokens is not None and (changed := self._tokens.current()) is not tokens:
                tokens = changed
                self._warn_of_unused_grants()
            self._end_revoked()

    def _end_revoked(self) -> None:
        ended = self._admission.end_revoked(self._is_valid)
        if ended:
            _log.info("calls_ended", calls=ended, reason="their tokens are no longer valid")

    def _warn_without_administrator(self, principals: PrincipalDirectory | None) -> None:
        """Log that no caller can manage principals. Tokens of a file and issuers are the operator's to
        see."""
        if principals is None or self._tokens is not None or self._settings.issuers:
            return
        now = int(time.time() * 1000)
        keys = [key for each in principals.administrators() for key in principals.keys_of(each.id)]
        if not any(key.is_valid(now) for key in keys):
            _log.warning(
                "no_administrator",
                effect="no caller can create keys or roles",
                remedy="start without require_auth on loopback, then `wonder roles give NAME admin` and "
                "`wonder keys create NAME`",
            )

    def _warn_of_unused_grants(self) -> None:
        """Log each grant without effect: to a name without a token, or on a server without tokens."""
        names = self._tokens.current().names if self._tokens is not None else frozenset()
        for setting, name in self._grants.unused_grants(names):
            if self._tokens is None:
                effect = "auth_tokens_file is not set, so every caller has every permission"
                _log.warning("grant_without_tokens", setting=setting, name=name, effect=effect)
            else:
                near = closest(name, names)
                more = {"did_you_mean": near} if near else {}
                _log.warning("grant_to_unknown_token", setting=setting, name=name, **more)

    async def _announce(self, status: int) -> None:
        for name in ("", *self._names):
            await self._health.set(name, status)

    def _add(self, service: ServiceDescriptor, servicer: object, pipeline: CallPipeline) -> None:
        handlers = {method.name: pipeline.build_handler(method, servicer) for method in service.methods}
        self._server.add_generic_rpc_handlers(
            (grpc.method_handlers_generic_handler(service.full_name, handlers),)
        )


def _options(max_request_bytes: int, max_concurrent_rpcs: int) -> list[tuple[str, int]]:
    # All admissible calls can arrive at once. gRPC cancels further pending calls without a reason.
    max_pending = max(_MIN_PENDING_CALLS, 2 * max_concurrent_rpcs)
    return [
        ("grpc.server.max_pending_requests", max_pending),
        ("grpc.server.max_pending_requests_hard_limit", max_pending),
        # Twice the admissible calls on one connection, so that `Admission` rejects the excess with a reason.
        ("grpc.max_concurrent_streams", 2 * max_concurrent_rpcs),
        # On by default; a second server on the same port would then start without an error.
        ("grpc.so_reuseport", 0),
        # By default gRPC closes connections whose pings are less than five minutes apart.
        ("grpc.http2.min_recv_ping_interval_without_data_ms", 10_000),
        ("grpc.keepalive_permit_without_calls", 1),
        # A token of an issuer with many groups is longer than the 8 KiB of the default.
        ("grpc.max_metadata_size", 24 << 10),
        # Twice the allowed size, so that `CallPipeline` rejects the request with a reason; gRPC gives none.
        ("grpc.max_receive_message_length", 2 * max_request_bytes),
    ]


def check_bindable(address: str, flag: str = "--listen") -> None:
    """Bind and close the address, to get the operating system's reason if it fails."""
    host, port = split_address(address)
    try:
        family, kind, proto, _, where = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        with socket.socket(family, kind, proto) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(where)
            probe.listen(1)
    except OSError as problem:
        if problem.errno == errno.EADDRINUSE:
            raise ListenError(
                f"{address} is in use by another program. Stop it, or choose another address "
                f"with {flag} (port 0 picks a free one)."
            ) from None
        raise ListenError(f"The server cannot listen on {address}: {problem.strerror}.") from None


def _credentials(settings: Settings) -> grpc.ServerCredentials | None:
    if settings.tls_key is None or settings.tls_cert is None:
        return None
    try:
        pair = (settings.tls_key.read_bytes(), settings.tls_cert.read_bytes())
    except OSError as problem:
        raise SettingsError(f"The TLS file {problem.filename} cannot be read: {problem.strerror}.") from None
    return grpc.ssl_server_credentials([pair])
