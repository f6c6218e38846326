"""The HTTP of the package `mcp`, sent through `GuardedWeb`, so that the same rules hold for its addresses.

Imported with the package, which is on first use.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Final

import httpx2

from wonder_server.adapters.web.guarded import GuardedWeb
from wonder_server.core.definitions.resources import NetworkPolicy
from wonder_server.core.errors import Reason, WonderError, error

if TYPE_CHECKING:
    from aiohttp import ClientResponse

MAX_ANSWER_BYTES: Final = 8 << 20
"""Of one answer. What an action may return is less; progress comes on top."""

_CHUNK_BYTES: Final = 64 * 1024
_OF_THE_CONNECTION: Final = frozenset(
    {"host", "connection", "content-length", "transfer-encoding", "content-encoding", "accept-encoding"}
)


class GuardedTransport(httpx2.AsyncBaseTransport):
    """Sends what httpx is asked to send. ``problem`` is why a request was not sent, or broke."""

    def __init__(self, web: GuardedWeb, policy: NetworkPolicy) -> None:
        self._web = web
        self._policy = policy
        self.problem: WonderError | None = None

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """One request; its answer is read as it arrives."""
        stack = AsyncExitStack()
        try:
            response = await stack.enter_async_context(
                self._web.exchange(
                    request.method,
                    str(request.url),
                    _passed_on(request.headers),
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
            headers=list(_passed_on(response.headers).items()),
            stream=_Answer(response, stack),
        )


class _Answer(httpx2.AsyncByteStream):
    """The body of an answer. Closing it closes the connection if there is more to come."""

    def __init__(self, response: ClientResponse, stack: AsyncExitStack) -> None:
        self._response = response
        self._stack = stack

    async def __aiter__(self) -> AsyncIterator[bytes]:
        left = MAX_ANSWER_BYTES
        async for chunk in self._response.content.iter_any():
            left -= len(chunk)
            if left < 0:
                raise httpx2.ReadError(f"the answer has more than {MAX_ANSWER_BYTES} bytes")
            yield chunk

    async def aclose(self) -> None:
        await self._stack.aclose()


def _passed_on(headers: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in headers.items() if name.lower() not in _OF_THE_CONNECTION}
