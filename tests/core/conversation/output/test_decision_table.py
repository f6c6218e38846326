"""Tests of the table of a conversation's decisions."""

from __future__ import annotations

from typing import get_args

from wonder_server.core.conversation.model.decisions import Decision
from wonder_server.core.conversation.output.decision_table import HANDLERS


def test_each_decision_class_has_one_row() -> None:
    assert set(HANDLERS) == set(get_args(Decision))
