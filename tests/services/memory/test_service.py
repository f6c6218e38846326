"""The memory service over SQLite, plain vectors and the built-in embedder."""

from __future__ import annotations

import asyncio
import dataclasses
import math
from collections.abc import AsyncIterator, Awaitable, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.services.memory.memory_kit import open_memory_stack
from wonder_server.adapters.embedders.hashing import HashingEmbedder
from wonder_server.core.errors import Reason, WonderError
from wonder_server.core.json_types import JsonDict
from wonder_server.core.memory.ranking import Weights
from wonder_server.core.memory.records import Change, Draft, Filter
from wonder_server.services.memory.service import MemoryService
from wonder_server.services.paging import PageRequest

DAY = 24 * 3600 * 1000


class StoppedClock:
    def __init__(self) -> None:
        self.now = 1_000 * DAY

    def now_ms(self) -> int:
        return self.now


@pytest.fixture
def clock() -> StoppedClock:
    return StoppedClock()


@pytest.fixture(params=["faiss", "plain"])
async def service(
    request: pytest.FixtureRequest, tmp_path: Path, clock: StoppedClock
) -> AsyncIterator[MemoryService]:
    async with open_memory_stack(tmp_path, clock, faiss=request.param == "faiss") as stack:
        yield stack.service


def fact(content: str, **more: Any) -> Draft:
    return Draft(type="fact", content=content, **more)


async def refusal(work: Awaitable[object]) -> tuple[Reason, str]:
    with pytest.raises(WonderError) as caught:
        await work
    return caught.value.fault.reason, caught.value.fault.field


class Unasked(HashingEmbedder):
    """An embedder that counts its calls."""

    asked = 0

    async def embed(self, texts: Sequence[str]) -> list[bytes]:
        self.asked += 1
        return await super().embed(texts)


async def test_an_agent_without_memories_is_searched_at_once_until_it_has_one(
    tmp_path: Path, clock: StoppedClock
) -> None:
    embedder = Unasked()
    async with open_memory_stack(tmp_path, clock, embedder=embedder) as stack:
        service = stack.service
        assert service.search_inline("ada", "tea") is None, "it is unknown before the first search"
        assert await service.search("ada", "tea") == []
        assert service.search_inline("ada", "tea", wanted=Filter(types=("fact",))) == []
        assert await service.search("ada", "tea") == await service.search_all(["ada"], "tea") == []
        assert embedder.asked == 1
        tea = await service.write("ada", fact("tea"))
        assert service.search_inline("ada", "tea") is None
        assert [hit.memory for hit in await service.search_all(["ada", "bob"], "tea")] == [tea]
        await service.delete("ada", tea.id)
        assert await service.search("ada", "tea") == []
        assert service.search_inline("ada", "tea") == []


async def test_an_inline_search_rejects_the_same_inputs_as_a_search(service: MemoryService) -> None:
    await service.search("ada", "tea")
    wrong: list[JsonDict] = [
        {"query": " "},
        {"query": "\ud800"},
        {"query": "tea", "limit": 101},
        {"query": "tea", "wanted": Filter(types=("",))},
    ]
    for given in wrong:
        with pytest.raises(WonderError) as caught:
            service.search_inline("ada", **given)
        refused = caught.value.fault
        assert (refused.reason, refused.field) == await refusal(service.search("ada", **given))


async def test_a_fact_is_written_and_found_again(service: MemoryService) -> None:
    await service.write("ada", fact("The weather is fine."))
    tea = await service.write("ada", fact("Anna's favourite drink is green tea."))
    await service.write("bob", fact("Anna's favourite drink is coffee."))
    hits = await service.search("ada", "What does Anna like to drink?")
    assert hits[0].memory == tea
    assert all(hit.memory.agent_id == "ada" for hit in hits)
    assert await service.get("ada", tea.id) == tea


async def test_spelling_is_forgiven_where_full_text_finds_nothing(service: MemoryService) -> None:
    right = await service.write("ada", fact("kubernetes cluster upgrade"))
    await service.write("ada", fact("a picnic in the garden"))
    assert (await service.search("ada", "kuberntes"))[0].memory == right


async def test_each_hit_is_explained_by_its_parts(service: MemoryService, clock: StoppedClock) -> None:
    await service.write("ada", fact("green tea", significance=0.4))
    clock.now += 30 * DAY
    [hit] = await service.search("ada", "green tea", weights=Weights(relevance=2, significance=1, recency=1))
    assert 0.9 < hit.relevance < 1.0
    assert hit.significance == 0.4
    assert hit.recency == pytest.approx(0.5)
    assert hit.score == pytest.approx((2 * hit.relevance + 0.4 + 0.5) / 4)
    [other] = await service.search("ada", "which tea grows in the mountains of Taiwan?")
    assert other.relevance < 0.3


async def test_recency_counts_from_the_time_it_was_said_and_from_a_later_change(
    service: MemoryService, clock: StoppedClock
) -> None:
    old = await service.write("ada", dataclasses.replace(fact("green tea"), said_ms=clock.now - 30 * DAY))
    [hit] = await service.search("ada", "green tea")
    assert hit.recency == pytest.approx(0.5)
    clock.now += 30 * DAY
    await service.update("ada", old.id, Change(significance=0.9))
    [hit] = await service.search("ada", "green tea")
    assert hit.recency == pytest.approx(1.0)
    [hit] = await service.search("ada", "green tea", now_ms=clock.now + 60 * DAY)
    assert hit.recency == pytest.approx(0.25)


async def test_dates_of_a_query_are_relative_to_the_time_it_is_asked(
    service: MemoryService, clock: StoppedClock
) -> None:
    drafts = [fact(f"Anna planted tree {number}") for number in range(40)]
    timed = [
        dataclasses.replace(draft, said_ms=clock.now - number * DAY + DAY // 2)
        for number, draft in enumerate(drafts)
    ]
    await service.write_all("ada", timed)
    for back in (3, 20):
        now_ms = clock.now - (back - 1) * DAY
        weights = Weights(significance=0, recency=0)
        hits = await service.search(
            "ada", "Which tree was planted yesterday?", now_ms=now_ms, weights=weights
        )
        assert hits[0].memory.content == f"Anna planted tree {back}"


@pytest.mark.parametrize("said_ms", [-(10**17), 10**17])
async def test_a_time_out_of_range_is_refused(service: MemoryService, said_ms: int) -> None:
    for work in (
        service.write("ada", dataclasses.replace(fact("tea"), said_ms=said_ms)),
        service.search("ada", "tea", now_ms=said_ms),
        service.search("ada", "tea", wanted=Filter(said_end_ms=said_ms)),
    ):
        with pytest.raises(WonderError) as caught:
            await work
        assert caught.value.fault.reason is Reason.FIELD_INVALID


async def test_the_weights_decide_between_relevant_significant_and_recent(
    service: MemoryService, clock: StoppedClock
) -> None:
    relevant = await service.write("ada", fact("tea tea tea", significance=0.1))
    clock.now += 100 * DAY
    grave = await service.write("ada", fact("an allergy to a certain tea ingredient", significance=1.0))
    clock.now += 100 * DAY
    recent = await service.write("ada", fact("she bought some tea at the market today", significance=0.1))

    async def first(**weights: float) -> str:
        hits = await service.search("ada", "tea", weights=Weights(**{**nothing, **weights}))
        return hits[0].memory.id

    nothing = {"relevance": 0.0, "significance": 0.0, "recency": 0.0}
    assert await first(relevance=1) == relevant.id
    assert await first(significance=1) == grave.id
    assert await first(recency=1) == recent.id


async def test_a_search_keeps_to_its_types_and_limit(service: MemoryService) -> None:
    drafts = [Draft(type=f"t{i % 2}", content=f"tea number {i}") for i in range(30)]
    await service.write_all("ada", drafts)
    hits = await service.search("ada", "tea", wanted=Filter(types=("t1",)), limit=7)
    assert [hit.memory.type for hit in hits] == ["t1"] * 7
    assert len(await service.search("ada", "tea")) == 10


async def test_the_same_key_writes_once_even_at_once(service: MemoryService) -> None:
    writes = (service.write("ada", fact("one", idempotency_key="op_1")) for _ in range(20))
    assert len({memory.id for memory in await asyncio.gather(*writes)}) == 1
    assert len((await service.page("ada", PageRequest())).items) == 1


async def test_extraction_from_many_conversations_loses_and_doubles_nothing(service: MemoryService) -> None:
    async def conversation(number: int) -> None:
        for step in range(10):
            await service.write("ada", fact(f"shared fact {step}", unless_known=True))
            await service.write("ada", fact(f"fact {step} of {number}"))

    await asyncio.gather(*(conversation(number) for number in range(10)))
    contents = [memory.content for memory in (await service.page("ada", PageRequest(size=500))).items]
    assert len(contents) == len(set(contents)) == 110


async def test_pages_follow_each_other_to_the_end(service: MemoryService) -> None:
    await service.write_all("ada", [fact(f"n{i}") for i in range(25)])
    seen: list[str] = []
    token = ""
    while True:
        page = await service.page("ada", PageRequest(size=10, token=token))
        seen += [memory.id for memory in page.items]
        token = page.next_page_token
        if not token:
            break
    assert len(seen) == len(set(seen)) == 25
    assert seen == sorted(seen, reverse=True)


async def test_a_page_token_is_good_for_its_own_list_only(service: MemoryService) -> None:
    await service.write_all("ada", [fact(f"n{i}") for i in range(5)])
    token = (await service.page("ada", PageRequest(size=2))).next_page_token
    invalid = (Reason.PAGE_TOKEN_INVALID, "page_token")
    assert await refusal(service.page("bob", PageRequest(token=token))) == invalid
    assert await refusal(service.page("ada", PageRequest(token=token), Filter(types=("fact",)))) == invalid
    for wrong in ("x", "====", token[:-4], "🍵", "AAAA" * 1000):
        assert await refusal(service.page("ada", PageRequest(token=wrong))) == invalid


async def test_an_update_is_found_under_its_new_words_only(service: MemoryService) -> None:
    old = await service.write("ada", fact("Anna likes tea", metadata={"a": 1}))
    await service.search("ada", "tea")  # The index is in memory from here on.
    new = await service.update("ada", old.id, Change(content="Anna likes espresso"), etag=old.etag)
    assert (new.version, new.metadata, new.created_ms) == (2, {"a": 1}, old.created_ms)
    assert (await service.search("ada", "espresso"))[0].memory == new
    [hit] = await service.search("ada", "Anna")
    assert hit.memory == new
    assert await refusal(service.update("ada", old.id, Change(significance=1), etag=old.etag)) == (
        Reason.ETAG_MISMATCH,
        "etag",
    )


async def test_of_two_updates_at_once_with_one_etag_one_wins(service: MemoryService) -> None:
    old = await service.write("ada", fact("tea"))
    updates = (service.update("ada", old.id, Change(content=f"tea {i}"), etag="1") for i in range(5))
    results = await asyncio.gather(*updates, return_exceptions=True)
    assert sum(not isinstance(result, BaseException) for result in results) == 1


async def test_a_deleted_memory_is_never_found(service: MemoryService) -> None:
    memory = await service.write("ada", fact("Anna likes tea"))
    await service.search("ada", "tea")
    assert await refusal(service.delete("bob", memory.id)) == (Reason.MEMORY_NOT_FOUND, "id")
    assert await refusal(service.delete("ada", memory.id, etag="9")) == (Reason.ETAG_MISMATCH, "etag")
    await service.delete("ada", memory.id)
    assert await service.search("ada", "Anna likes tea") == []
    assert await refusal(service.get("ada", memory.id)) == (Reason.MEMORY_NOT_FOUND, "id")


async def test_a_cancelled_write_leaves_record_and_index_consistent(service: MemoryService) -> None:
    await service.search("ada", "tea")
    write = asyncio.create_task(service.write("ada", fact("zanzibar")))
    await asyncio.sleep(0)
    write.cancel()
    await asyncio.gather(write, return_exceptions=True)
    await service.write("ada", fact("something else"))
    assert (await service.search("ada", "zanzibr"))[0].memory.content == "zanzibar", (
        "misspelt: by vector only"
    )


def deep(levels: int) -> JsonDict:
    value: JsonDict = {}
    for _ in range(levels - 1):
        value = {"a": value}
    return value


@pytest.mark.parametrize(
    ("draft", "reason", "field"),
    [
        (fact(""), Reason.FIELD_INVALID, "content"),
        (fact(" \n"), Reason.FIELD_INVALID, "content"),
        (fact("\ud800"), Reason.FIELD_INVALID, "content"),
        (fact("x" * (1 << 20) + "x"), Reason.PAYLOAD_TOO_LARGE, "content"),
        (fact("x", significance=1.01), Reason.FIELD_INVALID, "significance"),
        (fact("x", significance=float("nan")), Reason.FIELD_INVALID, "significance"),
        (fact("x", metadata=deep(31)), Reason.PAYLOAD_TOO_DEEP, "metadata"),
        (fact("x", metadata=deep(400)), Reason.PAYLOAD_TOO_DEEP, "metadata"),
        (fact("x", metadata={"n": 2**53 + 1}), Reason.NUMBER_OUT_OF_RANGE, "metadata"),
        (fact("x", metadata={"n": float("inf")}), Reason.NUMBER_OUT_OF_RANGE, "metadata"),
        (fact("x", metadata={"n": object()}), Reason.FIELD_INVALID, "metadata"),
        (fact("x", metadata={"n": "y" * 70_000}), Reason.PAYLOAD_TOO_LARGE, "metadata"),
        (fact("x", idempotency_key="k" * 300), Reason.FIELD_INVALID, "request_id"),
        (Draft(type="", content="x"), Reason.FIELD_INVALID, "type"),
    ],
)
async def test_an_invalid_memory_is_rejected_by_field_and_leaves_no_trace(
    service: MemoryService, draft: Draft, reason: Reason, field: str
) -> None:
    assert await refusal(service.write("ada", draft)) == (reason, field)
    assert await refusal(service.write_all("ada", [fact("fine"), draft])) == (reason, f"memories[1].{field}")
    assert (await service.page("ada", PageRequest())).items == ()


async def test_the_limits_themselves_are_allowed(service: MemoryService) -> None:
    memory = await service.write("ada", fact("x" * (1 << 20), metadata=deep(30), significance=1.0))
    assert await service.get("ada", memory.id) == memory


async def test_bad_questions_are_refused_by_field(service: MemoryService) -> None:
    invalid = Reason.FIELD_INVALID
    assert await refusal(service.search("ada", "  ")) == (invalid, "query")
    assert await refusal(service.search("ada", "x", limit=101)) == (invalid, "limit")
    assert await refusal(service.search("ada", "x", limit=-1)) == (invalid, "limit")
    assert await refusal(service.search("ada", "x", wanted=Filter(types=("",)))) == (invalid, "types[0]")
    assert await refusal(service.search("", "x")) == (invalid, "agent_id")
    assert await refusal(service.page("ada", PageRequest(size=-1))) == (invalid, "page_size")
    for weights in (
        Weights(relevance=-1),
        Weights(relevance=float("nan")),
        Weights(relevance=0, significance=0, recency=0),
    ):
        assert await refusal(service.search("ada", "x", weights=weights)) == (invalid, "weights")
    for share in (-0.1, 1.1, float("nan")):
        work = service.search("ada", "x", weights=Weights(vector=share))
        assert await refusal(work) == (invalid, "weights.vector")


async def test_a_significance_of_negative_zero_is_zero(service: MemoryService) -> None:
    written = await service.write("ada", fact("green tea", significance=-0.0))
    assert math.copysign(1, written.significance) == 1
    assert await service.get("ada", written.id) == written
    [first] = await service.write_all("ada", [fact("black tea", significance=-0.0)])
    new, _ = await service.supersede("ada", first.id, fact("white tea", significance=-0.0))
    changed = await service.update("ada", new.id, Change(significance=-0.0))
    assert math.copysign(1, changed.significance) == 1
    assert await service.get("ada", new.id) == changed
