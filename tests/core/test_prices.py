"""Tests of prices from a table in LiteLLM's format: whole numbers, and None for unknown values."""

from __future__ import annotations

import pytest

from wonder_server.core.errors import Reason
from wonder_server.core.model import Usage
from wonder_server.core.prices import (
    FREE,
    UnknownCost,
    cost_micros,
    find,
    find_own,
    merged,
    price_of_rates,
    read,
)

TABLE = {
    "sample_spec": {"max_input_tokens": "as many as fit", "input_cost_per_token": 0, "mode": "chat"},
    "small": {
        "litellm_provider": "openai",
        "mode": "chat",
        "input_cost_per_token": 7.5e-07,
        "output_cost_per_token": 4.5e-06,
        "cache_read_input_token_cost": 7.5e-08,
        "max_input_tokens": 272_000,
    },
    "gemini/tiered": {
        "litellm_provider": "gemini",
        "mode": "chat",
        "input_cost_per_token_above_200k_tokens": 2.5e-06,
        "output_cost_per_token_above_200k_tokens": 1.5e-05,
        "input_cost_per_token": 1.25e-06,
        "output_cost_per_token": 1e-05,
    },
    "caching": {
        "litellm_provider": "anthropic",
        "mode": "chat",
        "input_cost_per_token": 3e-06,
        "output_cost_per_token": 1.5e-05,
        "cache_read_input_token_cost": 3e-07,
        "cache_creation_input_token_cost": 3.75e-06,
        "input_cost_per_token_above_200k_tokens": 6e-06,
        "output_cost_per_token_above_200k_tokens": 2.25e-05,
        "cache_creation_input_token_cost_above_200k_tokens": 7.5e-06,
        "output_cost_per_reasoning_token": 2e-05,
        "cache_creation_input_token_cost_above_1hr": 6e-06,
    },
    "half": {
        "litellm_provider": "openai",
        "mode": "chat",
        "input_cost_per_token": 1e-6,
        "max_input_tokens": 9,
    },
    "picture": {"litellm_provider": "openai", "mode": "image_generation", "max_input_tokens": 100},
    "nonsense": {"litellm_provider": "openai", "input_cost_per_token": "free", "max_input_tokens": -1},
    "no entry": 3,
}
PRICES = read(TABLE)


def cost(provider: str, model: str, **usage: int) -> int | None:
    return cost_micros(find(PRICES, provider, model), Usage(**usage))


def test_the_cost_of_a_call_is_the_cost_of_its_tokens() -> None:
    assert cost("openai", "small", input_tokens=1000, output_tokens=100) == 750 + 450
    assert cost("openai", "small", input_tokens=1000, output_tokens=0, cached_input_tokens=1000) == 75
    # An invalid count of a provider does not reduce the cost.
    assert cost("openai", "small", input_tokens=10, output_tokens=0, cached_input_tokens=99) == 1


def test_cached_and_written_input_and_reasoning_have_their_own_prices() -> None:
    parts = {"cached_input_tokens": 1000, "cache_write_input_tokens": 2000, "reasoning_tokens": 40}
    found = cost("anthropic", "caching", input_tokens=10_000, output_tokens=100, **parts)
    assert found == 7000 * 3 + 300 + 7500 + 60 * 15 + 40 * 20
    # Where the table has no price of its own, a part costs what the whole does.
    found = cost(
        "openai", "small", input_tokens=1000, output_tokens=100, **{**parts, "cached_input_tokens": 0}
    )
    assert found == 750 + 450
    long = {"cached_input_tokens": 0, "cache_write_input_tokens": 300_000, "reasoning_tokens": 0}
    assert cost("anthropic", "caching", input_tokens=300_000, output_tokens=0, **long) == 2_250_000


def test_parts_beyond_the_whole_do_not_make_a_call_cheaper_than_free() -> None:
    parts = {"cached_input_tokens": 7, "cache_write_input_tokens": 7, "reasoning_tokens": 99}
    assert cost("anthropic", "caching", input_tokens=10, output_tokens=10, **parts) == 2 + 11 + 200


def test_a_long_request_has_its_own_prices() -> None:
    assert cost("gemini", "tiered", input_tokens=200_000, output_tokens=0) == 250_000
    assert cost("gemini", "tiered", input_tokens=200_001, output_tokens=1) == 500_018


@pytest.mark.parametrize(
    ("provider", "model"),
    [("openai", "other"), ("anthropic", "small"), ("openai", "half"), ("openai", "picture"), ("openai", "")],
)
def test_an_unknown_price_has_no_cost(provider: str, model: str) -> None:
    assert cost(provider, model, input_tokens=5, output_tokens=5) is None


def test_unknown_tokens_have_no_cost() -> None:
    assert cost("openai", "small", input_tokens=5) is None
    assert cost("openai", "small", output_tokens=5) is None


def test_the_built_in_model_is_free() -> None:
    assert find(PRICES, "offline", "anything") is FREE
    assert cost("offline", "offline", input_tokens=5, output_tokens=5) == 0


def test_a_context_window_may_be_known_without_a_price() -> None:
    card = find(PRICES, "openai", "half")
    assert card is not None and card.context_tokens == 9 and not card.tiers
    assert "nonsense" not in PRICES and "sample_spec" not in PRICES


def test_own_prices_go_before_the_table_and_lack_nothing_that_it_knows() -> None:
    own = {
        ("house", "big"): price_of_rates("house", 0, {"input": 2_000_000, "output": 4_000_000, "cached": 0}),
        ("house", ""): price_of_rates("house", 32_000, {}),
    }
    big, other = find_own(own, "house", ("big",)), find_own(own, "house", ("", "small"))
    assert find_own(own, "openai", ("big",)) is None and find_own({}, "house", ("big",)) is None
    assert big is not None and other is not None
    used = Usage(input_tokens=1_000_000, cached_input_tokens=400_000, output_tokens=1_000)
    assert cost_micros(big, used) == 1_200_000 + 4_000
    assert cost_micros(other, used) is None and other.context_tokens == 32_000
    listed = find(PRICES, "openai", "small")
    both = merged(other, listed)
    assert listed is not None and (both.context_tokens, both.tiers) == (32_000, listed.tiers)
    assert merged(big, None) is big


def test_input_that_is_cached_for_an_hour_has_its_own_price() -> None:
    tokens = {"input_tokens": 1000, "output_tokens": 0, "cache_write_input_tokens": 1000}
    assert cost("anthropic", "caching", **tokens) == 3750
    assert cost("anthropic", "caching", **tokens, hour_cache_write_tokens=400) == 600 * 3.75 + 400 * 6
    # An invalid count of a provider does not raise the cost beyond that of what was written.
    assert cost("anthropic", "caching", **tokens, hour_cache_write_tokens=5000) == 6000
    assert cost("openai", "small", **tokens, hour_cache_write_tokens=400) == 750
    assert (
        price_of_rates("acme", 0, {"input": 1, "output": 2, "cache_write_hour": 3}).tiers[0].cache_write_hour
        == 3
    )


FALLBACK = price_of_rates("", 0, {"input": 3_000_000, "output": 15_000_000})


@pytest.mark.parametrize(
    ("rule", "cost_of_a_call", "refuses"),
    [("free", None, False), ("count", 4_500, False), ("refuse", None, True)],
)
def test_the_operator_decides_about_calls_without_a_known_price(
    rule: str, cost_of_a_call: int | None, refuses: bool
) -> None:
    unknown = UnknownCost(rule=rule, fallback=FALLBACK)
    usage = unknown.with_fallback_cost(Usage(input_tokens=1_000, output_tokens=100))
    assert usage.cost_micros == cost_of_a_call
    # A cost by the fallback counts, and is known to be an estimate.
    assert usage.estimated is (rule == "count")
    fault = unknown.refusal("acme", "llm-1", None)
    assert (fault is not None) is refuses
    assert fault is None or (fault.reason is Reason.COST_UNKNOWN and "acme/llm-1" in fault.message)
    assert unknown.refusal("openai", "small", PRICES["small"]) is None
    # A model of which only the context window is known has no price.
    assert (unknown.refusal("openai", "half", PRICES["half"]) is not None) is refuses
