"""The price table of the installed LiteLLM, without an import of LiteLLM."""

from __future__ import annotations

import asyncio
import subprocess
import sys

from wonder_server.adapters.models.defaults import _DEFAULTS
from wonder_server.adapters.models.prices import LiteLLMPrices
from wonder_server.core.definitions.specs import ModelProfile
from wonder_server.core.model import ModelResult, Usage

ANSWER = ModelResult(text="x", usage=Usage(input_tokens=1_000_000, output_tokens=1_000_000))


async def test_the_usual_models_have_a_price_and_a_limit() -> None:
    prices = LiteLLMPrices()
    for _, profile in _DEFAULTS:
        usage = (await prices.with_cost(profile, ANSWER)).usage
        assert usage.cost_micros and usage.cost_micros > 0, profile
        resolved = await prices.with_model_facts(ModelProfile(provider=profile.provider, model=profile.model))
        assert resolved.context_window_tokens == profile.context_window_tokens


async def test_what_the_table_does_not_have_stays_unknown() -> None:
    prices = LiteLLMPrices()
    homemade = ModelProfile(provider="hosted_vllm", model="my-model")
    assert await prices.with_cost(homemade, ANSWER) is ANSWER
    assert await prices.with_model_facts(homemade) is homemade
    free = await prices.with_cost(ModelProfile(provider="offline", model="offline"), ANSWER)
    assert free.usage.cost_micros == 0


async def test_a_cancelled_caller_does_not_stop_the_reading_for_others() -> None:
    prices, profile = LiteLLMPrices(), ModelProfile(provider="openai", model="gpt-4o")
    first = asyncio.create_task(prices.with_model_facts(profile))
    second = asyncio.create_task(prices.with_model_facts(profile))
    await asyncio.sleep(0)
    first.cancel()
    assert (await second).context_window_tokens > 100_000


def test_litellm_itself_is_not_imported() -> None:
    code = (
        "import sys; from wonder_server.adapters.models.prices import read_table;"
        "assert len(read_table()) > 1000; assert 'litellm' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
