"""Issuers of tokens: they say who a caller is, and to which groups it belongs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifiedToken:
    """The content of a valid token.

    ``issuer`` and ``subject`` identify its user for good; ``name`` is for people and may change. ``tenant``
    is the id or name of the tenant of the issuer's users. The token was made at ``issued_ms`` and is valid
    until ``expires_ms``, in milliseconds since 1970.
    """

    issuer: str
    subject: str
    name: str
    groups: tuple[str, ...]
    tenant: str
    issued_ms: int
    expires_ms: int

    @property
    def external_id(self) -> str:
        """The user's name at its issuer, as `StoredPrincipal.external` keeps it."""
        return f"{self.issuer} {self.subject}"


class TokenVerifier(Protocol):
    """Checks tokens of issuers."""

    async def verify(self, token: str, now_ms: int) -> VerifiedToken | None:
        """Return what a token says; None unless it is valid now, for whatever reason. It may fetch keys of
        the issuer, at most once a minute."""
        ...

    async def close(self) -> None: ...
