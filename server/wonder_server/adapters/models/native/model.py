"""`NativeModel`: calls of providers over HTTP, in the formats of `adapters.models.formats`.

A request is already in its provider's format, so a call is one POST, and the answer is a stream of
server-sent events. The first call creates the aiohttp session, because the import takes 150 ms.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping
from typing import TYPE_CHECKING, Final

from wonder_server.adapters.egress.dialing import Dialer
from wonder_server.adapters.egress.sessions import open_session
from wonder_server.adapters.models import formats
from wonder_server.adapters.models.common import provider_errors
from wonder_server.adapters.models.common.endpoints import (
    Endpoint,
    address_of,
    missing_key,
    network_of,
    refuse_remote,
)
from wonder_server.adapters.models.common.outages import Outages
from wonder_server.adapters.models.common.sse import EventDecoder, parse_data
from wonder_server.adapters.models.native.exchange import Exchange
from wonder_server.adapters.models.native.requests import ProviderRequest, build_request, proxies_in
from wonder_server.core.definitions.specs import ModelProfile
from wonder_server.core.errors import Fault, WonderError
from wonder_server.core.json_types import JsonDict
from wonder_server.core.model import Usage, from_provider
from wonder_server.ports.model import Chunk, FilledRequest, Finished, TextDelta, UsageUpdate

if TYPE_CHECKING:
    from aiohttp import ClientSession

CONNECT_TIMEOUT_S: Final = 15
KEEP_ALIVE_S: Final = 15
_DONE: Final = b"[DONE]"
_STOPPING: Final = provider_errors.unavailable("The server is stopping; no model can be called.")


class NativeModel:
    """A model for the providers and formats of `requests.ROUTES`. Implements the port ``Model``.

    - ``endpoints`` alone determines address and key of each provider.
    - ``allow_remote``: if False, every address must be a loopback address. Tests use it to call no real
      provider.
    - ``environment`` holds ``HTTPS_PROXY``, ``HTTP_PROXY`` and ``NO_PROXY``.

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

    async def stream(self, profile: ModelProfile, request: JsonDict) -> AsyncGenerator[Chunk, None]:
        """See `ports.model.Model.stream`."""
        try:
            if isinstance(request, FilledRequest):
                call = await asyncio.to_thread(self._build_request, profile, request)
            else:
                call = self._build_request(profile, request)
            exchange = Exchange(await self._session(), call, profile)
            accumulator, decoder, over = formats.accumulator(call.format), EventDecoder(), False
            counted = UsageUpdate(Usage(), 0)
            try:
                await exchange.open()
                while not over:
                    pieces, over, fault = await _next_pieces(exchange, decoder, accumulator)
                    so_far = UsageUpdate(accumulator.usage_so_far, accumulator.character_count)
                    exchange.deadlines.is_paused = True
                    for piece in pieces:
                        yield piece
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
            fault = from_provider(fault, profile.provider, profile.model, self._address(profile))
            self._outages.record(profile.provider, fault)
            raise WonderError(fault) from None
        yield Finished(result, images=tuple(accumulator.images.found))

    async def close(self) -> None:
        """Close all connections. Running and later calls fail."""
        self._closed = True
        if self._opening is not None:
            await (await self._opening).close()

    def _address(self, profile: ModelProfile) -> str:
        """Return host and port of the provider; "" if its address is not valid."""
        endpoint = self._endpoints.get(profile.provider, Endpoint())
        format_name = profile.format or endpoint.default_format(profile.provider)
        own = formats.wire_format(format_name).api.base_url if format_name in formats.FORMATS else ""
        return address_of(endpoint.api_base or own)

    def _build_request(self, profile: ModelProfile, request: JsonDict) -> ProviderRequest:
        """Return the POST for a call. Raises `WonderError` for a call that is not allowed or not possible."""
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
        """Open a session that may connect to the operator's endpoints and to public addresses."""
        proxies = [proxy if "://" in proxy else f"http://{proxy}" for proxy in proxies_in(self._environment)]
        policy = network_of(self._endpoints.values(), *proxies, allow_remote=self._allow_remote)
        return await open_session(
            self._dialer, policy, connect_timeout_s=CONNECT_TIMEOUT_S, limit=0, keepalive_timeout=KEEP_ALIVE_S
        )


async def _next_pieces(
    exchange: Exchange, decoder: EventDecoder, accumulator: formats.Accumulator
) -> tuple[list[formats.Piece], bool, Fault | None]:
    """Return the next pieces of the answer, True if the answer is complete, and the fault after the pieces.

    It also returns, without pieces, when the usage or the character count has changed, so that the caller can
    report them.
    """
    pieces: list[formats.Piece] = []
    over = False
    usage, count = accumulator.usage_so_far, accumulator.character_count
    while (
        not pieces and not over and accumulator.character_count == count and accumulator.usage_so_far == usage
    ):
        try:
            received = await exchange.read()
        except WonderError:
            if accumulator.complete:  # Only data after the answer is lost.
                return [], True, None
            raise
        complete, over = accumulator.complete, not received
        for data in decoder.feed(received):
            if data == _DONE:
                over = True
                break
            try:
                text = formats.feed(accumulator, parse_data(data))
            except WonderError as problem:
                return pieces, False, problem.fault
            _add_pieces(pieces, accumulator, text)
            if accumulator.has_started:
                exchange.deadlines.on_chunk()
        over = over or accumulator.ended
        if accumulator.complete and not complete:
            exchange.deadlines.expecting_end()
    return pieces, over, None


def _add_pieces(pieces: list[formats.Piece], accumulator: formats.Accumulator, text: str) -> None:
    """Add the pieces of one event. Text that arrives together is one piece."""
    if accumulator.asides:
        pieces += formats.take_pieces(accumulator, text)
    elif text and pieces and isinstance(last := pieces[-1], TextDelta):
        pieces[-1] = TextDelta(last.text + text)
    elif text:
        pieces.append(TextDelta(text))
