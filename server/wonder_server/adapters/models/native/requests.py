"""`build_request`: one HTTP POST from a profile and a request, in the provider's format. Pure.

The body is the request with the model, the setting to stream, and the profile's parameters that the request
does not set. Only the operator's endpoints determine address and key; requests and profiles cannot.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import urlsplit
from urllib.request import proxy_bypass_environment  # type: ignore[attr-defined]

import msgspec

from wonder_server.adapters.models import formats
from wonder_server.adapters.models.common import provider_errors
from wonder_server.adapters.models.common.endpoints import Endpoint, is_loopback
from wonder_server.adapters.models.formats.wire_format import ProviderApi
from wonder_server.core.definitions.specs import ModelProfile
from wonder_server.core.errors import Fault, Reason, WonderError, error
from wonder_server.core.json_types import JsonDict
from wonder_server.core.request_formats import PROVIDERS
from wonder_server.core.request_formats.parts import all_readable

ROUTES = tuple((each.format.provider, each.name) for each in formats.FORMATS.values())
"""The pairs of provider and format that this adapter supports."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProviderRequest:
    """One POST request. ``proxy`` is the address of the proxy for it, or None."""

    format: str
    url: str
    headers: Mapping[str, str] = field(repr=False)
    body: bytes = field(repr=False)
    proxy: str | None = field(default=None, repr=False)


def build_request(
    profile: ModelProfile, request: JsonDict, endpoint: Endpoint, environment: Mapping[str, str]
) -> ProviderRequest:
    """Return the POST for a request.

    Raises MODEL_FAILED if the provider does not support the profile's format, if its address or key is not
    valid, or if the body is not JSON, and NOT_IMPLEMENTED for an unknown format.
    """
    provider, family = profile.provider, endpoint.family(profile.provider)
    format_name = profile.format or endpoint.default_format(provider)
    wire_format = formats.wire_format(format_name)
    if wire_format.format.provider != family:
        supported = [name for owner, name in ROUTES if owner == family]
        raise error(
            Reason.MODEL_FAILED,
            f"{provider} is not reached in the format {format_name}; use"
            f" {' or '.join(supported) or 'another'}.",
            field="format",
        )
    body = formats.apply_parameters(profile, request, format_name)
    model = body.pop("model", "") or profile.model
    if not isinstance(model, str):
        raise WonderError(provider_errors.refused("the request's model is not a text"))
    url = _url(provider, wire_format.api, endpoint, wire_format.path(model))
    return ProviderRequest(
        format=format_name,
        url=url,
        headers=_headers(provider, wire_format.api, endpoint),
        body=_encode_body(wire_format.stream_body(body, model)),
        proxy=_proxy(url, environment),
    )


def _url(provider: str, api: ProviderApi, endpoint: Endpoint, path: str) -> str:
    """Return the operator's address, or the provider's own, with ``path`` before its query."""
    try:
        base = urlsplit(endpoint.api_base or api.base_url)
        port = base.port
    except ValueError:
        raise WonderError(_bad_address(provider)) from None
    if base.scheme not in ("http", "https") or not base.hostname or port == 0 or base.username is not None:
        raise WonderError(_bad_address(provider))
    root = base.path.rstrip("/")
    if not root.endswith(("/v1", "/v1beta", "/v1alpha")):
        root += api.version_path
    query = "&".join(filter(None, (base.query, api.query)))
    return base._replace(path=root + path, query=query, fragment="").geturl()


def _headers(provider: str, api: ProviderApi, endpoint: Endpoint) -> dict[str, str]:
    key = endpoint.api_key
    headers = {
        "content-type": "application/json",
        "accept": "text/event-stream",
        # A compressed stream arrives in large pieces.
        "accept-encoding": "identity",
        "user-agent": "wonder",
        **api.headers,
    }
    if not key.isascii() or not key.isprintable():
        raise WonderError(
            provider_errors.missing_key(
                f"The key for {provider} contains characters that no key has. Set the key again."
            )
        )
    # Self-hosted servers often need no key.
    if key:
        headers[api.key_header] = f"{api.key_prefix}{key}"
    return headers | {name.lower(): value for name, value in endpoint.headers.items()}


_NUL = b"\\u0000"
"""NUL as JSON writes it. Databases of providers reject it."""


def _encode_body(body: JsonDict) -> bytes:
    try:
        encoded = msgspec.json.encode(body)
        return encoded if _NUL not in encoded else msgspec.json.encode(all_readable(body))
    except (TypeError, ValueError, OverflowError, RecursionError):
        pass
    try:
        # JSON can contain lone surrogates; providers reject such text.
        return json.dumps(all_readable(body), allow_nan=False).encode()
    except (TypeError, ValueError, RecursionError):
        raise WonderError(provider_errors.refused("the request cannot be written as JSON")) from None


def _proxy(url: str, environment: Mapping[str, str]) -> str | None:
    """Return the proxy that the environment sets for ``url``. Loopback addresses have none."""
    target = urlsplit(url)

    def named(variable: str) -> str:
        return environment.get(variable.lower()) or environment.get(variable.upper()) or ""

    found = named(f"{target.scheme}_proxy")
    if not found or is_loopback(url):
        return None
    if proxy_bypass_environment(target.netloc, {"no": named("no_proxy")}):
        return None
    return found if "://" in found else f"http://{found}"


def proxies_in(environment: Mapping[str, str]) -> list[str]:
    """Return the proxies that the environment sets."""
    names = ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY")
    return [environment[name] for name in names if environment.get(name)]


def _bad_address(provider: str) -> Fault:
    variable = f"WONDER_{provider.upper()}_BASE_URL" if provider in PROVIDERS else "its base_url"
    return provider_errors.refused(
        f"the address of {provider} is not valid; set {variable} to http(s)://host/path"
    )
