"""Prices that are given by hand. Implements the port ``Prices``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from wonder_server.core.definitions.specs import ModelProfile
from wonder_server.core.model import ModelResult
from wonder_server.core.prices import ModelPrice, cost_micros, find


class MemoryPrices:
    """Knows the models whose cards it is given, and the built-in one."""

    def __init__(self, cards: Mapping[str, ModelPrice] | None = None) -> None:
        self._prices = cards or {}

    async def with_cost(self, profile: ModelProfile, result: ModelResult) -> ModelResult:
        """See the port."""
        cost = cost_micros(find(self._prices, profile.provider, profile.model), result.usage)
        return result if cost is None else replace(result, usage=replace(result.usage, cost_micros=cost))

    async def with_context_window(self, profile: ModelProfile) -> ModelProfile:
        """See the port."""
        card = find(self._prices, profile.provider, profile.model)
        if profile.context_window_tokens or card is None or not card.context_tokens:
            return profile
        return replace(profile, context_window_tokens=card.context_tokens)
