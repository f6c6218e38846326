"""Lookups of conversations, turns and messages."""

from __future__ import annotations

from wonder_server.actors.access import EntryAccess
from wonder_server.core import ids
from wonder_server.core.conversation.model.status import is_staged
from wonder_server.core.conversation.model.values import Conversation, Message, Turn, TurnStatus
from wonder_server.core.conversation.planning.start_turn import MAX_ACTIVE_TURNS
from wonder_server.core.errors import Reason, WonderError, not_found
from wonder_server.ports.records import Query


class ConversationLookup:
    """Reads conversations. It restores nothing from the archive."""

    def __init__(self, access: EntryAccess) -> None:
        self.records = access.records
        self._journals = access.journals

    def may_exist(self, conversation_id: str) -> bool:
        """Return True if this is the id of a conversation."""
        return ids.is_id("conv", conversation_id) and self._journals.holds(conversation_id)

    async def get(self, conversation_id: str) -> Conversation:
        """Return the conversation, which may be archived. Errors: CONVERSATION_NOT_FOUND."""
        found: Conversation | None = None
        if ids.is_id("conv", conversation_id):
            found = await self.records.get("conversations", conversation_id, conversation_id)
        if found is None or found.deleted_ms or is_staged(found):
            raise conversation_not_found(conversation_id)
        return found

    async def created(self, conversation_id: str) -> Conversation:
        """Return a conversation that an earlier request with the same id created. Errors:
        CONVERSATION_NOT_FOUND if it was deleted."""
        try:
            return await self.get(conversation_id)
        except WonderError as problem:
            if problem.fault.reason is not Reason.CONVERSATION_NOT_FOUND:
                raise
            raise not_found(
                Reason.CONVERSATION_NOT_FOUND,
                conversation_id,
                field="request_id",
                place=": an earlier request with this request_id created it, and it was deleted",
                next_step="Use a new request_id to create another.",
            ) from None

    async def find_by_external_ref(self, project_id: str, external_ref: str) -> Conversation | None:
        """Return the conversation with this external reference, or None."""
        if not external_ref:
            return None
        found = await self.list_by_external_ref(external_ref, project_id)
        return found[0] if found else None

    async def list_by_external_ref(self, external_ref: str, project_id: str | None) -> list[Conversation]:
        """Return up to two conversations with this external reference. ``project_id`` None searches all
        projects."""
        query = Query(
            table="conversations",
            # Filter by field, since an empty parent would not filter.
            fields=() if project_id is None else (("project_id", project_id),),
            alias=external_ref,
            limit=2,
        )
        found: list[Conversation] = await self.records.find(query)
        return found

    async def active_turns(self, conversation_id: str) -> list[str]:
        """Return the ids of the active turns."""
        query = Query(
            table="turns",
            actor=conversation_id,
            statuses=(TurnStatus.ACTIVE.value,),
            by_ordinal=True,
            limit=MAX_ACTIVE_TURNS,
        )
        return [turn.id for turn in await self.records.find(query)]

    async def turn(self, turn_id: str, conversation_id: str = "") -> Turn:
        """Return a turn of the conversation, or, without ``conversation_id``, of any conversation that is
        not archived.

        Errors: TURN_NOT_FOUND.
        """
        found = None
        if ids.is_id("turn", turn_id) and (not conversation_id or ids.is_id("conv", conversation_id)):
            found = await self.records.get("turns", turn_id, conversation_id)
        if found is None:
            raise turn_not_found(turn_id, conversation_id)
        turn: Turn = found
        return turn

    async def message(
        self, message_id: str, conversation_id: str = "", field: str = "reply_to_message_id"
    ) -> Message:
        """Return a message of the conversation. Errors: MESSAGE_NOT_FOUND."""
        found = await self.records.get("messages", message_id, conversation_id)
        if found is None:
            place = " in this conversation" if conversation_id else ""
            raise not_found(Reason.MESSAGE_NOT_FOUND, message_id, field=field, place=place)
        message: Message = found
        return message


def conversation_not_found(conversation_id: str) -> WonderError:
    return not_found(Reason.CONVERSATION_NOT_FOUND, conversation_id, field="conversation_id")


def turn_not_found(turn_id: str, conversation_id: str = "", field: str = "turn_id") -> WonderError:
    """Build TURN_NOT_FOUND. Without its conversation, the turn of an archived one cannot be found."""
    if conversation_id or not ids.is_id("turn", turn_id):
        place = " in this conversation" if conversation_id else ""
        return not_found(Reason.TURN_NOT_FOUND, turn_id, field=field, place=place)
    return not_found(
        Reason.TURN_NOT_FOUND,
        turn_id,
        field=field,
        place=", or its conversation is archived",
        next_step="Set conversation_id too, which restores an archived conversation.",
    )
