"""Verification of JSON Web Tokens. Implements the port ``TokenVerifier``."""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import jwt

from wonder_server.adapters.oidc.keys import IssuerKeys, SigningKey
from wonder_server.core.tenancy.issuers import Issuer
from wonder_server.ports.issuers import VerifiedToken
from wonder_server.ports.web import Web

MAX_TOKENS: Final = 10_000
"""Verified tokens that are kept, so that a signature is checked once and not for each call."""
_MAX_SECONDS: Final = 10**12
MAX_GROUPS: Final = 200
MAX_TEXT: Final = 255
"""Characters of a name and of a group."""


@dataclass(frozen=True, slots=True)
class _Checked:
    """A token whose signature was checked, with its key."""

    content: VerifiedToken
    key_id: str
    key: SigningKey


class JwtVerifier:
    """Checks tokens of some issuers. ``now_s`` is a monotonic clock, for the age of keys."""

    def __init__(self, issuers: Sequence[Issuer], web: Web, now_s: Callable[[], float]) -> None:
        self._issuers = {each.issuer: each for each in issuers}
        self._keys = {each.issuer: IssuerKeys(each, web, now_s) for each in issuers}
        self._known: OrderedDict[bytes, _Checked] = OrderedDict()

    async def verify(self, token: str, now_ms: int) -> VerifiedToken | None:
        digest = hashlib.sha256(token.encode("utf-8", "replace")).digest()
        known = self._known.get(digest)
        # A key that the issuer has removed ends its tokens.
        if known is None or await self._keys[known.content.issuer].key(known.key_id) != known.key:
            known = await self._checked(token, now_ms)
            if known is None:
                self._known.pop(digest, None)
                return None
            self._known[digest] = known
            if len(self._known) > MAX_TOKENS:
                self._known.popitem(last=False)
        return known.content if now_ms < known.content.expires_ms else None

    async def close(self) -> None:
        for keys in self._keys.values():
            await keys.close()

    async def _checked(self, token: str, now_ms: int) -> _Checked | None:
        try:
            header = jwt.get_unverified_header(token)
            claimed = jwt.decode(token, options={"verify_signature": False}).get("iss")
        except (jwt.PyJWTError, ValueError, RecursionError):
            return None
        issuer = self._issuers.get(claimed) if isinstance(claimed, str) else None
        algorithm, key_id = header.get("alg"), header.get("kid", "")
        # The list of algorithms is the issuer's, never the token's: `none` and shared secrets are not in it.
        if issuer is None or algorithm not in issuer.algorithms or not isinstance(key_id, str):
            return None
        key = await self._keys[issuer.issuer].key(key_id)
        if key is None or not key.fits(algorithm):
            return None
        claims = _claims(token, key, algorithm, issuer, now_ms)
        content = _token(claims, issuer) if claims is not None else None
        return _Checked(content, key_id, key) if content is not None else None


def _claims(
    token: str, key: SigningKey, algorithm: str, issuer: Issuer, now_ms: int
) -> dict[str, Any] | None:
    """Return the claims of a token with a valid signature that is for this server, now; or None."""
    try:
        claims: dict[str, Any] = jwt.decode(
            token,
            key.key,
            algorithms=[algorithm],
            audience=issuer.audiences,
            issuer=issuer.issuer,
            # The times are compared below, with the clock of the server's keys.
            options={
                "require": ["exp", "iss", "aud", "sub"],
                "verify_exp": False,
                "verify_nbf": False,
                "verify_iat": False,
            },
        )
    except (jwt.PyJWTError, ValueError, TypeError, RecursionError):
        return None
    now, leeway = now_ms / 1000, issuer.leeway_seconds
    expires, begins, issued = claims["exp"], claims.get("nbf", 0), claims.get("iat", 0)
    if not all(map(_is_time, (expires, begins, issued))):
        return None
    return claims if max(begins, issued) - leeway <= now < expires + leeway else None


def _token(claims: dict[str, Any], issuer: Issuer) -> VerifiedToken | None:
    subject, name = claims["sub"], claims.get(issuer.name_claim)
    groups = claims.get(issuer.groups_claim)
    groups = [groups] if isinstance(groups, str) else groups if isinstance(groups, list) else []
    if not isinstance(subject, str) or not _is_name(subject):
        return None
    expires = claims["exp"]
    return VerifiedToken(
        issuer=issuer.issuer,
        subject=subject,
        name=name if isinstance(name, str) and _is_name(name) else subject,
        groups=tuple(
            sorted({each for each in groups if isinstance(each, str) and _is_name(each)})[:MAX_GROUPS]
        ),
        tenant=issuer.tenant,
        issued_ms=int(claims.get("iat") or expires) * 1000,
        expires_ms=int((expires + issuer.leeway_seconds) * 1000),
    )


def _is_time(value: object) -> bool:
    """Return True for a number of seconds that a clock can have; NaN and infinity are numbers of JSON too."""
    return type(value) in (int, float) and -_MAX_SECONDS < value < _MAX_SECONDS  # type: ignore[operator]


def _is_name(text: str) -> bool:
    """Return True for a text that names can have: nothing invisible, no space at its begin or end."""
    return (
        0 < len(text.encode("utf-8", "replace")) <= MAX_TEXT and text == text.strip() and text.isprintable()
    )
