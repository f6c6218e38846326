"""Prices and context windows of models."""

from __future__ import annotations

from dataclasses import replace
from typing import Protocol

from wonder_server.core.definitions.specs import ModelProfile
from wonder_server.core.errors import Fault
from wonder_server.core.model import ModelResult
from wonder_server.core.prices import ModelPrice


class Prices(Protocol):
    """Prices and context windows by the names of provider and model. Never raises."""

    async def with_cost(self, profile: ModelProfile, result: ModelResult) -> ModelResult:
        """Return ``result`` with its cost in the usage; unchanged if the price is unknown.

        The cost by a fallback price of the operator is marked as an estimate.
        """
        ...

    async def refusal(self, profile: ModelProfile) -> Fault | None:
        """Return the reason why a call that a cost budget limits is refused, since its price is unknown.

        None if the call may be made.
        """
        ...

    async def with_model_facts(self, profile: ModelProfile) -> ModelProfile:
        """Return ``profile`` with the model's context window and the parts that it accepts, where the
        profile has none and they are known."""
        ...


def with_facts(profile: ModelProfile, price: ModelPrice) -> ModelProfile:
    """Return ``profile`` with the facts of ``price`` that it lacks; itself if there are none."""
    window = profile.context_window_tokens or price.context_tokens
    accepts = profile.accepts or price.accepts
    if (window, accepts) == (profile.context_window_tokens, profile.accepts):
        return profile
    return replace(profile, context_window_tokens=window, accepts=accepts)
