"""The default model, and the routes to adapters."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.conformance.models.subjects import ask, collect
from wonder_server.adapters.models.common.endpoints import Endpoint, is_loopback
from wonder_server.adapters.models.defaults import OFFLINE, default_profile, endpoints, resolve_profile
from wonder_server.adapters.models.offline.model import OfflineModel
from wonder_server.adapters.models.routing import ANY_FORMAT, RoutedModel
from wonder_server.core.definitions.specs import ModelProfile
from wonder_server.core.errors import Reason, WonderError
from wonder_server.core.json_types import JsonDict
from wonder_server.core.model import ModelResult
from wonder_server.ports.model import Chunk, Finished, Model

KEYS = ("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "GEMINI_API_KEY")


def test_without_any_key_the_default_is_offline() -> None:
    assert default_profile({}) == OFFLINE
    assert default_profile(dict.fromkeys(KEYS, "")) == OFFLINE


def test_the_first_key_decides_and_wonder_model_overrides_it() -> None:
    everything = dict.fromkeys(KEYS, "k")

    assert default_profile(everything).provider == "openai"
    assert default_profile({"GEMINI_API_KEY": "k", "ANTHROPIC_API_KEY": "k"}).provider == "anthropic"
    assert default_profile({"GEMINI_API_KEY": "k"}).provider == "gemini"
    assert default_profile({**everything, "WONDER_DEFAULT_MODEL": "offline"}) == OFFLINE


def test_wonder_model_names_provider_and_model() -> None:
    profile = default_profile({"WONDER_DEFAULT_MODEL": "openrouter/meta/llama-4"})

    assert (profile.provider, profile.model, profile.format) == ("openrouter", "meta/llama-4", "openai_chat")


def test_a_model_of_gemini_is_asked_in_its_own_format() -> None:
    assert default_profile({"WONDER_DEFAULT_MODEL": "gemini/gemini-x"}).format == "gemini"


def test_a_model_of_anthropic_is_asked_in_its_own_format() -> None:
    profile = default_profile({"WONDER_DEFAULT_MODEL": "anthropic/claude-x"})

    assert profile.format == "anthropic_messages"
    assert profile.parameters["max_tokens"] > 0


@pytest.mark.parametrize("chosen", ["gpt", "openai/", "/gpt"])
def test_a_wonder_model_that_names_no_provider_or_no_model_is_refused(chosen: str) -> None:
    with pytest.raises(WonderError) as raised:
        default_profile({"WONDER_DEFAULT_MODEL": chosen})
    assert (raised.value.fault.reason, raised.value.fault.field) == (
        Reason.FIELD_INVALID,
        "WONDER_DEFAULT_MODEL",
    )


@pytest.mark.parametrize("variable", KEYS)
def test_the_default_models_are_in_litellms_price_table(variable: str) -> None:
    found = importlib.util.find_spec("litellm")
    assert found is not None and found.origin is not None
    table = json.loads(
        Path(found.origin).with_name("model_prices_and_context_window_backup.json").read_text()
    )
    profile = default_profile({variable: "k"})

    entry = table.get(profile.model) or table[f"{profile.provider}/{profile.model}"]

    assert entry["max_input_tokens"] == profile.context_window_tokens
    assert entry["supports_function_calling"]


def test_resolving_replaces_auto_and_keeps_the_profiles_own_timeouts_and_parameters() -> None:
    own = ModelProfile(provider="auto", timeout_ms=5, parameters={"temperature": 0})
    default = default_profile({"ANTHROPIC_API_KEY": "k"})

    profile = resolve_profile(own, default)

    assert (profile.provider, profile.model, profile.format) == (
        "anthropic",
        default.model,
        "anthropic_messages",
    )
    assert profile.timeout_ms == 5
    assert profile.parameters == {**default.parameters, "temperature": 0}


def test_resolving_a_chosen_provider_only_sets_the_format() -> None:
    own = ModelProfile(provider="groq", model="m")
    listed = {"groq": Endpoint(format="anthropic_messages")}

    assert resolve_profile(own, OFFLINE) == replace(own, format="openai_chat")
    assert resolve_profile(own, OFFLINE, listed) == replace(own, format="anthropic_messages")


def test_keys_and_addresses_are_read_by_name_and_never_shown() -> None:
    found = endpoints(
        {"OPENAI_API_KEY": "sk-1", "GEMINI_API_BASE": "http://127.0.0.1:1", "OTHER_API_KEY": "x"}
    )

    assert found == {
        "openai": Endpoint(api_key="sk-1"),
        "gemini": Endpoint(api_base="http://127.0.0.1:1"),
    }
    assert "sk-1" not in repr(found)


@pytest.mark.parametrize("url", ["http://127.0.0.1:80/v1", "http://localhost", "http://[::1]:5"])
def test_loopback_addresses_are_known(url: str) -> None:
    assert is_loopback(url)


@pytest.mark.parametrize(
    "url", ["", "https://api.openai.com/v1", "http://127.0.0.1.example.com", "http://x@10.0.0.1", "//0.0.0.0"]
)
def test_every_other_address_is_not(url: str) -> None:
    assert not is_loopback(url)


class Recorder:
    """A model that answers with its name."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.closed = 0

    async def stream(self, profile: ModelProfile, request: JsonDict) -> AsyncIterator[Chunk]:
        yield Finished(ModelResult(text="", model=self.name))

    async def close(self) -> None:
        self.closed += 1


async def test_provider_and_format_choose_the_adapter() -> None:
    native, other = Recorder("native"), Recorder("other")
    routes: dict[tuple[str, str], Model] = {("offline", ANY_FORMAT): OfflineModel()}
    routes |= {("openai", "openai_chat"): native, ("anthropic", "anthropic_messages"): native}
    model = RoutedModel(routes, default=other, known=("openai", "anthropic", "groq", "offline"))

    async def chosen(provider: str, format_name: str = "") -> str:
        profile = ModelProfile(provider=provider, format=format_name)
        _, result = await collect(model, profile, ask(format_name or "openai_chat", "Hi"))
        return result.model

    assert await chosen("offline") == await chosen("offline", "gemini") == "offline"
    assert await chosen("openai") == await chosen("anthropic") == "native"
    assert await chosen("openai", "openai_chat") == "native"
    assert await chosen("anthropic", "openai_chat") == await chosen("groq") == "other"
    with pytest.raises(WonderError) as refused:
        await chosen("grog")
    fault = refused.value.fault
    assert (fault.reason, fault.metadata) == (Reason.MODEL_FAILED, {"kind": "not_found"})
    assert "no model provider 'grog' (did you mean 'groq'?)" in fault.message
    await model.close()
    assert (native.closed, other.closed) == (1, 1)
