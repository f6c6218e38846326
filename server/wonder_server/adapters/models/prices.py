"""LiteLLM's price table, read as the file that it is: importing LiteLLM takes seconds and 180 MB."""

from __future__ import annotations

import asyncio
import importlib.util
import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final

from wonder_server.core.definitions.specs import ModelProfile
from wonder_server.core.model import ModelResult
from wonder_server.core.prices import FREE, ModelPrice, cost_micros, find, read
from wonder_server.logs import logger

_log = logger("models")

TABLE: Final = "model_prices_and_context_window_backup.json"


class LiteLLMPrices:
    """What models cost. Implements the port ``Prices``.

    The file is read once, when it is first asked for something, in a thread; without it nothing is known
    but that the built-in model is free.
    """

    def __init__(self) -> None:
        self._prices: Mapping[str, ModelPrice] | None = None
        self._reading: asyncio.Task[Mapping[str, ModelPrice]] | None = None

    async def with_cost(self, profile: ModelProfile, result: ModelResult) -> ModelResult:
        """See `ports.prices.Prices.priced`."""
        card = await self._price_of(profile.provider, profile.model, result.model)
        cost = cost_micros(card, result.usage)
        return result if cost is None else replace(result, usage=replace(result.usage, cost_micros=cost))

    async def with_context_window(self, profile: ModelProfile) -> ModelProfile:
        """See `ports.prices.Prices.informed`."""
        if profile.context_window_tokens:
            return profile
        card = await self._price_of(profile.provider, profile.model)
        tokens = card.context_tokens if card is not None else 0
        return replace(profile, context_window_tokens=tokens) if tokens else profile

    async def _price_of(self, provider: str, *models: str) -> ModelPrice | None:
        if provider == "offline":
            return FREE
        cards = self._prices if self._prices is not None else await self._read()
        return next((card for model in models if (card := find(cards, provider, model))), None)

    async def _read(self) -> Mapping[str, ModelPrice]:
        if self._reading is None:
            self._reading = asyncio.create_task(asyncio.to_thread(read_table))
        # Whoever is cancelled while waiting must not take the file away from the others.
        self._prices = await asyncio.shield(self._reading)
        return self._prices


def read_table() -> Mapping[str, ModelPrice]:
    """The cards of the table that the installed LiteLLM brings; none if it is not there or not readable."""
    spec = importlib.util.find_spec("litellm")
    if spec is None or spec.origin is None:
        return {}
    try:
        table = json.loads((Path(spec.origin).parent / TABLE).read_bytes())
    except (OSError, ValueError) as problem:
        _log.warning("price_table_unreadable", problem=type(problem).__name__)
        return {}
    return read(table) if isinstance(table, dict) else {}
