"""Prices from a table. Implements the port ``Prices``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from wonder_server.core.definitions.specs import ModelProfile
from wonder_server.core.errors import Fault
from wonder_server.core.model import ModelResult
from wonder_server.core.prices import FREE_IF_UNKNOWN, ModelPrice, UnknownCost, cost_micros, find
from wonder_server.ports.prices import with_facts


class MemoryPrices:
    """Prices of the models in ``prices``. The price of the built-in model is always known."""

    def __init__(
        self, prices: Mapping[str, ModelPrice] | None = None, unknown: UnknownCost = FREE_IF_UNKNOWN
    ) -> None:
        self._prices = prices or {}
        self._unknown = unknown

    async def with_cost(self, profile: ModelProfile, result: ModelResult) -> ModelResult:
        """Return the result with its cost; see the port."""
        cost = cost_micros(find(self._prices, profile.provider, profile.model), result.usage)
        if cost is None:
            return replace(result, usage=self._unknown.with_fallback_cost(result.usage))
        return replace(result, usage=replace(result.usage, cost_micros=cost))

    async def refusal(self, profile: ModelProfile) -> Fault | None:
        """Return a reason if the rule refuses the call; see the port."""
        price = find(self._prices, profile.provider, profile.model)
        return self._unknown.refusal(profile.provider, profile.model, price)

    async def with_model_facts(self, profile: ModelProfile) -> ModelProfile:
        """Return the profile with its context window; see the port."""
        price = find(self._prices, profile.provider, profile.model)
        return profile if price is None else with_facts(profile, price)
