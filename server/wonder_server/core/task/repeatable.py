"""Which action kinds may simply be run again after a crash (feature I4).

A kind is repeatable if it has no effect outside, or if its effect is written under an idempotency key,
so that doing it twice is doing it once. What is not listed here is not repeatable: unknown kinds are
never guessed about. A test holds this against what each action declares.
"""

from __future__ import annotations

from wonder_server.core.definitions.specs import PinnedTask

REPEATABLE_KINDS = frozenset({"assert", "context", "llm", "memory.read", "memory.search", "memory.write"})


def is_repeatable(task: PinnedTask) -> bool:
    """Whether every action of the task is repeatable, so that the whole task is."""
    return all(step.action is not None and step.action.kind in REPEATABLE_KINDS for step in task.spec.steps)
