"""The setting ``issuers``: what it accepts, and what it says about the rest."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from wonder_server.core.tenancy.issuers import Issuer
from wonder_server.settings import SettingsError, load

URL = "https://id.acme.example/realms/shop"


def test_issuers_come_from_tables_of_the_config_file(tmp_path: Path) -> None:
    path = tmp_path / "wonder.toml"
    path.write_text(
        f'[[issuers]]\nissuer = "{URL}"\naudiences = ["wonder"]\ntenant = "acme"\nleeway_seconds = 5\n'
        '[[issuers]]\nissuer = "shop"\naudiences = ["a", "b"]\n'
        'jwks_file = "/keys.json"\nalgorithms = ["ES256"]\n'
    )
    settings = load({"config": str(path)}, {})
    assert settings.issuers == (
        Issuer(issuer=URL, audiences=("wonder",), tenant="acme", leeway_seconds=5),
        Issuer(issuer="shop", audiences=("a", "b"), jwks_file="/keys.json", algorithms=("ES256",)),
    )
    assert settings.has_auth
    assert not load({}, {}).has_auth


GOOD = f'"issuer": "{URL}", "audiences": ["wonder"]'


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("nonsense", "expected a list"),
        ("{}", "expected a list"),
        ("[7]", "needs the field issuer"),
        ('[{"issuer": ""}]', "needs the field issuer"),
        (f'[{{"issuer": "{URL}"}}]', "needs audiences"),
        (f'[{{"issuer": "{URL}", "audiences": []}}]', "must be a list of texts"),
        (f'[{{"issuer": "{URL}", "audiences": "wonder"}}]', "must be a list of texts"),
        (f'[{{{GOOD}, "algorithms": ["none"]}}]', "is not one of RS256"),
        (f'[{{{GOOD}, "algorithms": ["HS256"]}}]', "is not one of RS256"),
        (f'[{{{GOOD}, "leeway_seconds": 301}}]', "from 0 to 300"),
        (f'[{{{GOOD}, "leeway_seconds": true}}]', "from 0 to 300"),
        (f'[{{{GOOD}, "secret": "x"}}]', "unknown field secret"),
        (f'[{{{GOOD}, "tenant": 7}}]', "must be a text"),
        (f'[{{{GOOD}, "jwks_url": "{URL}", "jwks_file": "/x"}}]', "give one of them"),
        (f'[{{{GOOD}, "jwks_url": "http://id.acme.example/"}}]', "this machine only"),
        (f'[{{{GOOD}, "jwks_url": "ftp://id.acme.example/"}}]', "need an https URL"),
        (f'[{{{GOOD}, "jwks_url": "https://a:b@id.acme.example/"}}]', "need an https URL"),
        ('[{"issuer": "shop", "audiences": ["a"]}]', "need an https URL"),
        (f"[{{{GOOD}}}, {{{GOOD}}}]", "is listed twice"),
    ],
)
def test_a_wrong_issuer_is_refused_with_its_reason(given: str, message: str) -> None:
    environment: dict[str, Any] = {"WONDER_ISSUERS": given}
    with pytest.raises(SettingsError, match=message):
        load({}, environment)
