"""Client method that sends a message and streams its turn."""

from __future__ import annotations

import uuid
from collections.abc import Collection, Sequence
from typing import TypedDict, Unpack

from wonder_sdk._proto import stubs
from wonder_sdk._proto.wonder import v1
from wonder_sdk.conversation.event_cursor import DeltaKind, EventCursor
from wonder_sdk.conversation.turn_stream import TurnStream
from wonder_sdk.json_types import JsonObject
from wonder_sdk.methods.options import check_options
from wonder_sdk.transport.reconnect import ReconnectPolicy
from wonder_sdk.values import PartLike, content_parts, to_struct


class TurnOptions(TypedDict, total=False):
    """Options of `TurnMethods.stream_turn`."""

    agent: str
    """Id or name of the agent that answers. Default: the one that the conversation chooses."""
    user: str
    """Id of the speaker."""
    parts: Sequence[PartLike]
    """Texts and uploaded files; ``content`` is then a first text part."""
    reply_to: str
    """Id of the message that this is a reply to."""
    metadata: JsonObject
    """Data of the caller's own, stored with the turn."""
    overrides: v1.TurnOverrides
    """Model profile, tool choice and instructions of this turn alone."""
    project: str
    """Project of a new conversation, by id or name."""
    external_ref: str
    """The caller's own name for the conversation: created if the project has none with it."""
    title: str
    """Title of a new conversation."""
    request_id: str
    """Id of the message: a second call with it streams the same turn. Default: a new one."""
    after_sequence: int
    """Sequence of the last event of the turn that was seen. Default: 0."""
    delta_kinds: Collection[DeltaKind]
    """Deltas beside those of text: ``reasoning`` and ``tool_arguments``."""
    cancel_on_disconnect: bool
    """Cancel the turn five seconds after its last reader has left. Default: False."""


class TurnMethods:
    """Method of `Client` for one turn."""

    conversations: stubs.ConversationServiceStub
    _reconnect: ReconnectPolicy
    _user: str

    def stream_turn(
        self,
        content: str = "",
        *,
        conversation: str = "",
        check: bool = True,
        **options: Unpack[TurnOptions],
    ) -> TurnStream:
        """Send a message and stream its turn until it has ended; see `TurnStream`.

        Without a ``conversation``, one is created with the ``agent`` (``assistant`` by default), or the one
        that has the ``external_ref`` is used. A message that is refused creates none. ``check`` raises
        TurnFailedError and TurnCancelledError after a turn that did not complete. Raises RequestError for an
        invalid value.
        """
        check_options(options, TurnOptions, self.stream_turn)
        parts = options.get("parts", ())
        agent = options.get("agent", "") or ("" if conversation else "assistant")
        request_id = options.get("request_id", "") or uuid.uuid4().hex
        send = v1.ConverseSend(
            content="" if parts else content,
            parts=content_parts([*([content] if content else []), *parts] if parts else []),
            agent_id=agent,
            user_id=options.get("user", "") or ("" if conversation else self._user),
            reply_to_message_id=options.get("reply_to", ""),
            metadata=to_struct(options.get("metadata") or None, "metadata"),
            overrides=options.get("overrides"),
            request_id=request_id,
        )
        cursor = EventCursor(
            options.get("after_sequence", 0), delta_kinds=options.get("delta_kinds", ()), one_turn=True
        )
        cancels = options.get("cancel_on_disconnect", False)
        request = v1.StreamTurnRequest(
            send=send,
            delta_kinds=cursor.delta_kinds,
            group_events=True,
            on_disconnect=v1.OnDisconnect.CANCEL if cancels else v1.OnDisconnect.CONTINUE,
        )
        if conversation:
            request.conversation_id = conversation
        else:
            request.new_conversation = v1.Conversation(
                title=options.get("title", ""),
                project_id=options.get("project", ""),
                external_ref=options.get("external_ref", ""),
            )
        return TurnStream(self.conversations, request, cursor, self._reconnect, check=check)
