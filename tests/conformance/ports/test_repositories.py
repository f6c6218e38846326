"""Repositories: one suite for `wonder_server.ports.repositories`."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from wonder_server.adapters.git import repositories as repositories_of_git
from wonder_server.adapters.git.repositories import GitRepositories
from wonder_server.adapters.git.storage.command import Git, ThreadPool
from wonder_server.core.errors import Reason, WonderError
from wonder_server.ports.repositories import Change, CommitMetadata, Repositories, Repository

git = Git(os.environ)
if git.probe():
    pytest.skip(f"repositories cannot be tried: {git.probe()}", allow_module_level=True)

ADA = CommitMetadata(author="ada", message="why not")


@pytest_asyncio.fixture
async def repositories(tmp_path: Path) -> AsyncIterator[Repositories]:
    pool = ThreadPool(4, "git")
    yield GitRepositories(git, pool, tmp_path / "repositories")
    await pool.close()


@pytest.fixture
def repository(repositories: Repositories) -> Repository:
    return repositories.of("one")


def text(path: str, content: str) -> Change:
    return Change(path=path, content=content.encode())


async def refusal(work: Any) -> WonderError:
    with pytest.raises(WonderError) as refused:
        await work
    return refused.value


def names_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


async def test_a_repository_that_does_not_exist_is_empty(repository: Repository) -> None:
    assert await repository.commit("main") is None
    assert await repository.files("main") == []
    assert await repository.read("main", "a", 10) is None
    assert await repository.history("main", [], 0, 10) == []
    assert (await repository.search("main", ["a"], "", 10)).matches == ()
    assert (await repository.diff("main", "other", [], 1_000)).files == ()
    assert await repository.find_by_key("aa") is None
    await repository.delete_branch("main")


@pytest.mark.parametrize("content", [b"", b"x", b"\0\xff" * 10, "käse\n".encode(), bytes(range(256)) * 9_000])
async def test_a_written_file_can_be_read(repository: Repository, content: bytes) -> None:
    made = await repository.write("main", [Change(path="a/b.md", content=content)], ADA)
    found = await repository.read("main", "a/b.md", 4 << 20)
    assert found is not None and found.content == content and found.size == len(content)
    assert made.author == "ada" and made.message == "why not" and made.paths == ("a/b.md",)
    assert await repository.commit("main") == made


@pytest.mark.parametrize("author", ["Ada <ada@x>", "  ", "", "a\nb\0", "käse", "100%", ".;,'", "é" * 200])
@pytest.mark.parametrize("message", ["", "tree 0\n\nparent x", "a\0b", "\ud800", "- ✓"])
async def test_any_author_and_message_is_stored(repository: Repository, author: str, message: str) -> None:
    made = await repository.write("main", [text("a", "1")], CommitMetadata(author=author, message=message))
    assert made.author == (author.strip(" .") or "anonymous")
    again = await repository.commit(made.id)
    assert again == made and again.paths == ("a",)


async def test_names_that_are_hard_to_quote(repository: Repository) -> None:
    names = ["-rf", "a b", "ä/ö", ":(glob)*", "*", "a'\"b", "HEAD", "0" * 40, "a/..b/c...", "%00"]
    for name in names:
        await repository.write("main", [text(name, name)], ADA)
    assert [file.path for file in await repository.files("main")] == sorted(names)
    for name in names:
        found = await repository.read("main", name, 1_000)
        assert found is not None and found.content == name.encode()
        (newest,) = await repository.history("main", [name], 0, 9)
        assert newest.paths == (name,)
    assert [match.path for match in (await repository.search("main", ["-RF"], "", 9)).matches] == ["-rf"] * 2


async def test_files_come_in_pages_by_path(repository: Repository) -> None:
    await repository.write("main", [text(f"d/{n:03}", str(n)) for n in range(30)] + [text("e", "")], ADA)
    assert len(await repository.files("main")) == 31
    page = await repository.files("main", "d/0", "d/004", 3)
    assert [file.path for file in page] == ["d/005", "d/006", "d/007"]
    assert await repository.files("main", "x/y") == []


async def test_a_write_can_expect_the_content_it_changes(repository: Repository) -> None:
    await repository.write("main", [text("a", "1")], ADA, expected={"a": ""})
    found = await repository.read("main", "a", 9)
    assert found is not None
    await repository.write("main", [text("a", "2")], ADA, expected={"a": found.id})
    for expected in ("", found.id):
        late = await refusal(repository.write("main", [text("a", "3")], ADA, expected={"a": expected}))
        assert late.fault.reason is Reason.ETAG_MISMATCH
    assert len(await repository.history("main", [], 0, 9)) == 2


async def test_concurrent_writes_each_get_a_commit(repository: Repository) -> None:
    made = await asyncio.gather(*(repository.write("main", [text(f"f{n}", str(n))], ADA) for n in range(20)))
    assert len({commit.id for commit in made}) == 20
    assert len(await repository.files("main")) == 20
    assert len(await repository.history("main", [], 0, 100)) == 20


async def test_of_concurrent_writes_with_one_expectation_one_succeeds(repository: Repository) -> None:
    async def write(n: int) -> bool:
        try:
            await repository.write("main", [text("a", str(n))], ADA, expected={"a": ""})
        except WonderError as problem:
            assert problem.fault.reason is Reason.ETAG_MISMATCH
            return False
        return True

    assert sum(await asyncio.gather(*map(write, range(8)))) == 1


async def test_a_file_is_no_folder(repository: Repository) -> None:
    await repository.write("main", [text("a", "1"), text("d/e", "2")], ADA)
    for path in ("a/b", "d", "d/e/f/g"):
        wrong = await refusal(repository.write("main", [text(path, "3")], ADA))
        assert wrong.fault.reason is Reason.FIELD_INVALID
    assert [file.path for file in await repository.files("main")] == ["a", "d/e"]


async def test_a_write_without_a_change_creates_no_commit(repository: Repository) -> None:
    first = await repository.write("main", [text("a", "1")], ADA)
    assert (await repository.write("main", [text("a", "1")], ADA)).id == first.id
    await repository.write("main", [Change(path="a", content=None)], ADA)
    assert await repository.files("main") == []


async def test_a_request_is_found_by_its_key(repository: Repository) -> None:
    signed = CommitMetadata(author="ada", message="m", key="abc1", fingerprint="f00d")
    made = await repository.write("main", [text("a", "1")], signed)
    await repository.write("main", [text("a", "2")], ADA)
    assert await repository.find_by_key("abc1") == (made, "f00d")
    assert await repository.find_by_key("abc") is None
    assert await repository.find_by_key("f00d") is None


async def test_branches_diverge_and_merge(repository: Repository) -> None:
    await repository.write("main", [text("a", "1\n"), text("b", "1\n")], ADA)
    await repository.write("work/one", [text("a", "2\n")], ADA, begin="main")
    await repository.write("main", [text("b", "2\n")], ADA)
    dry = await repository.merge("main", "work/one", ADA, dry=True)
    assert dry.commit is None and not dry.conflicts
    merged = await repository.merge("main", "work/one", ADA)
    assert merged.commit is not None and merged.tree == dry.tree == merged.commit.tree
    assert len(merged.commit.parents) == 2 and merged.commit.paths == ("a",)
    contents = [await repository.read("main", path, 9) for path in ("a", "b")]
    assert [file.content for file in contents if file] == [b"2\n", b"2\n"]
    assert (await repository.merge("main", "work/one", ADA)).commit == merged.commit
    assert (await repository.merge("main", "nowhere", ADA)).commit is not None


async def test_conflicts_are_data_and_change_nothing(repository: Repository) -> None:
    binary = b"\0\1\2"
    await repository.write(
        "main",
        [text("c", "base\n"), text("gone", "1\n"), Change(path="bin", content=binary), text("ok", "1\n")],
        ADA,
    )
    theirs = [text("c", "theirs\n"), text("gone", "2\n"), Change(path="bin", content=b"\0t"), text("n", "t")]
    ours = [text("c", "ours\n"), Change(path="gone", content=None), Change(path="bin", content=b"\0o")]
    await repository.write("work", [*theirs, text("x", "y")], ADA, begin="main")
    before = await repository.write("main", [*ours, text("n", "o")], ADA)
    merged = await repository.merge("main", "work", ADA)
    assert merged.commit is None
    kinds = {conflict.path: conflict.kind for conflict in merged.conflicts}
    assert kinds == {"c": "content", "gone": "deleted", "bin": "binary", "n": "both_added"}
    first = next(conflict for conflict in merged.conflicts if conflict.path == "c")
    assert (first.base, first.ours, first.theirs) == ("base\n", "ours\n", "theirs\n")
    assert await repository.commit("main") == before
    assert await repository.read("work", "x", 9)


async def test_a_file_in_the_way_of_a_folder_is_a_conflict(repository: Repository) -> None:
    await repository.write("main", [text("a", "1")], ADA)
    await repository.write("work", [text("p/q", "2")], ADA, begin="main")
    await repository.write("main", [text("p", "3")], ADA)
    merged = await repository.merge("main", "work", ADA)
    assert merged.commit is None and merged.conflicts


@pytest.mark.parametrize("known", [False, True])
@pytest.mark.parametrize(("target", "source"), [("main", "work"), ("work", "main")])
async def test_a_file_in_conflict_with_a_folder_keeps_its_path(
    repository: Repository, known: bool, target: str, source: str
) -> None:
    """git keeps the file beside the folder as ``d/p~main``. Users know it as ``d/p``."""
    await repository.write("main", [text("a", "1"), *([text("d/p", "0\n")] if known else [])], ADA)
    gone = [Change(path="d/p", content=None)] if known else []
    await repository.write("work", gone, ADA, begin="main")
    await repository.write("work", [text("d/p/q", "2\n")], ADA)
    await repository.write("main", [text("d/p", "3\n")], ADA)
    (conflict,) = (await repository.merge(target, source, ADA)).conflicts
    assert (conflict.path, conflict.kind) == ("d/p", "deleted" if known else "both_added")
    assert (conflict.ours or conflict.theirs) == "3\n" and conflict.base == ("0\n" if known else "")
    refused = await refusal(repository.merge(target, source, ADA, resolutions=[text("d/p", "4\n")]))
    assert (refused.fault.reason, refused.fault.field) == (Reason.FIELD_INVALID, "resolutions[0].content")
    chosen = [Change(path="d/p", content=None)]
    assert not (await repository.merge(target, source, ADA, resolutions=chosen)).conflicts
    assert [file.path for file in await repository.files(target)] == ["a", "d/p/q"]


async def test_texts_of_conflicts_are_bounded(repository: Repository) -> None:
    await repository.write("main", [text("a", "1\n")], ADA)
    await repository.write("work", [text("a", "2\n" * 400_000)], ADA, begin="main")
    await repository.write("main", [text("a", "3\n" * 400_000)], ADA)
    (conflict,) = (await repository.merge("main", "work", ADA)).conflicts
    assert conflict.truncated and not conflict.ours


async def test_branches_without_a_common_ancestor_can_merge(repository: Repository) -> None:
    await repository.write("one", [text("a", "1")], ADA)
    await repository.write("two", [text("b", "2")], ADA)
    assert (await repository.merge("one", "two", ADA)).commit is not None
    assert [file.path for file in await repository.files("one")] == ["a", "b"]
    assert (await repository.merge("three", "two", ADA)).commit is not None
    assert [file.path for file in await repository.files("three")] == ["b"]


async def test_a_branch_cannot_continue_the_name_of_another(repository: Repository) -> None:
    await repository.write("a", [text("a", "1")], ADA)
    wrong = await refusal(repository.write("a/b", [text("a", "1")], ADA))
    assert wrong.fault.reason is Reason.FIELD_INVALID
    await repository.delete_branch("a")
    await repository.delete_branch("a")
    assert (await repository.write("a/b", [text("a", "1")], ADA)).paths == ("a",)


async def test_searches_find_lines_and_paths(repository: Repository) -> None:
    long = "needle " + "x" * 2_000
    await repository.write(
        "main",
        [
            text("docs/needle.md", "one\nA Needle in the HAY\n"),
            text("src/a", f"{long}\nno\n"),
            Change(path="bin", content=b"needle\0hay"),
        ],
        ADA,
    )
    found = await repository.search("main", ["needle"], "", 10)
    assert [(m.path, m.line) for m in found.matches] == [
        ("docs/needle.md", 0),
        ("docs/needle.md", 2),
        ("src/a", 1),
    ]
    assert len(found.matches[2].text) == 500 and not found.truncated
    both = await repository.search("main", ["hay", "NEEDLE"], "", 10)
    assert [m.text for m in both.matches] == ["A Needle in the HAY"]
    assert [m.path for m in (await repository.search("main", ["needle"], "src/", 9)).matches] == ["src/a"]
    few = await repository.search("main", ["needle"], "", 1)
    assert len(few.matches) == 1 and few.truncated
    assert not (await repository.search("main", ["x.*x"], "", 9)).matches


async def test_history_goes_back_in_pages(repository: Repository) -> None:
    for n in range(7):
        await repository.write("main", [text("a" if n % 2 else "b", str(n))], ADA)
    every = await repository.history("main", [], 0, 100)
    assert len(every) == 7 and every[0].parents == (every[1].id,)
    assert await repository.history("main", [], 2, 3) == every[2:5]
    assert [c.id for c in await repository.history("main", ["a"], 0, 9)] == [c.id for c in every[1::2]]


async def test_differences_file_by_file(repository: Repository) -> None:
    await repository.write(
        "main", [text("a", "1\n2\n"), text("old name", "same\n" * 9), text("gone", "x\n"), text("d", "")], ADA
    )
    changes = [
        text("a", "1\n3\n4\n"),
        Change(path="old name", content=None),
        text("new name", "same\n" * 9),
        Change(path="gone", content=None),
        Change(path="bin", content=b"\0\1"),
    ]
    await repository.write("work", changes, ADA, begin="main")
    await repository.write("main", [text("later", "no difference of theirs")], ADA)
    found = await repository.diff("main", "work", [], 1 << 20)
    assert [(f.path, f.change, f.additions, f.deletions) for f in found.files] == [
        ("a", "modified", 2, 1),
        ("bin", "added", 0, 0),
        ("gone", "deleted", 0, 1),
        ("new name", "renamed", 0, 0),
    ]
    assert found.files[3].old_path == "old name"
    assert found.files[0].patch == "@@ -1,2 +1,3 @@\n 1\n-2\n+3\n+4\n"
    assert found.files[1].patch == "" and not found.truncated
    assert [f.path for f in (await repository.diff("main", "work", ["a"], 1 << 20)).files] == ["a"]
    short = await repository.diff("main", "work", [], 10)
    assert short.truncated and len(short.files) == 4 and not any(f.patch for f in short.files)


async def test_repositories_are_separate(repositories: Repositories) -> None:
    made = await repositories.of("one").write("main", [text("a", "secret")], ADA)
    other = repositories.of("two")
    assert await other.read(made.id, "a", 99) is None and await other.commit(made.id) is None
    assert await other.read(made.tree, "a", 99) is None
    await repositories.remove("one")
    await repositories.remove("one")
    assert await repositories.of("one").commit("main") is None


async def test_many_loose_objects_are_packed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(repositories_of_git, "PACK_THRESHOLD", 1)
    pool = ThreadPool(2, "git")
    repositories = GitRepositories(git, pool, tmp_path)
    one = repositories.of("one")
    changes = [text(f"{number}", f"{number}") for number in range(400)]
    made = await one.write("main", changes[:200], ADA)
    await one.write("main", changes[200:], ADA)
    await repositories.pack()
    assert any(name.endswith(".pack") for name in names_in(tmp_path / "one.git" / "objects" / "pack"))
    assert len(await one.files("main")) == 400 and await one.read(made.id, "7", 9) is not None
    assert (await one.write("main", [text("7", "again")], ADA)).parents
    await pool.close()


async def test_many_packs_become_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(repositories_of_git, "MAX_PACKS", 3)
    pool = ThreadPool(2, "git")
    repositories = GitRepositories(git, pool, tmp_path)
    one, folder = repositories.of("one"), tmp_path / "one.git" / "objects" / "pack"
    counts = []
    for number in range(3):
        changes = [text(f"{number}/{each}", f"{number} {each}") for each in range(200)]
        await one.write("main", changes, ADA)
        git.run(tmp_path / "one.git", "repack", "-d", "--quiet")
        await repositories.pack()
        counts.append(len(list(folder.glob("*.pack"))))
    assert counts == [1, 2, 1]
    assert len(await one.files("main")) == 600
    await pool.close()


async def test_locks_left_by_a_crash_are_removed(tmp_path: Path) -> None:
    pool = ThreadPool(2, "git")
    first = GitRepositories(git, pool, tmp_path)
    made = await first.of("one").write("main", [text("a", "1")], ADA)
    for name in ("refs/heads/main.lock", "HEAD.lock", "config.lock", "packed-refs.lock"):
        (tmp_path / "one.git" / name).touch()
    (tmp_path / "one.git" / "wonder-index-x").mkdir()
    (tmp_path / ".new-x").mkdir()
    (tmp_path / ".old-x").mkdir()
    again = GitRepositories(git, pool, tmp_path)
    await again.remove_leftovers()
    assert await again.names() == ["one"]
    assert names_in(tmp_path) == ["one.branches", "one.git"]
    second = await again.of("one").write("main", [text("a", "2")], ADA)
    assert second.parents == (made.id,)
    assert not any(name.startswith("wonder-") for name in names_in(tmp_path / "one.git"))
    git.run(tmp_path / "one.git", "fsck", "--strict")
    await pool.close()
