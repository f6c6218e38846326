"""`Exchange`: one POST to a provider, and its answer as it arrives."""

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
"""How long the end of a body may follow its last event, for the connection to be used again."""

_NO_STREAM: Final = ("application/json", "text/html")


class Exchange:
    """Opened once, read to its end, closed in any case. `WonderError` as the port `Model` says.

    ``patience`` runs from the start; when it ends, whatever waits here fails.
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
        """Sends the request and waits until the answer's head is there, and says that a stream follows."""
        from aiohttp import ClientError
        from yarl import URL

        request = self._request
        try:
            async with asyncio.timeout(None) as self._opening:
                self._response = response = await self._session.post(
                    URL(request.url, encoded=True),
                    # Large bodies go out piece by piece, between which others have their turn.
                    data=request.body if len(request.body) <= MAX_CHUNK_BYTES else io.BytesIO(request.body),
                    headers=request.headers,
                    # Wherever a redirect leads, the key has no business there.
                    allow_redirects=False,
                    proxy=request.proxy,
                )
                if response.status != 200 or response.content_type in _NO_STREAM:
                    raise WonderError(await _error_of_response(response))
        except (TimeoutError, ClientError, OSError) as problem:
            raise WonderError(self._fault or self._unreachable(problem)) from None
        except WonderError as problem:  # Of the resolver: a refusal, or nobody has this name.
            if problem.fault.reason in (Reason.TASK_FAILED, Reason.INPUT_INVALID):
                why = provider_errors.connection_problem(problem)
                raise WonderError(provider_errors.unreachable(self._provider, request.url, why)) from None
            raise
        except ValueError as problem:
            raise WonderError(_invalid_request()) from problem
        finally:
            self._opening = None
        if self._fault is not None:  # Patience ended in the very moment in which the answer's head came.
            raise WonderError(self._fault)

    async def read(self) -> bytes:
        """What has arrived, waiting for something; empty at the end."""
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
            raise WonderError(provider_errors.unavailable("The model's answer does not end."))
        return received

    def release(self) -> None:
        """The answer has been read. Its connection goes back to the pool when the body's end, which often is
        a packet of its own, arrives soon; else it is closed."""
        response, self._response = self._response, None
        if response is not None and not response.closed:
            overdue = asyncio.get_running_loop().call_later(RELEASE_TIMEOUT_S, response.close)
            response.content.on_eof(overdue.cancel)

    def close(self) -> None:
        """Closes the connection at once, unless the answer has been let go."""
        self.deadlines.stop()
        if self._response is not None:
            self._response.close()

    def _unreachable(self, problem: Exception) -> Fault:
        """The fault for a connection that failed before the head of an answer came."""
        from aiohttp import ClientConnectionError, ClientHttpProxyError, ClientProxyConnectionError

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
    """The fault for an answer that is no stream."""
    body = bytearray()
    while len(body) < MAX_ERROR_BYTES and (received := await response.content.readany()):
        body += received
    text = body[:MAX_ERROR_BYTES].decode("utf-8", "replace")
    if response.status != 200:
        headers = {name.lower(): value for name, value in response.headers.items()}
        return provider_errors.from_status(response.status, text, headers)
    try:
        said = json.loads(text)
    except (ValueError, RecursionError):
        said = None
    if isinstance(said, dict) and said.get("error"):
        return reported_fault(said["error"])
    return Fault(
        reason=Reason.MODEL_FAILED,
        message=f"The model provider answered with {response.content_type} instead of a stream of events; "
        "is its address the right one?",
        metadata={"kind": "refused"},
    )


def _invalid_request() -> Fault:
    return Fault(
        reason=Reason.MODEL_FAILED,
        message="The request to the model provider cannot be sent: its address or a header is not valid.",
        metadata={"kind": "refused"},
    )
