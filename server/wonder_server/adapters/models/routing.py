"""`RoutedModel`: one `Model` that hands each call to the adapter that reaches its provider."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from typing import Any

from wonder_server.adapters.models.formats import usual_format
from wonder_server.core.definitions.specs import ModelProfile
from wonder_server.ports.model import Chunk, Model

ANY = ""
"""As a route's format: all that the provider is asked in."""


class RoutedModel:
    """Looks the profile's provider and format up in ``routes``; everything else goes to ``otherwise``.

    A further adapter is one more line where compose builds the table.
    """

    def __init__(self, routes: Mapping[tuple[str, str], Model], *, otherwise: Model) -> None:
        self._routes = dict(routes)
        self._otherwise = otherwise

    def stream(self, profile: ModelProfile, request: dict[str, Any]) -> AsyncIterator[Chunk]:
        """See `ports.model.Model.stream`. The profile's provider is settled, never ``auto``."""
        provider = profile.provider
        model = self._routes.get((provider, profile.format or usual_format(provider)))
        model = model or self._routes.get((provider, ANY), self._otherwise)
        return model.stream(profile, request)

    async def close(self) -> None:
        """Closes every adapter once."""
        for model in {id(model): model for model in (*self._routes.values(), self._otherwise)}.values():
            await model.close()
