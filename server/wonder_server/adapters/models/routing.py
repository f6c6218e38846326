"""`RoutedModel`: one `Model` that hands each call to the adapter that reaches its provider."""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Mapping
from typing import Any

from wonder_server.adapters.models.common import provider_errors
from wonder_server.adapters.models.common.format_names import default_format
from wonder_server.core.definitions.specs import ModelProfile
from wonder_server.core.errors import Fault, WonderError
from wonder_server.ports.model import Chunk, Model

ANY_FORMAT = ""
"""As a route's format: all that the provider is asked in."""


class RoutedModel:
    """Looks the profile's provider and format up in ``routes``; everything else goes to ``otherwise``, if its
    provider is one of ``known``: of those that are not, nobody is asked.

    A further adapter is one more line where compose builds the table.
    """

    def __init__(
        self, routes: Mapping[tuple[str, str], Model], *, default: Model, known: Collection[str]
    ) -> None:
        self._routes = dict(routes)
        self._known = frozenset(known)
        self._default = default

    def stream(self, profile: ModelProfile, request: dict[str, Any]) -> AsyncIterator[Chunk]:
        """See `ports.model.Model.stream`. The profile's provider is settled, never ``auto``."""
        provider = profile.provider
        if provider not in self._known:
            return _FailingStream(provider_errors.unknown_provider(provider, self._known))
        model = self._routes.get((provider, profile.format or default_format(provider)))
        model = model or self._routes.get((provider, ANY_FORMAT), self._default)
        return model.stream(profile, request)

    async def close(self) -> None:
        """Closes every adapter once."""
        for model in {id(model): model for model in (*self._routes.values(), self._default)}.values():
            await model.close()


class _FailingStream:
    """A stream that fails at once."""

    def __init__(self, fault: Fault) -> None:
        self._fault = fault

    def __aiter__(self) -> _FailingStream:
        return self

    async def __anext__(self) -> Chunk:
        raise WonderError(self._fault)

    async def aclose(self) -> None: ...
