"""Hostile files that commands leave in a worktree: the server executes, follows and believes none (F3)."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest_asyncio

from tests.services.catalog.library_kit import reason
from tests.services.content.repositories_kit import (
    FixedProjects,
    RepositoryStack,
    UsersRepository,
    merge,
    need_git,
    scope,
)
from wonder_server.core.errors import Reason

need_git()

ONE = scope("conv_1")


HOOKS = (
    "pre-commit", "post-commit", "post-checkout", "reference-transaction", "post-index-change", "pre-push",
    "pre-merge-commit", "post-merge", "fsmonitor-watchman", "pre-auto-gc",
)  # fmt: skip


class Planted:
    """A worktree with planted files, and a place outside of it that must not change."""

    def __init__(self, stack: RepositoryStack, origin: UsersRepository, code: Path, outside: Path) -> None:
        self.stack, self.origin, self.code, self.outside = stack, origin, code, outside
        self.repos = stack.repos
        self.mark = outside / "mark"

    def script(self, path: str) -> str:
        """Return a program whose execution leaves a mark."""
        place = self.code / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(f"#!/bin/sh\ntouch {self.mark}\ncat\n")
        place.chmod(0o755)
        return str(place)

    async def everything(self) -> None:
        """Call every operation of the server on a worktree."""
        await self.repos.files.tree(ONE)
        await self.repos.files.search(ONE, "one")
        await self.repos.files.diff(ONE)
        await self.repos.files.write(ONE, "written", b"1")
        await self.repos.files.commit(ONE, "agt", "m")
        self.origin.change("by user", "x")
        await self.repos.files.update(ONE, "agt")
        assert not (await merge(self.repos, ONE)).conflicts

    async def content(self, path: str) -> str:
        return (await self.repos.files.read(ONE, path)).content.decode()


@pytest_asyncio.fixture
async def planted(tmp_path: Path) -> AsyncIterator[Planted]:
    origin, outside = UsersRepository(tmp_path / "users"), tmp_path / "outside"
    outside.mkdir()
    (outside / "secret").write_text("a secret\n")
    stack = RepositoryStack(tmp_path / "data", FixedProjects(web={"code": str(origin.folder)}))
    worktree = await stack.repos.worktrees.open(ONE)
    made = Planted(stack, origin, worktree.folder / "code", outside)
    yield made
    assert not made.mark.exists(), "something planted was run"
    assert sorted(path.name for path in outside.iterdir()) == ["secret"]
    assert (outside / "secret").read_text() == "a secret\n"
    await stack.close()


async def test_hooks_and_configuration_are_not_git_s(planted: Planted) -> None:
    hooks = planted.code / ".git" / "hooks"
    for name in HOOKS:
        planted.script(f".git/hooks/{name}")
    run = planted.script("evil")
    (planted.code / ".git" / "config").write_text(
        f"[core]\n\tfsmonitor = {run}\n\thooksPath = {hooks}\n\teditor = {run}\n\tpager = {run}\n"
        f"\tattributesFile = {planted.code}/.gitattributes\n\tsshCommand = {run}\n"
        f'[filter "evil"]\n\tclean = {run}\n\tsmudge = {run}\n\tprocess = {run}\n\trequired = true\n'
        f'[diff "evil"]\n\tcommand = {run}\n\ttextconv = {run}\n[merge "evil"]\n\tdriver = {run}\n'
        f"[gpg]\n\tprogram = {run}\n[commit]\n\tgpgSign = true\n[uploadpack]\n\tpackObjectsHook = {run}\n"
    )
    (planted.code / ".git" / "HEAD").write_text("ref: refs/heads/main\n")
    (planted.code / ".gitattributes").write_text("* filter=evil diff=evil merge=evil text eol=crlf\n")
    (planted.code / "src").write_text("one\nplanted\n")
    (planted.code / ".gitconfig").write_text(f"[core]\n\tfsmonitor = {run}\n")
    await planted.everything()
    assert planted.origin.show("src") == "one\nplanted"
    assert ".git/config" not in [file.path for file in (await planted.repos.files.tree(ONE)).files]


async def test_a_git_file_that_points_elsewhere_is_no_file(planted: Planted) -> None:
    (planted.code / ".git").write_text(f"gitdir: {planted.outside}\n")
    (planted.code / "sub").mkdir()
    (planted.code / "sub" / ".git").write_text(f"gitdir: {planted.outside}\n")
    (planted.code / "sub" / "kept").write_text("of a repository in the repository\n")
    (planted.code / ".gitmodules").write_text(
        f'[submodule "x"]\n\tpath = sub\n\turl = {planted.outside}\n\tupdate = !touch {planted.mark}\n'
    )
    await planted.everything()
    assert planted.origin.show("sub/kept") == "of a repository in the repository"
    assert "sub/.git" not in planted.origin.git("ls-tree", "-r", "--name-only", "main")


async def test_links_are_kept_and_not_followed(planted: Planted) -> None:
    (planted.code / "link").symlink_to(planted.outside / "secret")
    (planted.code / "folder").symlink_to(planted.outside)
    (planted.code / "loop").symlink_to("loop")
    (planted.code / ".gitignore").symlink_to(planted.outside / "secret")
    assert await planted.content("link") == str(planted.outside / "secret")
    assert not (await planted.repos.files.search(ONE, "a secret")).matches
    assert await reason(planted.repos.files.read(ONE, "folder/secret")) is Reason.ARTIFACT_NOT_FOUND
    for path in ("folder/x", "folder/secret", "loop/x"):
        assert await reason(planted.repos.files.write(ONE, path, b"in")) is Reason.FIELD_INVALID
        assert await reason(planted.repos.files.write(ONE, path, None)) is Reason.FIELD_INVALID
    await planted.repos.files.write(ONE, "link", b"a file now\n")
    assert await planted.content("link") == "a file now\n"
    await planted.everything()
    assert planted.origin.git("ls-tree", "main", "folder").startswith("120000 blob")


async def test_a_worktree_that_became_a_link_is_made_anew(planted: Planted) -> None:
    await planted.repos.files.write(ONE, "src", b"committed\n")
    await planted.repos.files.commit(ONE, "agt", "m")
    planted.code.rename(planted.code.with_name("moved"))
    planted.code.symlink_to(planted.outside)
    assert await planted.content("src") == "committed\n"
    assert await reason(planted.repos.files.read(ONE, "secret")) is Reason.ARTIFACT_NOT_FOUND
    await planted.repos.files.write(ONE, "new", b"")
    assert not planted.code.is_symlink() and (planted.code / "src").read_text() == "committed\n"
    await planted.everything()


async def test_special_files_are_ignored(planted: Planted) -> None:
    os.mkfifo(planted.code / "pipe")
    (planted.code / b"caf\xe9".decode("utf-8", "surrogateescape")).write_text("latin\n")
    (planted.code / "new\nline").write_text("1")
    (planted.code / "-rf").write_text("1")
    (planted.code / "empty").mkdir()
    await planted.everything()
    listed = planted.origin.git("ls-tree", "-z", "--name-only", "main").split("\0")
    assert "new\nline" in listed and "-rf" in listed and "pipe" not in listed


async def test_ignored_files_stay_uncommitted_unless_they_were_committed_before(planted: Planted) -> None:
    (planted.code / ".gitignore").write_text(
        "*.log\n/build/\n!keep.log\nsrc\n**/deep/x\n[\n*a*a*a*a*a*a*a*a*b\n"
    )
    for path in ("a.log", "keep.log", "build/out", "sub/build/in", "q/deep/x", "q/deep/y", "a" * 200):
        (planted.code / path).parent.mkdir(parents=True, exist_ok=True)
        (planted.code / path).write_text("1")
    (planted.code / "src").write_text("it was in\n")
    found = [file.path for file in (await planted.repos.files.diff(ONE)).diff.files]
    assert found == [".gitignore", "a" * 200, "keep.log", "q/deep/y", "src", "sub/build/in"]


async def test_an_unreadable_file_does_not_count_as_deleted(planted: Planted) -> None:
    deep = planted.code / "/".join("d" * 120)
    deep.mkdir(parents=True)
    (deep / "x").write_text("1")
    assert await reason(planted.repos.files.diff(ONE)) is Reason.FIELD_INVALID
    (planted.code / ".gitignore").write_text("d/\n")
    assert [f.path for f in (await planted.repos.files.diff(ONE)).diff.files] == [".gitignore"]
    with (planted.code / "huge").open("wb") as huge:
        huge.truncate((100 << 20) + 1)
    assert await reason(planted.repos.files.diff(ONE)) is Reason.PAYLOAD_TOO_LARGE
    (planted.code / "huge").unlink()
    if os.geteuid():  # root reads everything
        (planted.code / "src").chmod(0)
        assert await reason(planted.repos.files.diff(ONE)) is Reason.FIELD_INVALID
        (planted.code / "src").chmod(0o644)


async def test_paths_outside_the_worktree_are_not_checked_out(tmp_path: Path) -> None:
    origin = UsersRepository(tmp_path / "users")
    blob = origin.git("hash-object", "-w", "readme")
    inner = _tree(origin, f"100644 blob {blob}\tconfig")
    top = _tree(origin, f"040000 tree {inner}\t.git", f"040000 tree {inner}\t..", f"100644 blob {blob}\tok")
    commit = origin.git("commit-tree", top, "-m", "evil")
    origin.git("update-ref", "refs/heads/main", commit)
    stack = RepositoryStack(tmp_path / "data", FixedProjects(web={"code": str(origin.folder)}))
    worktree = await stack.repos.worktrees.open(ONE)
    assert [path.name for path in (worktree.folder / "code").iterdir()] == ["ok"]
    assert not (worktree.folder / "config").exists()
    await stack.close()


def _tree(origin: UsersRepository, *lines: str) -> str:
    """Return a tree that git itself would reject."""
    content = b""
    for line in lines:
        head, name = line.split("\t")
        mode, _, blob = head.split(" ")
        content += f"{mode.lstrip('0')} {name}\0".encode() + bytes.fromhex(blob)
    place = origin.folder / ".git" / "tree-to-be"
    place.write_bytes(content)
    return origin.git("hash-object", "-w", "-t", "tree", "--literally", str(place))
