"""Tokens of an issuer: which are valid, and what hostile ones get."""

from __future__ import annotations

import base64
import hmac
import json
from typing import Any

import jwt
import pytest

from tests.fakes.issuer import AUDIENCE, ISSUER, Issuer, private_key, public_jwk, public_pem
from wonder_server.adapters.oidc.keys import REFETCH_S, REFRESH_S
from wonder_server.adapters.oidc.verifier import JwtVerifier
from wonder_server.core.tenancy import issuers
from wonder_server.ports.issuers import VerifiedToken

NOW_MS = 1_500_000


class Time:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


class Verifying:
    """A verifier of one issuer, with its clock."""

    def __init__(self, issuer: Issuer | None = None, **settings: Any) -> None:
        self.issuer = issuer or Issuer()
        self.time = Time()
        listed = issuers.Issuer(
            issuer=self.issuer.url, audiences=(AUDIENCE,), **{"name_claim": "preferred_username", **settings}
        )
        self.verifier = JwtVerifier([listed], self.issuer, self.time)

    async def __call__(self, token: str, now_ms: int = NOW_MS) -> VerifiedToken | None:
        return await self.verifier.verify(token, now_ms)


async def test_a_valid_token_says_who_calls() -> None:
    found = await Verifying(tenant="acme")(Issuer().token())
    assert found == VerifiedToken(
        issuer=ISSUER,
        subject="u-1",
        name="ada",
        groups=("makers",),
        tenant="acme",
        issued_ms=2_000_000,
        expires_ms=2_060_000,
    )


@pytest.mark.parametrize("kind", ["RSA", "EC", "OKP"])
async def test_each_kind_of_key_signs(kind: str) -> None:
    issuer = Issuer(keys=[public_jwk("one", kind)])
    assert await Verifying(issuer)(issuer.token(kind=kind)) is not None


def unsigned(header: dict[str, Any], claims: dict[str, Any], signature: str = "") -> str:
    parts = (base64.urlsafe_b64encode(json.dumps(each).encode()).rstrip(b"=") for each in (header, claims))
    return b".".join(parts).decode() + f".{signature}"


def shared_secret() -> str:
    """Return a token signed with the public key as the secret of HS256."""
    made = unsigned({"alg": "HS256", "kid": "one"}, CLAIMS).rpartition(".")[0]
    signature = hmac.new(public_pem("one"), made.encode(), "sha256").digest()
    return f"{made}.{base64.urlsafe_b64encode(signature).rstrip(b'=').decode()}"


CLAIMS = {"iss": ISSUER, "aud": AUDIENCE, "sub": "u-1", "exp": 2_000}
GOOD = Issuer().token()
HEAD, _, SIGNATURE = GOOD.split(".")
HOSTILE = {
    "no signature": unsigned({"alg": "none", "kid": "one"}, CLAIMS),
    "no signature in capitals": unsigned({"alg": "NONE", "kid": "one"}, CLAIMS),
    "the public key as a shared secret": shared_secret(),
    "the key of another": Issuer().token("other", headers={"kid": "one"}),
    "an unknown key": Issuer().token("other"),
    "an own key in the header": jwt.encode(
        CLAIMS, private_key("other"), "RS256", headers={"kid": "one", "jwk": public_jwk("other")}
    ),
    "a key by URL": Issuer().token("other", headers={"jku": "https://evil.example/keys"}),
    "an algorithm that the operator does not list": jwt.encode(
        CLAIMS, private_key("one"), "RS512", headers={"kid": "one"}
    ),
    "another audience": Issuer().token(aud="another"),
    "no audience": Issuer().token(aud=None),
    "another issuer": Issuer().token(iss="https://evil.example"),
    "no issuer": Issuer().token(iss=None),
    "a list of issuers": Issuer().token(iss=[ISSUER]),
    "expired": Issuer().token(exp=1_400),
    "no expiry": Issuer().token(exp=None),
    "an expiry in words": Issuer().token(exp="tomorrow"),
    "an expiry that is no number": Issuer().token(exp=float("nan")),
    "an expiry that is true": Issuer().token(exp=True),
    "not yet valid": Issuer().token(nbf=1_600),
    "made in the future": Issuer().token(iat=1_600),
    "made in words": Issuer().token(iat="now"),
    "made before all time": Issuer().token(iat=float("-inf")),
    "valid for ever": Issuer().token(exp=float("inf")),
    "a huge time": Issuer().token(exp=10**400),
    "no subject": Issuer().token(sub=None),
    "an empty subject": Issuer().token(sub=""),
    "a subject with a line end": Issuer().token(sub="u-1\nroot"),
    "a huge subject": Issuer().token(sub="u" * 10_000),
    "a changed claim": f"{HEAD}.{unsigned({}, {**CLAIMS, 'sub': 'root'}).split('.')[1]}.{SIGNATURE}",
    "a cut signature": GOOD[:-4],
    "a key id that is no text": unsigned({"alg": "RS256", "kid": ["one"]}, CLAIMS, SIGNATURE),
    "critical extensions": Issuer().token(headers={"crit": ["x"], "x": 1}),
    "deep claims": f"{HEAD}.{base64.urlsafe_b64encode(b'[' * 9_000).decode()}.x",
    "dots only": "..",
    "no JSON": "a.b.c",
    "empty": "",
    "invisible": "\x00.\x00.\x00",
    "not ASCII": "ä.ö.ü",
}


@pytest.mark.parametrize("name", HOSTILE)
async def test_a_hostile_token_is_of_no_caller(name: str) -> None:
    check = Verifying()
    assert await check(HOSTILE[name]) is None
    assert await check(GOOD) is not None


@pytest.mark.parametrize(
    ("claims", "name", "groups"),
    [
        ({"preferred_username": None}, "u-1", ("makers",)),
        ({"preferred_username": " ada"}, "u-1", ("makers",)),
        ({"preferred_username": 7}, "u-1", ("makers",)),
        ({"groups": None}, "ada", ()),
        ({"groups": "makers"}, "ada", ("makers",)),
        ({"groups": ["b", "a", "a", 7, "", "x\n", None]}, "ada", ("a", "b")),
        ({"groups": {"a": 1}}, "ada", ()),
    ],
)
async def test_names_and_groups_of_a_token(claims: Any, name: str, groups: tuple[str, ...]) -> None:
    found = await Verifying()(Issuer().token(**claims))
    assert found is not None and (found.name, found.groups) == (name, groups)


async def test_a_token_is_valid_until_its_end_and_no_longer() -> None:
    check = Verifying()
    assert await check(GOOD, 2_059_999) is not None
    assert await check(GOOD, 2_060_000) is None


async def test_keys_rotate_and_an_unknown_one_is_asked_for_once_a_minute() -> None:
    issuer = Issuer()
    check = Verifying(issuer)
    assert await check(issuer.token()) is not None
    asked = len(issuer.requests)
    for number in range(50):
        assert await check(issuer.token("two", jti=str(number))) is None
    assert len(issuer.requests) == asked
    issuer.keys = [public_jwk("two")]
    check.time.now = REFETCH_S
    assert await check(issuer.token("two")) is not None
    assert await check(issuer.token(jti="new")) is None
    assert len(issuer.requests) == 2 * asked


async def test_a_removed_key_ends_the_tokens_that_it_signed() -> None:
    issuer = Issuer()
    check, token = Verifying(issuer), issuer.token()
    assert await check(token) is not None
    asked, issuer.keys = len(issuer.requests), [public_jwk("two")]
    check.time.now = REFRESH_S
    # The old keys are valid while new ones are fetched.
    assert await check(token) is not None
    # An unknown key waits for them.
    assert await check(issuer.token("two")) is not None
    assert await check(token) is None
    assert len(issuer.requests) == 2 * asked


FAULTS = ("down", "another issuer", "no list", "strings", "no keys", "a secret", "nonsense")


@pytest.mark.parametrize("fault", FAULTS)
async def test_an_issuer_without_keys_has_no_callers(fault: str) -> None:
    issuer = Issuer()
    match fault:
        case "down":
            issuer.status = 503
        case "another issuer":
            issuer.discovery = {"issuer": "https://evil.example"}
        case "no list":
            issuer.keys = "keys"  # type: ignore[assignment]
        case "strings":
            issuer.keys = ["one"]  # type: ignore[list-item]
        case "no keys":
            issuer.keys = []
        case "a secret":
            issuer.keys = [{"kty": "oct", "k": "c2VjcmV0", "kid": "one"}]
        case _:
            issuer.keys = [{"kty": "RSA", "kid": "one", "n": "!", "e": "!"}]
    check = Verifying(issuer)
    assert await check(issuer.token()) is None
    # It is asked again after a minute.
    issuer.status, issuer.discovery, issuer.keys = 200, {}, [public_jwk("one")]
    assert await check(issuer.token()) is None
    check.time.now = REFETCH_S
    assert await check(issuer.token()) is not None


async def test_a_key_signs_with_the_algorithm_that_it_names_only() -> None:
    issuer = Issuer(keys=[public_jwk("one", alg="RS512")])
    assert await Verifying(issuer, algorithms=("RS256", "RS512"))(issuer.token()) is None


async def test_keys_can_come_from_a_file(tmp_path: Any) -> None:
    path = tmp_path / "keys.json"
    path.write_text(json.dumps({"keys": [public_jwk("one")]}))
    check = Verifying(jwks_file=str(path))
    assert await check(GOOD) is not None and not check.issuer.requests
