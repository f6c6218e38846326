"""Models and embedders: the providers of the settings, and the routes to them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from wonder_server.adapters.egress.environments import PROXY_VARIABLES
from wonder_server.adapters.egress.proxy import Egress
from wonder_server.adapters.embedders.batched import BatchedEmbedder
from wonder_server.adapters.embedders.hashing import HashingEmbedder
from wonder_server.adapters.embedders.helper import HelperConfig, HelperEmbedder
from wonder_server.adapters.models.bounded import BoundedModel, Bounds
from wonder_server.adapters.models.common.endpoints import Endpoint, missing_key
from wonder_server.adapters.models.defaults import default_profile, endpoints, resolve_profile
from wonder_server.adapters.models.litellm.model import PASSED_ENVIRONMENT, LiteLLMModel
from wonder_server.adapters.models.native.model import NativeModel
from wonder_server.adapters.models.native.requests import ROUTES
from wonder_server.adapters.models.offline.model import OfflineModel
from wonder_server.adapters.models.routing import ANY_FORMAT, RoutedModel
from wonder_server.core.definitions.specs import ModelProfile
from wonder_server.core.prices import ModelPrice, UnknownCost
from wonder_server.logs import logger
from wonder_server.ports.embedder import Embedder
from wonder_server.ports.model import Model
from wonder_server.settings import Settings, inherited_environment
from wonder_server.settings.providers import fallback_price

_log = logger("server")


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelProviders:
    """The providers of the settings, and the profile that a profile with provider ``auto`` gets."""

    endpoints: Mapping[str, Endpoint]
    default: ModelProfile

    def resolve(self, profile: ModelProfile) -> ModelProfile:
        """Return ``profile`` with its provider, model and format decided."""
        return resolve_profile(profile, self.default, self.endpoints)


def model_providers(settings: Settings) -> ModelProviders:
    """Return the providers of the settings. Log a default model whose key is missing."""
    known = make_endpoints(settings)
    default = default_profile(settings.provider_environment(), known)
    if problem := missing_key(default.provider, known):
        _log.warning("default_model_unavailable", model=settings.model_choice, reason=problem)
    return ModelProviders(endpoints=known, default=default)


def make_endpoints(settings: Settings) -> dict[str, Endpoint]:
    """Return the endpoints of providers that have a key or address setting, or are in the operator's list."""
    listed = {
        each.name: Endpoint(
            format=each.format,
            api_key=each.key,
            api_base=each.base_url,
            headers=each.headers,
            options=each.options,
        )
        for each in settings.providers
    }
    return {**endpoints(settings.provider_environment()), **listed}


def own_prices(settings: Settings) -> dict[tuple[str, str], ModelPrice]:
    """Return the operator's prices by provider and model; under the model "" those of all others."""
    return {(each.name, model): price for each in settings.providers for model, price in each.prices.items()}


def unknown_cost(settings: Settings) -> UnknownCost:
    """Return what the settings say about calls of models without a known price."""
    return UnknownCost(rule=settings.unknown_cost, fallback=fallback_price(settings.fallback_price))


def make_model(settings: Settings, known: Mapping[str, Endpoint], egress: Egress) -> RoutedModel:
    """Return a model that routes each request by provider and format."""
    remote, environment = settings.allow_remote_models, inherited_environment(PASSED_ENVIRONMENT)
    proxies = inherited_environment(sorted(PROXY_VARIABLES))
    native = NativeModel(known, allow_remote=remote, environment=proxies, dialer=egress.dialer)
    routes: dict[tuple[str, str], Model] = {("offline", ANY_FORMAT): OfflineModel()}
    # A provider of the operator's list has one route, whatever the format of the request.
    routes |= {(name, format_): native for name, format_ in ROUTES if not known.get(name, Endpoint()).format}
    routes |= {
        (name, ANY_FORMAT): native for name, each in known.items() if each.format and not each.uses_litellm
    }
    return RoutedModel(
        routes,
        known=settings.provider_names,
        default=LiteLLMModel(known, egress, allow_remote=remote, environment=environment),
    )


def bounded(model: Model, settings: Settings) -> Model:
    """Return ``model`` with answers limited to the sizes in the settings."""
    return BoundedModel(
        model,
        Bounds(
            text=settings.max_message_bytes,
            arguments=settings.max_tool_arguments_bytes,
            raw=settings.max_raw_answer_bytes,
            answer=settings.max_answer_bytes,
        ),
    )


def make_embedder(settings: Settings, known: Mapping[str, Endpoint], egress: Egress) -> Embedder:
    """Return the built-in embedder, or the one of the settings, which runs in a helper process."""
    if not settings.embedder:
        return HashingEmbedder()
    kind, _, folder = settings.embedder.partition(":")
    dimensions = settings.embedder_dimensions
    if kind == "local":
        config = HelperConfig(kind="local", model=folder, dimensions=dimensions)
    else:
        config = HelperConfig(
            kind="litellm",
            model=settings.embedder,
            dimensions=dimensions,
            endpoint=known.get(settings.embedder.partition("/")[0]) or Endpoint(),
            allow_remote=settings.allow_remote_models,
        )
    environment = inherited_environment(PASSED_ENVIRONMENT)
    return BatchedEmbedder(HelperEmbedder(config, egress, environment=environment))
