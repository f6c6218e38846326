"""Method of the ConversationService for the record of decisions: ListDecisions."""

from __future__ import annotations

import re
from collections.abc import Sequence

from wonder.v1 import conversation_service_pb2 as pb
from wonder_server.actors.conversation.decision_log import Decided, DecisionFilter, Place
from wonder_server.core.conversation.output.decision_lines import TYPES, UPDATE_MEMORY
from wonder_server.core.errors import Reason, error
from wonder_server.core.json_types import JsonValue
from wonder_server.rpc.conversation.parts import ConversationMethods
from wonder_server.rpc.shared.call_context import CallContext
from wonder_server.rpc.shared.pages import encode_page, page_request
from wonder_server.rpc.shared.times import to_timestamp
from wonder_server.services.paging import PageRequest, page_until

_KNOWN = frozenset({*TYPES.values(), UPDATE_MEMORY})
_WORDS = re.compile(r"(?<=[a-z])(?=[A-Z])")


class DecisionMethods(ConversationMethods):
    """Methods of the ConversationServicer; see ``conversation_service.proto``."""

    async def list_decisions(
        self, request: pb.ListDecisionsRequest, _context: CallContext
    ) -> pb.ListDecisionsResponse:
        for index, name in enumerate(request.types):
            if name not in _KNOWN:
                raise error(
                    Reason.FIELD_INVALID,
                    f"types[{index}] is {name[:64]!r}, which is no type of decision."
                    " Use one of docs/events.md, such as CALL_LLM.",
                    field=f"types[{index}]",
                )
        conversation_id = request.conversation_id
        if request.turn_id:
            conversation_id = await self._conversation_of_turn(request)
        if not conversation_id:
            raise error(
                Reason.FIELD_INVALID,
                "The request names nothing to list. Set conversation_id or turn_id.",
                field="conversation_id",
            )
        wanted = page_request(request)
        types = tuple(sorted(set(request.types)))
        scope: list[JsonValue] = ["decisions", conversation_id, request.turn_id, list(types)]
        limit = wanted.limit()
        found, end = await self._conversations.decisions(
            conversation_id, _place(wanted, scope), DecisionFilter(request.turn_id, types), limit
        )
        whole = page_until(
            found, None if end is None else _cursor(end), scope, lambda each: _cursor(each.place)
        )
        decisions, token = await encode_page(whole, _to_proto)
        return pb.ListDecisionsResponse(decisions=decisions, next_page_token=token)

    async def _conversation_of_turn(self, request: pb.ListDecisionsRequest) -> str:
        """Return the conversation of the turn. Raises TURN_NOT_FOUND."""
        conversations = self._conversations
        if not request.conversation_id:
            return (await conversations.lookup.turn(request.turn_id)).conversation_id
        async with conversations.on_disk(request.conversation_id):
            await conversations.open(request.conversation_id)
            await conversations.lookup.turn(request.turn_id, request.conversation_id)
        return request.conversation_id


def _place(wanted: PageRequest, scope: Sequence[JsonValue]) -> Place:
    match wanted.cursor(scope, []):
        case [int(sequence), int(index), dict(writes)]:
            return Place(sequence, index, {key: str(value) for key, value in writes.items()})
        case _:
            return Place()


def _cursor(place: Place) -> JsonValue:
    return [place.sequence, place.index, dict(place.writes)]


def _to_proto(decided: Decided) -> pb.Decision:
    line = decided.line
    return pb.Decision(
        sequence=decided.place.sequence,
        index=decided.place.index,
        type=line.type,
        create_time=to_timestamp(decided.at_ms),
        turn_id=line.turn_id,
        operation_id=line.operation_id,
        cause=_WORDS.sub("_", decided.cause).upper(),
        summary=line.summary,
    )
