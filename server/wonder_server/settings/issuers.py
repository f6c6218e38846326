"""The setting ``issuers``: issuers of tokens (OpenID Connect) whose users call the server."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Final
from urllib.parse import urlsplit

from wonder_server.core.tenancy.issuers import ALGORITHMS, DEFAULT_LEEWAY_SECONDS, Issuer
from wonder_server.settings.kinds import Kind

MAX_LEEWAY_SECONDS: Final = 300
_TEXTS = ("issuer", "jwks_url", "jwks_file", "tenant", "name_claim", "groups_claim")
_LISTS = ("audiences", "algorithms")
_FIELDS = frozenset({*_TEXTS, *_LISTS, "leeway_seconds"})
_LOOPBACK = frozenset({"127.0.0.1", "::1", "localhost"})


def _issuers(value: object) -> tuple[Issuer, ...]:
    try:
        given = json.loads(value or "[]") if isinstance(value, str) else value
    except (ValueError, RecursionError):
        given = None
    if not isinstance(given, list):
        raise ValueError(
            'expected a list, such as [{"issuer": "https://id.acme.example", "audiences": ["wonder"]}]'
        )
    found = tuple(map(_issuer, given))
    names = [each.issuer for each in found]
    for name in names:
        if names.count(name) > 1:
            raise ValueError(f"the issuer {name} is listed twice")
    return found


def _issuer(given: object) -> Issuer:
    name = given.get("issuer") if isinstance(given, dict) else None
    if not isinstance(given, dict) or not isinstance(name, str) or not name.strip():
        raise ValueError("each issuer needs the field issuer: the `iss` of its tokens")
    place = f"the issuer {name[:200]}"
    _check_fields(given, place)
    lists = {field: _text_list(given[field], f"{place}: {field}") for field in _LISTS if field in given}
    if "audiences" not in lists:
        raise ValueError(f"{place} needs audiences: the `aud` of tokens that are for this server")
    for algorithm in lists.get("algorithms", ()):
        if algorithm not in ALGORITHMS:
            raise ValueError(f"{place}: {algorithm[:50]!r} is not one of {', '.join(ALGORITHMS)}")
    if not given.get("jwks_file"):
        _check_url(given.get("jwks_url") or name, place)
    texts = {field: given[field].strip() for field in _TEXTS if given.get(field)}
    leeway = given.get("leeway_seconds", DEFAULT_LEEWAY_SECONDS)
    return Issuer(**{**texts, **lists, "leeway_seconds": leeway})


def _check_fields(given: Mapping[str, object], place: str) -> None:
    unknown = sorted(set(given) - _FIELDS)
    if unknown:
        raise ValueError(
            f"{place} has the unknown field {unknown[0][:100]}; use {', '.join(sorted(_FIELDS))}"
        )
    for field in _TEXTS:
        if not isinstance(given.get(field, ""), str):
            raise ValueError(f"{place}: {field} must be a text")
    leeway = given.get("leeway_seconds", DEFAULT_LEEWAY_SECONDS)
    if type(leeway) is not int or not 0 <= leeway <= MAX_LEEWAY_SECONDS:
        raise ValueError(f"{place}: leeway_seconds must be a number from 0 to {MAX_LEEWAY_SECONDS}")
    if given.get("jwks_url") and given.get("jwks_file"):
        raise ValueError(f"{place} has jwks_url and jwks_file: give one of them")


def _text_list(value: object, place: str) -> tuple[str, ...]:
    if not isinstance(value, list) or not value or not all(isinstance(each, str) and each for each in value):
        raise ValueError(f"{place} must be a list of texts")
    return tuple(value)


def _check_url(url: str, place: str) -> None:
    """Keys come over TLS, or from this machine: who changes them on the way could sign tokens."""
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname or "", parts.port
    except ValueError:
        host = ""
        parts = urlsplit("")
    if not host or parts.username or parts.scheme not in ("http", "https"):
        raise ValueError(f"{place}: its keys need an https URL, or jwks_file")
    if parts.scheme == "http" and host not in _LOOPBACK:
        raise ValueError(f"{place}: http is for this machine only; use https, or jwks_file")


ISSUERS = Kind("JSON", _issuers)
