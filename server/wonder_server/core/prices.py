"""Prices and context windows of models, from a price table in LiteLLM's format.

A price is a whole number of millionths of a US dollar for a million tokens: 0.75 dollars are 750,000. A
cost is in millionths of a US dollar. An unknown value is None, never 0.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace

from wonder_server.core.errors import Fault, Reason
from wonder_server.core.frozen import Value
from wonder_server.core.json_types import JsonObject
from wonder_server.core.model import Usage

_TIER = re.compile(r"input_cost_per_token_above_(\d+)k_tokens")
_MODES = ("chat", "responses", "completion", None)
_PER_TOKEN = 10**12


class Tier(Value, frozen=True, kw_only=True):
    """Prices of a request with more than ``above`` input tokens, for all of its tokens.

    ``cached`` is the price of input that the provider reads from its cache, ``cache_write`` of input that it
    writes to it, ``cache_write_hour`` of input that it keeps there for an hour (None: ``cache_write``), and
    ``reasoning`` of output that is reasoning.
    """

    above: int
    input: int
    output: int
    cached: int
    cache_write: int
    reasoning: int
    cache_write_hour: int | None = None


class ModelPrice(Value, frozen=True, kw_only=True):
    """Prices and limits of a model.

    ``provider`` is LiteLLM's name of the provider. ``context_tokens`` is the size of the context window; 0
    if unknown. ``tiers`` are sorted by ``above``; empty if no price is known. ``accepts`` are the parts of
    messages that the model takes; empty if unknown.
    """

    provider: str
    context_tokens: int = 0
    tiers: tuple[Tier, ...] = ()
    accepts: tuple[str, ...] = ()


FREE = ModelPrice(
    provider="offline",
    context_tokens=128_000,
    tiers=(Tier(above=-1, input=0, output=0, cached=0, cache_write=0, reasoning=0),),
)
"""Price of the built-in model."""


def read(table: JsonObject) -> dict[str, ModelPrice]:
    """Return the prices of a table by its keys. Entries without a language model or a known value are
    omitted.
    """
    prices = {}
    for name, entry in table.items():
        if isinstance(entry, dict) and entry.get("mode") in _MODES:
            price = _model_price(entry)
            if price.context_tokens or price.tiers:
                prices[name] = price
    return prices


def find(prices: Mapping[str, ModelPrice], provider: str, model: str) -> ModelPrice | None:
    """Return the price of a provider's model, by ``provider/model`` or by the bare model name; None if
    unknown.
    """
    if provider == "offline":
        return FREE
    known = prices.get(f"{provider}/{model}")
    if known is not None:
        return known
    bare = prices.get(model)
    return bare if bare is not None and bare.provider.partition("-")[0] == provider else None


def find_own(
    own: Mapping[tuple[str, str], ModelPrice], provider: str, models: Sequence[str]
) -> ModelPrice | None:
    """Return the operator's own price of the first of ``models`` that has one, else that of all models of the
    provider; None without any.
    """
    if not own:
        return None
    named = next((found for model in models if model and (found := own.get((provider, model)))), None)
    return named or own.get((provider, ""))


def merged(own: ModelPrice, listed: ModelPrice | None) -> ModelPrice:
    """Return the operator's own facts of a model, with those of the table in place of missing ones."""
    if listed is None:
        return own
    return ModelPrice(
        provider=own.provider,
        context_tokens=own.context_tokens or listed.context_tokens,
        tiers=own.tiers or listed.tiers,
        accepts=own.accepts or listed.accepts,
    )


def price_of_rates(provider: str, context_tokens: int, rates: Mapping[str, int]) -> ModelPrice:
    """Return a price with one tier of ``rates``, by the names in `Tier`; without a tier if there are none.

    Cached and written input cost as much as input without a rate of their own, and reasoning as output.
    """
    if not rates:
        return ModelPrice(provider=provider, context_tokens=context_tokens)
    paid, made = rates["input"], rates["output"]
    tier = Tier(
        above=-1,
        input=paid,
        output=made,
        cached=rates.get("cached", paid),
        cache_write=rates.get("cache_write", paid),
        reasoning=rates.get("reasoning", made),
        cache_write_hour=rates.get("cache_write_hour"),
    )
    return ModelPrice(provider=provider, context_tokens=context_tokens, tiers=(tier,))


class UnknownCost(Value, frozen=True, kw_only=True):
    """The operator's rule for calls of models without a known price.

    ``rule`` is ``free``, ``count`` or ``refuse``. With ``count``, calls cost what ``fallback`` says.
    """

    rule: str = "free"
    fallback: ModelPrice | None = None

    def with_fallback_cost(self, usage: Usage) -> Usage:
        """Return the usage of a call without a known price. Its cost by the fallback is an estimate."""
        cost = cost_micros(self.fallback, usage) if self.rule == "count" else None
        return usage if cost is None else replace(usage, cost_micros=cost, estimated=True)

    def refusal(self, provider: str, model: str, price: ModelPrice | None) -> Fault | None:
        """Return the reason why a call that a cost budget limits is refused; None if it is not."""
        if self.rule != "refuse" or (price is not None and price.tiers):
            return None
        return Fault(
            reason=Reason.COST_UNKNOWN,
            message=f"The price of the model {provider}/{model} is not known, so its calls cannot be "
            "held to a cost budget. The operator can set a price in [[providers]], or unknown_cost.",
            metadata={"provider": provider, "model": model},
        )


FREE_IF_UNKNOWN = UnknownCost()
"""Calls of models without a known price count as free."""


def cost_micros(model_price: ModelPrice | None, usage: Usage) -> int | None:
    """Return the cost of a call, rounded to the nearest millionth of a dollar.

    Returns None if the price or the tokens are unknown.
    """
    if model_price is None or usage.input_tokens is None or usage.output_tokens is None:
        return None
    tier_price = None
    for tier in model_price.tiers:
        if usage.input_tokens > tier.above:
            tier_price = tier
    if tier_price is None:
        return None
    cached = min(usage.cached_input_tokens or 0, usage.input_tokens)
    written = min(usage.cache_write_input_tokens or 0, usage.input_tokens - cached)
    hour = min(usage.hour_cache_write_tokens or 0, written)
    hour_price = (
        tier_price.cache_write if tier_price.cache_write_hour is None else tier_price.cache_write_hour
    )
    reasoned = min(usage.reasoning_tokens or 0, usage.output_tokens)
    total = (
        (usage.input_tokens - cached - written) * tier_price.input
        + cached * tier_price.cached
        + (written - hour) * tier_price.cache_write
        + hour * hour_price
        + (usage.output_tokens - reasoned) * tier_price.output
        + reasoned * tier_price.reasoning
    )
    return (total + 500_000) // 1_000_000


def _model_price(entry: JsonObject) -> ModelPrice:
    limit = _whole(entry.get("max_input_tokens"))
    tiers = []
    base = _tier(entry, -1, "")
    if base is not None:
        tiers.append(base)
        for key in entry:
            found = _TIER.fullmatch(key)
            tier = _tier(entry, int(found[1]) * 1000, f"_above_{found[1]}k_tokens") if found else None
            if tier is not None:
                tiers.append(tier)
    tiers.sort(key=lambda tier: tier.above)
    return ModelPrice(
        provider=str(entry.get("litellm_provider", "")),
        context_tokens=limit,
        tiers=tuple(tiers),
        accepts=_accepts(entry),
    )


def _accepts(entry: JsonObject) -> tuple[str, ...]:
    """Return the parts that a model takes; empty if it takes only text."""
    sees, reads = entry.get("supports_vision") is True, entry.get("supports_pdf_input") is True
    return ("text", *(("image",) if sees else ()), *(("file",) if reads else ())) if sees or reads else ()


def _tier(entry: JsonObject, above: int, suffix: str) -> Tier | None:
    paid = _price(entry.get(f"input_cost_per_token{suffix}"))
    made = _price(entry.get(f"output_cost_per_token{suffix}"))
    if paid is None or made is None:
        return None
    cached = _price(entry.get(f"cache_read_input_token_cost{suffix}"))
    written = _price(entry.get(f"cache_creation_input_token_cost{suffix}"))
    reasoned = _price(entry.get(f"output_cost_per_reasoning_token{suffix}"))
    return Tier(
        above=above,
        input=paid,
        output=made,
        cached=paid if cached is None else cached,
        cache_write=paid if written is None else written,
        reasoning=made if reasoned is None else reasoned,
        cache_write_hour=_price(entry.get(f"cache_creation_input_token_cost_above_1hr{suffix}")),
    )


def _price(value: object) -> int | None:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value < 1:
        return None
    return round(value * _PER_TOKEN)


def _whole(value: object) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 < value < 2**31 else 0
