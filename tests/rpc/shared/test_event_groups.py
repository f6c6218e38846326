"""Groups of events: their order, their size limits, and the bytes that protobuf would write."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from wonder.v1 import conversation_service_pb2, coordinator_service_pb2, event_pb2, run_pb2
from wonder_server.actors.streaming.items import Delta, Reply
from wonder_server.core.actor.changes import Emit
from wonder_server.ports.journal import Event
from wonder_server.rpc.shared.event_groups import (
    MAX_GROUP_BYTES,
    MAX_GROUP_EVENTS,
    group_events,
    join_encoded,
)

SIZES = st.sampled_from(
    [1, 3, 127, 128, MAX_GROUP_BYTES // 3, MAX_GROUP_BYTES - 1, MAX_GROUP_BYTES, MAX_GROUP_BYTES + 1]
)
OTHERS = st.sampled_from([Delta("turn_1", "msg_1", 0, "text"), Reply(b"sent")])


def event(size: int) -> Event:
    """Return an event of ``size`` bytes on the wire."""
    emit = Emit(name="turn.completed", value=None)
    return Event(sequence=1, at_ms=0, actor_id="conv_1", emit=emit, wire=b"e" * size)


def encoded(item: Event) -> bytes:
    assert item.wire is not None
    return item.wire


def fits(group: list[Event]) -> bool:
    return len(group) <= MAX_GROUP_EVENTS and sum(len(encoded(each)) for each in group) <= MAX_GROUP_BYTES


@given(st.lists(st.one_of(SIZES.map(event), st.just(event(10)), OTHERS), max_size=50))
def test_consecutive_events_are_grouped_in_order(items: list[Any]) -> None:
    frames = list(group_events(items, encoded))

    flat = [item for frame in frames for item in (frame if isinstance(frame, list) else [frame])]
    assert [id(item) for item in flat] == [id(item) for item in items]
    for group in frames:
        assert not isinstance(group, list) or len(group) == 1 or fits(group)
    for group, following in pairwise(frames):
        if isinstance(group, list) and isinstance(following, list):
            assert not fits([*group, following[0]]), "the group could hold the next event"


def test_a_group_stays_within_its_limit() -> None:
    frames = list(group_events([event(1) for _ in range(2 * MAX_GROUP_EVENTS + 1)], encoded))
    assert [len(frame) for frame in frames if isinstance(frame, list)] == [
        MAX_GROUP_EVENTS,
        MAX_GROUP_EVENTS,
        1,
    ]


@given(st.lists(st.text(max_size=300), min_size=2, max_size=80))
def test_a_group_equals_the_bytes_of_protobuf(names: list[str]) -> None:
    response = conversation_service_pb2.ConverseResponse
    events = [event_pb2.Event(sequence=at, name=name) for at, name in enumerate(names)]
    several = response(events=conversation_service_pb2.EventGroup(events=events))
    ones = [response(event=each).SerializeToString() for each in events]
    assert join_encoded(ones, response.EVENTS_FIELD_NUMBER) == several.SerializeToString()
    assert join_encoded(ones[:1], response.EVENTS_FIELD_NUMBER) == ones[0]


@given(st.lists(st.text(max_size=300), min_size=2, max_size=80))
def test_a_group_of_run_events_equals_the_bytes_of_protobuf(names: list[str]) -> None:
    response = coordinator_service_pb2.WatchRunResponse
    events = [run_pb2.RunEvent(sequence=at, name=name) for at, name in enumerate(names)]
    several = response(events=coordinator_service_pb2.RunEventGroup(events=events))
    ones = [response(event=each).SerializeToString() for each in events]
    assert join_encoded(ones, response.EVENTS_FIELD_NUMBER) == several.SerializeToString()
