"""Object stores: one suite for the port `wonder_server.ports.blobs.Blobs`."""

from __future__ import annotations

import asyncio
import io
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import pytest_asyncio

from tests.s3_server import S3Server, s3_server
from wonder_server.adapters.files.blobs import FileBlobs
from wonder_server.adapters.in_memory.blobs import MemoryBlobs
from wonder_server.adapters.s3.blobs import S3Blobs, S3Config
from wonder_server.core.errors import Fault, Reason, WonderError
from wonder_server.ports.blobs import Blobs, key_of


@dataclass
class Subject:
    """A store, and a function that damages one of its objects."""

    blobs: Blobs
    damage: Callable[[str, bytes], object]


@pytest.fixture(scope="module")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    server = s3_server(tmp_path_factory.mktemp("s3") / "objects")
    server.start()
    yield server
    server.kill()


def new_bucket() -> str:
    return f"bucket-{secrets.token_hex(8)}"


@pytest_asyncio.fixture(params=["memory", "files", "s3"])
async def subject(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Subject]:
    if request.param == "memory":
        memory = MemoryBlobs()
        yield Subject(memory, memory.contents.__setitem__)
    elif request.param == "s3":
        blobs = S3Blobs(request.getfixturevalue("s3").store(bucket := new_bucket()))

        def damage(key: str, content: bytes) -> None:
            blobs._client.put_object(bucket, f"{key[:2]}/{key}", io.BytesIO(content), len(content))

        yield Subject(blobs, damage)
        await blobs.close()
    else:
        files = await FileBlobs.open(tmp_path / "blobs")
        yield Subject(files, lambda key, content: (tmp_path / "blobs" / key[:2] / key).write_bytes(content))


@pytest.mark.parametrize("content", [b"", b"x", "🎈\0".encode(), bytes(range(256)) * 5000, b"m" * 10_000_000])
async def test_an_object_is_stored_under_the_hash_of_its_content(subject: Subject, content: bytes) -> None:
    key = await subject.blobs.put(content)
    assert key == key_of(content)
    assert await subject.blobs.get(key) == content
    assert await subject.blobs.exists(key)


async def test_equal_contents_are_stored_once(subject: Subject) -> None:
    keys = await asyncio.gather(*(subject.blobs.put(b"same") for _ in range(10)))
    assert len(set(keys)) == 1
    await subject.blobs.delete(keys[0])
    assert await subject.blobs.get(keys[0]) is None


async def test_a_missing_resource_is_none(subject: Subject) -> None:
    await subject.blobs.put(b"something else")
    for key in (key_of(b"never"), "", "x", "../../etc/passwd", "a" * 63 + "/", key_of(b"x").upper()):
        assert await subject.blobs.get(key) is None
        assert not await subject.blobs.exists(key)
        await subject.blobs.delete(key)


async def test_deleting_an_object_keeps_the_others(subject: Subject) -> None:
    one, two = await subject.blobs.put(b"one"), await subject.blobs.put(b"two")
    await subject.blobs.delete(one)
    await subject.blobs.delete(one)
    assert not await subject.blobs.exists(one)
    assert await subject.blobs.get(two) == b"two"


@pytest.mark.parametrize("damaged", [b"", b"whole, nearl", b"whole, nearly", b"WHOLE, nearly!", b"x" * 1000])
async def test_a_damaged_object_is_an_error_until_it_is_put_again(subject: Subject, damaged: bytes) -> None:
    key = await subject.blobs.put(b"whole, nearly!")
    subject.damage(key, damaged)
    with pytest.raises(WonderError) as problem:
        await subject.blobs.get(key)
    assert problem.value.fault.reason is Reason.STORAGE_UNAVAILABLE
    assert await subject.blobs.put(b"whole, nearly!") == key
    assert await subject.blobs.get(key) == b"whole, nearly!"


async def test_objects_survive_a_restart_and_drafts_are_removed(tmp_path: Path) -> None:
    key = await (await FileBlobs.open(tmp_path)).put(b"kept")
    (tmp_path / "tmp" / "half").write_bytes(b"ke")
    again = await FileBlobs.open(tmp_path)
    assert await again.get(key) == b"kept"
    assert not list((tmp_path / "tmp").iterdir())


async def test_an_unwritable_folder_is_storage_unavailable(tmp_path: Path) -> None:
    blobs = await FileBlobs.open(tmp_path / "blobs")
    (tmp_path / "blobs" / key_of(b"x")[:2]).write_text("in the way")
    with pytest.raises(WonderError) as problem:
        await blobs.put(b"x")
    assert problem.value.fault.reason is Reason.STORAGE_UNAVAILABLE and problem.value.fault.transient
    assert not list((tmp_path / "blobs" / "tmp").iterdir())


# --- a remote store -----------------------------------------------------------------------------


@pytest_asyncio.fixture
async def far(s3: S3Server) -> AsyncIterator[S3Blobs]:
    blobs = S3Blobs(s3.store(new_bucket()))
    await blobs.put(b"first")
    yield blobs
    await blobs.close()


async def unavailable(work: Awaitable[object]) -> Fault:
    with pytest.raises(WonderError) as problem:
        await work
    assert problem.value.fault.reason is Reason.STORAGE_UNAVAILABLE
    return problem.value.fault


async def test_an_unreachable_store_is_an_error_until_it_returns(s3: S3Server, far: S3Blobs) -> None:
    key = await far.put(b"kept")
    s3.kill()
    try:
        for work in (far.put(b"new"), far.get(key), far.exists(key), far.delete(key)):
            fault = await unavailable(work)
            assert fault.transient and "cannot be reached" in fault.message
    finally:
        s3.start()
    assert await far.get(key) == b"kept"
    assert await far.get(await far.put(b"new")) == b"new"


async def test_a_silent_store_fails_within_the_deadline(s3: S3Server) -> None:
    blobs = S3Blobs(s3.store(new_bucket()), deadline_s=0.2)
    key = key_of(b"first")
    s3.hold(still=True)
    try:
        faults = await asyncio.gather(*(unavailable(blobs.get(key)) for _ in range(100)))
        assert all(fault.transient and "within 0.2 s" in fault.message for fault in faults)
    finally:
        s3.hold(still=False)
    await blobs.close()


async def test_a_store_that_dies_while_it_writes_has_all_or_nothing(s3: S3Server, far: S3Blobs) -> None:
    content = secrets.token_bytes(20_000_000)
    writing = asyncio.create_task(far.put(content))
    await asyncio.wait({writing}, timeout=0.05)
    s3.kill()
    s3.start()
    await asyncio.gather(writing, return_exceptions=True)
    assert await far.get(key_of(content)) in (None, content)
    assert await far.put(content) == key_of(content)
    assert await far.get(key_of(content)) == content


async def test_the_first_put_creates_the_bucket_and_reading_needs_one(s3: S3Server) -> None:
    one, two = (S3Blobs(store) for store in [s3.store(new_bucket())] * 2)
    assert "no bucket" in (await unavailable(one.get(key_of(b"x")))).message
    await asyncio.gather(*(blobs.put(b"%d" % number) for number in range(20) for blobs in (one, two)))
    assert await two.get(key_of(b"7")) == b"7"
    await asyncio.gather(one.close(), two.close())


async def test_wrong_keys_are_reported_and_never_shown(s3: S3Server) -> None:
    for wrong in ({"secret_key": "not-the-secret"}, {"access_key": "unknown-key"}):
        store = s3.store(new_bucket(), **wrong)
        blobs = S3Blobs(store)
        fault = await unavailable(blobs.put(b"x"))
        assert not fault.transient and "Check the keys" in fault.message
        for text in (fault.message, repr(store), repr(blobs), str(fault)):
            assert not any(word in text for word in (store.access_key, store.secret_key))
        await blobs.close()


async def test_a_store_without_a_listener_is_unavailable() -> None:
    blobs = S3Blobs(S3Config(endpoint="http://127.0.0.1:9", bucket="none", access_key="a", secret_key="b"))
    assert (await unavailable(blobs.put(b"x"))).transient
    await blobs.close()
