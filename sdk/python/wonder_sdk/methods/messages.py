"""Client methods for the messages and the decisions of conversations."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Collection
from datetime import datetime
from typing import TypedDict, Unpack

from wonder_sdk._proto import stubs
from wonder_sdk._proto.wonder import v1
from wonder_sdk.json_types import JsonDict
from wonder_sdk.methods.options import check_options
from wonder_sdk.methods.paging import pages
from wonder_sdk.values import to_struct


class MessageFilters(TypedDict, total=False):
    """Filter of a search in messages. An omitted condition matches every message."""

    conversation: str
    """Only messages of this conversation, which is restored if it is archived."""
    agent: str
    """Only messages that this agent, by id or name, has written."""
    user: str
    """Only messages that this user has written. With ``agent`` too: messages of either."""
    project: str
    """Only messages of conversations in this project, by id or name."""
    since: datetime
    """Only messages written at this time or later."""
    until: datetime
    """Only messages written before this time."""


class MessageMethods:
    """Methods of `Client` for messages, and for the record of decisions."""

    conversations: stubs.ConversationServiceStub

    async def post(
        self,
        conversation_id: str,
        content: str,
        *,
        user: str = "",
        reply_to: str = "",
        metadata: JsonDict | None = None,
        request_id: str = "",
    ) -> v1.Message:
        """Append a message without starting a turn, and return it. Later turns see it.

        Raises NotFoundError for an unknown conversation or message.
        """
        response = await self.conversations.send_message(
            v1.SendMessageRequest(
                conversation_id=conversation_id,
                send=v1.ConverseSend(
                    content=content,
                    user_id=user,
                    reply_to_message_id=reply_to,
                    metadata=to_struct(metadata or None, "metadata"),
                    request_id=request_id,
                    start_turn=False,
                ),
            )
        )
        if response.message is None:
            raise ValueError("the server answered without a message")
        return response.message

    async def search_messages(
        self, words: str, *, best_first: bool = False, **filters: Unpack[MessageFilters]
    ) -> AsyncGenerator[v1.MessageMatch, None]:
        """Yield the messages that contain all of the ``words``, newest first or best first, page by page.

        A word matches at the beginning of a word of the message, whatever its case. Without
        ``conversation``, archived conversations are omitted. The server reads messages from the newest on,
        so stop iterating when you have enough. Raises InvalidArgumentError, NotFoundError.
        """
        check_options(filters, MessageFilters, self.search_messages)
        request = v1.SearchMessagesRequest(
            query=words,
            conversation_id=filters.get("conversation", ""),
            agent_id=filters.get("agent", ""),
            user_id=filters.get("user", ""),
            project_id=filters.get("project", ""),
            start_time=filters.get("since"),
            end_time=filters.get("until"),
            order=v1.MessageOrder.BEST if best_first else v1.MessageOrder.NEWEST,
        )
        async for page in pages(self.conversations.search_messages, request):
            for match in page.matches:
                yield match

    async def decisions(
        self, *, conversation: str = "", turn: str = "", types: Collection[str] = ()
    ) -> AsyncGenerator[v1.Decision, None]:
        """Yield the recorded decisions of a conversation, or of one turn, oldest first, page by page.

        ``types`` are those to yield, such as ``CALL_LLM``; all without any. A ``conversation`` is restored if
        it is archived. Raises InvalidArgumentError, NotFoundError.
        """
        request = v1.ListDecisionsRequest(conversation_id=conversation, turn_id=turn, types=list(types))
        async for page in pages(self.conversations.list_decisions, request):
            for decision in page.decisions:
                yield decision
