"""Faults of the LiteLLM model: unreachable providers, missing keys and unknown names."""

from __future__ import annotations

import pytest

from tests.conformance.models.conftest import litellm_model
from tests.conformance.models.subjects import ask, collect
from tests.fakes.provider import Provider
from wonder_server.adapters.egress.proxy import Egress
from wonder_server.adapters.models.common.endpoints import Endpoint
from wonder_server.adapters.models.litellm.model import LiteLLMModel
from wonder_server.core.definitions.specs import ModelProfile
from wonder_server.core.errors import Reason, WonderError

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def test_a_provider_that_cannot_be_reached_may_be_asked_again(litellm: LiteLLMModel) -> None:
    with pytest.raises(WonderError) as raised:
        await collect(litellm, ModelProfile(provider="groq", model="m"), ask("openai_chat", "Hi"))

    fault = raised.value.fault
    assert (fault.reason, fault.transient) == (Reason.MODEL_UNAVAILABLE, True)
    assert fault.message == "groq (127.0.0.1:1) cannot be reached: connection refused."


@pytest.mark.parametrize("known_as", ["mistral", "openai"])
async def test_the_credential_of_the_servers_own_proxy_is_in_no_fault(known_as: str, egress: Egress) -> None:
    endpoint = Endpoint(format=f"litellm/{known_as}", api_key="none", api_base="https://127.0.0.1:1/v1")
    model = LiteLLMModel({"eu": endpoint}, egress, allow_remote=False)

    with pytest.raises(WonderError) as raised:
        await collect(model, ModelProfile(provider="eu", model="m"), ask("openai_chat", "Hi"))
    await model.close()

    assert raised.value.fault.message == "eu (127.0.0.1:1) cannot be reached: connection refused."


async def test_the_profiles_parameters_fill_in_what_the_request_leaves_open(
    litellm: LiteLLMModel, provider: Provider
) -> None:
    profile = ModelProfile(
        provider="openai", model="text", parameters={"temperature": 0.1, "seed": 7, "token_delay_ms": 15}
    )

    await collect(litellm, profile, {**ask("openai_chat", "Hi"), "temperature": 0.9})

    body = provider.requests[0].body
    assert (body["temperature"], body["seed"], "token_delay_ms" in body) == (0.9, 7, False)


async def test_a_provider_elsewhere_is_refused_when_only_this_machine_may_be_reached(
    provider: Provider, egress: Egress
) -> None:
    model = litellm_model(provider, egress)

    for name in ("gemini", "mistral"):
        with pytest.raises(WonderError) as raised:
            await collect(model, ModelProfile(provider=name, model="m"), ask("openai_chat", "Hi"))
        assert raised.value.fault.reason is Reason.MODEL_UNAVAILABLE
        assert not raised.value.fault.transient
    await model.close()


@pytest.mark.parametrize(
    ("profile", "reason"),
    [
        (ModelProfile(provider="openai", model="text", format="morse"), Reason.NOT_IMPLEMENTED),
        (ModelProfile(provider="openai", model="text", format="gemini"), Reason.MODEL_FAILED),
        (ModelProfile(provider="openai", model="text", format="anthropic_messages"), Reason.MODEL_FAILED),
    ],
)
async def test_a_format_that_cannot_be_sent_is_refused_plainly(
    litellm: LiteLLMModel, provider: Provider, profile: ModelProfile, reason: Reason
) -> None:
    with pytest.raises(WonderError) as raised:
        await collect(litellm, profile, ask("openai_chat", "Hi"))

    assert raised.value.fault.reason is reason
    assert provider.requests == []


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("openai", "There is no key for openai: set OPENAI_API_KEY where the server runs."),
        ("anthropic", "There is no key for anthropic: set ANTHROPIC_API_KEY where the server runs."),
    ],
)
async def test_a_provider_without_a_key_is_not_even_called(name: str, message: str) -> None:
    model = LiteLLMModel({}, Egress(), allow_remote=True)
    with pytest.raises(WonderError) as raised:
        await collect(model, ModelProfile(provider=name, model="m"), ask("openai_chat", "Hi"))
    fault = raised.value.fault
    assert fault.message.startswith(message)
    assert (fault.reason, fault.transient, fault.metadata["kind"]) == (Reason.MODEL_FAILED, False, "auth")


@pytest.mark.parametrize(
    ("name", "message", "kind"),
    [
        ("unlisted", "LiteLLM knows no model provider `unlisted`: ", "not_found"),
        ("cerebras", "The model provider cannot be called without a key, ", "auth"),
    ],
)
async def test_a_provider_that_only_litellm_knows_fails_with_a_plain_message(
    litellm: LiteLLMModel, name: str, message: str, kind: str
) -> None:
    with pytest.raises(WonderError) as raised:
        await collect(litellm, ModelProfile(provider=name, model="m"), ask("openai_chat", "Hi"))
    fault = raised.value.fault
    assert fault.message.startswith(message)
    assert (fault.reason, fault.transient, fault.metadata["kind"]) == (Reason.MODEL_FAILED, False, kind)
