"""Decoding of server-sent events in pieces of any size."""

from __future__ import annotations

import pytest

from wonder_server.adapters.models.common import sse
from wonder_server.adapters.models.common.sse import EventDecoder, parse_data
from wonder_server.core.errors import Reason, WonderError
from wonder_server.core.json_types import JsonValue


def decoded(stream: bytes, size: int = 1 << 20) -> list[bytes]:
    decoder = EventDecoder()
    pieces = [stream[start : start + size] for start in range(0, len(stream), size)]
    return [event for received in pieces for event in decoder.feed(received)]


STREAM = (
    '\ufeffevent: a\r\ndata: {"x": "Łódź"}\r\n\r\n: comment\n\ndata: one\ndata: two\n\n'
    "data:no space\rdata:  two spaces\r\rdata\n\nid: 7\nretry: 10\n\n: hi\ndata: last\n\ndata: not whole\n"
).encode()
EVENTS = ['{"x": "Łódź"}'.encode(), b"one\ntwo", b"no space\n two spaces", b"", b"last"]


def test_events_are_decoded_wherever_the_bytes_are_cut() -> None:
    for size in range(1, len(STREAM) + 1):
        assert decoded(STREAM, size) == EVENTS, size


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"])
def test_lines_may_end_in_each_of_three_ways(end: bytes) -> None:
    stream = end.join((b"data: a", b"data: b", b"", b"data: c", b"", b""))
    for size in range(1, len(stream) + 1):
        assert decoded(stream, size) == [b"a\nb", b"c"], (end, size)


def test_a_long_line_in_small_pieces_is_one_event() -> None:
    line = b"data: " + b"x" * 5_000_000 + b"\n\n"

    assert [len(event) for event in decoded(line, 1000)] == [5_000_000]


@pytest.mark.parametrize("filler", [b"x" * 1000, b"data: " + b"x" * 1000 + b"\n"])
def test_an_event_without_end_is_refused(monkeypatch: pytest.MonkeyPatch, filler: bytes) -> None:
    monkeypatch.setattr(sse, "MAX_EVENT_BYTES", 100_000)
    decoder = EventDecoder()

    with pytest.raises(WonderError) as raised:
        for _ in range(200):
            decoder.feed(filler)
    assert (raised.value.fault.reason, raised.value.fault.transient) == (Reason.MODEL_UNAVAILABLE, True)


def test_many_events_may_be_longer_than_one_may(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sse, "MAX_EVENT_BYTES", 1000)

    assert len(decoded(b"data: abcdefgh\n\n" * 1000, 500)) == 1000


@pytest.mark.parametrize(
    ("data", "value"),
    [
        (b'{"a": [1, 2.5, null, "\xc5\x81"]}', {"a": [1, 2.5, None, "Ł"]}),
        (b'{"a": "\\ud83d", "\\ud83d": ["\\udc00"]}', {"a": "\ufffd", "\ufffd": ["\ufffd"]}),
        (b'{"a": "\xff"}', {"a": "\ufffd"}),
        (b'{"a": "\\ud83d\\ude00"}', {"a": "😀"}),
    ],
)
def test_json_is_read_with_whatever_half_characters_it_has(data: bytes, value: JsonValue) -> None:
    assert parse_data(data) == value


@pytest.mark.parametrize("data", [b"", b"{", b"not json", b"[" * 100_000, b'{"a": 1} more'])
def test_what_is_no_json_is_unreadable(data: bytes) -> None:
    with pytest.raises(WonderError) as raised:
        parse_data(data)
    assert (raised.value.fault.reason, raised.value.fault.transient) == (Reason.MODEL_UNAVAILABLE, True)
