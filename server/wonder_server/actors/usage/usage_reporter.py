"""Usage of ``llm`` actions in a turn, reported to its conversation (features B4, B10, C6).

A call counts before it is made: its start is on disk before the provider receives the request. A call in
progress when the server is killed is therefore counted. `report_usage` reports its cost.
"""

from __future__ import annotations

import asyncio

from wonder_server.actors.directory import Directory
from wonder_server.core.actor.commands import Scope
from wonder_server.core.conversation.model.inputs import ModelUsageReported
from wonder_server.core.model import NO_USAGE, Usage


class UsageReporter:
    """Reports the model calls of actions to the conversations of their turns."""

    def __init__(self, directory: Directory) -> None:
        self._directory = directory

    async def report_start(self, scope: Scope) -> None:
        """Count a model call that an action in this scope is about to make. Return when the count is on
        disk.

        Raises STORAGE_UNAVAILABLE or SERVER_DRAINING: nothing is counted, and the action must not call the
        model.
        """
        if not _belongs_to_turn(scope):
            return
        try:
            await self._directory.ask(scope.conversation_id, _usage_input(scope, Usage(), calls=1))
        except asyncio.CancelledError:
            # The call is counted already, or will be. The model was not called.
            self.report_usage(scope, NO_USAGE)
            raise

    def report_usage(self, scope: Scope, usage: Usage) -> None:
        """Report the final usage of a model call in this scope."""
        if _belongs_to_turn(scope):
            self._directory.tell(scope.conversation_id, _usage_input(scope, usage, calls=0, settles=True))


def _belongs_to_turn(scope: Scope) -> bool:
    return bool(scope.turn_id and scope.conversation_id)


def _usage_input(scope: Scope, usage: Usage, *, calls: int, settles: bool = False) -> ModelUsageReported:
    run_id = scope.root_id or scope.run_id
    return ModelUsageReported(
        turn_id=scope.turn_id, run_id=run_id, usage=usage, calls=calls, metered=True, settles=settles
    )
