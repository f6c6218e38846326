"""Memory blocks over gRPC: set, read, list, delete, etags, requests, bad input (feature M13)."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.rpc.memory.test_servicer import SERVICE, FakeNameResolver, TickingClock
from tests.rpc.rpc_kit import rejected, serving
from tests.services.memory.memory_kit import open_memory_stack
from tests.views import ForAll
from wonder.v1 import memory_pb2
from wonder.v1 import memory_service_pb2 as pb
from wonder.v1.memory_service_pb2_grpc import MemoryServiceStub
from wonder_server.core.memory.blocks import Author, BlockKey
from wonder_server.rpc.memory.servicer import MemoryParts, MemoryServicer
from wonder_server.services.memory.blocks import MemoryBlockService


@pytest.fixture
async def opened(tmp_path: Path) -> AsyncIterator[tuple[MemoryServiceStub, MemoryBlockService]]:
    async with open_memory_stack(tmp_path, TickingClock()) as stack:
        parts = MemoryParts(stack.service, FakeNameResolver(), stack.blocks)
        async with serving({SERVICE: MemoryServicer(ForAll(parts))}) as channel:
            yield MemoryServiceStub(channel), stack.blocks


@pytest.fixture
def stub(opened: tuple[MemoryServiceStub, MemoryBlockService]) -> MemoryServiceStub:
    return opened[0]


def setting(
    label: str = "notes", content: str = "Be kind.", request_id: str = "", **fields: str
) -> pb.SetMemoryBlockRequest:
    block = memory_pb2.MemoryBlock(label=label, content=content, **fields)  # type: ignore[arg-type]
    return pb.SetMemoryBlockRequest(agent_id="ada", block=block, request_id=request_id)


def named(label: str = "notes", subject: str = "") -> dict[str, str]:
    return {"agent_id": "ada", "label": label, "subject": subject}


async def test_a_block_is_set_read_listed_and_deleted(stub: MemoryServiceStub) -> None:
    asked = setting(description="Rules.")
    asked.block.max_characters, asked.block.read_only = 100, True
    block = (await stub.SetMemoryBlock(asked)).block
    assert (block.label, block.content, block.max_characters, block.read_only) == (
        "notes",
        "Be kind.",
        100,
        True,
    )
    assert block.description == "Rules." and block.create_time == block.update_time and block.etag
    assert (await stub.GetMemoryBlock(pb.GetMemoryBlockRequest(**named()))).block == block
    about = (await stub.SetMemoryBlock(setting("human", "Likes tea.", subject="mia"))).block
    assert about.max_characters == 2_000
    for subject, found in ((None, [block, about]), ("", [block]), ("mia", [about]), ("bob", [])):
        listed = await stub.ListMemoryBlocks(pb.ListMemoryBlocksRequest(agent_id="ada", subject=subject))
        assert list(listed.blocks) == found
    first = await stub.ListMemoryBlocks(pb.ListMemoryBlocksRequest(agent_id="ada", page_size=1))
    request = pb.ListMemoryBlocksRequest(agent_id="ada", page_size=1, page_token=first.next_page_token)
    assert [*first.blocks, *(await stub.ListMemoryBlocks(request)).blocks] == [block, about]
    await stub.DeleteMemoryBlock(pb.DeleteMemoryBlockRequest(**named()))
    missing = await rejected(stub.GetMemoryBlock(pb.GetMemoryBlockRequest(**named())))
    assert missing == ("MEMORY_NOT_FOUND", ["label"])


async def test_an_etag_protects_a_block(stub: MemoryServiceStub) -> None:
    first = (await stub.SetMemoryBlock(setting())).block
    second = (await stub.SetMemoryBlock(setting(content="Two.", etag=first.etag))).block
    assert second.etag != first.etag
    late = await rejected(stub.SetMemoryBlock(setting(content="Three.", etag=first.etag)))
    assert late == ("ETAG_MISMATCH", ["block.etag"])
    request = pb.DeleteMemoryBlockRequest(**named(), etag=first.etag)
    assert await rejected(stub.DeleteMemoryBlock(request)) == ("ETAG_MISMATCH", ["etag"])
    assert await rejected(stub.SetMemoryBlock(setting(etag="x"))) == ("ETAG_MISMATCH", ["block.etag"])


async def test_a_repeated_request_changes_a_block_once(stub: MemoryServiceStub) -> None:
    first = (await stub.SetMemoryBlock(setting(request_id="r1"))).block
    assert (await stub.SetMemoryBlock(setting(request_id="r1"))).block == first
    assert (await rejected(stub.SetMemoryBlock(setting(content="x", request_id="r1"))))[
        0
    ] == "REQUEST_ID_REUSED"
    for _ in range(2):
        await stub.DeleteMemoryBlock(pb.DeleteMemoryBlockRequest(**named(), request_id="r2"))


async def test_changes_say_who_made_them(opened: tuple[MemoryServiceStub, MemoryBlockService]) -> None:
    stub, blocks = opened
    await stub.SetMemoryBlock(setting())
    key, author = BlockKey(agent_id="agt_ada", label="notes"), Author(user_id="mia", turn_id="turn_1")
    await blocks.append(key, "Be brief.", author)
    await stub.DeleteMemoryBlock(pb.DeleteMemoryBlockRequest(**named()))
    request = pb.ListMemoryBlockChangesRequest(**named())
    deleted, appended, made = (await stub.ListMemoryBlockChanges(request)).changes
    assert (appended.user_id, appended.turn_id, appended.content) == ("mia", "turn_1", "")
    assert [each.kind for each in (made, appended, deleted)] == [
        memory_pb2.MEMORY_BLOCK_CHANGE_KIND_SET,
        memory_pb2.MEMORY_BLOCK_CHANGE_KIND_APPEND,
        memory_pb2.MEMORY_BLOCK_CHANGE_KIND_DELETE,
    ]
    assert made.principal == deleted.principal == "anonymous"


@pytest.mark.parametrize(
    ("request_", "reason", "field"),
    [
        (setting(label=""), "FIELD_INVALID", "block.label"),
        (setting(label="Notes"), "FIELD_INVALID", "block.label"),
        (setting(subject="x" * 129), "FIELD_INVALID", "block.subject"),
        (setting(content="x" * 2_001), "FIELD_INVALID", "block.content"),
        (setting(description="x" * 501), "FIELD_INVALID", "block.description"),
        (
            pb.SetMemoryBlockRequest(agent_id="ada", block={"label": "a", "max_characters": -1}),
            "FIELD_INVALID",
            "block.max_characters",
        ),
        (
            pb.SetMemoryBlockRequest(agent_id="nobody_knows", block={"label": "a"}),
            "AGENT_NOT_FOUND",
            "agent_id",
        ),
        (pb.SetMemoryBlockRequest(), "FIELD_INVALID", "agent_id"),
    ],
)
async def test_bad_input_is_refused(
    stub: MemoryServiceStub, request_: pb.SetMemoryBlockRequest, reason: str, field: str
) -> None:
    assert await rejected(stub.SetMemoryBlock(request_)) == (reason, [field])
