"""Channels to a server: options, credentials, and calls whose errors are `WonderError`.

The generated stubs use a `TypedChannel` in place of a grpc.aio channel. It

- adds the caller's token to each call,
- encodes requests before it passes them to gRPC,
- fails the calls that a server no longer answers, and
- converts every ``AioRpcError`` into a `WonderError`.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterable, AsyncIterator, Callable, Generator, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeAlias, TypedDict, TypeVar, Unpack, cast

import grpc
import grpc.aio

from wonder_sdk import environment
from wonder_sdk.errors import CONNECT_SECONDS, InvalidArgumentError, from_rpc
from wonder_sdk.transport.reconnect import SILENT_MS
from wonder_sdk.transport.watchdog import STREAM_SILENCE_SECONDS, UNARY_SILENCE_SECONDS, Watchdog

_Request = TypeVar("_Request")
_Response = TypeVar("_Response")
_Started = TypeVar("_Started", bound=grpc.aio.Call)
_Wrapped = TypeVar("_Wrapped")

Encode: TypeAlias = Callable[[_Request], bytes]
"""Serialise a request; see `wonder_sdk.transport.encoding`."""
Decode: TypeAlias = Callable[[bytes], _Response]
Requests: TypeAlias = AsyncIterable[_Request] | Iterable[_Request]
Metadata: TypeAlias = grpc.aio.Metadata | Sequence[tuple[str, str | bytes]]


class CallOptions(TypedDict, total=False):
    """Options of one call, besides its metadata; those of grpc.aio."""

    timeout: float | None
    credentials: grpc.CallCredentials | None
    wait_for_ready: bool | None
    compression: grpc.Compression | None


_PEM = re.compile(rb"-----BEGIN (?:X509 |TRUSTED )?CERTIFICATE-----")

# The server refuses pings under 10 s and most proxies under 30.
_OPTIONS: list[tuple[str, int]] = [
    ("grpc.keepalive_time_ms", 30_000),
    ("grpc.keepalive_timeout_ms", 20_000),
    ("grpc.keepalive_permit_without_calls", 0),
    ("grpc.http2.max_pings_without_data", 0),
    # By default gRPC waits up to two minutes before it reconnects. A client that resumes a stream must not.
    ("grpc.initial_reconnect_backoff_ms", 100),
    # Despite its name, this option is the timeout of one attempt to connect.
    ("grpc.min_reconnect_backoff_ms", round(CONNECT_SECONDS * 1000)),
    ("grpc.max_reconnect_backoff_ms", 2_000),
    ("grpc.max_receive_message_length", 16 * 1024 * 1024),
    # The trailing metadata of an error contains its details.
    ("grpc.max_metadata_size", 32 * 1024),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Credentials:
    """The token and the certificate authority of a connection.

    ``tls_root`` is a PEM file or its bytes; ``tls`` alone uses the system's roots. The environment
    (`wonder_sdk.environment`) supplies each value that is None. An empty token means no token.
    """

    token: str | None = None
    tls_root: Path | str | bytes | None = None
    tls: bool = False

    def open_channel(self, target: str) -> grpc.aio.Channel:
        """Open a channel.

        Raises `OSError` if the certificate cannot be read, and InvalidArgumentError if it is not PEM.
        """
        root = self.tls_root
        if root is None and not self.tls:
            root = environment.ca_certificate()
            if root is None:
                return grpc.aio.insecure_channel(target, options=_OPTIONS)
        if isinstance(root, Path | str):
            root = _read_certificate(Path(root))
        return grpc.aio.secure_channel(target, grpc.ssl_channel_credentials(root), options=_OPTIONS)

    @property
    def metadata(self) -> tuple[tuple[str, str], ...]:
        """The metadata of each call. Raises InvalidArgumentError for a token that no metadata can have."""
        token = environment.token() if self.token is None else self.token
        if not (token or "").isascii() or not (token or "").isprintable():
            # Without the token: an error may be logged.
            raise InvalidArgumentError(
                "The token has characters that no call can send, such as … or a line break. Copy the whole "
                "token (WONDER_TOKEN, token)."
            )
        return (("authorization", f"Bearer {token}"),) if token else ()


def _read_certificate(path: Path) -> bytes:
    # gRPC would report a file without a certificate as a failed connection.
    content = path.read_bytes()
    if not _PEM.search(content):
        raise InvalidArgumentError(
            f"{path} contains no certificate in PEM form (-----BEGIN CERTIFICATE-----). "
            "Name the file of the server's certificate authority (WONDER_CA, --ca, tls_root)."
        )
    return content


class TypedChannel:
    """The channel methods that the generated stubs use; see the module's docstring."""

    def __init__(
        self, channel: grpc.aio.Channel, credentials: Credentials, target: str, silent_ms: int = SILENT_MS
    ) -> None:
        self._channel, self._target = channel, target
        self._metadata = credentials.metadata
        self._watchdog = Watchdog(channel, target, silent_ms / 1000)

    async def close(self) -> None:
        """Close the channel and cancel its calls."""
        await self._watchdog.close()
        await self._channel.close()

    def unary_unary(
        self, path: str, encode: Encode[_Request], decode: Decode[_Response]
    ) -> Callable[..., UnaryCall[_Request, _Response]]:
        method: grpc.aio.UnaryUnaryMultiCallable[bytes, _Response] = self._channel.unary_unary(
            path, None, decode
        )
        return self._wrap_single_request(method, encode, UnaryCall)

    def unary_stream(
        self, path: str, encode: Encode[_Request], decode: Decode[_Response]
    ) -> Callable[..., StreamCall[_Request, _Response]]:
        method: grpc.aio.UnaryStreamMultiCallable[bytes, _Response] = self._channel.unary_stream(
            path, None, decode
        )
        return self._wrap_single_request(method, encode, StreamCall)

    def stream_unary(
        self, path: str, encode: Encode[_Request], decode: Decode[_Response]
    ) -> Callable[..., UnaryCall[_Request, _Response]]:
        method: grpc.aio.StreamUnaryMultiCallable[bytes, _Response] = self._channel.stream_unary(
            path, None, decode
        )
        return self._wrap_request_stream(method, encode, UnaryCall)

    def stream_stream(
        self, path: str, encode: Encode[_Request], decode: Decode[_Response]
    ) -> Callable[..., StreamCall[_Request, _Response]]:
        method: grpc.aio.StreamStreamMultiCallable[bytes, _Response] = self._channel.stream_stream(
            path, None, decode
        )
        return self._wrap_request_stream(method, encode, StreamCall)

    def _wrap_single_request(
        self,
        method: Callable[..., _Started],
        encode: Encode[_Request],
        wrap: Callable[[_Started, str, Watchdog, Encode[_Request]], _Wrapped],
    ) -> Callable[..., _Wrapped]:
        def call(
            request: _Request, *, metadata: Metadata | None = (), **options: Unpack[CallOptions]
        ) -> _Wrapped:
            # Encode before the call starts, so that the caller gets the RequestError here.
            data = encode(request)
            started = method(data, metadata=(*self._metadata, *(metadata or ())), **options)
            return wrap(started, self._target, self._watchdog, encode)

        return call

    def _wrap_request_stream(
        self,
        method: Callable[..., _Started],
        encode: Encode[_Request],
        wrap: Callable[[_Started, str, Watchdog, Encode[_Request], Sequence[Exception]], _Wrapped],
    ) -> Callable[..., _Wrapped]:
        def call(
            requests: Requests[_Request] | None = None,
            *,
            metadata: Metadata | None = (),
            **options: Unpack[CallOptions],
        ) -> _Wrapped:
            errors: list[Exception] = []
            given = None if requests is None else _encoded(requests, encode, errors, lambda: started.cancel())
            started = method(given, metadata=(*self._metadata, *(metadata or ())), **options)
            return wrap(started, self._target, self._watchdog, encode, errors)

        return call


async def _encoded(
    requests: Requests[_Request],
    encode: Encode[_Request],
    errors: list[Exception],
    cancel: Callable[[], object],
) -> AsyncIterator[bytes]:
    """Yield the bytes of each request.

    On an invalid request, or an exception of ``requests``, add the error to ``errors`` and cancel the call:
    grpc.aio would log the exception and give the caller a CancelledError without a cause.
    """
    try:
        async for request in requests if isinstance(requests, AsyncIterable) else _each(requests):
            yield encode(request)
    except Exception as problem:
        errors.append(problem)
        cancel()


async def _each(requests: Iterable[_Request]) -> AsyncIterator[_Request]:
    for request in requests:
        yield request


class _Call(Generic[_Request]):
    """A grpc.aio call whose errors are `WonderError`. Other attributes are those of the grpc.aio call."""

    silence_seconds = UNARY_SILENCE_SECONDS

    def __init__(
        self,
        call: grpc.aio.Call,
        target: str,
        watchdog: Watchdog,
        encode: Encode[_Request],
        errors: Sequence[Exception] = (),
    ) -> None:
        self._call, self._target, self._encode, self._errors = call, target, encode, errors
        self._watched = watchdog.watch(call, self.silence_seconds)

    def __getattr__(self, name: str) -> object:
        return getattr(self._call, name)

    async def write(self, request: _Request) -> None:
        """Send the next request of a stream."""
        data = self._encode(request)
        writable = cast("grpc.aio.StreamStreamCall[bytes, object]", self._call)
        try:
            await writable.write(data)
        except grpc.aio.AioRpcError as problem:
            raise from_rpc(problem, self._target) from None

    def _cancellation_error(self) -> Exception | None:
        """Return this client's reason for the cancellation, or None if the awaiting task was cancelled."""
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            return None
        return self._errors[0] if self._errors else self._watched.problem


class UnaryCall(_Call[_Request], Generic[_Request, _Response]):
    """A grpc.aio call with one response. Awaiting it returns the response or raises a `WonderError`."""

    def __init__(
        self,
        call: grpc.aio.UnaryUnaryCall[bytes, _Response] | grpc.aio.StreamUnaryCall[bytes, _Response],
        target: str,
        watchdog: Watchdog,
        encode: Encode[_Request],
        errors: Sequence[Exception] = (),
    ) -> None:
        super().__init__(call, target, watchdog, encode, errors)
        self._answer = call

    def __await__(self) -> Generator[None, None, _Response]:
        try:
            return (yield from self._answer.__await__())
        except grpc.aio.AioRpcError as problem:
            raise self._cancellation_error() or from_rpc(problem, self._target) from None
        except asyncio.CancelledError:
            if (known := self._cancellation_error()) is not None:
                raise known from None
            raise


class StreamCall(_Call[_Request], Generic[_Request, _Response]):
    """A grpc.aio call with many responses. Iteration yields them or raises a `WonderError`."""

    silence_seconds = STREAM_SILENCE_SECONDS

    def __init__(
        self,
        call: grpc.aio.UnaryStreamCall[bytes, _Response] | grpc.aio.StreamStreamCall[bytes, _Response],
        target: str,
        watchdog: Watchdog,
        encode: Encode[_Request],
        errors: Sequence[Exception] = (),
    ) -> None:
        super().__init__(call, target, watchdog, encode, errors)
        self._answers = aiter(call)

    def __aiter__(self) -> AsyncIterator[_Response]:
        return self

    async def __anext__(self) -> _Response:
        try:
            answer = await anext(self._answers)
        except grpc.aio.AioRpcError as problem:
            raise self._cancellation_error() or from_rpc(problem, self._target) from None
        except asyncio.CancelledError:
            if (known := self._cancellation_error()) is not None:
                raise known from None
            raise
        self._watched.record_activity()
        return answer
