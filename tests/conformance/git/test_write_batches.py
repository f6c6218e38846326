"""Concurrent writes share git processes, and each is a revision of its own (feature F1)."""

from __future__ import annotations

import asyncio
import os
import random
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from wonder_server.adapters.git.repositories import GitRepositories, GitRepository
from wonder_server.adapters.git.storage.command import (
    DEFAULT_OPTIONS,
    CommandOutput,
    Git,
    RunOptions,
    ThreadPool,
)
from wonder_server.adapters.git.storage.write_batches import content_id
from wonder_server.core.errors import Reason, WonderError
from wonder_server.ports.repositories import Change, Commit, CommitMetadata

if problem := Git(os.environ).probe():
    pytest.skip(f"repositories cannot be tried: {problem}", allow_module_level=True)

ADA = CommitMetadata(author="ada", message="why not")


class CountingGit(Git):
    """Count the processes that it starts."""

    started = 0

    def run(self, folder: Path, *arguments: str, options: RunOptions = DEFAULT_OPTIONS) -> CommandOutput:
        self.started += 1
        return super().run(folder, *arguments, options=options)


class Store:
    def __init__(self, folder: Path) -> None:
        self.folder, self.git, self.pool = folder, CountingGit(os.environ), ThreadPool(2, "git")
        self.repository: GitRepository = GitRepositories(self.git, self.pool, folder).of("one")

    def said(self, *arguments: str) -> str:
        done = subprocess.run(
            ["git", *arguments], cwd=self.folder / "one.git", check=True, capture_output=True, text=True
        )
        return done.stdout.strip()


@pytest_asyncio.fixture
async def store(tmp_path: Path) -> AsyncIterator[Store]:
    made = Store(tmp_path)
    await made.repository.write("main", [text("a", "0")], ADA)
    yield made
    made.said("fsck", "--strict")
    await made.pool.close()


def text(path: str, content: str | None) -> Change:
    return Change(path=path, content=None if content is None else content.encode())


async def test_concurrent_writes_are_separate_revisions(store: Store) -> None:
    before = store.git.started
    made = await asyncio.gather(
        *[
            store.repository.write(
                "main", [text(f"d{number % 5}/f{number}", str(number))],
                CommitMetadata(author=f"user{number}", message=f"m{number}"),
            )
            for number in range(100)
        ]
    )  # fmt: skip
    assert store.git.started - before < 20
    assert len({commit.id for commit in made}) == 100
    assert [commit.author for commit in made] == [f"user{number}" for number in range(100)]
    assert store.said("rev-list", "--count", "main") == "101"
    for number in (0, 50, 99):
        assert made[number].paths == (f"d{number % 5}/f{number}",)
        assert store.said("log", "-1", "--format=%s", made[number].id) == f"m{number}"
        assert store.said("diff-tree", "-r", "--name-only", "--no-commit-id", made[number].id) == (
            f"d{number % 5}/f{number}"
        )
    assert [c.id for c in await store.repository.history("main", [], 0, 100)] == [c.id for c in made[::-1]]


async def test_of_writes_that_expect_the_same_state_one_succeeds(store: Store) -> None:
    (there,) = await store.repository.files("main")
    answers = await asyncio.gather(
        *[
            store.repository.write("main", [text("a", f"by {n}")], ADA, expected={"a": there.id})
            for n in range(20)
        ],
        return_exceptions=True,
    )
    written = [answer for answer in answers if isinstance(answer, Commit)]
    refused = [answer.fault for answer in answers if isinstance(answer, WonderError)]
    assert len(written) == 1 and {fault.reason for fault in refused} == {Reason.ETAG_MISMATCH}
    (now,) = await store.repository.files("main")
    assert {fault.metadata["etag"] for fault in refused} == {now.id}


async def test_a_rejected_write_does_not_affect_the_others(store: Store) -> None:
    answers = await asyncio.gather(
        store.repository.write("main", [text("b", "1")], ADA),
        store.repository.write("main", [text("a/b", "a is a file")], ADA),
        store.repository.write("main/x", [text("c", "main is a branch")], ADA, begin="main"),
        store.repository.write("draft", [text("c", "1")], ADA, begin="main"),
        store.repository.write("main", [text("c", "1")], ADA),
        return_exceptions=True,
    )
    faults = [answer.fault.reason if isinstance(answer, WonderError) else None for answer in answers]
    assert faults == [None, Reason.FIELD_INVALID, Reason.FIELD_INVALID, None, None]
    assert [file.path for file in await store.repository.files("main")] == ["a", "b", "c"]
    assert {"a", "c"} <= {file.path for file in await store.repository.files("draft")}


async def test_a_cancelled_caller_does_not_stop_the_other_writes(store: Store) -> None:
    tasks = [
        asyncio.ensure_future(store.repository.write("main", [text(f"f{n}", "1")], ADA)) for n in range(10)
    ]
    await asyncio.sleep(0)
    tasks[0].cancel()
    tasks[5].cancel()
    answers = await asyncio.gather(*tasks, return_exceptions=True)
    assert sum(isinstance(answer, Commit) for answer in answers) == 8
    assert len(await store.repository.files("main")) == 11


async def test_random_writes_leave_the_expected_files(store: Store) -> None:
    """Compare concurrent random writes and deletions with a dictionary."""
    chance, there = random.Random(7), {"a": "0"}
    folders = ["", "x/", "x/y/", "x-/", "x./", "xy/", "é/"]
    for _ in range(8):
        changes = []
        for _ in range(chance.randrange(1, 12)):
            path = f"{chance.choice(folders)}{chance.choice('fgh')}"
            content = None if chance.random() < 0.3 else str(chance.randrange(4))
            changes.append(text(path, content))
            if content is None:
                there.pop(path, None)
            else:
                there[path] = content
        await asyncio.gather(*[store.repository.write("main", [each], ADA) for each in changes])
        listed = await store.repository.files("main")
        assert [file.path for file in listed] == sorted(there)
        assert {file.path: file.id for file in listed} == {
            path: content_id(content.encode()) for path, content in there.items()
        }


async def test_many_small_packs_are_joined(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("wonder_server.adapters.git.storage.trees._MAX_PACKS", 3)
    for turn in range(6):
        await asyncio.gather(
            *[store.repository.write("main", [text(f"{turn}/{n}", str(n))], ADA) for n in range(12)]
        )
    assert len(list((store.folder / "one.git" / "objects" / "pack").glob("*.pack"))) < 6
    assert len(await store.repository.files("main")) == 73
