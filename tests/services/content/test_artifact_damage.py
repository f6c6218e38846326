"""Damage in a repository of artifacts: each read is correct or fails with STORAGE_UNAVAILABLE (F1)."""

from __future__ import annotations

import asyncio
import os
import random
import shutil
import subprocess
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from pathlib import Path

import pytest
import pytest_asyncio

from tests.services.catalog.library_kit import refusal
from tests.services.content.repositories_kit import need_git
from wonder_server.adapters.git.repositories import GitRepositories
from wonder_server.adapters.git.storage.command import Git, ThreadPool
from wonder_server.core.errors import Reason, WonderError
from wonder_server.core.frozen import replace
from wonder_server.services.content.artifacts import Artifacts
from wonder_server.services.content.commit_metadata import CommitRequest
from wonder_server.services.paging import PageRequest

need_git()

DOCUMENTS = {"a": b"alpha\n", "designs/auth": b"We use JWT.\n", "designs/deep/er": b"deep\n" * 50}
PAGE = PageRequest()


class Store:
    """The artifacts of one project, reopened after each damage."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.pool = ThreadPool(2, "git")
        self.artifacts = self.opened()

    @property
    def bare(self) -> Path:
        return self.folder / "proj_1.git"

    def opened(self) -> Artifacts:
        async def project_id(key: str) -> str:
            return key

        return Artifacts(GitRepositories(Git(os.environ), self.pool, self.folder), project_id)

    def git(self, *arguments: str) -> str:
        done = subprocess.run(["git", *arguments], cwd=self.bare, check=True, capture_output=True, text=True)
        return done.stdout.strip()

    def loose(self, name: str) -> Path:
        """Return the file of an object."""
        found = self.git("rev-parse", name)
        return self.bare / "objects" / found[:2] / found[2:]

    def reads(self, revision: str = "") -> Mapping[str, Callable[[], Awaitable[object]]]:
        artifacts = self.opened()

        async def files(branch: str, prefix: str = "") -> object:
            page = await artifacts.list("proj_1", PAGE, branch=branch, prefix=prefix)
            # A document that is marked as damaged is there, under its name and with its hash.
            return [replace(each, size=0, is_damaged=False) for each in page.items]

        async def index() -> object:
            return [line.path for line in (await artifacts.index("proj_1")).lines]

        reads: dict[str, Callable[[], Awaitable[object]]] = {
            "list": lambda: files("main"),
            "list of a draft": lambda: files("draft"),
            "list of a folder": lambda: files("main", "designs/"),
            "search": lambda: artifacts.search("proj_1", "jwt"),
            "revisions": lambda: artifacts.revisions("proj_1", PAGE),
            "revisions of one": lambda: artifacts.revisions("proj_1", PAGE, path="a"),
            "index": index,
            "merge": lambda: artifacts.merge("proj_1", "draft", dry_run=True),
        }
        for path in DOCUMENTS:
            reads[f"read {path}"] = lambda path=path: artifacts.read("proj_1", path)  # type: ignore[misc]
        if revision:
            reads["revision"] = lambda: artifacts.read("proj_1", "a", revision_id=revision)
        return reads

    async def truth(self, revision: str) -> dict[str, object]:
        return {name: await read() for name, read in self.reads(revision).items()}

    async def check(self, truth: Mapping[str, object], revision: str) -> int:
        """Check that each read is correct or fails. Return the number of failures."""
        reads, refused = self.reads(revision), 0
        answers = await asyncio.gather(*[read() for read in reads.values()], return_exceptions=True)
        for name, answer in zip(reads, answers, strict=True):
            if isinstance(answer, WonderError):
                fault = answer.fault
                assert fault.reason is Reason.STORAGE_UNAVAILABLE, f"{name}: {fault}"
                assert "git fsck" in fault.message and "backup" in fault.message
                refused += 1
            elif isinstance(answer, BaseException):
                raise answer
            else:
                assert answer == truth[name], f"{name} says something else"
        return refused


@pytest_asyncio.fixture
async def store(tmp_path: Path) -> AsyncIterator[Store]:
    made = Store(tmp_path / "artifacts")
    for path, content in DOCUMENTS.items():
        await made.artifacts.write("proj_1", path, content, commit=CommitRequest(author="ada"))
    await made.artifacts.write("proj_1", "a", b"draft\n", branch="draft")
    await made.artifacts.write("proj_1", "a", b"second\n")
    yield made
    await made.pool.close()


def _flipped(content: bytes, chance: random.Random) -> bytes:
    if not content:
        return b"?"
    at = chance.randrange(len(content))
    return content[:at] + bytes([content[at] ^ 1 << chance.randrange(8)]) + content[at + 1 :]


@pytest.mark.parametrize("form", ["loose", "packed"])
async def test_no_damage_looks_like_absence(store: Store, form: str, tmp_path: Path) -> None:
    revision = store.git("rev-parse", "main~1")
    if form == "packed":
        store.git("gc", "--quiet")
    truth, chance, seen = await store.truth(revision), random.Random(11), 0
    whole = tmp_path / "whole"
    shutil.copytree(store.folder, whole)
    places = sorted(
        path.relative_to(store.folder)
        for path in store.bare.rglob("*")
        if path.is_file() and path.parent.name not in ("info", "hooks")
    )
    for number, place in enumerate(places):
        for damage in ("gone", ("garbage", "flipped", "cut")[number % 3]):
            shutil.rmtree(store.folder)
            shutil.copytree(whole, store.folder)
            path = store.folder / place
            content = path.read_bytes()
            path.chmod(0o644)
            if damage == "gone":
                path.unlink()
            else:
                path.write_bytes(
                    {
                        "garbage": b"\xff\0garbage\n" * 4,
                        "flipped": _flipped(content, chance),
                        "cut": content[: len(content) // 2],
                    }[damage]
                )
            try:
                seen += await store.check(truth, revision)
            except AssertionError as problem:
                raise AssertionError(f"{place} {damage}: {problem}") from None
    assert seen > len(places)


async def test_a_repository_that_is_gone_is_not_empty(store: Store) -> None:
    truth = await store.truth("")
    shutil.rmtree(store.bare)
    assert await store.check(truth, "") == len(truth)
    refused = await refusal(store.opened().write("proj_1", "new", b""))
    assert refused.reason is Reason.STORAGE_UNAVAILABLE and not store.bare.exists()


async def test_one_damaged_document_does_not_hide_the_others(store: Store) -> None:
    store.loose("main:designs/auth").unlink()
    artifacts = store.opened()
    listed = (await artifacts.list("proj_1", PAGE)).items
    assert [(each.path, each.is_damaged) for each in listed] == [
        ("a", False), ("designs/auth", True), ("designs/deep/er", False),
    ]  # fmt: skip
    assert (await artifacts.read("proj_1", "a")).content == b"second\n"
    refused = await refusal(artifacts.read("proj_1", "designs/auth"))
    assert "'designs/auth' on branch 'main' is unreadable. The repository" in refused.message
    assert (await refusal(artifacts.read("proj_1", "designs/auth"))).reason is Reason.STORAGE_UNAVAILABLE
    assert (await refusal(artifacts.search("proj_1", "deep"))).reason is Reason.STORAGE_UNAVAILABLE
    await artifacts.write("proj_1", "designs/auth", b"written again\n")
    assert (await artifacts.read("proj_1", "designs/auth")).content == b"written again\n"


async def test_a_lost_branch_is_not_created_again(store: Store) -> None:
    (store.bare / "refs" / "heads" / "main").unlink()
    for work in (
        store.opened().write("proj_1", "new", b""),
        store.opened().merge("proj_1", "draft"),
    ):
        assert (await refusal(work)).reason is Reason.STORAGE_UNAVAILABLE
    (store.bare / "refs" / "heads" / "main").write_text("nonsense\n")
    assert (await refusal(store.opened().write("proj_1", "new", b""))).reason is Reason.STORAGE_UNAVAILABLE


async def test_a_document_that_never_existed_is_not_found(store: Store) -> None:
    artifacts = store.opened()
    for work in (
        artifacts.read("proj_1", "nope"),
        artifacts.read("proj_1", "a", revision_id="0" * 39 + "1"),
        artifacts.read("proj_1", "a", branch="nope"),
    ):
        assert (await refusal(work)).reason is Reason.ARTIFACT_NOT_FOUND
    assert (await artifacts.list("other", PAGE)).items == ()


async def test_an_old_folder_reads_its_branches(store: Store) -> None:
    notes = store.folder / "proj_1.branches"
    assert notes.read_text().split() == ["draft", "main"]
    notes.unlink()
    await store.opened().read("proj_1", "a")
    assert notes.read_text().split() == ["draft", "main"]
