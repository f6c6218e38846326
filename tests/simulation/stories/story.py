"""The parts that all stories share."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Protocol

from tests.simulation.definitions import definitions
from wonder_server.core.conversation.model.values import Conversation, Participant


@dataclass(frozen=True)
class Task:
    """A piece of work whose result does not depend on faults: texts to an agent, or a workflow."""

    agent: str
    """The name of an agent, "" for a workflow."""
    texts: tuple[str, ...]
    """The texts, of which the last is compared, or the name of the workflow."""


class Story(Protocol):
    """The actions of one client."""

    needs_workers: bool
    """True if the story ends only with remote workers."""

    async def __call__(self) -> None:
        """Play the story to its end."""
        ...

    def results(self) -> Iterator[tuple[Task, object]]:
        """Yield each piece of work with its result, after the end."""
        ...


def draft(agent: str, **fields: Any) -> Conversation:
    """Return a conversation to create, with one agent."""
    person = Participant(type="agent", id=definitions().agents[agent].agent_id)
    return Conversation(id="", project_id="proj_1", participants=(person,), **fields)
