"""Search in messages: one suite for the stores of records, and for the search on them."""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, ClassVar

import pytest
import pytest_asyncio

from tests.conformance.ports.journal_subjects import (
    JOURNALS,
    Shards,
    commit,
    conversation,
    conversation_id,
    opened,
    put_conversation,
)
from wonder_server.adapters.scoped.records import RecordsView
from wonder_server.core import ids
from wonder_server.core.conversation.model.values import Message, Role
from wonder_server.core.conversation.output.record import put_message
from wonder_server.core.history.text_query import TextQuery, text_query
from wonder_server.ports.access import ALL_RECORDS, AccessScope
from wonder_server.ports.records import Query, is_truncated
from wonder_server.services.history import message_search
from wonder_server.services.history.message_search import MessageFilter, MessageSearch

MESSAGES = 30
"""Messages in three conversations of three shards, which take turns. The text of number 7 is `word7 tick`,
and that of every tenth has `tock` too."""


@pytest_asyncio.fixture(params=JOURNALS)
async def shards(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Shards]:
    async with opened(request.param, tmp_path) as store:
        for number in range(3):
            owner = conversation_id(number)
            value = conversation(number, project=f"proj_{number}")
            texts = [put_message(message(each)) for each in range(number, MESSAGES, 3)]
            await store.of(owner).commit([commit(owner, put_conversation(value), *texts)])
        yield store


def time_of(number: int) -> int:
    return 1_000_000 + number * 10


def message(number: int, **fields: Any) -> Message:
    by_agent = number % 2 == 1
    given: dict[str, Any] = {
        "id": f"msg_{ids.encode(time_of(number), number)}",
        "conversation_id": conversation_id(number % 3),
        "turn_id": f"turn_{number // 2}",
        "ordinal": number // 3 + 1,
        "role": Role.AGENT if by_agent else Role.USER,
        "author": "agt_1" if by_agent else ("ann", "bob")[number // 2 % 2],
        "content": f"word{number} tick{' tock' if number % 10 == 0 else ''}",
        "created_ms": time_of(number),
    }
    return Message(**{**given, **fields})


def numbers(found: Any) -> list[int]:
    return [(each.created_ms - 1_000_000) // 10 for each in found]


def search(shards: Shards, scope: AccessScope = ALL_RECORDS, **limits: int) -> MessageSearch:
    return MessageSearch(RecordsView(shards, scope), **limits)


async def matches(shards: Shards, text: str, portion: int = 250, **wanted: Any) -> list[int]:
    """Return all matches, page by page, of two. A call reads at most three portions."""
    found: list[int] = []
    after = None
    while True:
        reader = search(shards, portion=portion, max_read=3 * portion)
        page = await reader.newest(text_query(text), MessageFilter(**wanted), 2, after)
        found += numbers(each.message for each in page.matches)
        after = page.next
        if after is None:
            return found


# --- the port ---------------------------------------------------------------------------------------


async def test_rows_in_the_order_of_ids_come_merged_from_all_shards(shards: Shards) -> None:
    found = await shards.find(Query(table="messages", by_id=True, limit=7))
    assert numbers(found) == [29, 28, 27, 26, 25, 24, 23]
    rest = await shards.find(Query(table="messages", by_id=True, after=(0, found[-1].id), limit=3))
    assert numbers(rest) == [22, 21, 20]
    oldest = Query(table="messages", by_id=True, newest_first=False, after=(0, message(3).id), limit=2)
    assert numbers(await shards.find(oldest)) == [4, 5]


async def test_bounded_reads_go_on_where_they_ended_until_all_is_read(shards: Shards) -> None:
    query = Query(table="messages", by_id=True, text=TextQuery(("tock",)), max_read=2)
    first = await shards.find(query)
    assert numbers(first) == [] and is_truncated(first)
    seen: list[int] = []
    reads = 0
    while is_truncated(found := await shards.find(query)):
        seen += numbers(found)
        reads += 1
        end = found.end or (0, found[-1].id)
        query = Query(**{name: getattr(query, name) for name in Query.__slots__} | {"after": end})
    assert [*seen, *numbers(found)] == [20, 10, 0]
    assert MESSAGES // 6 <= reads <= MESSAGES // 2


async def test_rows_that_other_filters_exclude_count_as_read(shards: Shards) -> None:
    """Otherwise a project with few messages would make one read pass all messages of all projects."""
    query = Query(
        table="messages", by_id=True, text=TextQuery(("tick",)), max_read=2, projects=frozenset({"proj_9"})
    )
    reads = 1
    while is_truncated(found := await shards.find(query)):
        assert found == [] and found.end is not None
        query = Query(**{name: getattr(query, name) for name in Query.__slots__} | {"after": found.end})
        reads += 1
    assert found == [] and MESSAGES // 6 <= reads


async def test_a_read_that_is_not_bounded_is_not_truncated(shards: Shards) -> None:
    found = await shards.find(Query(table="messages", by_id=True, text=TextQuery(("tock",))))
    assert numbers(found) == [20, 10, 0] and not is_truncated(found) and found.end is None


async def test_a_bounded_read_of_one_conversation_goes_on_at_its_end(shards: Shards) -> None:
    query = Query(
        table="messages",
        actor=conversation_id(0),
        by_ordinal=True,
        text=TextQuery(("word0",)),
        max_read=4,
    )
    seen: list[int] = []
    for _ in range(3):
        found = await shards.find(query)
        seen += numbers(found)
        query = Query(**{name: getattr(query, name) for name in Query.__slots__} | {"after": found.end})
    assert seen == [0]


class MeasuredQuery(TextQuery):
    """A query that counts the characters of the texts that it compares."""

    compared: ClassVar[list[int]] = []

    def matches(self, text: str) -> bool:
        self.compared.append(len(text))
        return super().matches(text)


LARGE = 100_000
LARGE_MESSAGES = 12


async def add_large_messages(shards: Shards, content: str) -> None:
    owner = conversation_id(0)
    large = [
        message(100 + n, conversation_id=owner, ordinal=100 + n, content=content)
        for n in range(LARGE_MESSAGES)
    ]
    await shards.of(owner).commit([commit(owner, *map(put_message, large))])


@pytest.mark.parametrize("content", ["tock " * (LARGE // 5), "nothing " * (LARGE // 8)])
async def test_a_read_ends_after_so_many_bytes_whether_they_match_or_not(
    shards: Shards, content: str
) -> None:
    await add_large_messages(shards, content)
    query = MeasuredQuery(("tock",))
    wanted = Query(
        table="messages",
        actor=conversation_id(0),
        by_ordinal=True,
        text=query,
        max_read=250,
        max_read_bytes=2 * LARGE,
    )
    seen: list[int] = []
    for _ in range(LARGE_MESSAGES):
        query.compared.clear()
        found = await shards.find(wanted)
        # The last message that is read may exceed the limit.
        assert sum(query.compared) < 3 * LARGE
        seen += numbers(found)
        if not is_truncated(found):
            break
        end = found.end or (found[-1].ordinal, found[-1].id)
        wanted = Query(**{name: getattr(wanted, name) for name in Query.__slots__} | {"after": end})
    large = [number for number in range(100 + LARGE_MESSAGES - 1, 99, -1) if "tock" in content]
    assert seen == [*large, 0]


# --- the search -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "wanted", "found"),
    [
        ("tock", {}, [20, 10, 0]),
        ("TOCK tick", {}, [20, 10, 0]),
        ("tock absent", {}, []),
        ("to", {}, [20, 10, 0]),
        ("ock", {}, []),
        ("word2", {}, [29, 28, 27, 26, 25, 24, 23, 22, 21, 20, 2]),
        ("tock", {"conversation_id": conversation_id(1)}, [10]),
        ("tick", {"conversation_id": conversation_id(1), "first_ordinal": 8}, [28, 25, 22]),
        ("tock", {"project_id": "proj_0"}, [0]),
        ("tock", {"project_id": "proj_9"}, []),
        ("word1", {"agent_id": "agt_1"}, [19, 17, 15, 13, 11, 1]),
        ("word1", {"user_id": "ann"}, [16, 12]),
        ("word1", {"user_id": "ann", "agent_id": "agt_1"}, [19, 17, 16, 15, 13, 12, 11, 1]),
        ("word1", {"agent_id": "ann"}, []),
        ("word1", {"user_id": "agt_1"}, []),
        ("tock", {"start_ms": time_of(10)}, [20, 10]),
        ("tock", {"end_ms": time_of(20)}, [10, 0]),
        ("tock", {"start_ms": time_of(1), "end_ms": time_of(20)}, [10]),
        ("tock", {"start_ms": time_of(1), "conversation_id": conversation_id(1)}, [10]),
    ],
)
@pytest.mark.parametrize("portion", [1, 3, 250])
async def test_messages_with_all_words_come_newest_first(
    shards: Shards, text: str, wanted: dict[str, Any], found: list[int], portion: int
) -> None:
    assert await matches(shards, text, portion, **wanted) == found


async def test_a_message_that_took_long_to_write_is_found_by_its_time(shards: Shards) -> None:
    late = message(31, id=f"msg_{ids.encode(time_of(4), 99)}", content="slow tock", ordinal=20)
    owner = conversation_id(1)
    await shards.of(owner).commit([commit(owner, put_message(late))])
    assert await matches(shards, "slow", 1, start_ms=time_of(30)) == [31]


async def test_only_the_newest_messages_are_ranked_above_the_bound(shards: Shards) -> None:
    reader = search(shards, portion=2, max_read=2)
    page = await reader.best(text_query("tick"), MessageFilter(conversation_id=conversation_id(0)), 9)
    assert numbers(each.message for each in page.matches) == [27, 24] and not page.complete


async def test_the_best_are_those_with_the_words_more_often_and_in_shorter_texts(shards: Shards) -> None:
    owner = conversation_id(0)
    texts = ["tock tock tock", "tocking " + "x " * 400, "tock"]
    added = [
        message(40 + n, content=text, conversation_id=owner, ordinal=40 + n) for n, text in enumerate(texts)
    ]
    await shards.of(owner).commit([commit(owner, *map(put_message, added))])
    wanted = MessageFilter(conversation_id=owner)
    page = await search(shards).best(text_query("tock"), wanted, 10)
    assert numbers(each.message for each in page.matches) == [40, 42, 0, 41] and page.complete
    assert [each.score for each in page.matches] == sorted(
        [each.score for each in page.matches], reverse=True
    )
    rest = await search(shards).best(text_query("tock"), wanted, 2, offset=2)
    assert numbers(each.message for each in rest.matches) == [0, 41]
    before = await search(shards).best(text_query("tock"), wanted, 2, before=message(30).id)
    assert numbers(each.message for each in before.matches) == [0]


async def test_a_scope_of_some_projects_finds_nothing_of_others(shards: Shards) -> None:
    own = search(shards, AccessScope(projects=frozenset({"proj_1"})))
    query = text_query("tock")
    assert numbers(each.message for each in (await own.newest(query, MessageFilter(), 9)).matches) == [10]
    for wanted in (
        MessageFilter(project_id="proj_0"),
        MessageFilter(conversation_id=conversation_id(0)),
        MessageFilter(conversation_id=conversation_id(0), project_id="proj_1"),
    ):
        assert (await own.newest(query, wanted, 9)).matches == ()
        assert (await own.best(query, wanted, 9)).matches == ()


class WatchedQuery(TextQuery):
    """A query that notes the lengths of the texts that it reads in the thread of the event loop."""

    read_on_loop: ClassVar[list[int]] = []

    def score(self, text: str) -> float:
        self._note(text)
        return super().score(text)

    def snippet(self, text: str) -> str:
        self._note(text)
        return super().snippet(text)

    def _note(self, text: str) -> None:
        if threading.current_thread() is threading.main_thread():
            self.read_on_loop.append(len(text))


@pytest.mark.parametrize("best", [True, False])
async def test_long_messages_are_scored_beside_the_event_loop(shards: Shards, best: bool) -> None:
    owner = conversation_id(0)
    long = message(30, ordinal=11, content="tick " * 4_000)
    await shards.of(owner).commit([commit(owner, put_message(long))])
    query = WatchedQuery(("tick",))
    query.read_on_loop.clear()
    reader = search(shards)
    page = await (reader.best if best else reader.newest)(query, MessageFilter(), 50)
    assert sorted(numbers(each.message for each in page.matches)) == list(range(31))
    ordinary = text_query("tick")
    for each in page.matches:
        content = each.message.content
        assert (each.score, each.snippet) == (ordinary.score(content), ordinary.snippet(content))
    assert len(query.read_on_loop) == 60 and max(query.read_on_loop) < 100


class MeasuredView(RecordsView):
    """A view that notes how many characters each read compared."""

    def __init__(self, shards: Shards) -> None:
        super().__init__(shards, ALL_RECORDS)
        self.reads: list[int] = []

    async def find(self, query: Query) -> Any:
        MeasuredQuery.compared.clear()
        found = await super().find(query)
        self.reads.append(sum(MeasuredQuery.compared))
        return found


@pytest.mark.parametrize("best", [True, False])
async def test_large_messages_are_read_in_portions_of_bounded_size(
    shards: Shards, best: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The writer of a store waits while a portion is read: 250 messages of 1 MiB would take a second."""
    monkeypatch.setattr(message_search, "PORTION_BYTES", 2 * LARGE)
    await add_large_messages(shards, "nothing " * (LARGE // 8))
    view = MeasuredView(shards)
    query, wanted = MeasuredQuery(("tock",)), MessageFilter(conversation_id=conversation_id(0))
    reader = MessageSearch(view)
    page = await (reader.best if best else reader.newest)(query, wanted, 50)
    assert numbers(each.message for each in page.matches) == [0] and page.complete
    assert len(view.reads) == 7 and max(view.reads) < 3 * LARGE
