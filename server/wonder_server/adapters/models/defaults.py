"""Which model is used when nobody chose one, and where the usual providers' keys are found. Pure.

The rule of the quick start: with a provider's key in the environment the first conversation talks to a
real model, without one to `offline`. The names are in LiteLLM's own price table (a test looks).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from wonder_server.adapters.models.endpoints import Endpoint
from wonder_server.adapters.models.formats import usual_format
from wonder_server.core.definitions.specs import ModelProfile
from wonder_server.core.errors import Reason, error

OFFLINE = ModelProfile(
    provider="offline", model="offline", format="openai_chat", context_window_tokens=128_000
)

_DEFAULTS: tuple[tuple[str, ModelProfile], ...] = (
    (
        "OPENAI_API_KEY",
        ModelProfile(
            provider="openai", model="gpt-5.4-mini", format="openai_chat", context_window_tokens=272_000
        ),
    ),
    (
        "ANTHROPIC_API_KEY",
        ModelProfile(
            provider="anthropic",
            model="claude-haiku-4-5",
            format="anthropic_messages",
            parameters={"max_tokens": 8192},
            context_window_tokens=200_000,
        ),
    ),
    (
        "GEMINI_API_KEY",
        ModelProfile(
            provider="gemini",
            model="gemini-flash-latest",
            format="gemini",
            context_window_tokens=1_048_576,
        ),
    ),
)

PROVIDERS = (
    "openai", "anthropic", "gemini", "azure", "cohere", "deepseek", "fireworks_ai", "groq", "hosted_vllm",
    "mistral", "ollama", "openrouter", "perplexity", "together_ai", "xai",
)  # fmt: skip
"""Providers whose key and address are read from ``<NAME>_API_KEY`` and ``<NAME>_API_BASE``."""

KEYLESS = frozenset({"hosted_vllm", "ollama"})
"""Those that answer on this machine without any key."""


def default_profile(environment: Mapping[str, str]) -> ModelProfile:
    """The profile that provider ``auto`` stands for.

    ``WONDER_MODEL`` decides (``provider/model`` or ``offline``); else the first key of OpenAI,
    Anthropic, Gemini; else `OFFLINE`. FIELD_INVALID if ``WONDER_MODEL`` is neither.
    """
    if chosen := environment.get("WONDER_MODEL", "").strip():
        return _named(chosen)
    for variable, profile in _DEFAULTS:
        if environment.get(variable):
            return profile
    return OFFLINE


def settled(profile: ModelProfile, default: ModelProfile) -> ModelProfile:
    """``profile`` with provider, model and format decided: what a pinned profile holds.

    An ``auto`` profile takes the default's provider, model and format, keeps its own patience and
    lets its own parameters go first.
    """
    if profile.provider != "auto":
        return replace(profile, format=profile.format or usual_format(profile.provider))
    return replace(
        profile,
        provider=default.provider,
        model=default.model,
        format=default.format or usual_format(default.provider),
        parameters={**default.parameters, **profile.parameters},
        context_window_tokens=profile.context_window_tokens or default.context_window_tokens,
    )


def endpoints(environment: Mapping[str, str]) -> dict[str, Endpoint]:
    """Keys and addresses of the usual `PROVIDERS`, those that the environment has something for."""
    found = {}
    for provider in PROVIDERS:
        prefix = provider.upper()
        key = environment.get(f"{prefix}_API_KEY", "")
        base = environment.get(f"{prefix}_API_BASE") or environment.get(f"{prefix}_BASE_URL", "")
        if key or base:
            found[provider] = Endpoint(api_key=key, api_base=base)
    return found


def missing_key(provider: str, known: Mapping[str, Endpoint]) -> str:
    """What to tell whoever calls ``provider`` without its key; empty if it has a key or an address,
    needs none, or is none of the `PROVIDERS`: of the others nothing is known."""
    if provider in known or provider not in PROVIDERS or provider in KEYLESS:
        return ""
    settable = [profile.provider for _, profile in _DEFAULTS]
    if provider in settable:
        return f"There is no key for {provider}: set {provider.upper()}_API_KEY where the server runs."
    return (
        f"There is no key for {provider}, and this server reads only those of {', '.join(settable)}. "
        "What speaks like openai is reached with provider openai, OPENAI_API_KEY and WONDER_OPENAI_BASE_URL."
    )


def _named(chosen: str) -> ModelProfile:
    if chosen == "offline":
        return OFFLINE
    provider, _, model = chosen.partition("/")
    if not provider or not model:
        raise error(
            Reason.FIELD_INVALID,
            f"WONDER_MODEL is written provider/model (openai/gpt-5.4-mini) or offline, not {chosen}.",
            field="WONDER_MODEL",
        )
    for _, profile in _DEFAULTS:
        if profile.provider == provider:
            known = profile.context_window_tokens if profile.model == model else 0
            return replace(profile, model=model, context_window_tokens=known)
    return ModelProfile(provider=provider, model=model, format=usual_format(provider))
