"""Payloads of conversation events: each event type of the core has one in the contract, and the reverse."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from wonder.v1 import event_pb2
from wonder_server.core.actor.changes import Emit
from wonder_server.core.conversation.model.values import Caller, HistoryReset, Turn
from wonder_server.core.conversation.planner import CONVERSATION
from wonder_server.ports.journal import Event
from wonder_server.rpc.conversation import event_codec as codec
from wonder_server.rpc.conversation.codec import turn_to_proto
from wonder_server.rpc.shared.times import set_timestamp, to_timestamp


def test_every_payload_of_the_contract_has_an_event_type() -> None:
    payloads = {field.name for field in event_pb2.Event.DESCRIPTOR.oneofs_by_name["payload"].fields}
    assert payloads == CONVERSATION.event_types.keys()
    assert payloads == codec._PAYLOADS.keys()


def test_an_empty_payload_is_set() -> None:
    nothing = HistoryReset(keep_system_message=False, last_turn_ordinal=0)
    emit = Emit(name="conversation.reset", value=nothing)

    encoded = codec.event_to_proto(Event(sequence=3, at_ms=0, actor_id="conv_1", emit=emit))

    assert encoded.WhichOneof("payload") == "conversation_reset"
    assert not encoded.HasField("create_time")


def test_a_running_turn_has_no_fields_of_a_finished_turn() -> None:
    begun = Turn(
        id="turn_01M819RS1PV2GTC066TJ9G089X",
        conversation_id="conv_1",
        ordinal=1,
        caller=Caller(),
        agent_id="agt_1",
        agent_name="speaker",
        persona="speaker@1",
        input="",
        unpriced_calls=1,
    )

    encoded = turn_to_proto(begun)

    assert not any(encoded.HasField(name) for name in ("output", "metadata", "error", "complete_time"))
    assert not encoded.usage.HasField("cost_micros")
    assert all(encoded.HasField(name) for name in ("caller", "issues", "input", "usage"))
    assert encoded.caller.HasField("user") and encoded.input.HasField("string_value")


@given(ms=st.integers(min_value=0, max_value=2**43))
def test_set_timestamp_equals_to_timestamp(ms: int) -> None:
    encoded = event_pb2.Event()
    set_timestamp(encoded.create_time, ms)

    assert encoded == event_pb2.Event(create_time=to_timestamp(ms))
    assert encoded.HasField("create_time") == bool(ms)
