"""How many child runs and agents' turns are under way below each root run.

A workflow whose nodes are workflows may lead to a number of runs that no single run's limits bound: ten
branches at each of thirty levels are more than there are atoms in a grain of sand. So they are counted by the
run that nobody waits for but a client or a turn, and more than `MAX_DESCENDANTS` at once are refused.

An operation counts from when it is handed out until its result is told to its parent, a turn until it is
stopped. A child run that is stopped still counts until it has ended: its own children are yet to be stopped.
After a restart parents hand their operations out again, which counts them again.
"""

from __future__ import annotations

from wonder_server.core.actor.commands import CallAgent, RunWorkflow
from wonder_server.core.errors import Fault, Reason

MAX_DESCENDANTS = 10_000
"""Operations at once, below one root run, that other runs or agents carry out."""


class DescendantQuota:
    """Operations under way, by root run."""

    def __init__(self) -> None:
        self._roots: dict[str, str] = {}
        """Operation id -> the root run's id."""
        self._counts: dict[str, int] = {}
        """Root run's id -> its operations under way."""
        self._exhausted_roots: set[str] = set()
        """Those below which there were too many. None is begun there until all have ended: what fails for it
        makes room, and a tree would grow on in it faster than it is taken down."""

    def count(self, root_id: str) -> int:
        """How many are under way below this run."""
        return self._counts.get(root_id, 0)

    def acquire(self, root_id: str, operation_id: str) -> Fault | None:
        """Count an operation, which may be counted already; what it fails with if there are too many."""
        if operation_id in self._roots:
            return None
        active = self._counts.get(root_id, 0)
        if active >= MAX_DESCENDANTS or root_id in self._exhausted_roots:
            self._exhausted_roots.add(root_id)
            message = (
                f"{MAX_DESCENDANTS} runs and agents are at work below run {root_id}, which is as many as may "
                "be at once. Let fewer branches run at a time (max_concurrency), or nest fewer workflows."
            )
            return Fault(
                reason=Reason.LIMIT_EXCEEDED,
                message=message,
                metadata={"limit": str(MAX_DESCENDANTS), "root_run_id": root_id},
            )
        self._roots[operation_id] = root_id
        self._counts[root_id] = active + 1
        return None

    def is_counted(self, operation_id: str) -> bool:
        """Whether an operation is under way below some root run."""
        return operation_id in self._roots

    def release(self, operation_id: str) -> None:
        """An operation, any, is over: nobody counts it any more."""
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
    """The id of the root run below which a command is carried out, "" if it is the root's own: a turn of a
    conversation that a client began leads to it."""
    if command.scope.root_id:
        return command.scope.root_id
    return command.parent.actor_id if command.parent.actor_id.startswith("run_") else ""
