"""Action kinds and calls of actions (features H3, E5)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

from wonder_server.core.actor.commands import Scope
from wonder_server.core.frozen import Value
from wonder_server.core.json_types import JsonDict, JsonObject, JsonValue
from wonder_server.services.actions.contract.services import Services

ExecutionContext = Scope
"""The agent, project, conversation and run of a task. Its ``key`` is the idempotency key of the task
(operation id and node). An action receives it with its step appended, the same key in every attempt."""


class ProgressCallback(Protocol):
    """Receives the progress of an action. Clients see it; it is not recorded."""

    def __call__(self, message: str = "", fraction: float | None = None, output: str = "") -> None: ...


Emit = Callable[[str, JsonObject], None]
"""Receives the name and payload of an event."""


def _ignore(*_: object, **__: object) -> None:
    """Discard progress or an event."""


class ActionCall(Value, frozen=True, kw_only=True):
    """One call of an action.

    ``input`` is the action's settings merged with the step's input, and is valid for the kind's schema.
    ``timeout_ms`` applies to each attempt. ``repeatable``: the action may be executed again if its outcome is
    unknown; `core.task.effects` has the errors by which other actions report that nothing was started.
    ``idempotent`` is the action definition's own statement; None if it makes none.
    """

    input: Mapping[str, JsonValue]
    context: ExecutionContext
    services: Services
    timeout_ms: int = 30_000
    repeatable: bool = False
    idempotent: bool | None = None
    progress: ProgressCallback = _ignore
    emit: Emit = _ignore


class InlineNotPossibleError(Exception):
    """Raised by ``run_inline`` for a call that must wait. Nothing was executed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ActionKind:
    """Implementation of an atomic operation.

    - ``run`` returns a JSON value or raises `WonderError`. The executor retries transient errors. ``run`` may
      be cancelled at any await.
    - `core.task.repeatable.ACTION_EFFECTS` declares the kind's effect, and with it whether the action is
      repeatable.
    - ``min_backoff_ms``: minimum wait before the first retry.
    - ``enforces_timeout``: the kind enforces its own timeout, so the executor does not apply the action's.
    - ``run_inline`` does the same as ``run`` without waiting and without side effects, so its call has the
      task's key. It raises `InlineNotPossibleError` for calls that must wait. None if every call waits.
    """

    name: str
    description: str
    input_schema: JsonDict
    output_schema: JsonDict
    run: Callable[[ActionCall], Awaitable[JsonValue]]
    min_backoff_ms: int = 0
    enforces_timeout: bool = False
    run_inline: Callable[[ActionCall], JsonValue] | None = None
