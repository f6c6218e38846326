"""`Exchange`: one POST to a provider and its streamed response."""

from __future__ import annotations

import asyncio
import io
import json
from typing import TYPE_CHECKING, Final

from wonder_server.adapters.models.common import provider_errors
from wonder_server.adapters.models.common.deadlines import CallDeadlines
from wonder_server.adapters.models.formats.parts import reported_fault
from wonder_server.adapters.models.native.requests import ProviderRequest
from wonder_server.core.definitions.specs import ModelProfile
from wonder_server.core.errors import Fault, Reason, WonderError

if TYPE_CHECKING:
    from aiohttp import ClientResponse, ClientSession

MAX_ANSWER_BYTES: Final = 64 * 1024 * 1024
MAX_ERROR_BYTES: Final = 64 * 1024
MAX_CHUNK_BYTES: Final = 256 * 1024
RELEASE_TIMEOUT_S: Final = 1
"""Seconds between the last event and the end of the body within which the connection stays usable."""

_NO_STREAM: Final = ("application/json", "text/html")


class Exchange:
    """A POST to a provider: open it once, read to the end, and close it in all cases.

    The methods raise the errors of the port `Model`. ``deadlines`` run from construction; a timeout fails the
    pending `open` or `read`.
    """

    def __init__(self, session: ClientSession, request: ProviderRequest, profile: ModelProfile) -> None:
        self.deadlines = CallDeadlines(profile, self._time_out)
        self._session = session
        self._request = request
        self._provider = profile.provider
        self._opening: asyncio.Timeout | None = None
        self._response: ClientResponse | None = None
        self._fault: Fault | None = None
        self._received = 0

    async def open(self) -> None:
        """Send the request and wait for the head of a streaming response.

        Raises `WonderError` for any other.
        """
        from aiohttp import ClientError
        from yarl import URL

        request = self._request
        try:
            async with asyncio.timeout(None) as self._opening:
                self._response = response = await self._session.post(
                    URL(request.url, encoded=True),
                    # A large body is sent in pieces, so that it does not block the event loop.
                    data=request.body if len(request.body) <= MAX_CHUNK_BYTES else io.BytesIO(request.body),
                    headers=request.headers,
                    # A redirect would send the key to another address.
                    allow_redirects=False,
                    proxy=request.proxy,
                )
                if response.status != 200 or response.content_type in _NO_STREAM:
                    raise WonderError(await _error_of_response(response))
        except (TimeoutError, ClientError, OSError) as problem:
            raise WonderError(self._fault or self._unreachable(problem)) from None
        except WonderError as problem:  # The dialer raises it: a forbidden address or an unknown host.
            if problem.fault.reason in (Reason.TASK_FAILED, Reason.INPUT_INVALID):
                why = provider_errors.connection_problem(problem)
                raise WonderError(provider_errors.unreachable(self._provider, request.url, why)) from None
            raise
        except ValueError as problem:
            raise WonderError(_invalid_request()) from problem
        finally:
            self._opening = None
        if self._fault is not None:  # The timeout and the response's head arrived at the same time.
            raise WonderError(self._fault)

    async def read(self) -> bytes:
        """Wait for data and return it; empty at the end of the response."""
        from aiohttp import ClientError

        assert self._response is not None
        try:
            received = await self._response.content.readany()
        except (ClientError, OSError) as problem:
            why = provider_errors.connection_problem(problem)
            lost = provider_errors.connection_lost(self._provider, self._request.url, why)
            raise WonderError(self._fault or lost) from None
        self._received += len(received)
        if self._received > MAX_ANSWER_BYTES:
            raise WonderError(
                provider_errors.unavailable(f"The model's answer is longer than {MAX_ANSWER_BYTES} bytes.")
            )
        return received

    def release(self) -> None:
        """Return the connection to the pool after the complete answer.

        The end of the body often arrives in a separate packet. If it takes longer than `RELEASE_TIMEOUT_S`,
        the connection is closed.
        """
        response, self._response = self._response, None
        if response is not None and not response.closed:
            overdue = asyncio.get_running_loop().call_later(RELEASE_TIMEOUT_S, response.close)
            response.content.on_eof(overdue.cancel)

    def close(self) -> None:
        """Close the connection unless `release` was called."""
        self.deadlines.stop()
        if self._response is not None:
            self._response.close()

    def _unreachable(self, problem: Exception) -> Fault:
        """Return the fault for a connection that failed before the head of the response."""
        from aiohttp import ClientConnectionError, ClientHttpProxyError, ClientProxyConnectionError

        cause = getattr(problem, "os_error", problem)
        # The session's own check of addresses has no number of the system.
        if isinstance(cause, PermissionError) and cause.errno is None:
            return provider_errors.refused(str(cause))
        why = provider_errors.connection_problem(problem)
        if isinstance(problem, ClientHttpProxyError):
            why = f"the proxy refused ({problem.status})"
        elif isinstance(problem, ClientProxyConnectionError):
            why = f"the proxy: {why}" if why else "the proxy cannot be reached"
        elif not why and isinstance(problem, ClientConnectionError):
            why = "it closed the connection without an answer"
        return provider_errors.unreachable(self._provider, self._request.url, why)

    def _time_out(self, fault: Fault) -> None:
        self._fault = fault
        if self._opening is not None:
            self._opening.reschedule(0)
        elif self._response is not None:
            self._response.content.set_exception(TimeoutError())


async def _error_of_response(response: ClientResponse) -> Fault:
    """Return the fault for a response that is not a stream."""
    body = bytearray()
    while len(body) < MAX_ERROR_BYTES and (received := await response.content.readany()):
        body += received
    text = body[:MAX_ERROR_BYTES].decode("utf-8", "replace")
    if response.status != 200:
        headers = {name.lower(): value for name, value in response.headers.items()}
        return provider_errors.from_status(response.status, text, headers)
    try:
        body_json = json.loads(text)
    except (ValueError, RecursionError):
        body_json = None
    if isinstance(body_json, dict) and body_json.get("error"):
        return reported_fault(body_json["error"])
    return Fault(
        reason=Reason.MODEL_FAILED,
        message=f"The model provider answered with {response.content_type} instead of a stream of events; "
        "check its address.",
        metadata={"kind": "refused"},
    )


def _invalid_request() -> Fault:
    return Fault(
        reason=Reason.MODEL_FAILED,
        message="The request to the model provider cannot be sent: its address or a header is not valid.",
        metadata={"kind": "refused"},
    )
