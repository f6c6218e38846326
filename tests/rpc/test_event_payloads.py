"""Whatever a conversation's record may hold, the contract has a payload for, and the other way round."""

from __future__ import annotations

from wonder.v1 import event_pb2
from wonder_server.core.conversation.planner import CONVERSATION
from wonder_server.rpc import conversation_codec as codec


def test_every_payload_of_the_contract_is_spoken() -> None:
    payloads = {field.name for field in event_pb2.Event.DESCRIPTOR.oneofs_by_name["payload"].fields}
    assert payloads == CONVERSATION.event_types.keys()
    assert payloads == codec._PAYLOADS.keys()
