"""Settings of a persona for conversations that exceed the model's context."""

from __future__ import annotations

import pytest

from wonder_server.core.definitions.check import check_spec
from wonder_server.core.definitions.index import DefinitionIndex, IndexResolver
from wonder_server.core.definitions.parse import parse_spec, to_json
from wonder_server.core.definitions.specs import ContextWindow, Kind, Persona, WindowStrategy
from wonder_server.core.errors import WonderError


def persona(**window: object) -> Persona:
    spec = parse_spec(Kind.PERSONA, {"system_prompt": "x", "context_window": window})
    assert isinstance(spec, Persona)
    return spec


def test_a_window_is_read_and_written() -> None:
    faults = persona(strategy="summarize", threshold=1, keep_recent_messages=3)
    window = ContextWindow(strategy=WindowStrategy.SUMMARIZE, threshold=1.0, keep_recent_messages=3)
    assert faults.context_window == window
    assert to_json(faults)["context_window"] == {
        "strategy": "summarize", "threshold": 1.0, "keep_recent_messages": 3,
    }  # fmt: skip
    assert persona().context_window == ContextWindow()


@pytest.mark.parametrize(
    "window",
    [
        {"strategy": "forget"},
        {"threshold": "much"},
        {"threshold": True},
        {"threshold": float("nan")},
        {"kept": 1},
    ],
)
def test_a_window_of_the_wrong_type_is_refused_when_read(window: dict[str, object]) -> None:
    with pytest.raises(WonderError) as refused:
        persona(**window)
    assert f"context_window.{next(iter(window))}" in refused.value.fault.field


@pytest.mark.parametrize(
    "window", [{"threshold": 0}, {"threshold": 1.01}, {"threshold": -1}, {"keep_recent_messages": -1}]
)
def test_an_invalid_window_is_refused_when_checked(window: dict[str, object]) -> None:
    faults = check_spec(persona(**window), "", IndexResolver(DefinitionIndex(), {}))
    assert f"context_window.{next(iter(window))}" in [fault.field for fault in faults]
