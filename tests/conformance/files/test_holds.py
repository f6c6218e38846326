"""Removals that are held while files are copied."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

from tests.services.content.repositories_kit import need_git
from wonder_server.adapters.backup.folder import open_folder
from wonder_server.adapters.files.blobs import FileBlobs, place_of
from wonder_server.adapters.git.repositories import GitRepositories
from wonder_server.adapters.git.storage.command import Git, ThreadPool
from wonder_server.ports.repositories import Change, CommitMetadata

need_git()


def copied(data: Path, target: Path) -> set[str]:
    """Return the paths of the objects that a backup has."""
    with open_folder(target) as folder:
        return {each.path for each in folder.add_tree(data, "blobs", lambda size: None, place_of)}


async def test_an_object_that_is_deleted_during_a_backup_is_in_it(tmp_path: Path) -> None:
    blobs = await FileBlobs.open(tmp_path / "blobs")
    kept, gone, again = [await blobs.put(content) for content in (b"kept", b"gone", b"again")]
    wanted = {f"blobs/{key[:2]}/{key}" for key in (kept, gone, again)}
    async with blobs.hold():
        await blobs.delete(gone)
        await blobs.delete(gone)
        await blobs.delete(again)
        assert await blobs.get(gone) is None and not await blobs.exists(gone)
        assert await blobs.put(b"again") == again
        assert copied(tmp_path, tmp_path / "one") == wanted
        async with blobs.hold():
            pass
        assert copied(tmp_path, tmp_path / "two") == wanted
    assert copied(tmp_path, tmp_path / "three") == wanted - {f"blobs/{gone[:2]}/{gone}"}
    assert not [*(tmp_path / "blobs" / "tmp").iterdir()]


async def test_a_kill_during_a_backup_leaves_no_deleted_object(tmp_path: Path) -> None:
    blobs = await FileBlobs.open(tmp_path / "blobs")
    key = await blobs.put(b"gone")
    await blobs.hold().__aenter__()
    await blobs.delete(key)
    again = await FileBlobs.open(tmp_path / "blobs")
    assert await again.get(key) is None
    assert not [*(tmp_path / "blobs" / "tmp").iterdir()]


async def test_the_removal_of_a_repository_waits_for_the_end_of_the_hold(tmp_path: Path) -> None:
    pool = ThreadPool(2, "git")
    try:
        repositories = GitRepositories(Git(os.environ), pool, tmp_path)
        metadata = CommitMetadata(author="ann", message="one")
        await repositories.of("p").write("main", [Change(path="a", content=b"x")], metadata)
        async with repositories.hold():
            removing = asyncio.create_task(repositories.remove("p"))
            packing = asyncio.create_task(repositories.pack())
            await repositories.of("p").write("main", [Change(path="b", content=b"y")], metadata)
            assert await repositories.names() == ["p"] and not removing.done() and not packing.done()
        await asyncio.gather(removing, packing)
        assert await repositories.names() == []
    finally:
        await pool.close()
