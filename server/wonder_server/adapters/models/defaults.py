"""The default model, and the endpoints that the environment configures. Pure.

With a provider's key in the environment the first conversation uses a model of that provider, without a key
the offline model. A test asserts that LiteLLM's price table contains the names of the models.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from wonder_server.adapters.models.common.endpoints import Endpoint
from wonder_server.core.definitions.specs import ModelProfile
from wonder_server.core.errors import Reason, error
from wonder_server.core.request_formats import FALLBACK, PROVIDERS, default_format

OFFLINE = ModelProfile(
    provider="offline", model="offline", format=FALLBACK.name, context_window_tokens=128_000
)

_DEFAULTS: tuple[tuple[str, ModelProfile], ...] = (
    (
        "OPENAI_API_KEY",
        ModelProfile(
            provider="openai",
            model="gpt-5.4-mini",
            format=default_format("openai"),
            context_window_tokens=272_000,
        ),
    ),
    (
        "ANTHROPIC_API_KEY",
        ModelProfile(
            provider="anthropic",
            model="claude-haiku-4-5",
            format=default_format("anthropic"),
            parameters={"max_tokens": 8192},
            context_window_tokens=200_000,
        ),
    ),
    (
        "GEMINI_API_KEY",
        ModelProfile(
            provider="gemini",
            model="gemini-flash-latest",
            format=default_format("gemini"),
            context_window_tokens=1_048_576,
        ),
    ),
)


def default_profile(
    environment: Mapping[str, str], known: Mapping[str, Endpoint] | None = None
) -> ModelProfile:
    """Return the profile for provider ``auto``.

    It is the model in ``WONDER_DEFAULT_MODEL`` (``provider/model`` or ``offline``), else a model of the first
    of OpenAI, Anthropic and Gemini that has a key, else `OFFLINE`. ``known`` are the operator's providers.
    Raises FIELD_INVALID if ``WONDER_DEFAULT_MODEL`` has another form.
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
    """Return ``profile`` with its provider, model and format decided, as it is pinned.

    An ``auto`` profile gets the default's provider, model and format, and keeps its own timeouts. Its own
    parameters have precedence over the default's.
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
    """Return the endpoints of those `PROVIDERS` that have a key or an address in the environment."""
    found = {}
    for provider in PROVIDERS:
        prefix = provider.upper()
        key = environment.get(f"{prefix}_API_KEY", "")
        base = environment.get(f"{prefix}_API_BASE") or environment.get(f"{prefix}_BASE_URL", "")
        if key or base:
            found[provider] = Endpoint(api_key=key, api_base=base)
    return found


def default_format_of(provider: str, known: Mapping[str, Endpoint]) -> str:
    """Return the format that profiles of ``provider`` use if they name none."""
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
