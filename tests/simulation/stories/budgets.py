"""A story of budgets: send messages until the budget of the agent or of the conversation is exhausted."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from tests.actors.kit import origin
from tests.simulation.clients import Client
from tests.simulation.definitions import MAX_TOKENS
from tests.simulation.node import Node
from tests.simulation.oracle import require
from tests.simulation.stories.conversations import end_of
from tests.simulation.stories.story import Task, draft
from wonder_server.actors.conversation.conversations import SendRequest
from wonder_server.core.budget import NO_BUDGET, Budget
from wonder_server.core.errors import Reason

MESSAGES: Final = 6
"""Messages of a client. Two or three of them exhaust the budget."""


@dataclass
class Spender:
    """A client that sends more than a budget allows. ``limits`` is "agent" or "conversation"."""

    client: Client
    limits: str
    needs_workers = False

    def results(self) -> Iterator[tuple[Task, object]]:
        """Yield nothing: the ledger checks what was spent."""
        yield from ()

    async def __call__(self) -> None:
        client, name = self.client, self.client.name
        agent = "thrifty" if self.limits == "agent" else "colleague"
        budget = NO_BUDGET if self.limits == "agent" else Budget(max_tokens=MAX_TOKENS)
        conversation_id = await client.create(draft(agent, budget=budget), f"{name}/create")
        reader = client.read_conversation(conversation_id)
        for number in range(MESSAGES):
            marker = f"{name}-{number}"
            message = SendRequest(content=f"say 9 words ({marker})", origin=origin(marker), metadata={})

            async def send(node: Node, message: SendRequest = message) -> str:
                return (await node.conversations.send(conversation_id, message)).turn_id

            turn_id = await client.once(marker, send)
            if isinstance(turn_id, Reason):
                require(turn_id is Reason.BUDGET_EXHAUSTED, f"{marker} was refused: {turn_id}")
                return
            client.ledger.turns[marker] = conversation_id, turn_id
            await reader.until(lambda turn_id=turn_id: end_of(reader, turn_id))  # type: ignore[misc]
