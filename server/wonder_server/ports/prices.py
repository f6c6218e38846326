"""Prices and context windows of models."""

from __future__ import annotations

from typing import Protocol

from wonder_server.core.definitions.specs import ModelProfile
from wonder_server.core.model import ModelResult


class Prices(Protocol):
    """Prices and context windows by the names of provider and model. Never raises."""

    async def with_cost(self, profile: ModelProfile, result: ModelResult) -> ModelResult:
        """Return ``result`` with its cost in the usage; unchanged if the price is unknown."""
        ...

    async def with_context_window(self, profile: ModelProfile) -> ModelProfile:
        """Return ``profile`` with the model's context window, if the profile has none and it is known."""
        ...
