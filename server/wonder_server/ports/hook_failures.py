"""Port: the hooks of an agent that fail in a row."""

from __future__ import annotations

from enum import StrEnum
from typing import Protocol

from wonder_server.core.errors import Fault
from wonder_server.core.frozen import Value


class Hook(StrEnum):
    """The hooks of a turn."""

    ASSEMBLY = "context_assembly"
    EXTRACTION = "memory_extraction"
    SUMMARY = "summarization"


class HookFailure(Value, frozen=True, kw_only=True):
    """Failures in a row of one hook of one agent.

    ``count`` is their number since the last success or the start of the server, ``first_ms`` and ``last_ms``
    are the times of the first and the last. The other fields are those of the last failure; ``workflow`` is
    its pin.
    """

    hook: Hook
    workflow: str
    conversation_id: str
    turn_id: str
    run_id: str
    fault: Fault
    count: int = 1
    first_ms: int = 0
    last_ms: int = 0


class FailedHooks(Protocol):
    """The counts of this process."""

    def of_agent(self, agent_id: str) -> list[HookFailure]:
        """Return the hooks of the agent that failed the last time they ran."""
        ...
