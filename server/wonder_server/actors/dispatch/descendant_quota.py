"""A limit on child runs and called agents in progress below each root run.

Limits of a single run do not bound a tree of nested workflows: ten branches at each of thirty levels would
start 10^30 runs. So the server counts them per root run, the run that only a client or a turn waits for,
and rejects more than `MAX_DESCENDANTS` at once.

An operation counts from its dispatch until its result is reported to its parent; a turn until it is
cancelled. A cancelled child run counts until it has ended, since its own children are not cancelled before.
After a restart, parents dispatch their operations again, which counts them again. Operations of parents that
stay on disk are counted with `adopt`.
"""

from __future__ import annotations

from wonder_server.core.actor.commands import CallAgent, RunWorkflow
from wonder_server.core.errors import Fault, Reason

MAX_DESCENDANTS = 10_000
"""Maximum number of operations in progress below one root run that other runs or agents execute."""


class DescendantQuota:
    """Operations in progress, by root run."""

    def __init__(self) -> None:
        self._roots: dict[str, str] = {}
        """Operation id -> the root run's id."""
        self._counts: dict[str, int] = {}
        """Number of operations in progress, by root run id."""
        self._exhausted_roots: set[str] = set()
        """Roots that exceeded the limit. No operation starts below them until all have ended: failures free
        quota, and otherwise the tree would grow faster than it is cancelled."""

    def count(self, root_id: str) -> int:
        """Return the number of operations in progress below this run."""
        return self._counts.get(root_id, 0)

    def acquire(self, root_id: str, operation_id: str) -> Fault | None:
        """Count an operation, at most once. Return the fault to fail it with if the limit is reached."""
        if operation_id in self._roots:
            return None
        active = self._counts.get(root_id, 0)
        if active >= MAX_DESCENDANTS or root_id in self._exhausted_roots:
            self._exhausted_roots.add(root_id)
            message = (
                f"{MAX_DESCENDANTS} runs and agents are in progress below run {root_id}, the maximum. "
                "Run fewer branches at a time (max_concurrency), or nest fewer workflows."
            )
            return Fault(
                reason=Reason.LIMIT_EXCEEDED,
                message=message,
                metadata={"limit": str(MAX_DESCENDANTS), "root_run_id": root_id},
            )
        self._roots[operation_id] = root_id
        self._counts[root_id] = active + 1
        return None

    def adopt(self, root_id: str, operation_id: str) -> None:
        """Count an operation that was acquired before a restart, also above the limit."""
        if operation_id not in self._roots:
            self._roots[operation_id] = root_id
            self._counts[root_id] = self._counts.get(root_id, 0) + 1

    def is_counted(self, operation_id: str) -> bool:
        """Return True if the operation is counted below a root run."""
        return operation_id in self._roots

    def release(self, operation_id: str) -> None:
        """Stop counting an operation that has ended. Ignore one that is not counted."""
        root_id = self._roots.pop(operation_id, None)
        if root_id is None:
            return
        active = self._counts[root_id] - 1
        if active:
            self._counts[root_id] = active
        else:
            del self._counts[root_id]
            self._exhausted_roots.discard(root_id)


def root_of(command: RunWorkflow | CallAgent) -> str:
    """Return the root run id that a command counts below, "" for a turn that a client started."""
    if command.scope.root_id:
        return command.scope.root_id
    return command.parent.actor_id if command.parent.actor_id.startswith("run_") else ""
