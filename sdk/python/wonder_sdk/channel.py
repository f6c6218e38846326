"""Channels to a server: options, credentials, and calls whose errors are `WonderError`.

The generated stubs ask a channel for multi-callables. `TypedChannel` stands in for a grpc.aio channel
there: it adds the caller's token to each call and turns every ``AioRpcError`` into a `WonderError`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Generator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
import grpc.aio

from wonder_sdk import environment
from wonder_sdk.errors import CONNECT_SECONDS, from_rpc

# The server refuses pings under 10 s and most proxies under 30.
_OPTIONS: list[tuple[str, int]] = [
    ("grpc.keepalive_time_ms", 30_000),
    ("grpc.keepalive_timeout_ms", 20_000),
    ("grpc.keepalive_permit_without_calls", 0),
    ("grpc.http2.max_pings_without_data", 0),
    # gRPC waits up to two minutes before it dials again; whoever resumes a stream wants it sooner.
    ("grpc.initial_reconnect_backoff_ms", 100),
    # Named for something else, this is for how long one attempt to connect may take.
    ("grpc.min_reconnect_backoff_ms", round(CONNECT_SECONDS * 1000)),
    ("grpc.max_reconnect_backoff_ms", 2_000),
    ("grpc.max_receive_message_length", 16 * 1024 * 1024),
    # Of an error, the details too must fit.
    ("grpc.max_metadata_size", 32 * 1024),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """How a server lets one in: a token, and the certificate authority that vouches for the server.

    ``tls_root`` is a PEM file or its bytes; with ``tls`` alone the system's roots are used. What is None is
    as the environment says (`wonder_sdk.environment`); an empty token is none.
    """

    token: str | None = None
    tls_root: Path | str | bytes | None = None
    tls: bool = False

    def open(self, target: str) -> grpc.aio.Channel:
        """A new channel. Raises `OSError` when the certificate cannot be read."""
        root = self.tls_root
        if root is None and not self.tls:
            root = environment.authority()
            if root is None:
                return grpc.aio.insecure_channel(target, options=_OPTIONS)
        if isinstance(root, Path | str):
            root = Path(root).read_bytes()
        return grpc.aio.secure_channel(target, grpc.ssl_channel_credentials(root), options=_OPTIONS)

    @property
    def metadata(self) -> tuple[tuple[str, str], ...]:
        token = environment.token() if self.token is None else self.token
        return (("authorization", f"Bearer {token}"),) if token else ()


class TypedChannel:
    """What generated stubs need of a channel; see the module's docstring."""

    def __init__(self, channel: grpc.aio.Channel, access: Access, target: str) -> None:
        self._channel, self._target = channel, target
        self._metadata = access.metadata

    def unary_unary(self, *method: Any) -> Callable[..., Any]:
        return self._call(self._channel.unary_unary(*method), UnaryAnswer)

    def unary_stream(self, *method: Any) -> Callable[..., Any]:
        return self._call(self._channel.unary_stream(*method), StreamedAnswer)

    def stream_unary(self, *method: Any) -> Callable[..., Any]:
        return self._call(self._channel.stream_unary(*method), UnaryAnswer)

    def stream_stream(self, *method: Any) -> Callable[..., Any]:
        return self._call(self._channel.stream_stream(*method), StreamedAnswer)

    def _call(self, method: Callable[..., Any], answer: Callable[[Any, str], Any]) -> Callable[..., Any]:
        def call(*request: Any, metadata: Any = (), **options: Any) -> Any:
            started = method(*request, metadata=(*self._metadata, *(metadata or ())), **options)
            return answer(started, self._target)

        return call


class UnaryAnswer:
    """A grpc.aio call with one answer: awaited, it gives that or raises a `WonderError`."""

    def __init__(self, call: Any, target: str) -> None:
        self._call, self._target = call, target

    def __await__(self) -> Generator[Any, None, Any]:
        try:
            return (yield from self._call.__await__())
        except grpc.aio.AioRpcError as problem:
            raise from_rpc(problem, self._target) from None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._call, name)


class StreamedAnswer:
    """A grpc.aio call with many answers: iterated, it gives them or raises a `WonderError`."""

    def __init__(self, call: Any, target: str) -> None:
        self._call, self._target = call, target
        self._answers: AsyncIterator[Any] = aiter(call)

    def __aiter__(self) -> AsyncIterator[Any]:
        return self

    async def __anext__(self) -> Any:
        try:
            return await anext(self._answers)
        except grpc.aio.AioRpcError as problem:
            raise from_rpc(problem, self._target) from None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._call, name)
