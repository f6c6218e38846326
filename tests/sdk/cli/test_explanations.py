"""Hints beside the errors of the command."""

from __future__ import annotations

import pytest

from wonder_sdk import NotFoundError, v1
from wonder_sdk.cli.shared.connection import explain


@pytest.mark.parametrize(
    ("reason", "hint"),
    [
        (v1.ErrorReason.PROJECT_NOT_FOUND, "`wonder whoami` shows the projects"),
        (v1.ErrorReason.AGENT_NOT_FOUND, "`wonder agent list`"),
    ],
)
def test_a_caller_with_a_token_gets_a_hint_that_roles_hide_projects_and_agents(
    reason: v1.ErrorReason, hint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    problem = NotFoundError("There is none.", reason=reason)
    monkeypatch.delenv("WONDER_TOKEN", raising=False)
    assert hint not in explain(problem, "127.0.0.1:1")
    monkeypatch.setenv("WONDER_TOKEN", "wk_1")
    assert hint in explain(problem, "127.0.0.1:1")
