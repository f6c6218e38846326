"""Members of long lists: each is encoded once, as long as lists have it."""

from __future__ import annotations

from collections.abc import Sequence

from wonder_server.codec.list_members import MAX_OTHERS, MIN_AVERAGE_BYTES, KnownMembers, ListMembers
from wonder_server.core.json_types import JsonDict

HISTORY: list[JsonDict] = [{"number": number} for number in range(30)]
OTHERS: list[JsonDict] = [{"other": number} for number in range(10)]


class Encoding:
    """An encoder that notes what it encodes."""

    def __init__(self, size: int = MIN_AVERAGE_BYTES) -> None:
        self._size = size
        self.encoded: list[JsonDict] = []

    def __call__(self, items: Sequence[JsonDict]) -> tuple[list[bytes], int]:
        self.encoded += items
        return [str(item).encode() for item in items], self._size * len(items)


def write(known: KnownMembers, *lists: Sequence[JsonDict]) -> tuple[list[JsonDict], KnownMembers]:
    """Encode lists in one write. Return what was encoded, and the members for the next write."""
    members, encoding = ListMembers(known), Encoding()
    for items in lists:
        assert members.bodies(items, encoding) == [str(item).encode() for item in items]
    return encoding.encoded, members.kept()


def test_a_write_encodes_the_members_that_the_last_one_did_not_have() -> None:
    _, known = write({}, HISTORY[:20])
    encoded, known = write(known, HISTORY[1:22])
    assert encoded == HISTORY[20:22]
    assert [member for member, _ in known.values()] == HISTORY[1:22]


def test_a_member_of_two_lists_of_a_write_is_encoded_once() -> None:
    encoded, _ = write({}, OTHERS, [HISTORY[0], *OTHERS])
    assert encoded == [*OTHERS, HISTORY[0]]


def test_an_equal_member_is_another_one() -> None:
    _, known = write({}, OTHERS)
    encoded, _ = write(known, [dict(each) for each in OTHERS])
    assert encoded == OTHERS


def test_a_write_that_continues_a_list_keeps_its_own_lists_only() -> None:
    _, known = write({}, HISTORY[:20])
    _, known = write(known, HISTORY[10:20], OTHERS)
    assert [member for member, _ in known.values()] == [*HISTORY[10:20], *OTHERS]


def test_a_write_with_other_lists_only_keeps_what_is_known() -> None:
    _, known = write({}, HISTORY[:20])
    _, known = write(known, OTHERS)
    assert write(known, HISTORY[:20], OTHERS)[0] == []


def test_other_lists_replace_many_known_members() -> None:
    _, known = write({}, [{"number": number} for number in range(MAX_OTHERS)])
    _, known = write(known, OTHERS)
    assert [member for member, _ in known.values()] == OTHERS


def test_a_write_without_lists_keeps_what_is_known() -> None:
    assert write({1: (OTHERS[0], b"")})[1] == {}, "nothing new to keep"


def test_short_members_are_not_kept() -> None:
    members = ListMembers()
    members.bodies(OTHERS, Encoding(size=MIN_AVERAGE_BYTES - 1))
    assert members.kept() == {}
