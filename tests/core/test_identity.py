"""Tests of principals: their text in records, and what separates callers."""

from __future__ import annotations

import pytest

from wonder_server.core.access.permissions import ALL
from wonder_server.core.identity import (
    ANONYMOUS,
    SERVER,
    Principal,
    PrincipalKind,
    recorded_principal,
    server_part,
)

TOKEN = PrincipalKind.TOKEN


@pytest.mark.parametrize(
    ("principal", "text"),
    [
        (ANONYMOUS, "anonymous"),
        (SERVER, "server"),
        (server_part("retention"), "server:retention"),
        (Principal(kind=TOKEN, subject="ann"), "token:ann"),
        (Principal(kind=TOKEN, subject="a:b/c server"), "token:a:b/c server"),
        (Principal(kind=TOKEN, subject="ann", tenant="acme"), "acme/token:ann"),
    ],
)
def test_a_record_names_tenant_kind_and_subject(principal: Principal, text: str) -> None:
    assert principal.text == text
    found = recorded_principal(text)
    assert found is not None
    assert (found.tenant, found.kind, found.subject) == (principal.tenant, principal.kind, principal.subject)
    assert found.permissions == frozenset()


@pytest.mark.parametrize("text", ["", "robot:r2", "token/ann", ":ann"])
def test_an_unknown_principal_is_none(text: str) -> None:
    assert recorded_principal(text) is None


def test_only_tokens_have_a_caller() -> None:
    callers = [each.caller for each in (ANONYMOUS, SERVER, server_part("retention"))]
    assert callers == ["", "", ""]
    assert Principal(kind=TOKEN, subject="ann").caller == "ann"


def test_permissions_are_in_no_text() -> None:
    principal = Principal(kind=TOKEN, subject="ann", permissions=ALL)
    for text in (principal.text, repr(principal), str(principal)):
        assert "conversations" not in text
