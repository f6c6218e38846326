"""HTTP for the package `mcp`, sent through `GuardedWeb`, so that its rules for addresses apply.

Imported together with the package, at the first use.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any, Final

import httpx2

from wonder_server.adapters.mcp.limits import MAX_MESSAGE_BYTES
from wonder_server.adapters.mcp.message_filter import MessageFilter, Verdict, flooded
from wonder_server.adapters.web.guarded import GuardedWeb
from wonder_server.core.definitions.resources import NetworkPolicy
from wonder_server.core.errors import Reason, WonderError, error

if TYPE_CHECKING:
    from aiohttp import ClientResponse

MAX_BODY_BYTES: Final = MAX_MESSAGE_BYTES + (1 << 20)
"""Maximum bytes of one answer as events over HTTP: the message, and the progress before it."""

MAX_RESUMPTIONS: Final = 5
"""Maximum number of requests for the rest of an interrupted answer. The server sets the interval, which may
be 0."""

MAX_REQUESTS_OF_SERVER: Final = 16
"""Maximum number of requests of a server per session. Each is rejected with a request of its own."""

END_TIMEOUT_S: Final = 2
"""Seconds that a server may take to end a session. The caller has its answer by then, or was cancelled."""

_HOP_BY_HOP: Final = frozenset(
    {"host", "connection", "content-length", "transfer-encoding", "content-encoding", "accept-encoding"}
)


class GuardedTransport(httpx2.AsyncBaseTransport):
    """HTTP transport of httpx. ``problem`` is the reason why a request was not sent, or failed."""

    def __init__(self, web: GuardedWeb, policy: NetworkPolicy, server: str) -> None:
        self._web = web
        self._policy = policy
        self._server = server
        self._resumptions = 0
        self.problem: WonderError | None = None

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Send one request. The answer is read as it arrives."""
        if request.method == "DELETE":
            return await self._end_session(request)
        if request.method == "GET" and not self._may_get(request):
            return httpx2.Response(405)
        return await self._send(request)

    async def _end_session(self, request: httpx2.Request) -> httpx2.Response:
        """End a session within `END_TIMEOUT_S`. A cancellation has been consumed before, so it would not stop
        this."""
        try:
            async with asyncio.timeout(END_TIMEOUT_S):
                response = await self._send(request)
                await response.aclose()
                return httpx2.Response(response.status_code)
        except TimeoutError:
            raise httpx2.ReadTimeout("the server does not end the session") from None

    def _may_get(self, request: httpx2.Request) -> bool:
        """Return True for a GET of the rest of an answer; False for a stream of the server's own messages.

        The package would reopen that stream forever, each time the server closes it.
        """
        if "last-event-id" not in request.headers:
            return False
        self._resumptions += 1
        return self._resumptions <= MAX_RESUMPTIONS

    def mark_too_long(self) -> None:
        """Record that an answer exceeds the limit of bytes."""
        limit = f"more than {MAX_MESSAGE_BYTES} bytes"
        message = f"The MCP server '{self._server}' answered with {limit}. Request less from the tool."
        self.problem = error(Reason.PAYLOAD_TOO_LARGE, message)

    def mark_flooded(self) -> None:
        """Record that the server sends too many messages."""
        self.problem = flooded(self._server)

    async def _send(self, request: httpx2.Request) -> httpx2.Response:
        stack = AsyncExitStack()
        try:
            response = await stack.enter_async_context(
                self._web.exchange(
                    request.method,
                    str(request.url),
                    _end_to_end_headers(request.headers),
                    await request.aread(),
                    self._policy,
                )
            )
        except WonderError as problem:
            self.problem = problem
            raise
        if response.status >= 500:
            message = f"The MCP server answered with status {response.status}."
            self.problem = error(Reason.TASK_FAILED, message, transient=True)
        return httpx2.Response(
            response.status,
            headers=list(_end_to_end_headers(response.headers).items()),
            stream=_Answer(response, stack, self.mark_too_long),
        )


class _Answer(httpx2.AsyncByteStream):
    """The body of an answer. Closing it closes the connection if the body is incomplete."""

    def __init__(
        self, response: ClientResponse, stack: AsyncExitStack, on_too_long: Callable[[], None]
    ) -> None:
        self._response = response
        self._stack = stack
        self._on_too_long = on_too_long

    async def __aiter__(self) -> AsyncIterator[bytes]:
        is_stream = self._response.content_type == "text/event-stream"
        remaining = limit = MAX_BODY_BYTES if is_stream else MAX_MESSAGE_BYTES
        async for chunk in self._response.content.iter_any():
            remaining -= len(chunk)
            if remaining < 0:
                self._on_too_long()
                raise httpx2.ReadError(f"the answer has more than {limit} bytes")
            yield chunk

    async def aclose(self) -> None:
        await self._stack.aclose()


def _end_to_end_headers(headers: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in headers.items() if name.lower() not in _HOP_BY_HOP}


class _StreamWrapper:
    """A wrapper of a stream of the package, which has more methods than its protocol."""

    def __init__(self, stream: Any, message_filter: MessageFilter) -> None:
        self._stream = stream
        self._filter = message_filter

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    async def __aenter__(self) -> Any:
        await self._stream.__aenter__()
        return self

    async def __aexit__(self, *problem: Any) -> Any:
        return await self._stream.__aexit__(*problem)


class FilteredStream(_StreamWrapper):
    """Messages from the server that the session gets. The stream ends when there are too many."""

    def __init__(self, stream: Any, message_filter: MessageFilter, transport: GuardedTransport) -> None:
        super().__init__(stream, message_filter)
        self._transport = transport
        self._rejected_requests = 0

    def __aiter__(self) -> FilteredStream:
        return self

    async def __anext__(self) -> Any:
        while True:
            item = await self._stream.__anext__()
            if isinstance(item, Exception):
                continue
            verdict = self._filter.verdict_for(item.message)
            if verdict is Verdict.FLOOD:
                self._transport.mark_flooded()
                raise StopAsyncIteration
            if verdict is Verdict.REFUSE:
                self._rejected_requests += 1
            if verdict is Verdict.PASS or (
                verdict is Verdict.REFUSE and self._rejected_requests <= MAX_REQUESTS_OF_SERVER
            ):
                return item


class RecordedStream(_StreamWrapper):
    """Messages to the server, with their requests recorded."""

    async def send(self, item: Any) -> None:
        """Send a message."""
        self._filter.record_request(item.message)
        await self._stream.send(item)
