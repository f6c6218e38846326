"""What ``llm`` actions spend in a turn's name, told to its conversation (features B4, B10, C6).

A call counts before it is made: that it was begun is on disk before its provider hears of it. So a call that
was under way when the server was killed is not lost, and nothing has to find it again. `ended` says what it
cost.
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
        """An action in this scope is about to ask a model; returns when that is on disk.

        Raises STORAGE_UNAVAILABLE, SERVER_DRAINING: nothing is counted then; the model is not to be asked.
        """
        if not _belongs_to_turn(scope):
            return
        try:
            await self._directory.ask(scope.conversation_id, _usage_input(scope, Usage(), calls=1))
        except asyncio.CancelledError:
            # It counts already, or will. The model was not asked.
            self.report_usage(scope, NO_USAGE)
            raise

    def report_usage(self, scope: Scope, usage: Usage) -> None:
        """The model that was asked in this scope has used this, and will use no more."""
        if _belongs_to_turn(scope):
            self._directory.tell(scope.conversation_id, _usage_input(scope, usage, calls=0, settles=True))


def _belongs_to_turn(scope: Scope) -> bool:
    return bool(scope.turn_id and scope.conversation_id)


def _usage_input(scope: Scope, usage: Usage, *, calls: int, settles: bool = False) -> ModelUsageReported:
    run_id = scope.root_id or scope.run_id
    return ModelUsageReported(
        turn_id=scope.turn_id, run_id=run_id, usage=usage, calls=calls, metered=True, settles=settles
    )
