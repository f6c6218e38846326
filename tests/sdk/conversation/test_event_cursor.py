"""The event cursor: it drops the repeated events and text of a stream."""

from __future__ import annotations

import pytest

from wonder_sdk import MessageRestarted, ReasoningDelta, TextDelta, ToolArgumentsDelta, v1
from wonder_sdk.conversation.event_cursor import EventCursor, GapError


def delta(offset: int, text: str, message_id: str = "msg_a") -> v1.ConverseResponse:
    return v1.ConverseResponse(
        delta=v1.MessageDelta(message_id=message_id, turn_id="turn_1", offset=offset, text=text)
    )


def message_event(
    sequence: int, content: str, role: v1.MessageRole = v1.MessageRole.AGENT
) -> v1.ConverseResponse:
    message = v1.Message(id="msg_a", turn_id="turn_1", role=role, content=content)
    return v1.ConverseResponse(
        event=v1.Event(sequence=sequence, name="message.appended", turn_id="turn_1", message_appended=message)
    )


def restarted(attempt: int) -> v1.ConverseResponse:
    return v1.ConverseResponse(
        message_restarted=v1.MessageRestarted(message_id="msg_a", turn_id="turn_1", attempt=attempt)
    )


def text(words: str) -> TextDelta:
    return TextDelta("msg_a", "turn_1", words)


def take(seen: EventCursor, *responses: v1.ConverseResponse) -> list[object]:
    return [item for response in responses for item in seen.accept(response)]


def test_each_event_of_a_group_advances_the_cursor() -> None:
    seen = EventCursor(5)
    events = [v1.Event(sequence=sequence) for sequence in (5, 6, 7, 9)]
    items = seen.accept(v1.ConverseResponse(events=v1.EventGroup(events=events)))
    assert [next(items), next(items)] == events[1:3]
    with pytest.raises(GapError):
        next(items)
    assert seen.cursor == 7


def test_a_repeated_event_is_dropped() -> None:
    seen = EventCursor(5)
    assert take(seen, message_event(5, "old"), message_event(4, "older")) == []
    assert seen.cursor == 5


def test_a_missing_event_is_a_gap() -> None:
    with pytest.raises(GapError):
        take(EventCursor(5), message_event(7, "too new"))


def test_text_after_a_missing_offset_is_a_gap() -> None:
    with pytest.raises(GapError):
        take(EventCursor(), delta(0, "abc"), delta(4, "e"))


def test_offsets_count_code_points() -> None:
    items = take(EventCursor(), delta(0, "🐈é"), delta(2, "!"), delta(0, "🐈é!?"))
    assert items == [text("🐈é"), text("!"), text("?")]


@pytest.mark.parametrize("offset", range(7))
def test_overlapping_text_is_cut_off(offset: int) -> None:
    whole = "abcdefgh"
    items = take(EventCursor(), delta(0, "abcdef"), delta(offset, whole[offset:]))
    assert items == [text("abcdef"), text("gh")]


def test_repeated_text_is_dropped() -> None:
    assert take(EventCursor(), delta(0, "abc"), delta(0, "ab"), delta(1, "b"), delta(3, "")) == [text("abc")]


def test_a_missed_restart_is_detected_from_the_text() -> None:
    items = take(EventCursor(), delta(0, "the dog"), delta(0, "the cat"))
    assert items == [text("the dog"), MessageRestarted("msg_a", "turn_1"), text("the cat")]


def test_a_missed_restart_is_detected_from_later_text() -> None:
    items = take(EventCursor(), delta(0, "the dog"), delta(0, "the"), delta(3, " cat"))
    assert items == [text("the dog"), MessageRestarted("msg_a", "turn_1"), text("the cat")]


def test_a_restart_is_announced_once() -> None:
    items = take(EventCursor(), delta(0, "no"), restarted(2), delta(0, "yes"), restarted(2), delta(0, "yes!"))
    assert items == [text("no"), MessageRestarted("msg_a", "turn_1", 2), text("yes"), text("!")]


def test_a_restart_of_an_unseen_message_is_dropped() -> None:
    assert take(EventCursor(), restarted(2), delta(0, "yes"), restarted(2)) == [text("yes")]


def test_a_message_that_ended_while_disconnected_is_completed() -> None:
    items = take(EventCursor(), delta(0, "the "), message_event(1, "the cat"))
    assert items[:2] == [text("the "), text("cat")]
    assert isinstance(items[2], v1.Event)


def test_a_message_that_ended_with_other_text_restarts() -> None:
    items = take(EventCursor(), delta(0, "the dog"), message_event(1, "the cat"))
    assert items[1:3] == [MessageRestarted("msg_a", "turn_1"), text("the cat")]


def test_a_complete_message_yields_no_more_text() -> None:
    seen = EventCursor()
    take(seen, delta(0, "the cat"), message_event(1, "the cat"))
    assert take(seen, delta(0, "the cat")) == []


def test_a_user_message_is_an_event_without_text() -> None:
    items = take(EventCursor(), message_event(1, "hello", v1.MessageRole.USER))
    assert len(items) == 1


def test_unknown_responses_are_ignored() -> None:
    assert take(EventCursor(), v1.ConverseResponse()) == []
    assert len(take(EventCursor(), v1.ConverseResponse(event=v1.Event(sequence=1, name="of.tomorrow")))) == 1


def test_the_cursor_of_tail_only_starts_at_the_last_sequence() -> None:
    seen = EventCursor(tail_only=True)
    assert seen.attach("conv_1").tail_only
    take(seen, v1.ConverseResponse(attached=v1.ConverseAttached(last_sequence=7)))
    assert seen.attach("conv_1") == v1.ConverseAttach(
        conversation_id="conv_1", after_sequence=7, group_events=True
    )


def part(kind: v1.DeltaKind, offset: int, words: str, index: int = 0) -> v1.ConverseResponse:
    named = {"tool_call_id": f"call_{index}", "tool_name": "tool"} if kind is ARGUMENTS else {}
    piece = v1.MessageDelta(
        message_id="msg_a",
        turn_id="turn_1",
        kind=kind,
        offset=offset,
        text=words,
        tool_call_index=index,
        **named,
    )
    return v1.ConverseResponse(delta=piece)


REASONING, ARGUMENTS = v1.DeltaKind.REASONING, v1.DeltaKind.TOOL_ARGUMENTS
MIXED = [
    part(REASONING, 0, "Hm, "),
    part(REASONING, 4, "so."),
    delta(0, "One moment."),
    part(ARGUMENTS, 0, ""),
    part(ARGUMENTS, 0, '{"a"'),
    part(ARGUMENTS, 0, "{", index=1),
    part(ARGUMENTS, 4, ": 1}"),
    part(ARGUMENTS, 1, "}", index=1),
]


def thought(words: str) -> ReasoningDelta:
    return ReasoningDelta("msg_a", "turn_1", words)


def written(words: str, index: int = 0) -> ToolArgumentsDelta:
    return ToolArgumentsDelta("msg_a", "turn_1", index, f"call_{index}", "tool", words)


def full_cursor() -> EventCursor:
    return EventCursor(delta_kinds=("reasoning", "tool_arguments"))


def test_a_stream_asks_for_the_kinds_of_deltas_that_the_program_wants() -> None:
    assert EventCursor().attach("conv_1").delta_kinds == []
    assert full_cursor().attach("conv_1").delta_kinds == [REASONING, ARGUMENTS]
    with pytest.raises(ValueError, match=r"delta_kinds has 'thinking'\. Use 'reasoning' and"):
        EventCursor(delta_kinds=("thinking",))  # type: ignore[arg-type]


def test_a_delta_of_a_kind_that_was_not_asked_for_is_dropped() -> None:
    assert take(EventCursor(), *MIXED) == [text("One moment.")]


ITEMS = [
    thought("Hm, "), thought("so."), text("One moment."), written(""), written('{"a"'), written("{", 1),
    written(": 1}"), written("}", 1),
]  # fmt: skip


@pytest.mark.parametrize("cut", range(len(MIXED) + 1))
def test_parts_that_a_reconnect_repeats_come_once(cut: int) -> None:
    seen = full_cursor()
    before = take(seen, *MIXED[:cut])
    # Attached again, the server sends what it has streamed so far, then the rest.
    again = take(seen, *MIXED)
    assert before + again == ITEMS


def test_parts_that_continue_while_away_come_as_one() -> None:
    seen = full_cursor()
    assert take(seen, *MIXED[:1]) == [thought("Hm, ")]
    assert take(seen, part(REASONING, 0, "Hm, so.")) == [thought("so.")]
    with pytest.raises(GapError):
        take(seen, part(ARGUMENTS, 3, "x", index=2))


def test_a_restart_voids_parts_too() -> None:
    seen = full_cursor()
    take(seen, *MIXED[:2])
    assert take(seen, restarted(2), restarted(2)) == [MessageRestarted("msg_a", "turn_1", 2)]
    assert take(seen, part(REASONING, 0, "Other")) == [thought("Other")]
    # A client that missed the announcement notices that the text differs.
    assert take(seen, part(REASONING, 0, "Again")) == [MessageRestarted("msg_a", "turn_1"), thought("Again")]


def test_no_part_follows_a_complete_message() -> None:
    seen = full_cursor()
    take(seen, *MIXED[:3])
    take(seen, message_event(1, "One moment."))
    assert take(seen, *MIXED) == []
