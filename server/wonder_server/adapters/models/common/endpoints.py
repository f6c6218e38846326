"""Where providers are reached and with which keys. Only compose makes these, from the settings."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from wonder_server.adapters.models.common.format_names import (
    ANTHROPIC_MESSAGES,
    GEMINI,
    OPENAI_CHAT,
    OPENAI_RESPONSES,
    default_format,
)
from wonder_server.core.definitions.network_policy import allow_only, allow_public_and
from wonder_server.core.definitions.resources import NetworkPolicy
from wonder_server.core.errors import Reason, error
from wonder_server.core.network_address import host_port_of

_FAMILIES = {
    OPENAI_CHAT: "openai",
    OPENAI_RESPONSES: "openai",
    ANTHROPIC_MESSAGES: "anthropic",
    GEMINI: "gemini",
}


PROVIDERS = ("openai", "anthropic", "gemini")
"""Providers whose key and address are read from ``<NAME>_API_KEY`` and ``<NAME>_API_BASE``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """One provider's key and address.

    ``api_base`` empty means the provider's own address. For ``openai`` and what speaks like it, it
    ends with ``/v1``; for ``anthropic`` it does not. ``options`` are further settings that LiteLLM
    knows for a provider (``api_version``, ``aws_region_name``, …). ``headers`` are sent with every call.
    ``format`` empty is that of the provider whose name it is; ``litellm`` and ``litellm/NAME`` are reached
    through LiteLLM, which knows them by their name or by ``NAME``.
    """

    format: str = ""
    api_key: str = field(default="", repr=False)
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    api_base: str = ""
    options: Mapping[str, str] = field(default_factory=dict, repr=False)

    @property
    def secrets(self) -> tuple[str, ...]:
        """What must never be shown: the key, and every option long enough to be one."""
        held = (*self.headers.values(), *self.options.values())
        return (self.api_key, *(value for value in held if len(value) >= 8))

    @property
    def uses_litellm(self) -> bool:
        """Whether the operator says that LiteLLM reaches it."""
        return self.format.partition("/")[0] == "litellm"

    def family(self, name: str) -> str:
        """Whose formats, addresses and headers a provider ``name`` has; LiteLLM's name for it, if LiteLLM
        reaches it."""
        if self.uses_litellm:
            return self.format.partition("/")[2] or name
        return _FAMILIES.get(self.format, name)

    def default_format(self, name: str) -> str:
        """The format that profiles of a provider ``name`` use when they name none."""
        return self.format if self.format in _FAMILIES else default_format(self.family(name))


def network_of(endpoints: Iterable[Endpoint], *more: str, allow_remote: bool = True) -> NetworkPolicy:
    """Return what calls to these endpoints may reach: public addresses and the operator's own places, which
    are the endpoints' addresses, their options that are URLs, and ``more`` URLs. Without ``allow_remote``:
    only those of the places that are on this machine."""
    urls = [*more]
    for endpoint in endpoints:
        urls += [endpoint.api_base, *(value for value in endpoint.options.values() if "://" in value)]
    places = []
    for url in urls:
        try:
            if url and (allow_remote or is_loopback(url)):
                places.append(host_port_of(url))
        except ValueError:
            continue  # Who calls it hears that the address is none.
    return allow_public_and(*places) if allow_remote else allow_only(*places)


def is_loopback(url: str) -> bool:
    """Whether an address can only lead to this machine."""
    try:
        host = urlsplit(url).hostname or ""
        if host == "localhost":
            return True
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def refuse_remote(provider: str, url: str) -> None:
    """MODEL_UNAVAILABLE unless ``url`` is on this machine; empty stands for the provider's own address."""
    if not is_loopback(url):
        raise error(
            Reason.MODEL_UNAVAILABLE,
            f"Only models on this machine may be reached, and the provider {provider} is not here.",
            provider=provider,
        )


def missing_key(provider: str, known: Mapping[str, Endpoint]) -> str:
    """Return the message for a call without the key of ``provider``.

    Return "" unless the provider is one of `PROVIDERS` and has neither key nor address.
    """
    if provider in known or provider not in PROVIDERS:
        return ""
    return f"There is no key for {provider}: set {provider.upper()}_API_KEY where the server runs."
