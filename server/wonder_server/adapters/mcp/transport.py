"""The HTTP of the package `mcp`, sent through `GuardedWeb`, so that the same rules hold for its addresses.

Imported with the package, which is on first use.
"""

from __future__ import annotations

import asyncio
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

GOODBYE_S: Final = 2
"""How long a server may take to end a session. Whoever ends one has his answer, or was cancelled."""

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
        if request.method == "DELETE":
            return await self._goodbye(request)
        return await self._sent(request)

    async def _goodbye(self, request: httpx2.Request) -> httpx2.Response:
        """The end of a session. A cancel has been spent on the way here: nothing else would end it."""
        try:
            async with asyncio.timeout(GOODBYE_S):
                response = await self._sent(request)
                await response.aclose()
                return httpx2.Response(response.status_code)
        except TimeoutError:
            raise httpx2.ReadTimeout("the server does not end the session") from None

    async def _sent(self, request: httpx2.Request) -> httpx2.Response:
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
