"""Which actions may simply be run again when nobody knows whether they were done (feature I4).

An action is repeatable if it has no effect outside, or if its effect is written under an idempotency
key, so that doing it twice is doing it once. Three words count, the first that is spoken:

    the action's ``idempotent``   its author knows best
    the rule of its kind          an `http` request by its method, if its settings fix it
    the table of kinds            what is not listed is not repeatable: nothing is ever guessed

A test holds the table against what each kind declares.
"""

from __future__ import annotations

from typing import Final

from wonder_server.core.definitions.specs import Action, PinnedTask, Step
from wonder_server.core.identity_cache import cache_by_identity

WRITING_KINDS: Final = frozenset(
    {
        "artifact.merge",
        "artifact.write",
        "memory.delete",
        "memory.supersede",
        "memory.update",
        "memory.write",
        "repo.commit",
        "repo.merge",
        "repo.update",
        "repo.write",
    }
)
"""Those that change something, once however often they run: under a key, or since it is done then."""

SIDE_EFFECT_FREE_KINDS: Final = frozenset(
    {
        "artifact.history",
        "artifact.index",
        "artifact.list",
        "artifact.read",
        "artifact.search",
        "assert",
        "context",
        "event",
        "llm",
        "memory.list",
        "memory.read",
        "memory.search",
        "repo.diff",
        "repo.index",
        "repo.read",
        "repo.search",
        "repo.tree",
        "sleep",
    }
)
"""Those that change nothing outside, not even under a key. An `event` goes into the run's own record."""

REPEATABLE_KINDS: Final = SIDE_EFFECT_FREE_KINDS | WRITING_KINDS

REPEATABLE_METHODS: Final = frozenset({"GET", "HEAD", "OPTIONS", "PUT", "DELETE"})
"""Those that RFC 9110 calls idempotent."""

DEFAULT_METHOD: Final = "GET"
"""Of an `http` request that names none."""


@cache_by_identity
def is_repeatable(task: PinnedTask) -> bool:
    """Whether every action of the task is repeatable, so that the whole task is."""
    return all(step.action is not None and may_repeat(step, step.action) for step in task.spec.steps)


@cache_by_identity
def is_side_effect_free(task: PinnedTask) -> bool:
    """Whether nobody could tell that the task was run, were it not for its result: then it may be run before
    it is on record that it was to be."""
    return all(
        step.action is not None and step.action.kind in SIDE_EFFECT_FREE_KINDS for step in task.spec.steps
    )


def is_read_only(task: PinnedTask) -> bool:
    """Whether no action of the task can change anything outside: those that leave no trace, and requests
    that only read."""
    return all(
        step.action is not None
        and (step.action.kind in SIDE_EFFECT_FREE_KINDS or _is_read_only_action(step, step.action))
        for step in task.spec.steps
    )


def _is_read_only_action(step: Step, action: Action) -> bool:
    method = action.config.get("method", DEFAULT_METHOD)
    fixed = action.kind == "http" and "method" not in step.input_mapping
    return fixed and isinstance(method, str) and method.upper() in ("GET", "HEAD", "OPTIONS")


def may_repeat(step: Step, action: Action) -> bool:
    """Whether ``action``, which is the step's, may be run again."""
    if action.idempotent is not None:
        return action.idempotent
    if action.kind == "http":
        method = action.config.get("method", DEFAULT_METHOD)
        fixed = "method" not in step.input_mapping
        return fixed and isinstance(method, str) and method.upper() in REPEATABLE_METHODS
    return action.kind in REPEATABLE_KINDS
