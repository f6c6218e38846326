"""`NativeModel`: OpenAI chat and responses, Anthropic messages and Gemini, spoken by ourselves.

For these formats a request is already what its provider takes, so nothing is translated: one POST, and
server-sent events back. aiohttp does HTTP; its session, with its pool of connections, is made with the first
call, because the import takes 150 ms.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping
from typing import TYPE_CHECKING, Any, Final

from wonder_server.adapters.egress.dialing import Dialer
from wonder_server.adapters.egress.sessions import open_session
from wonder_server.adapters.models import formats
from wonder_server.adapters.models.common import provider_errors
from wonder_server.adapters.models.common.endpoints import Endpoint, missing_key, network_of, refuse_remote
from wonder_server.adapters.models.common.outages import Outages
from wonder_server.adapters.models.common.sse import EventDecoder, parse_data
from wonder_server.adapters.models.native.exchange import Exchange
from wonder_server.adapters.models.native.requests import ProviderRequest, build_request, proxies_in
from wonder_server.core.definitions.specs import ModelProfile
from wonder_server.core.errors import Fault, WonderError
from wonder_server.core.model import Usage
from wonder_server.ports.model import Chunk, Finished, TextDelta, UsageUpdate

if TYPE_CHECKING:
    from aiohttp import ClientSession

CONNECT_TIMEOUT_S: Final = 15
KEEP_ALIVE_S: Final = 15
_DONE: Final = b"[DONE]"
_STOPPING: Final = provider_errors.unavailable("The server is stopping; no model can be called.")


class NativeModel:
    """A `Model` (port) for the providers and formats of `orders.SPOKEN`.

    ``endpoints``: provider -> where it is and with which key; nothing else decides that. With
    ``allow_remote`` False every address must be on this machine, which is how tests stay away from real
    providers. ``environment``: where ``HTTPS_PROXY``, ``HTTP_PROXY`` and ``NO_PROXY`` are looked up.

    Pieces of text that arrive together are one `TextDelta`.
    """

    def __init__(
        self,
        endpoints: Mapping[str, Endpoint],
        *,
        allow_remote: bool = True,
        environment: Mapping[str, str] | None = None,
        dialer: Dialer | None = None,
    ) -> None:
        self._dialer = dialer or Dialer()
        self._endpoints = dict(endpoints)
        self._allow_remote = allow_remote
        self._environment = dict(environment or {})
        self._opening: asyncio.Task[ClientSession] | None = None
        self._outages = Outages()
        self._closed = False

    async def stream(self, profile: ModelProfile, request: dict[str, Any]) -> AsyncGenerator[Chunk, None]:
        """See `ports.model.Model.stream`."""
        try:
            asked = self._build_request(profile, request)
            exchange = Exchange(await self._session(), asked, profile)
            accumulator, decoder, over = formats.accumulator(asked.format), EventDecoder(), False
            counted = UsageUpdate(Usage(), 0)
            try:
                await exchange.open()
                while not over:
                    text, over, fault = await _next_text(exchange, decoder, accumulator)
                    so_far = UsageUpdate(accumulator.usage_so_far, accumulator.character_count)
                    exchange.deadlines.is_paused = True
                    if text:
                        yield TextDelta(text)
                    if so_far != counted:
                        counted = so_far
                        yield counted
                    exchange.deadlines.is_paused = False
                    if accumulator.has_started:
                        exchange.deadlines.on_chunk()
                    if fault is not None:
                        raise WonderError(fault)
                result = formats.finish(accumulator)
                exchange.release()
            finally:
                exchange.close()
        except WonderError as problem:
            secrets = [secret for endpoint in self._endpoints.values() for secret in endpoint.secrets]
            fault = provider_errors.redacted(problem.fault, secrets)
            self._outages.record(profile.provider, fault)
            raise WonderError(fault) from None
        yield Finished(result)

    async def close(self) -> None:
        """Closes all connections; calls in flight fail. No call can be made afterwards."""
        self._closed = True
        if self._opening is not None:
            await (await self._opening).close()

    def _build_request(self, profile: ModelProfile, request: dict[str, Any]) -> ProviderRequest:
        """The call as it is sent; refuses what must not leave or cannot be sent."""
        provider = profile.provider
        endpoint = self._endpoints.get(provider, Endpoint())
        if not self._allow_remote:
            refuse_remote(provider, endpoint.api_base)
        if problem := missing_key(provider, self._endpoints):
            raise WonderError(provider_errors.missing_key(problem))
        return build_request(profile, request, endpoint, self._environment)

    async def _session(self) -> ClientSession:
        if self._closed:
            raise WonderError(_STOPPING)
        if self._opening is None:
            self._opening = asyncio.create_task(self._open_session())
        return await asyncio.shield(self._opening)

    async def _open_session(self) -> ClientSession:
        """A session that reaches the operator's endpoints, and public addresses."""
        proxies = [proxy if "://" in proxy else f"http://{proxy}" for proxy in proxies_in(self._environment)]
        policy = network_of(self._endpoints.values(), *proxies, allow_remote=self._allow_remote)
        return await open_session(
            self._dialer, policy, connect_timeout_s=CONNECT_TIMEOUT_S, limit=0, keepalive_timeout=KEEP_ALIVE_S
        )


async def _next_text(
    exchange: Exchange, decoder: EventDecoder, accumulator: formats.Accumulator
) -> tuple[str, bool, Fault | None]:
    """The next of the answer's text, whether its provider has now said all of it, and what went wrong behind
    that text. Comes back without text too when something else has come, so that what it used can be told."""
    text, over = "", False
    told, letters = accumulator.usage_so_far, accumulator.character_count
    while (
        not text and not over and accumulator.character_count == letters and accumulator.usage_so_far == told
    ):
        try:
            received = await exchange.read()
        except WonderError:
            if accumulator.complete:  # Lost is only what nobody needs any more.
                return "", True, None
            raise
        complete, over = accumulator.complete, not received
        for data in decoder.feed(received):
            if data == _DONE:
                over = True
                break
            try:
                text += formats.feed(accumulator, parse_data(data))
            except WonderError as problem:
                return text, False, problem.fault
            if accumulator.has_started:
                exchange.deadlines.on_chunk()
        over = over or accumulator.ended
        if accumulator.complete and not complete:
            exchange.deadlines.expecting_end()
    return text, over, None
