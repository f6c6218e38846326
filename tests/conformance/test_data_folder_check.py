"""The check of a data folder: objects and git repositories besides the stores."""

from __future__ import annotations

import sqlite3
import subprocess
from contextlib import closing
from pathlib import Path

import pytest

from tests.conformance.ports.journal_subjects import (
    CONVERSATION_ID,
    commit,
    conversation,
    emitted,
    message,
    opened,
    put_conversation,
)
from tests.conformance.ports.test_memories import EMBEDDER, ONE
from wonder_server.adapters.files.blobs import FileBlobs
from wonder_server.adapters.sqlite.catalog.store import SqliteCatalog
from wonder_server.adapters.sqlite.memory.store import SqliteMemories
from wonder_server.adapters.sqlite.shard.check import check_shard
from wonder_server.compose.checking import Report, check_folder
from wonder_server.core.ids import encode
from wonder_server.core.memory.records import Draft
from wonder_server.ports.memories import Entry, StoredText

CONTENT = "A long text that lies in an object. " * 100
MEMORY = f"mem_{encode(1, 0)}"


@pytest.fixture
async def folder(tmp_path: Path) -> Path:
    """Create stores, an object of a memory, and an artifact repository with one document."""
    async with opened("sqlite", tmp_path, count=1):
        pass
    await (await SqliteCatalog.open(tmp_path / "catalog.db")).close()
    blobs = await FileBlobs.open(tmp_path / "blobs")
    key = await blobs.put(CONTENT.encode())
    store = await SqliteMemories.open(tmp_path / "memory.db")
    text = StoredText(content=CONTENT, vectors=(ONE,), content_ref=key)
    entry = Entry(id=MEMORY, draft=Draft(type="fact", content=CONTENT), text=text)
    await store.add("ada", [entry], EMBEDDER, 1000)
    await store.close()
    artifacts = tmp_path / "artifacts"
    artifacts.mkdir()
    git(artifacts, "init", "-q", "--bare", "proj_1.git")
    stream = (
        b"commit refs/heads/main\ncommitter Wonder <wonder@localhost> 0 +0000\ndata 1\nm\n"
        b"M 100644 inline plan.md\ndata 5\nplan\n\n"
    )
    git(artifacts / "proj_1.git", "fast-import", "--quiet", stdin=stream)
    return tmp_path


def git(where: Path, *arguments: str, stdin: bytes = b"") -> bytes:
    done = subprocess.run(["git", *arguments], cwd=where, input=stdin, capture_output=True, check=True)
    return done.stdout


def objects(folder: Path) -> list[Path]:
    """Return the objects of the artifact repository, the smallest first."""
    found = (folder / "artifacts" / "proj_1.git" / "objects").glob("[0-9a-f][0-9a-f]/*")
    return sorted(found, key=lambda path: (path.stat().st_size, path))


def blob_of(folder: Path) -> Path:
    [found] = (folder / "blobs").glob("[0-9a-f][0-9a-f]/*")
    return found


def checked(folder: Path, *, objects_elsewhere: bool = False) -> Report:
    return check_folder(folder, lambda _step: None, objects_elsewhere=objects_elsewhere)


async def test_records_around_a_damaged_page_are_checked(tmp_path: Path) -> None:
    async with opened("sqlite", tmp_path, count=1) as shards:
        events = tuple(emitted(number) for number in range(1, 901))
        await shards.of(CONVERSATION_ID).commit(
            [commit(CONVERSATION_ID, put_conversation(conversation(0)), message(1), events=events)]
        )
    shard = tmp_path / "shards" / "00.db"
    whole = check_shard(shard)
    assert whole.problems == []
    with closing(sqlite3.connect(shard)) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        [page_size] = connection.execute("PRAGMA page_size").fetchone()
        connection.execute("PRAGMA journal_mode = DELETE")
    content = bytearray(shard.read_bytes())
    leaves = [at for at in range(0, len(content), page_size) if content[at] == 13]
    page = leaves[len(leaves) // 2]
    for at in range(page, page + 40):
        content[at] ^= 255
    shard.write_bytes(content)
    found = check_shard(shard)
    assert found.records > whole.records * 9 // 10
    assert any("a damaged page may hide further records" in line for line in found.problems)
    assert not any("does not exist" in line for line in found.problems)


async def test_a_whole_folder_has_no_problems(folder: Path) -> None:
    report = checked(folder)
    assert report.problems == []
    assert (report.objects, report.repositories) == (1, 1)


async def test_a_damaged_object_is_named_with_the_record_that_it_belongs_to(folder: Path) -> None:
    path = blob_of(folder)
    path.chmod(0o600)
    path.write_bytes(path.read_bytes().replace(b"long", b"lung", 1))
    [problem] = checked(folder).problems
    assert problem == f"blobs/{path.parent.name}/{path.name}: it is damaged; it belongs to memory {MEMORY}"


async def test_a_lost_object_is_named_unless_objects_are_elsewhere(folder: Path) -> None:
    path = blob_of(folder)
    path.unlink()
    [problem] = checked(folder).problems
    assert problem == f"blobs/{path.parent.name}/{path.name}: it is missing; it belongs to memory {MEMORY}"
    assert checked(folder, objects_elsewhere=True).problems == []


async def test_an_object_with_the_wrong_content_is_a_problem_and_an_unreferenced_one_is_not(
    folder: Path,
) -> None:
    await (await FileBlobs.open(folder / "blobs")).put(b"unreferenced")
    assert checked(folder).problems == []
    path = next(path for path in (folder / "blobs").glob("[0-9a-f][0-9a-f]/*") if path.stat().st_size < 100)
    path.rename(path.with_name(path.name[:-1] + ("0" if path.name[-1] != "0" else "1")))
    [problem] = checked(folder).problems
    assert "it belongs to no known record" in problem


@pytest.mark.parametrize("which", [0, 1, 2])
async def test_a_damaged_object_of_a_repository_is_found(folder: Path, which: int) -> None:
    assert len(objects(folder)) == 3, "a commit, a tree and a document"
    path = objects(folder)[which]
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 16
    path.chmod(0o600)
    path.write_bytes(content)
    report = checked(folder)
    assert report.problems
    assert all(line.startswith("artifacts/proj_1.git: ") for line in report.problems)
    assert [line for line in report.problems if path.parent.name + path.name in line]


async def test_a_lost_object_of_a_repository_is_found(folder: Path) -> None:
    for path in objects(folder)[:1]:
        path.unlink()
    assert [
        line for line in checked(folder).problems if "missing" in line or "bad" in line or "inval" in line
    ]


async def test_without_git_the_report_says_that_repositories_were_not_checked(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(folder))
    assert checked(folder).problems == ["1 git repositories were not checked: git is not installed."]


async def test_the_check_runs_no_hooks_or_programs_of_a_repository(folder: Path) -> None:
    repository, mark = folder / "artifacts" / "proj_1.git", folder / "ran"
    git(repository, "config", "core.fsmonitor", f"touch {mark}")
    git(repository, "config", "core.sshCommand", f"touch {mark}")
    assert checked(folder).problems == []
    assert not mark.exists()


@pytest.mark.parametrize(
    ("change", "problems"),
    [
        ("UPDATE events SET seal = seal + 1 WHERE sequence = 2", ["is damaged"]),
        ("UPDATE events SET seal = seal + 1 WHERE sequence = 1", ["is damaged"]),
        ("UPDATE events SET seal = seal + 1 WHERE sequence > 1", ["is damaged", "is damaged"]),
        ("UPDATE actors SET seal = seal + 1", ["is damaged"]),
        ("DELETE FROM events WHERE sequence = 2", ["are missing"]),
    ],
)
async def test_a_damaged_record_is_one_problem_and_not_missing_too(
    tmp_path: Path, change: str, problems: list[str]
) -> None:
    events = (emitted(1), emitted(2), emitted(3))
    async with opened("sqlite", tmp_path, count=1) as shards:
        await shards.of(CONVERSATION_ID).commit(
            [commit(CONVERSATION_ID, put_conversation(conversation(0)), message(1), events=events)]
        )
    shard = tmp_path / "shards" / "00.db"
    with closing(sqlite3.connect(shard)) as connection:
        assert connection.execute(change).rowcount
        connection.commit()
    found = check_shard(shard).problems
    assert [line[-len(end) :] for line, end in zip(found, problems, strict=True)] == problems
