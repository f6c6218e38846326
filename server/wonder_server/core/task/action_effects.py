"""Effects of action kinds, and whether a task can be executed again (feature I4).

`ACTION_EFFECTS` is the only declaration of a kind's effect; the planners, the executor and the listing of
action kinds read it. An action is repeatable if it has no effect outside the run, or if its effect is written
under an idempotency key. Two rules decide, in this order:

1. the action's ``idempotent``, if its author set it
2. the effect of its kind; for `http` the request's method, if no input can change it

A kind that the table does not list is not repeatable.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Final

from wonder_server.core.definitions.specs import Action, PinnedTask, Step
from wonder_server.core.identity_cache import cache_by_identity


class Effect(Enum):
    """Effect of an action kind outside the run's own record."""

    NONE = "none"
    """No effect: side-effect free, so safe to execute for nothing."""

    KEYED = "keyed"
    """Written once for each idempotency key: repeatable."""

    BY_METHOD = "by_method"
    """Given by the HTTP method: repeatable for `IDEMPOTENT_METHODS`."""

    UNKNOWN = "unknown"
    """Not known to this server: not repeatable."""


ACTION_EFFECTS: Final[Mapping[str, Effect]] = {
    "artifact.history": Effect.NONE,
    "artifact.index": Effect.NONE,
    "artifact.list": Effect.NONE,
    "artifact.merge": Effect.KEYED,
    "artifact.read": Effect.NONE,
    "artifact.search": Effect.NONE,
    "artifact.write": Effect.KEYED,
    "file.write": Effect.KEYED,
    "assert": Effect.NONE,
    "context": Effect.NONE,
    "event": Effect.NONE,
    "history.read": Effect.NONE,
    "history.read_result": Effect.NONE,
    "history.search": Effect.NONE,
    "http": Effect.BY_METHOD,
    "llm": Effect.NONE,
    "mcp": Effect.UNKNOWN,
    "memory.block.append": Effect.KEYED,
    "memory.block.list": Effect.NONE,
    "memory.block.replace": Effect.KEYED,
    "memory.delete": Effect.KEYED,
    "memory.list": Effect.NONE,
    "memory.read": Effect.NONE,
    "memory.search": Effect.NONE,
    "memory.supersede": Effect.KEYED,
    "memory.update": Effect.KEYED,
    "memory.write": Effect.KEYED,
    "repo.commit": Effect.KEYED,
    "repo.diff": Effect.NONE,
    "repo.index": Effect.NONE,
    "repo.merge": Effect.KEYED,
    "repo.read": Effect.NONE,
    "repo.search": Effect.NONE,
    "repo.tree": Effect.NONE,
    "repo.update": Effect.KEYED,
    "repo.write": Effect.KEYED,
    "shell": Effect.UNKNOWN,
    "sleep": Effect.NONE,
    "worker": Effect.UNKNOWN,
}
"""Effect of each action kind. A test compares the keys with the executor's table of kinds."""

IDEMPOTENT_METHODS: Final = frozenset({"GET", "HEAD", "OPTIONS", "PUT", "DELETE"})
"""HTTP methods that RFC 9110 defines as idempotent."""

READ_ONLY_METHODS: Final = frozenset({"GET", "HEAD", "OPTIONS"})
"""HTTP methods that RFC 9110 defines as safe."""

DEFAULT_METHOD: Final = "GET"
"""Method of an `http` request without ``method``."""


def is_kind_repeatable(kind: str) -> bool:
    """Return True if every action of the kind is repeatable, whatever its configuration."""
    return ACTION_EFFECTS.get(kind) in (Effect.NONE, Effect.KEYED)


@cache_by_identity
def is_repeatable(task: PinnedTask) -> bool:
    """Return True if every action of the task can safely be executed again."""
    return all(step.action is not None and may_repeat(step, step.action) for step in task.spec.steps)


@cache_by_identity
def is_side_effect_free(task: PinnedTask) -> bool:
    """Return True if no action of the task has an effect, so that it may be dispatched before its commit."""
    return all(
        step.action is not None and ACTION_EFFECTS.get(step.action.kind) is Effect.NONE
        for step in task.spec.steps
    )


def is_read_only(task: PinnedTask) -> bool:
    """Return True if every action of the task is side-effect free or an HTTP request with a safe method."""
    return all(step.action is not None and _is_read_only(step, step.action) for step in task.spec.steps)


def _is_read_only(step: Step, action: Action) -> bool:
    effect = ACTION_EFFECTS.get(action.kind)
    return effect is Effect.NONE or (
        effect is Effect.BY_METHOD and _fixed_method(step, action) in READ_ONLY_METHODS
    )


def may_repeat(step: Step, action: Action) -> bool:
    """Return True if ``action``, the action of ``step``, can safely be executed again."""
    if action.idempotent is not None:
        return action.idempotent
    if ACTION_EFFECTS.get(action.kind) is Effect.BY_METHOD:
        return _fixed_method(step, action) in IDEMPOTENT_METHODS
    return is_kind_repeatable(action.kind)


def _fixed_method(step: Step, action: Action) -> str:
    """Return the request's HTTP method in capitals; empty if the step's input may replace it."""
    method = action.config.get("method", DEFAULT_METHOD)
    return method.upper() if isinstance(method, str) and "method" not in step.input_mapping else ""
