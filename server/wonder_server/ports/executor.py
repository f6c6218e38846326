"""Execution of tasks and memory operations, as actors use it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from wonder_server.core.actor.commands import Scope
from wonder_server.core.definitions.specs import PinnedTask
from wonder_server.core.errors import Fault
from wonder_server.core.json_types import JsonDict, JsonObject


class TaskOutcome(Protocol):
    """The result of a task: exactly one of the two is set."""

    @property
    def output(self) -> JsonDict | None: ...

    @property
    def fault(self) -> Fault | None: ...


class TaskExecutor(Protocol):
    """Executes tasks."""

    async def execute(
        self,
        task: PinnedTask,
        input: JsonObject,
        context: Scope,
        on_progress: Callable[[Any], None] | None,
        on_event: Callable[[str, str, JsonObject], None] | None,
        /,
    ) -> TaskOutcome:
        """Execute the task to its end.

        ``on_progress`` receives the progress of its steps; ``on_event`` key, name and payload of each event
        that it emits.
        """
        ...

    def execute_inline(self, task: PinnedTask, input: JsonObject, context: Scope, /) -> TaskOutcome | None:
        """Execute the task now if it waits for nothing; return None if it needs `execute`."""
        ...


class MemoryOperations(Protocol):
    """Applies the memory operations that an extraction returned as data."""

    async def apply(self, operation: JsonObject, scope: Scope) -> JsonDict:
        """Apply one operation and return its result."""
        ...
