"""Keys of requests: what stores keep, so that requests of earlier builds are found again."""

from __future__ import annotations

import pytest

from wonder_server.core.actor.commands import Scope
from wonder_server.core.errors import Reason, WonderError
from wonder_server.core.frozen import stored_text
from wonder_server.core.idempotency import (
    CompletedRequest,
    IdempotencyKey,
    Origin,
    check_replay,
    content_key,
    message_key,
)
from wonder_server.core.identity import ANONYMOUS, SERVER, Principal, PrincipalKind


def token(name: str) -> Principal:
    return Principal(kind=PrincipalKind.TOKEN, subject=name)


@pytest.mark.parametrize(
    ("principal", "id", "qualified_id"),
    [
        (ANONYMOUS, "r/1", "/r/1"),
        (SERVER, "r/1", "/r/1"),
        (token("ann"), "ann/r/1", "ann/r/1"),
        (token("a/b"), "a\nb/r/1", "a\nb/r/1"),
    ],
)
def test_the_stored_id_begins_with_the_caller(principal: Principal, id: str, qualified_id: str) -> None:
    for key in (message_key(Origin(principal, "r/1", "f")), content_key("runs", Origin(principal, "r/1"))):
        assert key is not None
        assert (key.id, key.qualified_id) == (id, qualified_id)


def test_a_request_without_an_id_has_no_key() -> None:
    assert message_key(Origin(ANONYMOUS)) is None
    assert content_key("runs", Origin(ANONYMOUS), input="x") is None


def test_the_fingerprint_of_a_content_stays_the_same() -> None:
    """The hash was computed by the build before principals."""
    key = content_key("runs", Origin(token("ann"), "r"), workflow="w", input={"b": 1, "a": None})
    assert key == IdempotencyKey("ann", "r", "bf1a608cb763f4e07972a80150b35158", "runs")


def test_the_text_of_a_scope_omits_fields_that_were_added_later() -> None:
    scope = Scope(project_id="p", principal="token:ann")
    assert stored_text("Scope", scope, without=("principal", "user_id", "cost_limited", "levels")) == (
        "Scope(project_id='p', agent_id='', conversation_id='', turn_id='', move_id='', run_id='', key='', "
        "depth=0, budget=None, max_depth=5, callers=(), root_id='', trace_id='', branch='')"
    )


def test_an_earlier_answer_is_repeated_only_for_the_same_content() -> None:
    key = IdempotencyKey("ann", "r", "f")
    assert check_replay(None, key) is None
    assert check_replay(CompletedRequest("f", {"id": "1"}), key) == {"id": "1"}
    with pytest.raises(WonderError) as problem:
        check_replay(CompletedRequest("g", {}), key)
    assert problem.value.fault.reason is Reason.REQUEST_ID_REUSED
    assert "ann" not in problem.value.fault.message
