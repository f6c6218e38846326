"""What is sent where: a profile and a request as one HTTP POST, in the provider's own format. Pure.

The request's body goes out as it came; added are the model, that the answer shall stream, and the profile's
parameters where the request has none of that name. Address and key come from the operator's endpoints alone:
nothing in a request or a profile chooses them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote, urlsplit
from urllib.request import proxy_bypass_environment  # type: ignore[attr-defined]

import msgspec

from wonder_server.adapters.models import formats
from wonder_server.adapters.models.common import format_names, provider_errors
from wonder_server.adapters.models.common.endpoints import Endpoint, is_loopback
from wonder_server.core.definitions.specs import ModelProfile
from wonder_server.core.errors import Fault, Reason, WonderError, error
from wonder_server.core.request_formats.parts import all_readable

SUPPORTED: dict[str, tuple[str, ...]] = {
    "openai": (format_names.OPENAI_CHAT, format_names.OPENAI_RESPONSES),
    "anthropic": (format_names.ANTHROPIC_MESSAGES,),
    "gemini": (format_names.GEMINI,),
}
"""Provider -> the formats in which this adapter reaches it."""

ROUTES = tuple((provider, spoken) for provider, formats_ in SUPPORTED.items() for spoken in formats_)
"""The same as pairs of provider and format."""

ADDRESSES = {
    "openai": "https://api.openai.com/v1",
    "anthropic": "https://api.anthropic.com",
    "gemini": "https://generativelanguage.googleapis.com",
}
_VERSIONS = {"anthropic": "/v1", "gemini": "/v1beta"}
"""What belongs between address and path where the operator's address does not end with a version."""

_ANTHROPIC_VERSION = "2023-06-01"


@dataclass(frozen=True, slots=True, kw_only=True)
class ProviderRequest:
    """One POST. ``proxy``: the address of the proxy to send it through, or None."""

    format: str
    url: str
    headers: Mapping[str, str] = field(repr=False)
    body: bytes = field(repr=False)
    proxy: str | None = field(default=None, repr=False)


def build_request(
    profile: ModelProfile, request: dict[str, Any], endpoint: Endpoint, environment: Mapping[str, str]
) -> ProviderRequest:
    """MODEL_FAILED if the provider is not reached in the profile's format, or its address or key cannot be
    used; NOT_IMPLEMENTED for a format that nobody knows; INVALID_ARGUMENT for a body that is not JSON."""
    provider, family = profile.provider, endpoint.family(profile.provider)
    format_name = profile.format or endpoint.default_format(provider)
    formats.accumulator(format_name)
    spoken = SUPPORTED.get(family, ())
    if format_name not in spoken:
        raise error(
            Reason.MODEL_FAILED,
            f"{provider} is not reached in the format {format_name}; use {' or '.join(spoken) or 'another'}.",
            field="format",
        )
    body = formats.apply_parameters(profile, request, format_name)
    model = body.pop("model", "") or profile.model
    if not isinstance(model, str):
        raise WonderError(_rejected("the request's model is not a text"))
    if format_name != format_names.GEMINI:
        body |= {"model": model, "stream": True}
    if format_name == format_names.OPENAI_CHAT:
        body.setdefault("stream_options", {"include_usage": True})
    url = _url(provider, family, endpoint, _path(format_name, model))
    return ProviderRequest(
        format=format_name,
        url=url,
        headers=_headers(provider, family, endpoint),
        body=_encode_body(body),
        proxy=_proxy(url, environment),
    )


def _path(format_name: str, model: str) -> str:
    match format_name:
        case format_names.OPENAI_CHAT:
            return "/chat/completions"
        case format_names.OPENAI_RESPONSES:
            return "/responses"
        case format_names.ANTHROPIC_MESSAGES:
            return "/messages"
        case _:
            kind, slash, name = model.partition("/")
            if not slash or kind not in ("models", "tunedModels"):
                kind, name = "models", model
            try:
                return f"/{kind}/{quote(name, safe='')}:streamGenerateContent"
            except UnicodeEncodeError:
                raise WonderError(_rejected("the name of the model is not text")) from None


def _url(provider: str, family: str, endpoint: Endpoint, path: str) -> str:
    """The operator's address, or the provider's own, with ``path`` before its query."""
    try:
        base = urlsplit(endpoint.api_base or ADDRESSES[family])
        port = base.port
    except ValueError:
        raise WonderError(_bad_address(provider)) from None
    if base.scheme not in ("http", "https") or not base.hostname or port == 0 or base.username is not None:
        raise WonderError(_bad_address(provider))
    root = base.path.rstrip("/")
    version = _VERSIONS.get(family, "")
    if version and not root.endswith(("/v1", "/v1beta", "/v1alpha")):
        root += version
    query = [base.query] if base.query else []
    if family == "gemini":
        query.append("alt=sse")
    return base._replace(path=root + path, query="&".join(query), fragment="").geturl()


def _headers(provider: str, family: str, endpoint: Endpoint) -> dict[str, str]:
    key = endpoint.api_key
    headers = {
        "content-type": "application/json",
        "accept": "text/event-stream",
        # What is compressed comes in lumps.
        "accept-encoding": "identity",
        "user-agent": "wonder",
    }
    if not key.isascii() or not key.isprintable():
        raise WonderError(
            provider_errors.missing_key(f"The key for {provider} holds characters that no key has.")
        )
    match family:
        case "anthropic":
            headers["anthropic-version"] = _ANTHROPIC_VERSION
            own = {"x-api-key": key}
        case "gemini":
            own = {"x-goog-api-key": key}
        case _:
            own = {"authorization": f"Bearer {key}"}
    # A server of one's own often asks for no key.
    headers |= own if key else {}
    given = {name.lower(): value for name, value in endpoint.headers.items()}
    return headers | given


_NUL = b"\\u0000"
"""No text holds it, and databases of providers do not take it."""


def _encode_body(body: dict[str, Any]) -> bytes:
    try:
        encoded = msgspec.json.encode(body)
        return encoded if _NUL not in encoded else msgspec.json.encode(all_readable(body))
    except (TypeError, ValueError, OverflowError, RecursionError):
        pass
    try:
        # Half a character can be written in JSON, and providers take it for broken.
        return json.dumps(all_readable(body), allow_nan=False).encode()
    except (TypeError, ValueError, RecursionError):
        raise WonderError(_rejected("the request cannot be written as JSON")) from None


def _proxy(url: str, environment: Mapping[str, str]) -> str | None:
    """The proxy that the environment names for ``url``. What is on this machine never goes through one."""
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
    """The proxies that the environment names."""
    names = ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY")
    return [environment[name] for name in names if environment.get(name)]


def _bad_address(provider: str) -> Fault:
    variable = f"WONDER_{provider.upper()}_BASE_URL" if provider in SUPPORTED else "its base_url"
    return _rejected(
        f"the address configured for {provider} is none; {variable} is written http(s)://host/path"
    )


def _rejected(why: str) -> Fault:
    return Fault(
        reason=Reason.MODEL_FAILED,
        message=f"The model could not be called: {why}.",
        metadata={"kind": "refused"},
    )
