"""What models cost and how much fits into them."""

from __future__ import annotations

from typing import Protocol

from wonder_server.core.definitions.specs import ModelProfile
from wonder_server.core.model import ModelResult


class Prices(Protocol):
    """Knows, or does not know, a model by its provider's name and its own. Never raises."""

    async def with_cost(self, profile: ModelProfile, result: ModelResult) -> ModelResult:
        """``result`` with what it cost in its usage; as it is where the price is not known."""
        ...

    async def with_context_window(self, profile: ModelProfile) -> ModelProfile:
        """``profile`` with the size of the model's context, where it does not say and it is known."""
        ...
