"""Memory over gRPC, on real servers: agents apart, many conversations at once, rules in time, forgetting."""

from __future__ import annotations

import asyncio
import random
import sqlite3
from pathlib import Path
from typing import Any

import grpc
import pytest
import yaml
from grpc import aio

from tests.depth import by_depth
from tests.e2e.client import PATIENCE_S, Client, all_of, struct
from tests.e2e.process import serving
from wonder.v1 import definition_pb2, library_pb2, memory_pb2
from wonder.v1 import library_service_pb2 as library
from wonder.v1 import memory_service_pb2 as pb
from wonder_server.rpc.library.documents import fill_from_document

pytestmark = pytest.mark.asyncio(loop_scope="session")

PERSONA = "wonder/std/assistant"
OPERATIONS = by_depth(2_500, 10_000)
WORKERS = 16


class Owner:
    """An agent with a project, what it wrote, and a word that only it says."""

    def __init__(self, number: int, agent_id: str) -> None:
        self.agent_id = agent_id
        self.word = f"secret{number}qzx"
        self.ids: list[str] = []


async def owners(client: Client, count: int) -> list[Owner]:
    made = []
    for number in range(count):
        project = library_pb2.Project(name=f"apart-{number // 2}")
        if number % 2 == 0:
            await client.library.CreateProject(library.CreateProjectRequest(project=project))
        agent = library_pb2.Agent(name=f"apart-{number}", persona_id=PERSONA, project_ids=[project.name])
        answer = await client.library.CreateAgent(library.CreateAgentRequest(agent=agent))
        made.append(Owner(number, answer.agent.id))
    return made


async def test_no_operation_shows_anything_of_another_agent(client: Client) -> None:
    everyone = await owners(client, 8)
    chance = random.Random(11)
    refused = 0

    async def some(count: int) -> None:
        nonlocal refused
        for _ in range(count):
            owner = chance.choice(everyone)
            other = chance.choice([each for each in everyone if each is not owner])
            method, request = an_operation(chance, owner, other)
            try:
                answer = await getattr(client.memory, method)(request)
            except aio.AioRpcError as problem:
                refused += 1
                said = f"{problem.details()} {problem.trailing_metadata()}"
                assert not any(each.word in said for each in everyone if each is not owner)
                continue
            received = answer.SerializeToString()
            asked = request.SerializeToString()
            for each in everyone:
                if each is owner:
                    continue
                assert each.word.encode() not in received, (method, request)
                assert each.agent_id.encode() not in received
            for memory_id in other.ids:
                assert memory_id.encode() not in received or memory_id.encode() in asked, (method, request)
            for memory in [*getattr(answer, "memories", ()), *written(answer)]:
                assert memory.agent_id == owner.agent_id
                owner.ids.append(memory.id)

    await asyncio.gather(*(some(OPERATIONS // WORKERS) for _ in range(WORKERS)))
    assert refused > OPERATIONS / 20, "others' ids were tried"
    # All memories are intact: each belongs to its owner, word for word.
    for owner in everyone:
        answer = await client.memory.ListMemories(
            pb.ListMemoriesRequest(agent_id=owner.agent_id, page_size=500)
        )
        assert answer.memories and all(owner.word in memory.content for memory in answer.memories)


def written(answer: Any) -> list[memory_pb2.Memory]:
    return [answer.memory] if "memory" in answer.DESCRIPTOR.fields_by_name else []


def an_operation(chance: random.Random, owner: Owner, other: Owner) -> tuple[str, Any]:
    """Something that an agent does, half of the time with an id or a word of another's."""
    mine, theirs = [chance.choice(each.ids) if each.ids else "mem_0" for each in (owner, other)]
    memory_id, to = (mine if chance.random() < 0.5 else theirs), {"agent_id": owner.agent_id}
    rest = " and more" * chance.choice([1, 1, 1, 1, 600])
    draft = memory_pb2.Memory(type=chance.choice("ab"), content=f"{owner.word} {chance.random()}{rest}")
    draft.metadata.update({"k": chance.choice([1, 2, "x"])})
    draft.source.conversation_id, draft.source.ordinal = "conv_shared", chance.randint(1, 50)
    if chance.random() < 0.2:
        draft.contradicts_ids.append(memory_id)
    narrow = pb.MemoryFilter(types=chance.choice([[], ["a"]]), include_superseded=chance.random() < 0.5)
    if chance.random() < 0.3:
        narrow.metadata.update({"k": chance.choice([1, 2, "x"])})
    if chance.random() < 0.3:
        narrow.conversation_id = "conv_shared"
    query = chance.choice([other.word, owner.word, f"{other.word} and more", memory_id])
    changed = memory_pb2.Memory(id=memory_id, content=draft.content)
    asked: list[tuple[str, Any]] = [
        ("WriteMemory", pb.WriteMemoryRequest(memory=draft, unless_known=chance.random() < 0.5, **to)),
        ("BatchWriteMemories", pb.BatchWriteMemoriesRequest(memories=[draft] * 2, **to)),
        ("GetMemory", pb.GetMemoryRequest(memory_id=memory_id, **to)),
        ("UpdateMemory", pb.UpdateMemoryRequest(memory=changed, **to)),
        ("DeleteMemory", pb.DeleteMemoryRequest(memory_id=memory_id, **to)),
        ("SupersedeMemory", pb.SupersedeMemoryRequest(memory_id=memory_id, memory=draft, **to)),
        ("ListMemories", pb.ListMemoriesRequest(filter=narrow, page_size=20, **to)),
        ("SearchMemories", pb.SearchMemoriesRequest(query=query, filter=narrow, **to)),
    ]
    return chance.choices(asked, [4, 1, 4, 4, 3, 3, 2, 6])[0]


async def test_twenty_conversations_of_one_agent_lose_nothing_and_double_nothing(client: Client) -> None:
    await client.agent("many-ears", PERSONA)
    convs = await all_of(client.open("many-ears") for _ in range(20))
    names = ["Rex", "Ida", "Bo", "Uma", "Kit"]

    async def tell(number: int, conv: str) -> None:
        for turn, name in enumerate(names):
            # One fact of its own, one that others tell as well.
            said = await client.say(
                conv, f"My dog number {number} has friend {turn}. My neighbour is called {name}."
            )
            await client.settled(conv, said.turn.id)

    await asyncio.gather(*(tell(number, conv) for number, conv in enumerate(convs)))
    request = pb.ListMemoriesRequest(agent_id="many-ears", page_size=500)
    memories = (await client.memory.ListMemories(request)).memories
    own = {f"My dog number {number} has friend {turn}." for number in range(20) for turn in range(5)}
    shared = {f"My neighbour is called {name}." for name in names}
    assert sorted(memory.content for memory in memories) == sorted(own | shared)
    for memory in memories:
        source = memory.source
        assert source.conversation_id in convs and source.turn_id and source.run_id


RULES = """
name: forgetful
persona:
  system_prompt: x
  retention:
    - {types: [note], action: delete, older_than_ms: 1}
    - {types: [fact], action: keep}
    - {action: consolidate, older_than_ms: 1}
"""


async def test_rules_of_a_persona_delete_and_sum_up_in_time(data: Path) -> None:
    async with (
        serving(data, environment={"WONDER_SWEEP_INTERVAL_SECONDS": "1"}) as server,
        server.client() as client,
    ):
        document = definition_pb2.Definition()
        fill_from_document(document, yaml.safe_load(RULES))
        await client.library.ApplyDefinitions(
            library.ApplyDefinitionsRequest(library="e2e/rules", definitions=[document])
        )
        await client.agent("forgetful", "e2e/rules/forgetful")
        kinds = [("note", "a note"), ("fact", "a fact"), ("episode", "first"), ("episode", "second")]
        drafts = [memory_pb2.Memory(type=kind, content=content) for kind, content in kinds]
        await client.memory.BatchWriteMemories(
            pb.BatchWriteMemoriesRequest(agent_id="forgetful", memories=drafts)
        )
        async with asyncio.timeout(PATIENCE_S):
            while sorted(await client.memories("forgetful")) != ["a fact", "first\nsecond"]:  # noqa: ASYNC110
                await asyncio.sleep(0.1)
        everything = pb.MemoryFilter(include_superseded=True)
        request = pb.ListMemoriesRequest(agent_id="forgetful", filter=everything)
        memories = {memory.content: memory for memory in (await client.memory.ListMemories(request)).memories}
        assert sorted(memories) == ["a fact", "first", "first\nsecond", "second"]
        assert memories["first"].HasField("archive_time") and memories["second"].HasField("archive_time")
        summary = memories["first\nsecond"]
        assert (summary.type, summary.metadata["stands_for"]) == ("summary", 2)
        assert summary.source.run_id


async def test_what_an_agent_remembers_goes_with_it(tmp_path: Path) -> None:
    data, long = tmp_path / "data", "pineapple " * 1000
    async with serving(data) as server, server.client() as client:
        agent_id = await client.agent("guest", PERSONA)
        await client.memory.WriteMemory(
            pb.WriteMemoryRequest(
                agent_id="guest",
                memory=memory_pb2.Memory(type="fact", content=long, metadata=struct(a=1)),
            )
        )
        assert len(list((data / "blobs").glob("??/*"))) == 1
        await client.library.DeleteAgent(library.DeleteAgentRequest(agent_id=agent_id))
        with pytest.raises(aio.AioRpcError):
            await client.memories(agent_id)
        async with asyncio.timeout(PATIENCE_S):
            while list((data / "blobs").glob("??/*")):  # noqa: ASYNC110
                await asyncio.sleep(0.05)
    with sqlite3.connect(data / "memory.db") as rows:
        for table in ("memories", "embeddings", "fields", "overflow_words", "memories_text_docsize"):
            assert rows.execute(f"SELECT count(*) FROM {table}").fetchone() == (0,), table
    rows.close()


async def test_what_a_tool_remembers_says_which_turn_and_move_it_came_from(client: Client) -> None:
    await client.agent("source-teller", PERSONA)
    conv = await client.open("source-teller")
    turn, _ = await client.turn(conv, "remember that I like tea")
    [move, *_] = await client.moves(turn.id, conv)
    answer = await client.memory.ListMemories(pb.ListMemoriesRequest(agent_id="source-teller"))
    [source] = [memory.source for memory in answer.memories]
    assert (source.conversation_id, source.turn_id, source.move_id) == (conv, turn.id, move.id)


async def test_an_unavailable_object_store_is_reported_and_nothing_is_half_written(tmp_path: Path) -> None:
    data, long = tmp_path / "data", "pineapple " * 1000

    def writing(content: str) -> pb.WriteMemoryRequest:
        memory = memory_pb2.Memory(type="fact", content=content)
        return pb.WriteMemoryRequest(agent_id="assistant", memory=memory, request_id=content[:20])

    async def unavailable(call: Any) -> None:
        with pytest.raises(aio.AioRpcError) as problem:
            await call
        assert problem.value.code() is grpc.StatusCode.UNAVAILABLE
        assert "STORAGE_UNAVAILABLE" in str(problem.value.trailing_metadata())

    async with serving(data) as server, server.client() as client:
        kept = (await client.memory.WriteMemory(writing(long))).memory
        get = pb.GetMemoryRequest(agent_id="assistant", memory_id=kept.id)
        (data / "blobs").rename(tmp_path / "away")
        (data / "blobs").write_text("no folder")
        await unavailable(client.memory.WriteMemory(writing("plum " * 1000)))
        await unavailable(client.memory.GetMemory(get))
        await client.memory.WriteMemory(writing("short"))
        (data / "blobs").unlink()
        (tmp_path / "away").rename(data / "blobs")
        assert (await client.memory.GetMemory(get)).memory == kept
        assert sorted(await client.memories()) == sorted([long, "short"])
        await client.memory.WriteMemory(writing("plum " * 1000))
        assert len(await client.memories()) == 3
