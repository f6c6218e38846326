"""Client methods for conversations with a history: forks, and transcripts."""

from __future__ import annotations

from typing import TypedDict, Unpack

from wonder_sdk._proto import stubs
from wonder_sdk._proto.wonder import v1
from wonder_sdk.conversation.transcripts import write_transcript
from wonder_sdk.json_types import JsonDict, JsonObject
from wonder_sdk.methods.options import check_options
from wonder_sdk.methods.paging import pages
from wonder_sdk.values import to_struct


class ForkOptions(TypedDict, total=False):
    """Options of `HistoryMethods.fork_conversation`."""

    before: bool
    """The fork ends before the message."""
    send: str
    """Text to send to the fork as it is made. With ``before``: the message, edited."""
    regenerate: bool
    """Ask again: the fork ends before the user's message, which is sent again."""
    title: str
    """Title of the fork. Default: that of the source."""
    external_ref: str
    """The caller's own name for the fork. Default: none."""
    metadata: JsonObject
    """Data of the caller's own. Default: that of the source."""
    request_id: str
    """Id of the request: a second call with it returns the first fork."""


class HistoryMethods:
    """Methods of `Client` for forks and transcripts."""

    conversations: stubs.ConversationServiceStub

    async def fork_conversation(
        self, conversation_id: str, message_id: str = "", **options: Unpack[ForkOptions]
    ) -> v1.ForkConversationResponse:
        """Make a new conversation with the messages of another up to ``message_id`` (default: all).

        The response has the ``conversation``, and the ``turn`` that ``send`` or ``regenerate`` started.
        Raises NotFoundError for an unknown conversation or message.
        """
        check_options(options, ForkOptions, self.fork_conversation)
        request = v1.ForkConversationRequest(
            conversation_id=conversation_id,
            message_id=message_id,
            before=options.get("before", False),
            conversation=v1.Conversation(
                title=options.get("title", ""),
                external_ref=options.get("external_ref", ""),
                metadata=to_struct(options.get("metadata"), "metadata"),
            ),
            request_id=options.get("request_id", ""),
        )
        if "send" in options:
            request.send = v1.ConverseSend(content=options["send"])
        if options.get("regenerate"):
            request.regenerate = True
        return await self.conversations.fork_conversation(request)

    async def export_transcript(self, conversation_id: str) -> list[JsonDict]:
        """Return the messages of a conversation, oldest first, in the form of OpenAI's chat messages.

        `wonder_sdk.read_transcripts` reads them for ``create_conversation(messages=…)``. Raises
        NotFoundError.
        """
        found = await self.conversations.get_conversation(
            v1.GetConversationRequest(conversation_id=conversation_id)
        )
        people = found.conversation.participants if found.conversation is not None else []
        names = {each.agent.agent_id: each.agent.name for each in people if each.agent is not None}
        messages: list[v1.Message] = []
        moves: list[v1.Move] = []
        listed = v1.ListMessagesRequest(conversation_id=conversation_id, oldest_first=True, page_size=500)
        async for page in pages(self.conversations.list_messages, listed):
            messages += page.messages
        calls = v1.ListMovesRequest(conversation_id=conversation_id, oldest_first=True, page_size=100)
        async for moved in pages(self.conversations.list_moves, calls):
            moves += moved.moves
        moves.sort(key=lambda move: move.sequence)
        return write_transcript(messages, moves, names)
