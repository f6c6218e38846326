"""The models of one ``llm`` call: that of its profile, and those that stand in while a provider is
unavailable."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from wonder_server.core.definitions.parse import read_record
from wonder_server.core.definitions.pinning import MAX_FALLBACKS
from wonder_server.core.definitions.specs import ModelFallback, ModelProfile
from wonder_server.core.errors import Reason, error
from wonder_server.core.json_types import JsonDict
from wonder_server.core.request_formats import default_format
from wonder_server.services.actions.contract.kind import ActionCall


@dataclass(frozen=True, slots=True)
class Candidate:
    """A model to ask, and the request in its format."""

    profile: ModelProfile
    request: JsonDict


async def candidates(call: ActionCall) -> list[Candidate]:
    """Return the models of a call in the order in which they are asked, at least one.

    A model of another format than the first is asked only if ``requests`` has a request in its format. Raises
    FIELD_INVALID, and DEFINITION_NOT_FOUND for a profile that does not exist.
    """
    first, *others = await _profiles(call)
    asked = _requests(call)
    main = Candidate(first, dict(call.input["request"]))
    found = [main]
    for profile in others[:MAX_FALLBACKS]:
        request = asked.get(_format(profile))
        if request is None and _format(profile) == _format(first):
            request = main.request
        if request is None:
            continue
        # A body that names its model names that of the profile that is asked.
        if "model" in request:
            request = {**request, "model": profile.model}
        found.append(Candidate(profile, request))
    return found


async def _profiles(call: ActionCall) -> Sequence[ModelProfile]:
    """Return the profile of the input with its fallbacks; the operator's without one."""
    models, reference = call.services.models, call.input.get("model_profile_id")
    given = call.input.get("model_profile")
    if reference and given:
        raise error(
            Reason.FIELD_INVALID,
            "Give model_profile or model_profile_id, not both.",
            field="model_profile_id",
        )
    if reference:
        return await _saved(call, reference)
    if not given:
        return [models.default_profile]
    profile = read_record(ModelProfile, given, path="model_profile")
    if len(profile.fallbacks) > MAX_FALLBACKS:
        raise error(
            Reason.FIELD_INVALID,
            f"model_profile has {len(profile.fallbacks)} fallbacks; the maximum is {MAX_FALLBACKS}.",
            field="model_profile.fallbacks",
        )
    found = [_resolved(call, replace(profile, fallbacks=()))]
    for fallback in profile.fallbacks:
        found += await _fallback(call, profile, fallback)
    return found


async def _fallback(call: ActionCall, profile: ModelProfile, fallback: ModelFallback) -> list[ModelProfile]:
    if fallback.model_profile_id:
        return await _saved(call, fallback.model_profile_id)
    if not fallback.provider:
        message = "Each fallback has a model_profile_id, or a provider with a model."
        raise error(Reason.FIELD_INVALID, message, field="model_profile.fallbacks")
    # Timeouts are those of the profile that names the model; parameters are not.
    made = replace(
        profile,
        provider=fallback.provider,
        model=fallback.model,
        format="",
        parameters={},
        context_window_tokens=0,
        accepts=(),
        fallbacks=(),
    )
    return [_resolved(call, made)]


def _resolved(call: ActionCall, profile: ModelProfile) -> ModelProfile:
    """Return the profile with its provider, model and format decided; ``auto`` is the operator's."""
    default = call.services.models.default_profile
    if profile.provider == "auto":
        profile = replace(
            profile,
            provider=default.provider,
            model=profile.model or default.model,
            format=profile.format or default.format,
        )
    return call.services.models.resolve(profile)


async def _saved(call: ActionCall, reference: str) -> list[ModelProfile]:
    """Return a saved profile and its fallbacks. Raises DEFINITION_NOT_FOUND."""
    profiles = call.services.models.profiles
    if profiles is None:
        raise error(Reason.NOT_IMPLEMENTED, "This server has no saved model profiles.", method="llm")
    return [each.spec for each in await profiles.pin_profiles(reference)]


def _requests(call: ActionCall) -> dict[str, JsonDict]:
    return {name: dict(body) for name, body in call.input.get("requests", {}).items()}


def _format(profile: ModelProfile) -> str:
    return profile.format or default_format(profile.provider)
