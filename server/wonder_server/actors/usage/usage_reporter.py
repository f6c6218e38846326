"""Usage of ``llm`` actions, reported to the conversation of their turn or to their root run.

Features B4, B10, C6 and M8.

A call counts before it is made: its start is on disk before the provider receives the request. A call in
progress when the server is killed is therefore counted. `report_usage` reports its cost.
"""

from __future__ import annotations

import asyncio

from wonder_server.actors.directory import Directory
from wonder_server.core import ids
from wonder_server.core.actor.commands import Scope
from wonder_server.core.conversation.model.inputs import ModelUsageReported
from wonder_server.core.coordinator.model.inputs import RunUsageReported
from wonder_server.core.model import NO_USAGE, Usage


class UsageReporter:
    """Reports the model calls of actions to the conversations of their turns, and outside of turns to the
    root runs."""

    def __init__(self, directory: Directory) -> None:
        self._directory = directory

    async def report_start(self, scope: Scope) -> None:
        """Count a model call that an action in this scope is about to make. Return when the count is on
        disk.

        Raises STORAGE_UNAVAILABLE or SERVER_DRAINING: nothing is counted, and the action must not call the
        model.
        """
        charged = _charged_actor(scope)
        if not charged:
            return
        try:
            await self._directory.ask(charged, _usage_input(scope, Usage(), calls=1))
        except asyncio.CancelledError:
            # The call is counted already, or will be. The model was not called.
            self.report_usage(scope, NO_USAGE)
            raise

    def report_usage(self, scope: Scope, usage: Usage) -> None:
        """Report the final usage of a model call in this scope."""
        charged = _charged_actor(scope)
        if charged:
            self._directory.tell(charged, _usage_input(scope, usage, calls=0, settles=True))


def _charged_actor(scope: Scope) -> str:
    """Return the conversation or root run that records the usage of calls in this scope; "" without one."""
    return scope.conversation_id if _belongs_to_turn(scope) else scope.root_id or scope.run_id


def _belongs_to_turn(scope: Scope) -> bool:
    return bool(scope.turn_id and scope.conversation_id)


def _usage_input(
    scope: Scope, usage: Usage, *, calls: int, settles: bool = False
) -> ModelUsageReported | RunUsageReported:
    run_id = scope.root_id or scope.run_id
    if not _belongs_to_turn(scope):
        accounts = tuple(each for each in (scope.project_id, scope.agent_id) if each)
        charge_id = ids.random_hex(16)
        return RunUsageReported(
            charge_id=charge_id, usage=usage, calls=calls, settles=settles, accounts=accounts
        )
    return ModelUsageReported(
        turn_id=scope.turn_id,
        run_id=run_id,
        usage=usage,
        calls=calls,
        metered=True,
        settles=settles,
        account=run_id,
    )
