"""Which model is used when nobody chose one, and where the usual providers' keys are found. Pure.

The rule of the quick start: with a provider's key in the environment the first conversation talks to a
real model, without one to `offline`. The names are in LiteLLM's own price table (a test looks).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from wonder_server.adapters.models.common.endpoints import PROVIDERS, Endpoint
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


def default_profile(
    environment: Mapping[str, str], known: Mapping[str, Endpoint] | None = None
) -> ModelProfile:
    """The profile that provider ``auto`` stands for.

    ``WONDER_DEFAULT_MODEL`` decides (``provider/model`` or ``offline``); else the first key of OpenAI,
    Anthropic, Gemini; else `OFFLINE`. ``known``: the operator's providers. Raises FIELD_INVALID if
    ``WONDER_DEFAULT_MODEL`` is neither.
    """
    if chosen := environment.get("WONDER_DEFAULT_MODEL", "").strip():
        return _profile_by_name(chosen, known or {})
    for variable, profile in _DEFAULTS:
        if environment.get(variable):
            return profile
    return OFFLINE


def resolve_profile(
    profile: ModelProfile, default: ModelProfile, known: Mapping[str, Endpoint] | None = None
) -> ModelProfile:
    """``profile`` with provider, model and format decided: what a pinned profile holds.

    An ``auto`` profile takes the default's provider, model and format, keeps its own patience and
    lets its own parameters go first.
    """
    if profile.provider != "auto":
        return replace(profile, format=profile.format or default_format_of(profile.provider, known or {}))
    return replace(
        profile,
        provider=default.provider,
        model=default.model,
        format=default.format or default_format_of(default.provider, known or {}),
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


def default_format_of(provider: str, known: Mapping[str, Endpoint]) -> str:
    """The format that profiles of ``provider`` use when they name none."""
    return known.get(provider, Endpoint()).default_format(provider)


def _profile_by_name(chosen: str, known: Mapping[str, Endpoint]) -> ModelProfile:
    if chosen == "offline":
        return OFFLINE
    provider, _, model = chosen.partition("/")
    if not provider or not model:
        raise error(
            Reason.FIELD_INVALID,
            f"WONDER_DEFAULT_MODEL is written provider/model (openai/gpt-5.4-mini) or offline, not {chosen}.",
            field="WONDER_DEFAULT_MODEL",
        )
    for _, profile in _DEFAULTS:
        if profile.provider == provider and not (provider in known and known[provider].format):
            tokens = profile.context_window_tokens if profile.model == model else 0
            return replace(profile, model=model, context_window_tokens=tokens)
    return ModelProfile(provider=provider, model=model, format=default_format_of(provider, known))
