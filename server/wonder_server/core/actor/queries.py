"""Queries of actors: questions that the owner of an actor's shard answers from its memory.

Unlike an input, a query is not recorded and does not wait for the disk, so its answer can be ahead of the
disk. Queries and answers are values that can be stored, so another node can ask and answer them.
"""

from __future__ import annotations

from typing import TypeAlias

from wonder_server.core.budget import Account
from wonder_server.core.frozen import Value


class ReadConversation(Value, frozen=True, kw_only=True):
    """Ask for the conversation. The answer is a `Conversation`, or None if the actor is not in memory."""


class ReadCalledTurn(Value, frozen=True, kw_only=True):
    """Ask for the turn that an operation of another actor started. The answer is a `Turn` or None."""

    operation_id: str


class ReadSpending(Value, frozen=True, kw_only=True):
    """Ask what a turn and its conversation have used. The answer is a `Spending`, or None if the actor is not
    in memory."""

    turn_id: str


class Spending(Value, frozen=True, kw_only=True):
    """The usage of a turn, None if it has ended, and of its conversation, with the ids of the conversation's
    operations that have not ended."""

    turn: Account | None
    conversation: Account
    operation_ids: tuple[str, ...]


class ListMembers(Value, frozen=True, kw_only=True):
    """Ask for the actors in memory whose root is this actor. The answer is a tuple of their ids."""


class Forget(Value, frozen=True, kw_only=True):
    """Remove the actor from memory, since its data on disk changed. The answer is False if it is busy."""


StateQuery: TypeAlias = ReadConversation | ReadCalledTurn | ReadSpending
"""Questions about the state of an actor, which its planner answers."""

ActorQuery: TypeAlias = StateQuery | ListMembers | Forget
