"""Lookups of conversations, turns and messages."""

from __future__ import annotations

from wonder_server.actors.access import ActorAccess
from wonder_server.core import ids
from wonder_server.core.conversation.model.values import Conversation, Message, Turn, TurnStatus
from wonder_server.core.conversation.planning.start_turn import MAX_ACTIVE_TURNS
from wonder_server.core.errors import Reason, WonderError, error
from wonder_server.core.idempotency import Request, check_replay
from wonder_server.ports.records import Query


class ConversationLookup:
    """Reads conversations. It restores nothing from the archive."""

    def __init__(self, access: ActorAccess) -> None:
        self.records = access.records
        self._journals = access.journals

    def may_exist(self, conversation_id: str) -> bool:
        """Return True if this is the id of a conversation in one of these shards."""
        return ids.is_id("conv", conversation_id) and self._journals.holds(conversation_id)

    async def get(self, conversation_id: str) -> Conversation:
        """Return the conversation, which may be archived. Errors: CONVERSATION_NOT_FOUND."""
        found: Conversation | None = None
        if ids.is_id("conv", conversation_id):
            found = await self.records.get("conversations", conversation_id, conversation_id)
        if found is None or found.deleted_ms:
            raise conversation_not_found(conversation_id)
        return found

    async def created_by(self, asked: Request) -> Conversation | None:
        """Return the conversation that a request created before, or None. Errors: REQUEST_ID_REUSED."""
        shard = ids.spread(asked.id, self._journals.count)
        journal = self._journals.of(ids.in_shard("conv_0", shard))
        answer = check_replay(await journal.completed_request(asked.scope, asked.id), asked)
        return None if answer is None else await self.get(answer["conversation_id"])

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
            raise error(
                Reason.MESSAGE_NOT_FOUND,
                f"Message {message_id[:64]!r} does not exist in this conversation.",
                field=field,
                id=message_id[:64],
            )
        message: Message = found
        return message


def conversation_not_found(conversation_id: str) -> WonderError:
    return error(
        Reason.CONVERSATION_NOT_FOUND,
        f"Conversation {conversation_id[:64]!r} does not exist or was deleted.",
        field="conversation_id",
        id=conversation_id[:64],
    )


def turn_not_found(turn_id: str, conversation_id: str = "", field: str = "turn_id") -> WonderError:
    """Build TURN_NOT_FOUND. Without its conversation, the turn of an archived one cannot be found."""
    if conversation_id:
        message = f"Turn {turn_id[:64]!r} does not exist in this conversation."
    elif ids.is_id("turn", turn_id):
        message = (
            f"Turn {turn_id} does not exist, or its conversation is archived. "
            "Set conversation_id too, which restores an archived conversation."
        )
    else:
        message = f"{turn_id[:64]!r} is not the id of a turn."
    return error(Reason.TURN_NOT_FOUND, message, field=field, id=turn_id[:64])
