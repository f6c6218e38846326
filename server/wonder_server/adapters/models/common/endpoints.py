"""`Endpoint`: address and key of a provider. Only compose makes endpoints, from the settings."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from wonder_server.core.definitions.network_policy import allow_only, allow_public_and
from wonder_server.core.definitions.resources import NetworkPolicy
from wonder_server.core.errors import Reason, error
from wonder_server.core.network_address import host_port_of
from wonder_server.core.request_formats import FORMATS, PROVIDERS, default_format


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """Key and address of one provider.

    - ``format`` is the request format; empty for the default of the provider's name. ``litellm`` and
      ``litellm/NAME`` mean that LiteLLM calls the provider, by its own name or as ``NAME``.
    - ``api_base`` is the address; empty for the provider's own. It ends with ``/v1`` for OpenAI's formats,
      and without it for Anthropic's.
    - ``headers`` are sent with each call.
    - ``options`` are further LiteLLM settings of a provider: ``api_version``, ``aws_region_name`` and others.
    """

    format: str = ""
    api_key: str = field(default="", repr=False)
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    api_base: str = ""
    options: Mapping[str, str | int | float | bool] = field(default_factory=dict, repr=False)

    @property
    def secrets(self) -> tuple[str, ...]:
        """Texts that no message may contain: the key, and headers and options of 8 characters or more."""
        values = (*self.headers.values(), *map(str, self.options.values()))
        return (self.api_key, *(value for value in values if len(value) >= 8))

    @property
    def uses_litellm(self) -> bool:
        """True if the operator has chosen LiteLLM for the provider."""
        return self.format.partition("/")[0] == "litellm"

    def family(self, name: str) -> str:
        """Return the provider whose formats, addresses and headers a provider ``name`` uses.

        For LiteLLM, return LiteLLM's name of the provider.
        """
        if self.uses_litellm:
            return self.format.partition("/")[2] or name
        found = FORMATS.get(self.format)
        return name if found is None else found.provider

    def default_format(self, name: str) -> str:
        """Return the format that profiles of a provider ``name`` use if they name none."""
        return self.format if self.format in FORMATS else default_format(self.family(name))


def network_of(endpoints: Iterable[Endpoint], *more: str, allow_remote: bool = True) -> NetworkPolicy:
    """Return the network policy for calls to these endpoints.

    It allows public addresses and the operator's own: the addresses of the endpoints, their options that are
    URLs, and ``more`` URLs. Without ``allow_remote`` it allows only those of the operator's addresses that
    are loopback addresses.
    """
    urls = [*more]
    for endpoint in endpoints:
        urls += [endpoint.api_base, *(text for text in map(str, endpoint.options.values()) if "://" in text)]
    hosts = []
    for url in urls:
        try:
            if url and (allow_remote or is_loopback(url)):
                hosts.append(host_port_of(url))
        except ValueError:
            continue  # A call of this endpoint fails with an error that shows the address.
    return allow_public_and(*hosts) if allow_remote else allow_only(*hosts)


def address_of(url: str) -> str:
    """Return host and port of a provider's URL; "" for none, or for one that is not valid."""
    try:
        return host_port_of(url) if url else ""
    except ValueError:
        return ""


def is_loopback(url: str) -> bool:
    """Return True if a URL names a loopback address or ``localhost``."""
    try:
        host = urlsplit(url).hostname or ""
        if host == "localhost":
            return True
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def refuse_remote(provider: str, url: str) -> None:
    """Raise MODEL_UNAVAILABLE unless ``url`` is a loopback address. Empty is the provider's own address."""
    if not is_loopback(url):
        raise error(
            Reason.MODEL_UNAVAILABLE,
            f"Only models on this machine may be called, and the provider {provider} is remote.",
            provider=provider,
        )


def missing_key(provider: str, known: Mapping[str, Endpoint]) -> str:
    """Return the message for a call without the key of ``provider``.

    The message is empty unless the provider is one of `PROVIDERS` and has neither key nor address.
    """
    if provider in known or provider not in PROVIDERS:
        return ""
    return f"There is no key for {provider}: set {provider.upper()}_API_KEY where the server runs."
