"""Issuers of tokens, as the operator lists them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

ALGORITHMS: Final = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA")
"""Algorithms of signatures that an issuer may use. All have a public key: with a shared secret, a reader of
the settings could make tokens."""
DEFAULT_LEEWAY_SECONDS: Final = 60
DEFAULT_ALGORITHMS: Final = ("RS256", "ES256", "EdDSA")


@dataclass(frozen=True, slots=True, kw_only=True)
class Issuer:
    """An issuer of tokens.

    ``issuer`` and ``audiences`` are the ``iss`` and the accepted ``aud`` of its tokens. Its keys come from
    the file ``jwks_file``, from ``jwks_url``, or from the address that its discovery document names.
    ``tenant`` is the tenant of its users. ``name_claim`` and ``groups_claim`` are the claims with a user's
    name and groups.
    """

    issuer: str
    audiences: tuple[str, ...]
    jwks_url: str = ""
    jwks_file: str = ""
    algorithms: tuple[str, ...] = DEFAULT_ALGORITHMS
    tenant: str = ""
    name_claim: str = "sub"
    groups_claim: str = "groups"
    leeway_seconds: int = DEFAULT_LEEWAY_SECONDS
