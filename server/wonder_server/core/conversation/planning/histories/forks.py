"""Copies of turns for a fork.

A copy has its source's contents, times and ordinals, so that agents read the same history. Its ids are
derived from those of the source: the same time and another random part. It has no usage, and no work.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

from wonder_server.core import ids
from wonder_server.core.conversation.model.histories.staging import HistoryTurn
from wonder_server.core.conversation.model.values import (
    Conversation,
    Invocation,
    Message,
    Move,
    Role,
    Turn,
    TurnStatus,
)
from wonder_server.core.frozen import replace
from wonder_server.core.model import Usage


@dataclass(frozen=True, slots=True)
class Fork:
    """A fork of a conversation with the messages up to the ordinal ``through``. ``seed`` decides the ids."""

    conversation_id: str
    through: int
    seed: str

    def copied_id(self, identifier: str) -> str:
        """Return the id of the copy of a turn, message or move; "" for ""."""
        if not identifier:
            return ""
        prefix, _, ulid = identifier.partition("_")
        digest = hashlib.blake2b(f"{self.seed}/{identifier}".encode(), digest_size=10).digest()
        if not ids.is_id(prefix, identifier):
            return ids.Minter(f"{self.seed}/{identifier}", 0).new(prefix or "id")
        return f"{prefix}_{ulid[:10]}{ids.random_part(int.from_bytes(digest, 'big'))}"

    def copy(self, turn: Turn, messages: Sequence[Message], moves: Sequence[Move]) -> HistoryTurn | None:
        """Return the copy of a turn; None if the fork has none of its messages."""
        kept = [message for message in messages if message.ordinal <= self.through]
        if not kept:
            return None
        has_ended = turn.status not in (TurnStatus.ACTIVE, TurnStatus.QUEUED)
        whole = has_ended and len(kept) == len(messages)
        if not whole:
            said = {message.id for message in kept if message.role is Role.AGENT}
            last = max([move.sequence for move in moves if move.message_id in said], default=0)
            moves = [move for move in moves if move.sequence <= last]
        if not any(move.invocations for move in moves):
            moves = ()
        copied = self._turn(turn, kept, len(moves), whole=whole)
        return HistoryTurn(
            turn=copied,
            messages=tuple([self._message(message) for message in kept]),
            moves=tuple([self._move(move) for move in moves]),
        )

    def _turn(self, turn: Turn, kept: Sequence[Message], moves: int, *, whole: bool) -> Turn:
        copied = Turn(
            id=self.copied_id(turn.id),
            conversation_id=self.conversation_id,
            ordinal=turn.ordinal,
            caller=turn.caller,
            agent_id=turn.agent_id,
            agent_name=turn.agent_name,
            persona=turn.persona,
            input=turn.input,
            reply_to_message_id=self.copied_id(turn.reply_to_message_id),
            status=turn.status,
            fault=turn.fault,
            tool_failures=turn.tool_failures,
            metadata=turn.metadata,
            moves=moves,
            created_ms=turn.created_ms,
            completed_ms=turn.completed_ms,
            depth=turn.depth,
            call_chain=turn.call_chain,
            output=turn.output,
            trace_id=turn.trace_id,
            principal=turn.principal,
            cancelled_by=turn.cancelled_by,
            quote=turn.quote,
            history_start=turn.history_start,
            started_ms=turn.started_ms,
            history_end=turn.history_end,
        )
        if whole:
            return copied
        cut = replace(
            copied,
            status=TurnStatus.COMPLETED,
            fault=None,
            output=None,
            cancelled_by="",
            completed_ms=kept[-1].created_ms,
        )
        if any(message.role is Role.AGENT for message in kept):
            return cut
        # No agent has answered yet: the record of a message without a turn.
        return replace(cut, agent_id="", agent_name="", persona="", history_end=0)

    def _message(self, message: Message) -> Message:
        return replace(
            message,
            id=self.copied_id(message.id),
            conversation_id=self.conversation_id,
            turn_id=self.copied_id(message.turn_id),
            reply_to_message_id=self.copied_id(message.reply_to_message_id),
            # The uncut text of a message is in the journal of its source.
            whole_bytes=0,
        )

    def _move(self, move: Move) -> Move:
        return replace(
            move,
            id=self.copied_id(move.id),
            conversation_id=self.conversation_id,
            turn_id=self.copied_id(move.turn_id),
            message_id=self.copied_id(move.message_id),
            invocations=tuple([_without_gate(entry) for entry in move.invocations]),
            reported=tuple([_without_gate(entry) for entry in move.reported]),
            raw={},
            usage=Usage(cost_micros=0),
        )


def _without_gate(entry: Invocation) -> Invocation:
    return replace(entry, gate_id="") if entry.gate_id else entry


def with_context(fork: Conversation, source: Conversation, through: int, last_turn: int) -> Conversation:
    """Return the fork with what agents know of the source beside its messages: its last reset and its
    summary, as far as they belong to the copied messages.

    ``last_turn`` is the ordinal of the last copied turn. A fork that ends before a reset is as the source was
    then.
    """
    summary = source.summary
    if summary is not None and summary.last_ordinal <= through:
        fork = replace(fork, summary=summary)
    if source.reset_ordinal and (last_turn > source.reset_ordinal or through >= source.message_count):
        fork = replace(
            fork,
            reset_ordinal=source.reset_ordinal,
            reset_messages=source.reset_messages,
            prompts=source.prompts,
        )
    return fork
