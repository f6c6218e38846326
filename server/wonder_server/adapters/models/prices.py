"""`LiteLLMPrices`: prices from LiteLLM's price table.

The file is read without an import of LiteLLM, which takes seconds and 180 MB.
"""

from __future__ import annotations

import asyncio
import importlib.util
import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final

from wonder_server.core.definitions.specs import ModelProfile
from wonder_server.core.errors import Fault
from wonder_server.core.model import ModelResult
from wonder_server.core.prices import (
    FREE,
    FREE_IF_UNKNOWN,
    ModelPrice,
    UnknownCost,
    cost_micros,
    find,
    find_own,
    merged,
    read,
)
from wonder_server.logs import logger
from wonder_server.ports.prices import with_facts

_log = logger("models")

TABLE: Final = "model_prices_and_context_window_backup.json"


class LiteLLMPrices:
    """Prices and context windows of models. Implements the port ``Prices``.

    The operator's own prices go before the table. The first query reads the file, in a thread. Without the
    file only the operator's prices are known, and the offline model is free.
    """

    def __init__(
        self,
        own: Mapping[tuple[str, str], ModelPrice] | None = None,
        unknown: UnknownCost = FREE_IF_UNKNOWN,
    ) -> None:
        """``own`` are the operator's prices by provider and model; under the model "" those of all others.

        ``unknown`` is the operator's rule for models without a price.
        """
        self._own, self._unknown = dict(own or {}), unknown
        self._prices: Mapping[str, ModelPrice] | None = None
        self._reading: asyncio.Task[Mapping[str, ModelPrice]] | None = None

    async def with_cost(self, profile: ModelProfile, result: ModelResult) -> ModelResult:
        """See `ports.prices.Prices.with_cost`."""
        price = await self._price_of(profile.provider, profile.model, result.model)
        cost = cost_micros(price, result.usage)
        if cost is None:
            usage = (
                result.usage
                if price is not None and price.tiers
                else self._unknown.with_fallback_cost(result.usage)
            )
            return result if usage is result.usage else replace(result, usage=usage)
        return replace(result, usage=replace(result.usage, cost_micros=cost))

    async def refusal(self, profile: ModelProfile) -> Fault | None:
        """See `ports.prices.Prices.refusal`."""
        if self._unknown.rule != "refuse":
            return None
        price = await self._price_of(profile.provider, profile.model)
        return self._unknown.refusal(profile.provider, profile.model, price)

    async def with_model_facts(self, profile: ModelProfile) -> ModelProfile:
        """See `ports.prices.Prices.with_model_facts`."""
        if profile.context_window_tokens and profile.accepts:
            return profile
        price = await self._price_of(profile.provider, profile.model)
        return profile if price is None else with_facts(profile, price)

    async def _price_of(self, provider: str, *models: str) -> ModelPrice | None:
        if provider == "offline":
            return FREE
        own = find_own(self._own, provider, models)
        if own is not None and own.tiers and own.context_tokens:
            return own
        prices = self._prices if self._prices is not None else await self._read()
        listed = next((price for model in models if (price := find(prices, provider, model))), None)
        return listed if own is None else merged(own, listed)

    async def _read(self) -> Mapping[str, ModelPrice]:
        if self._reading is None:
            self._reading = asyncio.create_task(asyncio.to_thread(read_table))
        # The shield keeps the task for other callers if this one is cancelled.
        self._prices = await asyncio.shield(self._reading)
        return self._prices


def read_table() -> Mapping[str, ModelPrice]:
    """Return the prices in the table of the installed LiteLLM; none if the table is missing or unreadable."""
    spec = importlib.util.find_spec("litellm")
    if spec is None or spec.origin is None:
        return {}
    try:
        table = json.loads((Path(spec.origin).parent / TABLE).read_bytes())
    except (OSError, ValueError) as problem:
        _log.warning("price_table_unreadable", problem=type(problem).__name__)
        return {}
    return read(table) if isinstance(table, dict) else {}
