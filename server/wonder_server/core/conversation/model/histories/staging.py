"""Inputs and decisions that give a new conversation a history.

The conversation is created with ``origin.staged_ms``, receives its history in parts, and is published last.
"""

from __future__ import annotations

from wonder_server.core.conversation.model.values import Conversation, Message, Move, Turn
from wonder_server.core.frozen import Value


class HistoryTurn(Value, frozen=True, kw_only=True):
    """A turn of a history with its messages and its moves, in their order. The turn has ended."""

    turn: Turn
    messages: tuple[Message, ...]
    moves: tuple[Move, ...] = ()


class AddHistory(Value, frozen=True, kw_only=True):
    """Append turns to the history of a staged conversation."""

    turns: tuple[HistoryTurn, ...]


class Discard(Value, frozen=True, kw_only=True):
    """Remove a staged conversation. A published one stays as it is."""


class KeepHistory(Value, frozen=True, kw_only=True):
    """Append turns to the history."""

    conversation: Conversation
    turns: tuple[HistoryTurn, ...]


class PublishConversation(Value, frozen=True, kw_only=True):
    """Make the conversation visible, since its history is complete."""

    conversation: Conversation
