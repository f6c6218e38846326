"""The directory: reaches an actor by its id."""

from __future__ import annotations

from collections.abc import Coroutine, Iterable

from wonder_server.actors.runtime.actor import Outcome
from wonder_server.actors.runtime.limits import LoopLimits
from wonder_server.actors.runtime.loop import Loop, LoopPorts
from wonder_server.core.actor.planner import Planner
from wonder_server.core.errors import Fault
from wonder_server.core.idempotency import Request
from wonder_server.core.json_types import JsonValue


class Directory:
    """The way to every actor. All actors of this server live in one loop.

    The loop dispatches commands to handlers, and handlers report results to the loop. The directory
    resolves this cycle: handlers are built with the directory, and `start_loop` then builds the loop with
    the handlers. Every other method requires `start_loop`.
    """

    _loop: Loop
    """Set once by `start_loop`."""

    def start_loop(self, planners: Iterable[Planner], ports: LoopPorts, limits: LoopLimits) -> Loop:
        """Build the loop of this server's actors. Call it once."""
        assert not hasattr(self, "_loop"), "the directory has its loop already"
        self._loop = Loop(planners, ports, limits)
        return self._loop

    def ask(
        self, actor_id: str, event: object, request: Request | None = None
    ) -> Coroutine[object, None, Outcome]:
        """Send an input and wait until its effects are on disk. See `Loop.ask`."""
        return self._loop.ask(actor_id, event, request)

    def tell(self, actor_id: str, event: object, *, low_priority: bool = False) -> None:
        """Send an input without waiting. See `Loop.tell`."""
        self._loop.tell(actor_id, event, low_priority=low_priority)

    def report_success(self, actor_id: str, operation_id: str, output: JsonValue) -> None:
        """Report the output of a completed operation to its actor."""
        self._loop.report_success(actor_id, operation_id, output)

    def report_failure(self, actor_id: str, operation_id: str, fault: Fault) -> None:
        """Report the fault of a failed operation to its actor."""
        self._loop.report_failure(actor_id, operation_id, fault)

    def register_new(self, actor_id: str) -> None:
        """Create the actor for a fresh id without reading the store."""
        self._loop.register_new(actor_id)

    def discard_unstarted(self, actor_id: str) -> bool:
        """Remove a new actor that has not planned an input. Return False if it may have started."""
        return self._loop.discard_unstarted(actor_id)

    def flush(self, actor_id: str) -> Coroutine[object, None, None]:
        """Write an actor that is in memory and not on disk. Raises STORAGE_UNAVAILABLE, SERVER_DRAINING."""
        return self._loop.flush(actor_id)

    def peek(self, actor_id: str) -> object | None:
        """Return the state of an actor in memory, or None. The state may be ahead of the disk."""
        return self._loop.peek(actor_id)

    def members_of(self, root: str) -> list[str]:
        """Return the ids of loaded actors whose root is ``root``, without ``root`` itself."""
        return self._loop.members_of(root)

    def evict(self, actor_id: str) -> bool:
        """Remove an actor from memory because its data on disk changed. Return False if the actor is busy."""
        return self._loop.evict(actor_id)
