"""What ``llm`` actions spend in a turn's name, told to its conversation (features B4, B10, C6)."""

from __future__ import annotations

from wonder_server.actors.loop import Loop
from wonder_server.core.commands import Scope
from wonder_server.core.conversation.inputs import ModelAsked
from wonder_server.core.model import Usage


class Bills:
    """Given to the executor; `attach` the loop before the first task."""

    def __init__(self) -> None:
        self._loop: Loop | None = None

    def attach(self, loop: Loop) -> None:
        self._loop = loop

    def __call__(self, scope: Scope, usage: Usage) -> None:
        """An action in this scope has asked a model."""
        if self._loop is None or not (scope.turn_id and scope.conversation_id):
            return
        run_id = scope.root_id or scope.run_id
        asked = ModelAsked(turn_id=scope.turn_id, run_id=run_id, usage=usage, metered=True)
        self._loop.tell(scope.conversation_id, asked)
