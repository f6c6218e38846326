"""`RoutedModel`: a `Model` that passes each call to the adapter for its provider."""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Mapping

from wonder_server.adapters.models.common import provider_errors
from wonder_server.core.definitions.specs import ModelProfile
from wonder_server.core.errors import Fault, WonderError
from wonder_server.core.json_types import JsonDict
from wonder_server.core.request_formats import default_format
from wonder_server.ports.model import Chunk, Model

ANY_FORMAT = ""
"""The format of a route that applies to all formats of its provider."""


class RoutedModel:
    """A `Model` with a table of adapters by provider and format.

    A provider of ``known`` without a route uses the adapter ``default``. Calls of unknown providers fail
    without a request. A new adapter is one line in the table that compose builds.
    """

    def __init__(
        self, routes: Mapping[tuple[str, str], Model], *, default: Model, known: Collection[str]
    ) -> None:
        self._routes = dict(routes)
        self._known = frozenset(known)
        self._default = default

    def stream(self, profile: ModelProfile, request: JsonDict) -> AsyncIterator[Chunk]:
        """See `ports.model.Model.stream`. The profile's provider is resolved, never ``auto``."""
        provider = profile.provider
        if provider not in self._known:
            return _FailingStream(provider_errors.unknown_provider(provider, self._known))
        model = self._routes.get((provider, profile.format or default_format(provider)))
        model = model or self._routes.get((provider, ANY_FORMAT), self._default)
        return model.stream(profile, request)

    async def close(self) -> None:
        """Close every adapter once."""
        for model in {id(model): model for model in (*self._routes.values(), self._default)}.values():
            await model.close()


class _FailingStream:
    """A stream whose first read fails."""

    def __init__(self, fault: Fault) -> None:
        self._fault = fault

    def __aiter__(self) -> _FailingStream:
        return self

    async def __anext__(self) -> Chunk:
        raise WonderError(self._fault)

    async def aclose(self) -> None: ...
