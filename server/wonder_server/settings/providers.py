"""The setting ``providers``: providers of models with their addresses, keys, options and prices."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from wonder_server.core import request_formats
from wonder_server.core.network_address import host_port_of, is_metadata
from wonder_server.core.prices import ModelPrice, price_of_rates
from wonder_server.settings.kinds import Kind, is_header

Option = str | int | float | bool
"""A value of ``options``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Provider:
    """A provider of models.

    ``format`` is a request format of the server, ``litellm``, or ``litellm/NAME`` if the names differ. At
    most one of ``key``, ``key_env`` and ``key_file`` is given; `with_keys` fills in ``key``. ``prices`` are
    the prices and context windows of its models by name, and of all others under "".
    """

    name: str
    format: str
    base_url: str = ""
    key: str = field(default="", repr=False)
    key_env: str = ""
    key_file: str = ""
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    options: Mapping[str, Option] = field(default_factory=dict, repr=False)
    prices: Mapping[str, ModelPrice] = field(default_factory=dict)

    @property
    def secrets(self) -> tuple[str, ...]:
        """Texts that no log line may show."""
        values = (*self.headers.values(), *map(str, self.options.values()))
        return (self.key, *(text for text in values if len(text) >= 8))


BUILT_IN_PROVIDERS = (*request_formats.PROVIDERS, "offline")
"""Providers that every server has, with or without a key."""

MAX_KEY_BYTES: Final = 64 << 10
"""Maximum size of a file with a key."""
MAX_PRICE: Final = 1_000_000
"""Maximum price of a million tokens, in US dollars."""
_MAX_WINDOW: Final = 100_000_000
_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}\Z")
_FORMAT = re.compile(rf"(?:{'|'.join(request_formats.FORMATS)}|litellm(?:/[a-z0-9][a-z0-9_-]{{0,63}})?)\Z")
_TEXTS = ("format", "base_url", "key", "key_env", "key_file")
_KEYS = ("key", "key_env", "key_file")
_MODEL_FIELDS = frozenset({"context_window_tokens", "prices"})
_FIELDS = frozenset({"name", *_TEXTS, "headers", "options", "models", *_MODEL_FIELDS})
RATES: Final = ("input", "output", "cached", "cache_write", "cache_write_hour", "reasoning")
"""Names of prices: those of `core.prices.Tier`."""
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,199}\Z")
_OPTION = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,99}\Z")
_OF_THE_SERVER: Final = frozenset(
    "model messages stream stream_options num_retries max_retries timeout extra_headers client tools"
    " api_key api_base base_url custom_llm_provider".split()
)
"""Arguments of LiteLLM that other fields or the request decide."""


def with_keys(providers: tuple[Provider, ...], environ: Mapping[str, str]) -> tuple[Provider, ...]:
    """Return the providers with the keys of their variables and files.

    Raises `ValueError` for a variable that is not set and for a file without a readable key. The message
    shows no key.
    """
    return tuple(replace(each, key=_key(each, environ)) for each in providers)


def _key(provider: Provider, environ: Mapping[str, str]) -> str:
    if provider.key_env:
        key = environ.get(provider.key_env, "").strip()
        if not key:
            raise ValueError(
                f"the provider {provider.name} takes its key from the variable {provider.key_env}, which is"
                " not set"
            )
        return key
    if not provider.key_file:
        return provider.key
    place = f"the provider {provider.name} takes its key from the file {provider.key_file}, which"
    try:
        with Path(provider.key_file).open("rb") as file:
            content = file.read(MAX_KEY_BYTES + 1)
        key = content.decode("ascii").strip()
    except OSError as problem:
        raise ValueError(f"{place} cannot be read: {problem.strerror}") from None
    except UnicodeDecodeError:
        raise ValueError(f"{place} is not ASCII text") from None
    if not key or len(content) > MAX_KEY_BYTES or not key.isprintable():
        raise ValueError(f"{place} must hold the key alone, on one line")
    return key


def _providers(value: object) -> tuple[Provider, ...]:
    try:
        given = json.loads(value or "[]") if isinstance(value, str) else value
    except (ValueError, RecursionError):
        given = None
    if not isinstance(given, list):
        raise ValueError('expected a list, such as [{"name": "groq", "format": "litellm", "key": "…"}]')
    found = tuple(map(_provider, given))
    names = [each.name for each in found]
    for name in names:
        if names.count(name) > 1:
            raise ValueError(f"the provider {name} is listed twice")
    return found


def _provider(given: object) -> Provider:
    if not isinstance(given, dict):
        raise ValueError("each provider needs a name of a-z, 0-9, '_' and '-'")
    name = _provider_name(given)
    if unknown := sorted(map(str, set(given) - _FIELDS)):
        known = ", ".join(sorted(_FIELDS))
        raise ValueError(f"the provider {name} has no {unknown[0]}; a provider has {known}")
    texts = {key: given.get(key, "") for key in _TEXTS}
    if not all(isinstance(text, str) for text in texts.values()):
        raise ValueError(f"the provider {name} needs texts for {', '.join(_TEXTS[:-1])} and {_TEXTS[-1]}")
    provider = Provider(
        name=name,
        headers={key: str(each) for key, each in _scalars(name, "headers", given).items()},
        options=_scalars(name, "options", given),
        prices=_prices(name, given),
        **texts,
    )
    _check_provider(provider)
    _check_key(provider)
    return provider


def _provider_name(given: Mapping[object, object]) -> str:
    name = given.get("name")
    if not isinstance(name, str) or not _NAME.match(name):
        raise ValueError("each provider needs a name of a-z, 0-9, '_' and '-'")
    if name in ("auto", "offline"):
        raise ValueError(f"no provider can be called {name}: that is the server's own")
    return name


def _scalars(name: str, key: str, given: Mapping[object, object]) -> dict[str, Option]:
    """Return an object of texts, numbers and, in options, true and false."""
    value, kinds = given.get(key, {}), str | int | float
    if not isinstance(value, dict) or not all(
        isinstance(each, kinds) and (key == "options" or not isinstance(each, bool))
        for each in value.values()
    ):
        raise ValueError(f"the provider {name} needs an object of texts for {key}")
    return value


def _prices(name: str, given: Mapping[object, object]) -> dict[str, ModelPrice]:
    """Return prices and context windows: of the provider's models by name, of all others under ""."""
    models = given.get("models", {})
    if not isinstance(models, dict) or not all(isinstance(each, dict) for each in models.values()):
        raise ValueError(f"the provider {name} needs an object of models with prices for models")
    others = _model_price(name, f"the provider {name}", given)
    found = {"": others} if others.tiers or others.context_tokens else {}
    for model, fields in models.items():
        place = f"the model {model} of the provider {name}"
        if not model or not set(fields) <= _MODEL_FIELDS:
            raise ValueError(f"{place} has {' and '.join(sorted(_MODEL_FIELDS))} only")
        own = _model_price(name, place, fields)
        found[model] = ModelPrice(
            provider=name,
            context_tokens=own.context_tokens or others.context_tokens,
            tiers=own.tiers or others.tiers,
        )
    return found


def _model_price(name: str, place: str, fields: Mapping[object, object]) -> ModelPrice:
    window = fields.get("context_window_tokens", 0)
    if type(window) is not int or not 0 <= window <= _MAX_WINDOW:
        raise ValueError(f"{place} needs a number from 0 to {_MAX_WINDOW} for context_window_tokens")
    rates = fields.get("prices", {})
    if not isinstance(rates, dict) or not set(rates) <= set(RATES):
        unknown = ", ".join(repr(key) for key in rates if key not in RATES) if isinstance(rates, dict) else ""
        raise ValueError(
            f"{place} has prices for {', '.join(RATES)}, in US dollars for a million tokens"
            + (f", and none for {unknown}" if unknown else "")
        )
    if rates and not {"input", "output"} <= set(rates):
        raise ValueError(f"{place} needs prices for both input and output")
    micros = {key: _rate(place, key, rate) for key, rate in rates.items()}
    return price_of_rates(name, window, micros)


def _rate(place: str, key: str, rate: object) -> int:
    """Return a price in millionths of a US dollar for a million tokens."""
    if isinstance(rate, bool) or not isinstance(rate, int | float) or not 0 <= rate <= MAX_PRICE:
        raise ValueError(f"{place} needs a number from 0 to {MAX_PRICE} for the price {key}")
    return round(rate * 1_000_000)


def _check_provider(provider: Provider) -> None:
    name = provider.name
    if not _FORMAT.match(provider.format):
        raise ValueError(
            f"the provider {name} needs a format: {', '.join(request_formats.FORMATS)}, "
            "litellm, or litellm/NAME"
        )
    if provider.base_url and not _is_base_url(provider.base_url):
        raise ValueError(f"the provider {name} needs a base_url such as http://127.0.0.1:11434/v1")
    if is_metadata(urlsplit(provider.base_url).hostname or ""):
        raise ValueError(
            f"the provider {name} has a base_url that is never reached: link-local addresses and metadata "
            "services give credentials away"
        )
    if provider.options and not provider.format.startswith("litellm"):
        raise ValueError(f"the provider {name} has options, which only litellm takes")
    for option in provider.options:
        if not _OPTION.match(option) or option in _OF_THE_SERVER:
            raise ValueError(f"the provider {name} cannot set the option {option!r}: the server sets it")
    for header, text in provider.headers.items():
        if not is_header(header, text):
            raise ValueError(f"the provider {name} has a header that cannot be sent")


def _check_key(provider: Provider) -> None:
    name = provider.name
    if sum(bool(getattr(provider, each)) for each in _KEYS) > 1:
        raise ValueError(f"the provider {name} takes one of {', '.join(_KEYS)}")
    if not provider.key.isascii() or not provider.key.isprintable():
        raise ValueError(f"the provider {name} has a key that cannot be sent")
    if provider.key_env and not _VARIABLE.match(provider.key_env):
        raise ValueError(f"the provider {name} needs the name of a variable for key_env")
    if provider.key_file and not Path(provider.key_file).is_absolute():
        raise ValueError(f"the provider {name} needs an absolute path for key_file")


def _is_base_url(text: str) -> bool:
    try:
        parts = urlsplit(text)
        return parts.scheme in ("http", "https") and bool(host_port_of(text)) and not parts.username
    except ValueError:
        return False


def _fallback_price(value: object) -> str:
    text = value.strip() if isinstance(value, str) else "?"
    if text:
        fallback_price(text)
    return text


def fallback_price(text: str) -> ModelPrice | None:
    """Return the price of a text INPUT/OUTPUT in US dollars for a million tokens; None for an empty one."""
    if not text:
        return None
    try:
        paid, made = (float(each) for each in text.split("/"))
        rates = {"input": _rate("it", "input", paid), "output": _rate("it", "output", made)}
    except ValueError:
        raise ValueError(
            "expected INPUT/OUTPUT in US dollars for a million tokens, each from 0 to "
            f"{MAX_PRICE}, such as 3.00/15.00"
        ) from None
    return price_of_rates("", 0, rates)


PROVIDERS = Kind("JSON", _providers)
FALLBACK_PRICE = Kind("input/output", _fallback_price)
