"""A story of services that call an agent, alone or in a conversation, and wait for its answer."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from tests.actors.kit import origin
from tests.simulation.clients import Client
from tests.simulation.node import Node
from tests.simulation.oracle import require
from tests.simulation.stories.story import Task, draft
from wonder_server.actors.conversation.call_agent import AgentCallRequest
from wonder_server.core.conversation.model.values import Caller as CallerRecord
from wonder_server.core.conversation.model.values import TurnStatus
from wonder_server.core.errors import Reason

MODES: Final = ("delegate", "loop_in")


@dataclass
class CallingService:
    """A service that calls an agent, and repeats the call with its request id."""

    client: Client
    mode: str
    """One of `MODES`."""
    needs_workers = False
    _result: tuple[str, str] = ("", "")

    def results(self) -> Iterator[tuple[Task, object]]:
        """Yield the status and the output of the turn."""
        yield Task("", (self.mode,)), self._result

    async def __call__(self) -> None:
        client, marker = self.client, f"{self.client.name}-called"
        conversation_id = ""
        if self.mode == "loop_in":
            conversation_id = await client.create(draft("host"), f"{client.name}/create")
        call = AgentCallRequest(
            agent="colleague",
            input=f"say 4 words ({marker})",
            caller=CallerRecord(type="service"),
            origin=origin(marker),
            conversation_id=conversation_id,
        )

        async def ask(node: Node) -> tuple[str, str, str, str]:
            turn = await node.calls.call(call)
            return turn.conversation_id, turn.id, turn.status.value, str(turn.output)

        answer = await client.once(marker, ask)
        require(not isinstance(answer, Reason), f"{marker} was refused: {answer}")
        called_in, turn_id, status, output = answer
        require(called_in == conversation_id or not conversation_id, f"{marker} was answered in {called_in}")
        require(status in (TurnStatus.COMPLETED.value, TurnStatus.FAILED.value), f"{marker} is {status}")
        client.ledger.turns[marker] = called_in, turn_id
        self._result = status, output.replace(marker, "MARKER")
