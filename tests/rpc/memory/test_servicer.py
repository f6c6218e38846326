"""MemoryService through a real server and real stores."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from math import inf, nan
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.protobuf.field_mask_pb2 import FieldMask
from google.protobuf.message import Message
from google.protobuf.struct_pb2 import Struct
from google.protobuf.timestamp_pb2 import Timestamp
from grpc import aio

from tests.rpc.rpc_kit import FakeNameResolver, deep_struct, field, rejected, serving
from tests.services.memory.memory_kit import no_blocks, open_memory_stack
from tests.views import ForAll
from wonder.v1 import memory_pb2
from wonder.v1 import memory_service_pb2 as pb
from wonder.v1.conversation_pb2 import MESSAGE_ROLE_USER
from wonder.v1.memory_service_pb2_grpc import MemoryServiceStub
from wonder_server.core.ids import random_id
from wonder_server.core.json_types import JsonValue
from wonder_server.rpc.memory.servicer import MemoryParts, MemoryServicer
from wonder_server.services.memory.service import MemoryService

SERVICE = "wonder.v1.MemoryService"
UNKNOWN = random_id("mem", 1)


class TickingClock:
    def __init__(self) -> None:
        self.now = 1_000_000

    def now_ms(self) -> int:
        self.now += 1
        return self.now


@pytest.fixture
async def service(tmp_path: Path) -> AsyncIterator[MemoryService]:
    async with open_memory_stack(tmp_path, TickingClock()) as stack:
        yield stack.service


@pytest.fixture
async def channel(service: MemoryService) -> AsyncIterator[aio.Channel]:
    async with serving(
        {SERVICE: MemoryServicer(ForAll(MemoryParts(service, FakeNameResolver(), no_blocks())))}
    ) as channel:
        yield channel


@pytest.fixture
def stub(channel: aio.Channel) -> MemoryServiceStub:
    return MemoryServiceStub(channel)


def fact(content: str = "Anna likes green tea.", **more: object) -> memory_pb2.Memory:
    return memory_pb2.Memory(type="fact", content=content, **more)


def writing(content: str = "Anna likes green tea.", **more: object) -> pb.WriteMemoryRequest:
    return pb.WriteMemoryRequest(agent_id="ada", memory=fact(content), **more)


async def listed(stub: MemoryServiceStub, agent: str = "ada") -> list[str]:
    answer = await stub.ListMemories(pb.ListMemoriesRequest(agent_id=agent))
    return [memory.content for memory in answer.memories]


# --- what it does ---------------------------------------------------------------------------------


async def test_a_memory_written_by_agent_name_is_read_by_id(stub: MemoryServiceStub) -> None:
    metadata = Struct()
    metadata.update({"tags": ["tea"], "sure": True, "cups": 3})
    source = memory_pb2.MemorySource(
        conversation_id="conv_1", turn_id="turn_1", move_id="m", run_id="r", speaker="Anna", ordinal=7
    )
    draft = fact("Tee 🍵", significance=0.25, metadata=metadata, source=source, id="mem_mine", etag="7")
    written = (await stub.WriteMemory(pb.WriteMemoryRequest(agent_id="ada", memory=draft))).memory
    read = (await stub.GetMemory(pb.GetMemoryRequest(agent_id="agt_ada", memory_id=written.id))).memory
    assert read == written
    assert (read.agent_id, read.type, read.content, read.significance) == ("agt_ada", "fact", "Tee 🍵", 0.25)
    assert (read.metadata, read.source, read.etag, read.size_bytes) == (metadata, source, "1", 8)
    assert read.id.startswith("mem_") and read.id != "mem_mine"
    assert read.create_time == read.update_time == Timestamp(seconds=1000, nanos=1_000_000)
    assert not read.HasField("archive_time")


async def test_memories_belong_to_one_agent(stub: MemoryServiceStub) -> None:
    written = (await stub.WriteMemory(writing())).memory
    theirs = pb.GetMemoryRequest(agent_id="bob", memory_id=written.id)
    assert await rejected(stub.GetMemory(theirs)) == ("MEMORY_NOT_FOUND", ["memory_id"])
    assert await listed(stub, "bob") == []


async def test_a_fact_is_found_and_the_hit_explains_itself(stub: MemoryServiceStub) -> None:
    await stub.WriteMemory(writing("The weather is fine."))
    written = (await stub.WriteMemory(writing())).memory
    answer = await stub.SearchMemories(pb.SearchMemoriesRequest(agent_id="ada", query="green tea?", limit=1))
    [hit] = answer.hits
    assert hit.memory == written
    assert 0.9 < hit.relevance < 1.0
    assert (hit.significance, hit.recency) == (0.5, pytest.approx(1.0))
    assert hit.score == pytest.approx(0.7 * hit.relevance + 0.2 * 0.5 + 0.1 * 1.0)


async def test_a_search_omits_hits_below_a_relevance(stub: MemoryServiceStub) -> None:
    await stub.WriteMemory(writing())

    async def found(query: str, least: float) -> int:
        asked = pb.SearchMemoriesRequest(agent_id="ada", query=query, min_relevance=least)
        return len((await stub.SearchMemories(asked)).hits)

    assert await found("green tea", 0.5) == 1
    unrelated = "which green valley in the mountains has the most rain in a year?"
    assert (await found(unrelated, 0.0), await found(unrelated, 0.5)) == (1, 0)
    for least in (-0.1, 1.1, nan):
        asked = pb.SearchMemoriesRequest(agent_id="ada", query="tea", min_relevance=least)
        assert await rejected(stub.SearchMemories(asked)) == ("FIELD_INVALID", ["min_relevance"])
    with pytest.raises(grpc.RpcError) as caught:
        await stub.SearchMemories(
            pb.SearchMemoriesRequest(agent_id="ada", query="tea", min_relevance=1.0000001)
        )
    assert caught.value.details() == "min_relevance is 1.0000001. Use a number between 0 and 1."


async def test_a_memory_has_the_time_and_the_side_that_its_writer_gives(stub: MemoryServiceStub) -> None:
    asked = writing("I planted a pear tree.")
    asked.memory.said_at.FromJsonString("2023-05-07T10:00:00Z")
    asked.memory.source.role = MESSAGE_ROLE_USER
    memory = (await stub.WriteMemory(asked)).memory
    assert memory.said_at == asked.memory.said_at
    assert memory.source.role == MESSAGE_ROLE_USER
    plain = (await stub.WriteMemory(writing("It rains."))).memory
    assert plain.said_at == plain.create_time
    wanted = pb.MemoryFilter()
    wanted.said_start_time.FromJsonString("2023-01-01T00:00:00Z")
    page = await stub.ListMemories(pb.ListMemoriesRequest(agent_id="ada", filter=wanted))
    assert [each.id for each in page.memories] == [memory.id]
    search = pb.SearchMemoriesRequest(agent_id="ada", query="what happened last month?")
    search.now.FromJsonString("2023-06-20T00:00:00Z")
    assert [hit.memory.id for hit in (await stub.SearchMemories(search)).hits] == [memory.id]


async def test_a_memory_is_found_and_replaced_by_the_user_whom_it_is_about(stub: MemoryServiceStub) -> None:
    asked = writing("I like pears.")
    asked.memory.subject = asked.memory.source.speaker_id = "mia"
    asked.memory.source.message_id = "msg_1"
    memory = (await stub.WriteMemory(asked)).memory
    assert (memory.subject, memory.source.speaker_id, memory.source.message_id) == ("mia", "mia", "msg_1")
    await stub.WriteMemory(writing("I like plums."))

    async def about(subject: str) -> list[str]:
        wanted = pb.MemoryFilter(subject=subject)
        page = await stub.ListMemories(pb.ListMemoriesRequest(agent_id="ada", filter=wanted))
        search = pb.SearchMemoriesRequest(agent_id="ada", query="I like", filter=wanted)
        hits = (await stub.SearchMemories(search)).hits
        assert sorted(hit.memory.id for hit in hits) == sorted(each.id for each in page.memories)
        return [each.content for each in page.memories]

    assert await about("mia") == ["I like pears."]
    assert len(await about("")) == 2
    newer = pb.SupersedeMemoryRequest(agent_id="ada", memory_id=memory.id)
    newer.memory.content = "I like figs."
    assert (await stub.SupersedeMemory(newer)).memory.subject == "mia"
    assert await about("mia") == ["I like figs."]
    change = pb.UpdateMemoryRequest(agent_id="ada", memory=memory_pb2.Memory(id=memory.id, subject="bob"))
    assert (await stub.UpdateMemory(change)).memory.subject == "bob"
    change.memory.subject = ""
    change.update_mask.paths.append("subject")
    assert (await stub.UpdateMemory(change)).memory.subject == ""


async def test_a_subject_that_is_too_long_is_refused(stub: MemoryServiceStub) -> None:
    asked = writing()
    asked.memory.subject = "x" * 129
    assert await rejected(stub.WriteMemory(asked)) == ("FIELD_INVALID", ["memory.subject"])
    listing = pb.ListMemoriesRequest(agent_id="ada", filter=pb.MemoryFilter(subject="x" * 129))
    assert await rejected(stub.ListMemories(listing)) == ("FIELD_INVALID", ["filter.subject"])


async def test_the_time_of_a_memory_can_be_changed(stub: MemoryServiceStub) -> None:
    memory = (await stub.WriteMemory(writing())).memory
    change = pb.UpdateMemoryRequest(agent_id="ada", memory=memory_pb2.Memory(id=memory.id))
    change.update_mask.paths.append("said_at")
    assert await rejected(stub.UpdateMemory(change)) == ("FIELD_INVALID", ["memory.said_at"])
    change.memory.said_at.FromJsonString("1969-07-20T20:17:00Z")
    changed = (await stub.UpdateMemory(change)).memory
    assert (changed.said_at, changed.content) == (change.memory.said_at, memory.content)


async def test_impossible_times_and_sides_are_refused(stub: MemoryServiceStub) -> None:
    late = writing()
    late.memory.said_at.seconds = 10**15
    assert await rejected(stub.WriteMemory(late)) == ("FIELD_INVALID", ["memory.said_at"])
    odd = writing()
    odd.memory.source.role = 99  # type: ignore[assignment]
    assert await rejected(stub.WriteMemory(odd)) == ("FIELD_INVALID", ["memory.source.role"])
    search = pb.SearchMemoriesRequest(agent_id="ada", query="tea")
    search.now.seconds = 10**15
    assert await rejected(stub.SearchMemories(search)) == ("FIELD_INVALID", ["now"])
    listing = pb.ListMemoriesRequest(agent_id="ada")
    listing.filter.said_start_time.seconds = 10**15
    assert await rejected(stub.ListMemories(listing)) == ("FIELD_INVALID", ["filter.said_start_time"])


async def test_weights_of_zero_count_and_a_low_score_is_left_out(stub: MemoryServiceStub) -> None:
    await stub.WriteMemory(writing())
    weights = pb.SearchWeights(relevance=0, recency=0)
    request = pb.SearchMemoriesRequest(agent_id="ada", query="green tea", weights=weights)
    assert [hit.score for hit in (await stub.SearchMemories(request)).hits] == [0.5]
    request.min_score = 0.6
    assert not (await stub.SearchMemories(request)).hits


async def test_pages_join_up_newest_first_and_keep_to_their_types(stub: MemoryServiceStub) -> None:
    for number in range(5):
        await stub.WriteMemory(writing(f"fact {number}"))
    note = memory_pb2.Memory(type="note", content="a note")
    await stub.WriteMemory(pb.WriteMemoryRequest(agent_id="ada", memory=note))
    request = pb.ListMemoriesRequest(agent_id="ada", page_size=2, filter=pb.MemoryFilter(types=["fact"]))
    contents: list[str] = []
    while True:
        answer = await stub.ListMemories(request)
        contents += [memory.content for memory in answer.memories]
        if not answer.next_page_token:
            break
        request.page_token = answer.next_page_token
    assert contents == [f"fact {number}" for number in (4, 3, 2, 1, 0)]


async def test_a_batch_is_written_in_its_order_or_not_at_all(stub: MemoryServiceStub) -> None:
    contents = [f"fact {number}" for number in range(3)]
    request = pb.BatchWriteMemoriesRequest(agent_id="ada", memories=map(fact, contents), request_id="b-1")
    answer = await stub.BatchWriteMemories(request)
    assert [memory.content for memory in answer.memories] == contents
    assert await stub.BatchWriteMemories(request) == answer
    bad = pb.BatchWriteMemoriesRequest(agent_id="ada", memories=[fact("good"), fact("")])
    assert await rejected(stub.BatchWriteMemories(bad)) == ("FIELD_INVALID", ["memories[1].content"])
    assert len(await listed(stub)) == 3


async def test_an_update_changes_what_its_mask_names_or_what_is_set(stub: MemoryServiceStub) -> None:
    written = (await stub.WriteMemory(writing())).memory
    changed = memory_pb2.Memory(id=written.id, etag=written.etag, content="Anna likes coffee.")
    by_presence = await stub.UpdateMemory(pb.UpdateMemoryRequest(agent_id="ada", memory=changed))
    assert (by_presence.memory.content, by_presence.memory.type) == ("Anna likes coffee.", "fact")
    assert (by_presence.memory.etag, by_presence.memory.create_time) == ("2", written.create_time)
    other = memory_pb2.Memory(id=written.id, type="belief", content="ignored", significance=0.9)
    mask = FieldMask(paths=["type", "significance"])
    request = pb.UpdateMemoryRequest(agent_id="ada", memory=other, update_mask=mask)
    by_mask = (await stub.UpdateMemory(request)).memory
    assert (by_mask.type, by_mask.content, by_mask.significance) == ("belief", "Anna likes coffee.", 0.9)


async def test_a_stale_etag_neither_updates_nor_deletes(stub: MemoryServiceStub) -> None:
    written = (await stub.WriteMemory(writing())).memory
    change = memory_pb2.Memory(id=written.id, content="new", etag="99")
    update = pb.UpdateMemoryRequest(agent_id="ada", memory=change)
    assert await rejected(stub.UpdateMemory(update)) == ("ETAG_MISMATCH", ["memory.etag"])
    delete = pb.DeleteMemoryRequest(agent_id="ada", memory_id=written.id, etag="99")
    assert await rejected(stub.DeleteMemory(delete)) == ("ETAG_MISMATCH", ["etag"])
    assert await listed(stub) == [written.content]


async def test_a_deleted_memory_is_not_found(stub: MemoryServiceStub) -> None:
    written = (await stub.WriteMemory(writing())).memory
    await stub.DeleteMemory(pb.DeleteMemoryRequest(agent_id="ada", memory_id=written.id, etag=written.etag))
    get = pb.GetMemoryRequest(agent_id="ada", memory_id=written.id)
    assert await rejected(stub.GetMemory(get)) == ("MEMORY_NOT_FOUND", ["memory_id"])
    search = pb.SearchMemoriesRequest(agent_id="ada", query="green tea")
    assert not (await stub.SearchMemories(search)).hits


# --- request_id -----------------------------------------------------------------------------------


async def test_a_repeated_write_writes_once_also_concurrently(stub: MemoryServiceStub) -> None:
    answers = await asyncio.gather(*(stub.WriteMemory(writing(request_id="r-1")) for _ in range(10)))
    assert len({answer.memory.id for answer in answers}) == 1
    assert len(await listed(stub)) == 1


async def test_a_repeated_write_is_recognised_after_a_restart(service: MemoryService) -> None:
    ids = set()
    for _ in range(2):
        async with serving(
            {SERVICE: MemoryServicer(ForAll(MemoryParts(service, FakeNameResolver(), no_blocks())))}
        ) as channel:
            answer = await MemoryServiceStub(channel).WriteMemory(writing(request_id="r-1"))
            ids.add(answer.memory.id)
    assert len(ids) == 1


async def test_a_request_id_of_another_request_is_refused_and_writes_nothing(stub: MemoryServiceStub) -> None:
    written = (await stub.WriteMemory(writing(request_id="r-1"))).memory
    reused = ("REQUEST_ID_REUSED", ["request_id"])
    assert await rejected(stub.WriteMemory(writing("another", request_id="r-1"))) == reused
    delete = pb.DeleteMemoryRequest(agent_id="ada", memory_id=written.id, request_id="r-1")
    assert await rejected(stub.DeleteMemory(delete)) == reused
    assert await listed(stub) == [written.content]


async def test_a_refused_request_can_be_repeated_with_its_id(stub: MemoryServiceStub) -> None:
    await rejected(stub.WriteMemory(writing("", request_id="r-1")))
    await rejected(stub.WriteMemory(writing("", request_id="r-1")))
    assert (await stub.WriteMemory(writing(request_id="r-1"))).memory.id


async def test_a_repeated_update_or_delete_applies_once(stub: MemoryServiceStub) -> None:
    written = (await stub.WriteMemory(writing())).memory
    change = memory_pb2.Memory(id=written.id, content="new", etag=written.etag)
    update = pb.UpdateMemoryRequest(agent_id="ada", memory=change, request_id="r-1")
    assert await stub.UpdateMemory(update) == await stub.UpdateMemory(update)
    delete = pb.DeleteMemoryRequest(agent_id="ada", memory_id=written.id, request_id="r-2")
    for _ in range(2):
        await stub.DeleteMemory(delete)
    assert await listed(stub) == []


async def test_changes_are_recognised_after_a_restart(service: MemoryService) -> None:
    async def answers(*requests: tuple[str, Message]) -> list[Any]:
        async with serving(
            {SERVICE: MemoryServicer(ForAll(MemoryParts(service, FakeNameResolver(), no_blocks())))}
        ) as channel:
            stub = MemoryServiceStub(channel)
            return [await getattr(stub, method)(request) for method, request in requests]

    [one, two] = [answer.memory for answer in await answers((WRITE, writing("a")), (WRITE, writing("b")))]
    update = pb.UpdateMemoryRequest(
        agent_id="ada",
        memory=memory_pb2.Memory(id=one.id, content="new", etag=one.etag),
        request_id="r-1",
    )
    replaced = replacing(one.id)
    replaced.request_id = "r-2"
    delete = pb.DeleteMemoryRequest(agent_id="ada", memory_id=two.id, etag=two.etag, request_id="r-3")
    asked = ((UPDATE, update), (SUPERSEDE, replaced), (DELETE, delete))
    first, again = await answers(*asked), await answers(*asked)
    assert first[1:] == again[1:]
    assert (again[0].memory.content, again[0].memory.superseded_by_id) == ("new", first[1].memory.id)
    delete.memory_id = one.id
    async with serving(
        {SERVICE: MemoryServicer(ForAll(MemoryParts(service, FakeNameResolver(), no_blocks())))}
    ) as channel:
        stub = MemoryServiceStub(channel)
        assert await rejected(stub.DeleteMemory(delete)) == ("REQUEST_ID_REUSED", ["request_id"])
        assert await listed(stub) == ["better"]


# --- links, filters, across agents ----------------------------------------------------------------


async def test_a_superseded_memory_is_readable_and_not_found_by_search(stub: MemoryServiceStub) -> None:
    old = (await stub.WriteMemory(writing("Anna likes tea"))).memory
    answer = await stub.SupersedeMemory(replacing(old.id, etag=old.etag, type="", content="Anna likes milk"))
    new, gone = answer.memory, answer.superseded
    assert (new.type, new.supersedes_id, gone.superseded_by_id) == ("fact", old.id, new.id)
    assert (await stub.GetMemory(pb.GetMemoryRequest(agent_id="ada", memory_id=old.id))).memory == gone
    found = await stub.SearchMemories(search(query="anna"))
    assert [hit.memory.id for hit in found.hits] == [new.id]
    everything = pb.MemoryFilter(include_superseded=True)
    found = await stub.SearchMemories(search(query="anna", filter=everything))
    assert {hit.memory.id for hit in found.hits} == {old.id, new.id}
    assert await listed(stub) == ["Anna likes milk"]
    assert await rejected(stub.SupersedeMemory(replacing(old.id))) == ("FIELD_INVALID", ["memory_id"])
    assert await rejected(stub.SupersedeMemory(replacing(new.id, etag="7"))) == ("ETAG_MISMATCH", ["etag"])


async def test_contradictions_appear_on_both_memories_until_removed(stub: MemoryServiceStub) -> None:
    one = (await stub.WriteMemory(writing("yes"))).memory
    two = (
        await stub.WriteMemory(
            pb.WriteMemoryRequest(agent_id="ada", memory=fact("no", contradicts_ids=[one.id]))
        )
    ).memory
    one = (await stub.GetMemory(pb.GetMemoryRequest(agent_id="ada", memory_id=one.id))).memory
    assert ([*one.contradicts_ids], [*two.contradicts_ids]) == ([two.id], [one.id])
    none = memory_pb2.Memory(id=one.id)
    answer = await stub.UpdateMemory(update(none, "contradicts_ids"))
    assert not answer.memory.contradicts_ids
    two = (await stub.GetMemory(pb.GetMemoryRequest(agent_id="ada", memory_id=two.id))).memory
    assert not two.contradicts_ids


async def test_filters_narrow_lists_and_searches(stub: MemoryServiceStub) -> None:
    source = memory_pb2.MemorySource(conversation_id="conv_1", turn_id="turn_1")
    for memory in (fact("tea one", metadata=metadata(1), source=source), fact("tea two")):
        await stub.WriteMemory(pb.WriteMemoryRequest(agent_id="ada", memory=memory))
    for narrow, found in (
        (pb.MemoryFilter(metadata=metadata(1)), ["tea one"]),
        (pb.MemoryFilter(metadata=metadata("' OR 1=1 --")), []),
        (pb.MemoryFilter(conversation_id="conv_1"), ["tea one"]),
        (pb.MemoryFilter(turn_id="turn_1", types=["fact"]), ["tea one"]),
        (pb.MemoryFilter(turn_id="turn_1", types=["note"]), []),
        (pb.MemoryFilter(end_time=Timestamp(seconds=1000, nanos=2_000_000)), ["tea one"]),
        (pb.MemoryFilter(start_time=Timestamp(seconds=1000, nanos=2_000_000)), ["tea two"]),
        (pb.MemoryFilter(start_time=Timestamp()), ["tea one", "tea two"]),
    ):
        answer = await stub.ListMemories(listing(filter=narrow))
        assert sorted(memory.content for memory in answer.memories) == found, narrow
        hits = (await stub.SearchMemories(search(filter=narrow))).hits
        assert sorted(hit.memory.content for hit in hits) == found, narrow


async def test_a_search_across_agents_covers_all_or_those_of_a_project(stub: MemoryServiceStub) -> None:
    for agent in ("ada", "bob"):
        await stub.WriteMemory(pb.WriteMemoryRequest(agent_id=agent, memory=fact(f"{agent} likes tea")))
    everybody = search(agent_id="", across_agents=True)
    hits = (await stub.SearchMemories(everybody)).hits
    assert {(hit.memory.agent_id, hit.memory.content) for hit in hits} == {
        ("agt_ada", "ada likes tea"),
        ("agt_bob", "bob likes tea"),
    }
    hits = (await stub.SearchMemories(search(agent_id="", across_agents=True, project_id="default"))).hits
    assert [hit.memory.agent_id for hit in hits] == ["agt_ada"]


async def test_a_search_across_agents_needs_the_scope(service: MemoryService, tmp_path: Path) -> None:
    tokens = tmp_path / "tokens"
    tokens.write_text("secret-of-the-boss-1 boss\nsecret-of-a-clerk-1 clerk\n")
    servicers = {SERVICE: MemoryServicer(ForAll(MemoryParts(service, FakeNameResolver(), no_blocks())))}
    async with serving(servicers, auth_tokens_file=tokens, memory_search_all="boss") as channel:
        stub = MemoryServiceStub(channel)

        def asking(token: str, request: pb.SearchMemoriesRequest) -> Any:
            return stub.SearchMemories(request, metadata=[("authorization", f"Bearer {token}")])

        everybody = search(agent_id="", across_agents=True)
        assert await rejected(asking("secret-of-a-clerk-1", everybody)) == ("PERMISSION_DENIED", [])
        with pytest.raises(aio.AioRpcError, match="with the setting WONDER_MEMORY_SEARCH_ALL"):
            await asking("secret-of-a-clerk-1", everybody)
        assert not (await asking("secret-of-a-clerk-1", search())).hits
        assert not (await asking("secret-of-the-boss-1", everybody)).hits


# --- bad input ------------------------------------------------------------------------------------


def update(memory: memory_pb2.Memory, *paths: str) -> pb.UpdateMemoryRequest:
    return pb.UpdateMemoryRequest(agent_id="ada", memory=memory, update_mask=FieldMask(paths=paths))


def search(**fields: object) -> pb.SearchMemoriesRequest:
    return pb.SearchMemoriesRequest(**{"agent_id": "ada", "query": "tea", **fields})


def replacing(memory_id: str, etag: str = "", **more: object) -> pb.SupersedeMemoryRequest:
    memory = memory_pb2.Memory(**{"type": "fact", "content": "better", **more})
    return pb.SupersedeMemoryRequest(agent_id="ada", memory_id=memory_id, memory=memory, etag=etag)


def listing(**fields: object) -> pb.ListMemoriesRequest:
    return pb.ListMemoriesRequest(agent_id="ada", **fields)


def metadata(value: JsonValue) -> Struct:
    struct = Struct()
    struct.update({"a": {"b": value}})
    return struct


NOT_UTF8, DEEP = field(1, b"\xff\xfe"), deep_struct(40)
BIG = "x" * (1 << 20) + "x"
WRITE, BATCH, GET, LIST, SEARCH = (
    "WriteMemory",
    "BatchWriteMemories",
    "GetMemory",
    "ListMemories",
    "SearchMemories",
)
UPDATE, DELETE, SUPERSEDE = "UpdateMemory", "DeleteMemory", "SupersedeMemory"
ALL = (WRITE, BATCH, GET, UPDATE, DELETE, LIST, SEARCH, SUPERSEDE)

BAD: list[tuple[str, Message, str, list[str]]] = [
    *((method, NOT_UTF8, "MALFORMED_REQUEST", ["agent_id"]) for method in ALL),
    *((method, b"\xff\xff\xff", "MALFORMED_REQUEST", []) for method in ALL),
    *((method, b"", "FIELD_INVALID", ["agent_id"]) for method in ALL),
    *((method, field(1, b"eve"), "AGENT_NOT_FOUND", ["agent_id"]) for method in ALL),
    *((method, field(1, b"x" * 5_000_000), "PAYLOAD_TOO_LARGE", []) for method in ALL),
    *((method, field(1, b"x" * 1_000), "FIELD_INVALID", ["agent_id"]) for method in ALL),
    (WRITE, pb.WriteMemoryRequest(agent_id="ada"), "FIELD_INVALID", ["memory.type"]),
    (WRITE, writing(" \n"), "FIELD_INVALID", ["memory.content"]),
    (WRITE, writing(BIG), "PAYLOAD_TOO_LARGE", ["memory.content"]),
    (WRITE, writing(request_id="r" * 129), "FIELD_INVALID", ["request_id"]),
    (WRITE, field(1, b"ada") + field(2, field(6, DEEP)), "PAYLOAD_TOO_DEEP", ["memory.metadata"]),
    *(
        (WRITE, pb.WriteMemoryRequest(agent_id="ada", memory=memory), reason, [place])
        for memory, reason, place in (
            (fact(significance=nan), "FIELD_INVALID", "memory.significance"),
            (fact(significance=1.5), "FIELD_INVALID", "memory.significance"),
            (fact(metadata=metadata(nan)), "NUMBER_OUT_OF_RANGE", "memory.metadata.a.b"),
            (fact(metadata=metadata(2.0**53)), "NUMBER_OUT_OF_RANGE", "memory.metadata.a.b"),
            (fact(metadata=metadata("x" * 70_000)), "PAYLOAD_TOO_LARGE", "memory.metadata"),
            (fact(contradicts_ids=[UNKNOWN]), "FIELD_INVALID", "memory.contradicts_ids"),
            (fact(contradicts_ids=[UNKNOWN] * 101), "FIELD_INVALID", "memory.contradicts_ids"),
            (fact(source={"speaker": "x" * 129}), "FIELD_INVALID", "memory.source.speaker"),
            (fact(source={"ordinal": -1}), "FIELD_INVALID", "memory.source.ordinal"),
            (fact(source={"turn_id": "t" * 1000}), "FIELD_INVALID", "memory.source.turn_id"),
        )
    ),
    (BATCH, pb.BatchWriteMemoriesRequest(agent_id="ada"), "FIELD_INVALID", ["memories"]),
    (
        BATCH,
        pb.BatchWriteMemoriesRequest(agent_id="ada", memories=[fact(), fact(contradicts_ids=[UNKNOWN])]),
        "FIELD_INVALID",
        ["memories[1].contradicts_ids"],
    ),
    (BATCH, field(1, b"ada") + field(2, b"") * 1001, "FIELD_INVALID", ["memories"]),
    (BATCH, field(1, b"ada") + field(2, field(6, DEEP)), "PAYLOAD_TOO_DEEP", ["memories[0].metadata"]),
    (BATCH, field(1, b"ada") + field(2, field(4, b"\xff")), "MALFORMED_REQUEST", ["memories[0].content"]),
    *(
        (method, kind(agent_id="ada", memory_id=memory_id), reason, ["memory_id"])
        for method, kind in ((GET, pb.GetMemoryRequest), (DELETE, pb.DeleteMemoryRequest))
        for memory_id, reason in (
            ("", "FIELD_INVALID"),
            (UNKNOWN, "MEMORY_NOT_FOUND"),
            ("nonsense' --", "MEMORY_NOT_FOUND"),
            ("m" * 100_000, "FIELD_INVALID"),
        )
    ),
    (UPDATE, update(fact()), "FIELD_INVALID", ["memory.id"]),
    (UPDATE, update(fact(id=UNKNOWN)), "MEMORY_NOT_FOUND", ["memory.id"]),
    (UPDATE, update(memory_pb2.Memory(id=UNKNOWN)), "FIELD_INVALID", ["update_mask"]),
    (UPDATE, update(fact(id=UNKNOWN), "id"), "FIELD_MASK_UNSUPPORTED", ["update_mask"]),
    (UPDATE, update(fact(id=UNKNOWN), "type", "metadata.a"), "FIELD_MASK_UNSUPPORTED", ["update_mask"]),
    (UPDATE, update(fact(id=UNKNOWN), "x" * 100_000), "FIELD_MASK_UNSUPPORTED", ["update_mask"]),
    (UPDATE, update(memory_pb2.Memory(id=UNKNOWN), "content"), "FIELD_INVALID", ["memory.content"]),
    (UPDATE, update(fact(id=UNKNOWN, significance=nan)), "FIELD_INVALID", ["memory.significance"]),
    (UPDATE, field(1, b"ada") + field(2, field(6, DEEP)), "PAYLOAD_TOO_DEEP", ["memory.metadata"]),
    (LIST, listing(page_size=-1), "FIELD_INVALID", ["page_size"]),
    *(
        (LIST, listing(page_token=token), "PAGE_TOKEN_INVALID", ["page_token"])
        for token in ("garbage", "🍵", "x" * 100_000, "AAAA")
    ),
    *(
        (method, kind(filter=narrow), reason, [place])
        for method, kind in (
            (LIST, lambda **more: pb.ListMemoriesRequest(agent_id="ada", **more)),
            (SEARCH, search),
        )
        for narrow, reason, place in (
            (pb.MemoryFilter(types=["fact", ""]), "FIELD_INVALID", "filter.types[1]"),
            (pb.MemoryFilter(types=["t"] * 101), "FIELD_INVALID", "filter.types"),
            (pb.MemoryFilter(metadata=metadata(nan)), "NUMBER_OUT_OF_RANGE", "filter.metadata.a.b"),
            (pb.MemoryFilter(metadata=metadata("x" * 70_000)), "PAYLOAD_TOO_LARGE", "filter.metadata"),
            (pb.MemoryFilter(conversation_id="c" * 1000), "FIELD_INVALID", "filter.conversation_id"),
            (pb.MemoryFilter(turn_id="t" * 1000), "FIELD_INVALID", "filter.turn_id"),
            (pb.MemoryFilter(start_time=Timestamp(seconds=1 << 60)), "FIELD_INVALID", "filter.start_time"),
            (pb.MemoryFilter(end_time=Timestamp(nanos=-1)), "FIELD_INVALID", "filter.end_time"),
        )
    ),
    (LIST, field(1, b"ada") + field(2, field(2, DEEP)), "PAYLOAD_TOO_DEEP", ["filter.metadata"]),
    (SEARCH, field(1, b"ada") + field(4, field(2, DEEP)), "PAYLOAD_TOO_DEEP", ["filter.metadata"]),
    (SEARCH, search(query=""), "FIELD_INVALID", ["query"]),
    (SEARCH, search(query="x" * 65_537), "PAYLOAD_TOO_LARGE", ["query"]),
    (SEARCH, search(limit=-1), "FIELD_INVALID", ["limit"]),
    (SEARCH, search(limit=101), "FIELD_INVALID", ["limit"]),
    (SEARCH, search(min_score=nan), "FIELD_INVALID", ["min_score"]),
    (SEARCH, search(across_agents=True), "FIELD_INVALID", ["agent_id"]),
    (SEARCH, search(project_id="default"), "FIELD_INVALID", ["project_id"]),
    (SEARCH, search(agent_id="", across_agents=True, project_id="x"), "PROJECT_NOT_FOUND", ["project_id"]),
    *(
        (SEARCH, search(weights=pb.SearchWeights(relevance=weight)), "FIELD_INVALID", ["weights"])
        for weight in (nan, inf, -1)
    ),
    (SUPERSEDE, pb.SupersedeMemoryRequest(agent_id="ada"), "FIELD_INVALID", ["memory_id"]),
    (SUPERSEDE, replacing(UNKNOWN), "MEMORY_NOT_FOUND", ["memory_id"]),
    (SUPERSEDE, replacing(UNKNOWN, type=""), "MEMORY_NOT_FOUND", ["memory_id"]),
    (SUPERSEDE, replacing(UNKNOWN, content=""), "FIELD_INVALID", ["memory.content"]),
    (SUPERSEDE, replacing(UNKNOWN, etag="1"), "MEMORY_NOT_FOUND", ["memory_id"]),
]


@pytest.mark.parametrize(
    ("method", "request_", "reason", "fields"),
    BAD,
    ids=[f"{bad[0]}-{bad[2]}-{at}" for at, bad in enumerate(BAD)],
)
async def test_bad_input_gets_the_documented_reason_and_has_no_effect(
    channel: aio.Channel,
    stub: MemoryServiceStub,
    method: str,
    request_: Message,
    reason: str,
    fields: list[str],
) -> None:
    data = request_ if isinstance(request_, bytes) else request_.SerializeToString()
    assert await rejected(channel.unary_unary(f"/{SERVICE}/{method}")(data)) == (reason, fields)
    assert await listed(stub) == []
