"""Messages in progress with reasoning and tool calls: each reader gets what it asked for, each piece once."""

from __future__ import annotations

import pytest

from wonder_server.actors.streaming import partial_messages
from wonder_server.actors.streaming.hub import StreamHub
from wonder_server.actors.streaming.items import REASONING, Delta, Part, PartKind
from wonder_server.actors.streaming.subscription import Subscription
from wonder_server.core.actor.changes import Emit
from wonder_server.ports.journal import Event

CONVERSATION_ID = "conv_1"
ALL_KINDS = frozenset(PartKind)


def call(index: int, call_id: str = "", name: str = "") -> Part:
    return Part(PartKind.ARGUMENTS, index, call_id, name)


Step = tuple[Part | None, str]
MIXED: list[Step] = [
    (REASONING, "Let me"),
    (REASONING, " think."),
    (None, "One"),
    (None, " moment."),
    (call(0, "call_a", "weather"), ""),
    (call(0), '{"city":'),
    (call(1, "call_b", "clock"), "{"),
    (call(0), '"Łódź"}'),
    (REASONING, " And 🙂"),
    (call(1), "}"),
    (None, " Done."),
]


def hub() -> StreamHub:
    made = StreamHub(1000, 1_000_000)
    made.begin_message(CONVERSATION_ID, "turn_1", "msg_1", 1)
    return made


def play(streams: StreamHub, step: Step) -> None:
    part, text = step
    if part is None:
        streams.append_text(CONVERSATION_ID, "turn_1", "msg_1", text)
    else:
        streams.append_part(CONVERSATION_ID, "turn_1", "msg_1", part, text)


Place = tuple[str, int]


def place(delta: Delta) -> Place:
    return ("text", 0) if delta.part is None else (delta.part.kind.value, delta.part.index)


class Reader:
    """A reader that joins deltas by their offsets, as clients do."""

    def __init__(self) -> None:
        self.texts: dict[Place, str] = {}
        self.order: list[Place] = []
        """The places in the order of their pieces, without repetitions."""
        self.parts: dict[Place, Part] = {}
        self.restarts: list[int] = []

    def take(self, deltas: list[Delta]) -> None:
        for delta in deltas:
            if delta.restarted:
                self.restarts.append(delta.attempt)
                self.texts.clear()
                self.order.clear()
                if not delta.text:
                    continue
            where = place(delta)
            known = self.texts.get(where, "")
            assert delta.offset <= len(known), f"a hole before {delta.offset} of {where}"
            assert known[delta.offset :].startswith(delta.text[: len(known) - delta.offset])
            fresh = delta.text[len(known) - delta.offset :]
            if fresh or where not in self.texts:
                self.order.append(where)
            self.texts[where] = known + fresh
            if delta.part is not None:
                self.parts[where] = delta.part


def taken(subscription: Subscription) -> list[Delta]:
    return [item for item in subscription.take() if isinstance(item, Delta)]


def compact(order: list[Place]) -> list[Place]:
    return [where for index, where in enumerate(order) if index == 0 or order[index - 1] != where]


def step_place(step: Step) -> Place:
    part, _ = step
    return ("text", 0) if part is None else (part.kind.value, part.index)


def expected(kinds: frozenset[PartKind]) -> dict[Place, str]:
    texts: dict[Place, str] = {}
    for step in MIXED:
        where = step_place(step)
        if where[0] == "text" or where[0] in kinds:
            texts[where] = texts.get(where, "") + step[1]
    return texts


@pytest.mark.parametrize("cut", range(len(MIXED) + 1))
@pytest.mark.parametrize(
    "kinds",
    [ALL_KINDS, frozenset({PartKind.REASONING}), frozenset({PartKind.ARGUMENTS}), frozenset()],
    ids=["all", "reasoning", "arguments", "text"],
)
async def test_a_reader_that_attaches_again_at_any_piece_sees_the_same(
    cut: int, kinds: frozenset[PartKind]
) -> None:
    streams, reader, late = hub(), Reader(), Reader()
    first, nothing = streams.subscribe(CONVERSATION_ID, kinds=kinds)
    assert nothing == []
    for step in MIXED[:cut]:
        play(streams, step)
        reader.take(taken(first))
    streams.unsubscribe(CONVERSATION_ID, first)

    second, so_far = streams.subscribe(CONVERSATION_ID, kinds=kinds)
    reader.take(so_far)
    late.take(so_far)
    for step in MIXED[cut:]:
        play(streams, step)
        deltas = taken(second)
        reader.take(deltas)
        late.take(deltas)

    assert reader.texts == late.texts == expected(kinds)
    order = [step_place(step) for step in MIXED if step_place(step) in expected(kinds)]
    assert compact(late.order) == compact(reader.order) == compact(order)
    if PartKind.ARGUMENTS in kinds:
        assert late.parts["arguments", 0] == call(0, "call_a", "weather")
        assert late.parts["arguments", 1] == call(1, "call_b", "clock")


async def test_readers_that_take_nothing_get_merged_pieces_of_each_kind() -> None:
    streams, reader = hub(), Reader()
    subscription, _ = streams.subscribe(CONVERSATION_ID, kinds=ALL_KINDS)
    for step in MIXED:
        play(streams, step)
    deltas = taken(subscription)
    assert len(deltas) == len(compact([step_place(step) for step in MIXED]))
    reader.take(deltas)
    assert reader.texts == expected(ALL_KINDS)


def begin(streams: StreamHub, attempt: int) -> None:
    streams.begin_message(CONVERSATION_ID, "turn_1", "msg_1", attempt)


async def test_a_restart_takes_back_only_what_a_reader_has_seen() -> None:
    streams = hub()
    plain, _ = streams.subscribe(CONVERSATION_ID)
    full, _ = streams.subscribe(CONVERSATION_ID, kinds=ALL_KINDS)
    play(streams, (REASONING, "Let me think"))
    begin(streams, 2)
    assert taken(plain) == [], "no text was streamed"
    assert [delta.attempt for delta in taken(full)] == [0, 2]
    # A reader that was away during the restart learns of it.
    _, so_far = streams.subscribe(CONVERSATION_ID, kinds=ALL_KINDS)
    assert [delta.attempt for delta in so_far] == [2]
    assert streams.subscribe(CONVERSATION_ID)[1] == []

    play(streams, (REASONING, "Again"))
    play(streams, (None, "Yes"))
    begin(streams, 3)
    assert [(delta.attempt, delta.text) for delta in taken(plain)] == [(0, "Yes"), (3, "")]
    reader = Reader()
    reader.take(streams.subscribe(CONVERSATION_ID, kinds=ALL_KINDS)[1])
    play(streams, (REASONING, "Third"))
    reader.take(streams.subscribe(CONVERSATION_ID, kinds=ALL_KINDS)[1])
    assert reader.restarts == [3, 3] and reader.texts == {("reasoning", 0): "Third"}


async def test_after_a_restart_of_the_server_every_reader_hears_that_the_message_begins_again() -> None:
    streams = StreamHub(1000, 1_000_000)
    plain, _ = streams.subscribe(CONVERSATION_ID)
    full, _ = streams.subscribe(CONVERSATION_ID, kinds=ALL_KINDS)
    begin(streams, 2)
    assert [delta.attempt for delta in (*taken(plain), *taken(full))] == [2, 2]


async def test_a_planned_end_holds_back_every_kind() -> None:
    streams = hub()
    subscription, _ = streams.subscribe(CONVERSATION_ID, kinds=ALL_KINDS)
    play(streams, MIXED[0])
    streams.hold_text(CONVERSATION_ID, "turn_1")
    for step in MIXED[1:]:
        play(streams, step)
    assert [delta.text for delta in taken(subscription)] == ["Let me"]
    late = Reader()
    late.take(streams.subscribe(CONVERSATION_ID, kinds=ALL_KINDS)[1])
    assert late.texts == {("reasoning", 0): "Let me"}

    streams.release_text(CONVERSATION_ID)  # The end was not committed.
    assert sum(len(delta.text) for delta in taken(subscription)) == sum(len(text) for _, text in MIXED[1:])


async def test_the_end_of_a_turn_forgets_its_parts() -> None:
    streams = hub()
    for step in MIXED:
        play(streams, step)
    cancelled = Event(1, 0, CONVERSATION_ID, Emit("turn.cancelled", None, "turn_1"))
    streams.publish(CONVERSATION_ID, [cancelled])
    play(streams, MIXED[0])
    assert streams.subscribe(CONVERSATION_ID, kinds=ALL_KINDS)[1] == []


async def test_a_kind_beyond_its_limit_streams_no_more_and_has_no_hole(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(partial_messages, "MAX_PART_CHARACTERS", 200)
    streams, reader = hub(), Reader()
    subscription, _ = streams.subscribe(CONVERSATION_ID, kinds=ALL_KINDS)
    play(streams, (REASONING, "r" * 100))
    play(streams, (REASONING, "s" * 100))
    play(streams, (REASONING, "t"))
    for index in range(10):
        play(streams, (call(index, name="tool"), ""))
    play(streams, (None, "text goes on"))
    reader.take(taken(subscription))
    assert reader.texts["reasoning", 0] == "r" * 100
    assert reader.texts["text", 0] == "text goes on"
    # Each call counts 64 characters in addition to its arguments.
    assert [index for kind, index in reader.texts if kind == "arguments"] == [0, 1, 2]
    late = Reader()
    late.take(streams.subscribe(CONVERSATION_ID, kinds=ALL_KINDS)[1])
    assert late.texts == reader.texts


async def test_calls_that_are_written_in_turns_take_a_bounded_number_of_segments() -> None:
    streams, reader = hub(), Reader()
    for number in range(3000):
        play(streams, (call(number % 2), "x"))
    _, so_far = streams.subscribe(CONVERSATION_ID, kinds=ALL_KINDS)
    assert len(so_far) == 1000
    reader.take(so_far)
    assert reader.texts == {("arguments", 0): "x" * 1500, ("arguments", 1): "x" * 1500}
