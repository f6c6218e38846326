"""Keys of one issuer: fetched, cached, and fetched again when a token names an unknown one."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import jwt

from wonder_server.core.definitions.network_policy import allow_only
from wonder_server.core.errors import WonderError
from wonder_server.core.tenancy.issuers import Issuer
from wonder_server.logs import logger
from wonder_server.ports.web import Web, WebRequest

_log = logger("rpc")

MAX_JWKS_BYTES: Final = 1 << 20
MAX_KEYS: Final = 100
KINDS: Final = frozenset({"RSA", "EC", "OKP"})
"""Kinds of public keys."""
REFETCH_S: Final = 60.0
"""Seconds between two fetches, so that tokens with invented keys make no flood of requests."""
REFRESH_S: Final = 600.0
"""Age in seconds from which keys are fetched again in the background: a key that the issuer removed ends."""
FETCH_TIMEOUT_S: Final = 10.0


@dataclass(frozen=True, slots=True)
class SigningKey:
    """A public key, its kind (``kty``), and its algorithm if the issuer names one."""

    key: Any
    kind: str
    algorithm: str

    def fits(self, algorithm: str) -> bool:
        """Return True if the key signs with an algorithm."""
        kind = {"RS": "RSA", "PS": "RSA", "ES": "EC", "Ed": "OKP"}.get(algorithm[:2])
        return self.kind == kind and self.algorithm in ("", algorithm)


class IssuerKeys:
    """The public keys of an issuer, by their ids. ``now_s`` is a monotonic clock."""

    def __init__(self, issuer: Issuer, web: Web, now_s: Callable[[], float]) -> None:
        self._issuer = issuer
        self._web = web
        self._now_s = now_s
        self._keys: Mapping[str, SigningKey] = {}
        self._fetched_s: float | None = None
        self._fetch: asyncio.Task[None] | None = None

    async def key(self, key_id: str) -> SigningKey | None:
        """Return the key with this id; None if the issuer has none. Tokens without an id have the only
        key."""
        age = self._age_s()
        if age is not None and key_id in self._keys:
            if age >= REFRESH_S:
                self._start_fetch()
            return self._keys[key_id]
        if age is None or age >= REFETCH_S:
            self._start_fetch()
        if self._fetch is not None:
            await asyncio.shield(self._fetch)
        return self._keys.get(key_id)

    async def close(self) -> None:
        """End a fetch in progress."""
        if self._fetch is not None:
            self._fetch.cancel()
            await asyncio.wait({self._fetch})

    def _age_s(self) -> float | None:
        return None if self._fetched_s is None else self._now_s() - self._fetched_s

    def _start_fetch(self) -> None:
        if self._fetch is None:
            self._fetch = asyncio.create_task(self._fetch_keys())

    async def _fetch_keys(self) -> None:
        try:
            async with asyncio.timeout(FETCH_TIMEOUT_S):
                self._keys = keys_of(await self._document())
        except (WonderError, TimeoutError, OSError, ValueError, RecursionError) as problem:
            # The earlier keys stay valid.
            _log.warning("issuer_keys_unavailable", issuer=self._issuer.issuer, problem=_plain(problem))
        finally:
            self._fetched_s = self._now_s()
            self._fetch = None

    async def _document(self) -> Any:
        if self._issuer.jwks_file:
            return await asyncio.to_thread(_read_file, Path(self._issuer.jwks_file))
        url = self._issuer.jwks_url
        if not url:
            base = self._issuer.issuer.rstrip("/")
            discovery = await self._get(f"{base}/.well-known/openid-configuration")
            if not isinstance(discovery, dict) or not isinstance(discovery.get("jwks_uri"), str):
                raise ValueError("its discovery document names no keys")
            url = discovery["jwks_uri"]
            if discovery.get("issuer") != self._issuer.issuer:
                raise ValueError("its discovery document names another issuer")
            if urlsplit(url).scheme != "https" and urlsplit(base).scheme == "https":
                raise ValueError("its discovery document names keys without TLS")
        return await self._get(url)

    async def _get(self, url: str) -> Any:
        host = urlsplit(url).hostname or ""
        request = WebRequest(
            method="GET", url=url, max_bytes=MAX_JWKS_BYTES, headers={"accept": "application/json"}
        )
        response = await self._web.send(request, allow_only(host))
        if response.status != 200:
            raise ValueError(f"{url} answers with status {response.status}")
        return json.loads(response.body)


def keys_of(document: object) -> dict[str, SigningKey]:
    """Return the keys of a JSON Web Key Set that check signatures, by id; the only one also under "".

    Secret keys (``oct``), unknown kinds and unreadable entries are left out. Raises `ValueError` for anything
    that is no key set.
    """
    entries = document.get("keys") if isinstance(document, dict) else None
    if not isinstance(entries, list):
        raise ValueError("its key set has no list of keys")
    found: dict[str, SigningKey] = {}
    for each in entries[:MAX_KEYS]:
        if not isinstance(each, dict) or each.get("kty") not in KINDS or each.get("use", "sig") != "sig":
            continue
        try:
            made = SigningKey(jwt.PyJWK(each).key, str(each["kty"]), str(each.get("alg", "")))
        except (jwt.PyJWTError, ValueError, TypeError):
            continue
        found[str(each.get("kid", ""))] = made
    if len(found) == 1:
        found[""] = next(iter(found.values()))
    return found


def _read_file(path: Path) -> Any:
    with path.open("rb") as file:
        return json.loads(file.read(MAX_JWKS_BYTES))


def _plain(problem: Exception) -> str:
    return (
        problem.fault.message if isinstance(problem, WonderError) else f"{type(problem).__name__}: {problem}"
    )
