"""An issuer of tokens as Keycloak is one: a discovery document, a key set, keys that rotate."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from wonder_server.core.definitions.resources import NetworkPolicy
from wonder_server.ports.web import WebRequest, WebResponse

ISSUER = "https://id.acme.example/realms/shop"
AUDIENCE = "wonder"
_MADE: dict[str, Any] = {}


def private_key(name: str, kind: str = "RSA") -> Any:
    """Return a private key, made once for each name: an RSA key takes 50 ms."""
    if f"{kind} {name}" not in _MADE:
        makers = {
            "RSA": lambda: rsa.generate_private_key(65537, 2048),
            "EC": lambda: ec.generate_private_key(ec.SECP256R1()),
            "OKP": ed25519.Ed25519PrivateKey.generate,
        }
        _MADE[f"{kind} {name}"] = makers[kind]()
    return _MADE[f"{kind} {name}"]


ALGORITHM = {"RSA": "RS256", "EC": "ES256", "OKP": "EdDSA"}


def public_jwk(name: str, kind: str = "RSA", **fields: str) -> dict[str, Any]:
    """Return the entry of a key set for a key."""
    algorithm = jwt.get_algorithm_by_name(ALGORITHM[kind])
    found: dict[str, Any] = json.loads(algorithm.to_jwk(private_key(name, kind).public_key()))
    return {**found, "kid": name, "use": "sig", **fields}


def public_pem(name: str) -> bytes:
    pem: bytes = private_key(name).public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    return pem


@dataclass
class Issuer:
    """An issuer behind the port ``Web``. ``keys`` are those that it publishes; ``requests`` the URLs that
    were asked for."""

    url: str = ISSUER
    keys: list[dict[str, Any]] = field(default_factory=lambda: [public_jwk("one")])
    requests: list[str] = field(default_factory=list)
    status: int = 200
    discovery: dict[str, Any] = field(default_factory=dict)

    def token(self, key: str = "one", kind: str = "RSA", headers: Any = None, **claims: Any) -> str:
        """Return a signed token of the user ada, valid from second 1,000 to 2,000."""
        content = {
            "iss": self.url,
            "aud": AUDIENCE,
            "sub": "u-1",
            "exp": 2_000,
            "preferred_username": "ada",
            "groups": ["makers"],
            **claims,
        }
        content = {name: value for name, value in content.items() if value is not None}
        # PyJWT refuses to make claims of wrong types.
        body, signer = json.dumps(content).encode(), private_key(key, kind)
        made = {"kid": key, "typ": "JWT", **(headers or {})}
        return jwt.PyJWS().encode(body, signer, ALGORITHM[kind], made)

    def answer(self, path: str) -> dict[str, Any]:
        if path.endswith("/.well-known/openid-configuration"):
            return {"issuer": self.url, "jwks_uri": f"{self.url}/certs", **self.discovery}
        return {"keys": self.keys}

    async def send(self, request: WebRequest, policy: NetworkPolicy) -> WebResponse:
        assert policy.http_only_allowed
        self.requests.append(request.url)
        body = json.dumps(self.answer(request.url)).encode()
        return WebResponse(status=self.status, headers={}, body=body)

    async def close(self) -> None:
        return
