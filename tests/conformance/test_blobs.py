"""Every store of objects behaves the same: one suite for the port `wonder_server.ports.blobs.Blobs`."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
import pytest_asyncio

from wonder_server.adapters.files.blobs import FileBlobs
from wonder_server.adapters.in_memory.blobs import MemoryBlobs
from wonder_server.core.errors import Reason, WonderError
from wonder_server.ports.blobs import Blobs, key_of


@dataclass
class Subject:
    """A store, and how to damage one of its objects."""

    blobs: Blobs
    damage: Callable[[str, bytes], object]


@pytest_asyncio.fixture(params=["memory", "files"])
async def subject(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Subject]:
    if request.param == "memory":
        memory = MemoryBlobs()
        yield Subject(memory, memory.held.__setitem__)
    else:
        files = await FileBlobs.open(tmp_path / "blobs")
        yield Subject(files, lambda key, content: (tmp_path / "blobs" / key[:2] / key).write_bytes(content))


@pytest.mark.parametrize("content", [b"", b"x", bytes(range(256)) * 5000])
async def test_what_was_put_is_there_by_the_hash_of_its_content(subject: Subject, content: bytes) -> None:
    key = await subject.blobs.put(content)
    assert key == key_of(content)
    assert await subject.blobs.get(key) == content
    assert await subject.blobs.exists(key)


async def test_the_same_content_is_there_once(subject: Subject) -> None:
    keys = await asyncio.gather(*(subject.blobs.put(b"same") for _ in range(10)))
    assert len(set(keys)) == 1
    await subject.blobs.delete(keys[0])
    assert await subject.blobs.get(keys[0]) is None


async def test_what_is_not_there_is_none(subject: Subject) -> None:
    for key in (key_of(b"never"), "", "x", "../../etc/passwd", "a" * 63 + "/", key_of(b"x").upper()):
        assert await subject.blobs.get(key) is None
        assert not await subject.blobs.exists(key)
        await subject.blobs.delete(key)


async def test_what_is_deleted_is_gone_and_the_rest_stays(subject: Subject) -> None:
    one, two = await subject.blobs.put(b"one"), await subject.blobs.put(b"two")
    await subject.blobs.delete(one)
    await subject.blobs.delete(one)
    assert not await subject.blobs.exists(one)
    assert await subject.blobs.get(two) == b"two"


@pytest.mark.parametrize("damaged", [b"", b"whole, nearl", b"whole, nearly", b"WHOLE, nearly!", b"x" * 1000])
async def test_a_damaged_object_is_an_error_and_put_again_is_whole(subject: Subject, damaged: bytes) -> None:
    key = await subject.blobs.put(b"whole, nearly!")
    subject.damage(key, damaged)
    with pytest.raises(WonderError) as problem:
        await subject.blobs.get(key)
    assert problem.value.fault.reason is Reason.STORAGE_UNAVAILABLE
    assert await subject.blobs.put(b"whole, nearly!") == key
    assert await subject.blobs.get(key) == b"whole, nearly!"


async def test_files_outlive_their_store_and_half_written_ones_are_cleared_away(tmp_path: Path) -> None:
    key = await (await FileBlobs.open(tmp_path)).put(b"kept")
    (tmp_path / "tmp" / "half").write_bytes(b"ke")
    again = await FileBlobs.open(tmp_path)
    assert await again.get(key) == b"kept"
    assert not list((tmp_path / "tmp").iterdir())


async def test_a_folder_that_cannot_be_written_is_storage_that_is_unavailable(tmp_path: Path) -> None:
    blobs = await FileBlobs.open(tmp_path / "blobs")
    (tmp_path / "blobs" / key_of(b"x")[:2]).write_text("in the way")
    with pytest.raises(WonderError) as problem:
        await blobs.put(b"x")
    assert problem.value.fault.reason is Reason.STORAGE_UNAVAILABLE and problem.value.fault.transient
    assert not list((tmp_path / "blobs" / "tmp").iterdir())
