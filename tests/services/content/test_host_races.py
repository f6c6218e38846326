"""Repositories of the host whose folders are swapped while the server works: it stays in the folder that it
opened.

The program ``git`` is a script here. At the command that a test names, it first does something that any user
with write access to the repository could do at that moment."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from tests.services.catalog.library_kit import refusal
from tests.services.content.repositories_kit import (
    FixedProjects,
    RepositoryStack,
    UsersRepository,
    merge,
    need_git,
    scope,
)
from wonder_server.core.errors import Reason, WonderError

need_git()

ONE = scope("conv_1")


class Race:
    """A user's repository below a root, another outside of it, and a git that runs a script first."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder = folder
        self.roots = folder / "roots"
        self.origin = UsersRepository(self.roots / "team" / "code")
        self.origin.git("branch", "team/main")
        self.origin.git("switch", "--quiet", "--detach")
        self.private = UsersRepository(folder / "private", secret="a secret\n")
        self._armed = folder / "armed"
        self._done = folder / "done"
        program = folder / "bin" / "git"
        program.parent.mkdir()
        program.write_text(
            f'#!/bin/sh\nif [ -f {self._armed} ]; then case " $* " in *" $(cat {self._armed}.at) "*)\n'
            f"mv {self._armed} {self._done} && sh {self._done} >&2;; esac; fi\n"
            f'exec {shutil.which("git")} "$@"\n'
        )
        program.chmod(0o755)
        monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
        self.stack = self.server()

    def server(self, *, updates_checkouts: bool = False) -> RepositoryStack:
        return RepositoryStack(
            self.folder / "data",
            FixedProjects(web={"code": str(self.origin.folder)}),
            roots=[self.roots],
            updates_checkouts=updates_checkouts,
        )

    @property
    def git(self) -> Path:
        return self.origin.folder / ".git"

    def at(self, command: str, script: str) -> None:
        """Run the script just before the next such command of git."""
        Path(f"{self._armed}.at").write_text(command)
        self._armed.write_text(f"set -e\n{script}\n")

    @property
    def happened(self) -> bool:
        return self._done.exists()

    async def secret(self) -> bytes | None:
        try:
            return (await self.stack.repos.files.read(ONE, "secret")).content
        except WonderError:
            return None


@pytest_asyncio.fixture
async def race(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Race]:
    made = Race(tmp_path, monkeypatch)
    yield made
    await made.stack.close()


@pytest.mark.parametrize("command", ["fetch", "upload-pack", "cat-file"])
async def test_alternates_that_appear_after_the_check_are_not_followed(race: Race, command: str) -> None:
    (race.git / "refs" / "heads" / "main").write_text(race.private.git("rev-parse", "main") + "\n")
    alternates = race.git / "objects" / "info" / "alternates"
    race.at(command, f"echo {race.private.folder}/.git/objects > {alternates}")
    assert await race.secret() is None
    # Not for good, either: the copy has none of its objects.
    alternates.unlink(missing_ok=True)
    assert await race.secret() is None


@pytest.mark.parametrize("what", ["objects", "pack"])
async def test_a_folder_of_objects_that_is_swapped_for_a_link_is_not_followed(race: Race, what: str) -> None:
    race.private.git("gc", "--quiet")
    (race.git / "refs" / "heads" / "main").write_text(race.private.git("rev-parse", "main") + "\n")
    place = race.git / "objects" if what == "objects" else race.git / "objects" / "pack"
    theirs = race.private.folder / ".git" / "objects" / ("" if what == "objects" else "pack")
    race.at("fetch", f"mv {place} {place}.away; ln -s {theirs} {place}")
    assert await race.secret() is None
    assert race.happened


@pytest.mark.parametrize("packed", [False, True])
async def test_objects_that_are_swapped_for_links_are_not_followed(race: Race, packed: bool) -> None:
    (race.git / "refs" / "heads" / "main").write_text(race.private.git("rev-parse", "main") + "\n")
    theirs = race.private.folder / ".git" / "objects"
    if packed:
        race.private.git("gc", "--quiet")
        script = f"mkdir -p {race.git}/objects/pack; ln -s {theirs}/pack/pack-* {race.git}/objects/pack/"
    else:
        script = f"mkdir -p {race.git}/objects; cp -rs {theirs}/?? {race.git}/objects/"
    race.at("fetch", script)
    assert await race.secret() is None
    assert race.happened


@pytest.mark.parametrize("name", ["commit-graphs/commit-graph-chain", "commit-graph", "packs"])
async def test_files_below_info_that_git_would_wait_for_are_never_opened(race: Race, name: str) -> None:
    pipe = race.git / "objects" / "info" / name
    pipe.parent.mkdir(parents=True, exist_ok=True)
    os.mkfifo(pipe)
    async with asyncio.timeout(30):
        assert (await race.stack.repos.files.read(ONE, "readme")).content == b"hello\n"
        await race.stack.repos.files.write(ONE, "src", b"merged\n")
        await merge(race.stack.repos, ONE)
    pipe.unlink()  # The user's own git would wait.
    assert race.origin.show("src") == "merged"


async def test_objects_in_packs_large_and_small_and_alone_are_all_read(race: Race) -> None:
    race.origin.git("switch", "--quiet", "main")
    (race.origin.folder / "large").write_bytes(os.urandom(3 << 20))
    race.origin.change("a", "packed\n")
    race.origin.git("repack", "--quiet", "-d")
    race.origin.change("b", "packed alone\n")
    race.origin.git("repack", "--quiet", "-d")
    race.origin.change("c", "loose\n")
    repos = race.stack.repos
    assert [(await repos.files.read(ONE, name)).content for name in "abc"] == [
        b"packed\n", b"packed alone\n", b"loose\n",
    ]  # fmt: skip
    assert (await repos.files.read(ONE, "large")).id == race.origin.git("rev-parse", "main:large")
    race.origin.change("c", "later\n")
    race.origin.git("gc", "--quiet")
    later = race.server()  # One that has not looked at the repository just now.
    assert (await later.repos.files.read(scope("conv_2"), "c")).content == b"later\n"
    await later.close()


# --- references -----------------------------------------------------------------------------------


@pytest.mark.parametrize("command", ["pack-objects", "index-pack", "update-ref"])
async def test_a_merge_moves_no_branch_of_a_repository_outside_the_roots(race: Race, command: str) -> None:
    heads = race.git / "refs" / "heads"
    other = race.private.folder / ".git" / "refs" / "heads"
    before = race.origin.git("rev-parse", "main")
    (other / "main").write_text(before + "\n")
    await race.stack.repos.files.write(ONE, "src", b"merged\n")
    race.at(command, f"mv {heads}/team {heads}/away; ln -s {other} {heads}/team")
    try:
        await merge(race.stack.repos, ONE, target="team/main")
    except WonderError as problem:
        assert problem.fault.reason in (Reason.STORAGE_UNAVAILABLE, Reason.RESOURCE_IN_USE)
    assert (other / "main").read_text() == before + "\n"
    assert not list(other.glob("*.lock"))


async def test_a_merge_writes_no_pack_outside_the_roots(race: Race) -> None:
    packs, outside = race.git / "objects" / "pack", race.folder / "outside"
    outside.mkdir()
    await race.stack.repos.files.write(ONE, "src", b"merged\n")
    race.at("pack-objects", f"mv {packs} {packs}.away; ln -s {outside} {packs}")
    refused = await refusal(merge(race.stack.repos, ONE))
    assert refused.reason is Reason.STORAGE_UNAVAILABLE
    assert not list(outside.iterdir()) and race.happened


async def test_the_lock_of_another_git_is_waited_for_and_then_respected(race: Race) -> None:
    await race.stack.repos.files.write(ONE, "src", b"merged\n")
    lock, before = race.git / "refs" / "heads" / "main.lock", race.origin.git("rev-parse", "main")
    lock.touch()
    refused = await refusal(merge(race.stack.repos, ONE))
    assert refused.transient or refused.reason is Reason.RESOURCE_IN_USE
    assert race.origin.git("rev-parse", "main") == before and lock.exists()
    lock.unlink()
    await merge(race.stack.repos, ONE)
    assert race.origin.show("src") == "merged" and not lock.exists()


@pytest.mark.parametrize("branch", ["main", "team/main"])
async def test_a_packed_branch_is_merged_into(race: Race, branch: str) -> None:
    race.origin.git("pack-refs", "--all", "--prune")
    await race.stack.repos.files.write(ONE, "src", b"merged\n")
    await merge(race.stack.repos, ONE, target=branch)
    assert race.origin.show("src", branch) == "merged"
    race.origin.git("pack-refs", "--all", "--prune")
    race.origin.git("fsck", "--strict")
    assert not list((race.git / "objects" / "pack").glob("*.keep"))


async def test_the_first_merge_into_an_empty_repository_makes_the_branch(race: Race) -> None:
    for branch in ("main", "team/main"):
        race.origin.git("update-ref", "-d", f"refs/heads/{branch}")
    await race.stack.repos.files.write(ONE, "src", b"first\n")
    await merge(race.stack.repos, ONE, target="deep/er/main")
    assert race.origin.show("src", "deep/er/main") == "first"


# --- working folders ------------------------------------------------------------------------------


@pytest.mark.parametrize("command", ["read-tree", "write-tree"])
async def test_no_file_is_written_outside_the_roots(race: Race, command: str) -> None:
    race.origin.git("switch", "--quiet", "main")
    race.stack = race.server(updates_checkouts=True)
    victim = race.folder / "home" / "code"
    victim.mkdir(parents=True)
    await race.stack.repos.files.write(ONE, "keys", b"an attacker's\n")
    await race.stack.repos.files.commit(ONE, "agt", "m")
    team = race.roots / "team"
    race.at(
        command,
        f"[ -e {race.git}/index.lock ] || {{ mv {race.folder}/done {race.folder}/armed; exit 0; }}\n"
        f"mv {team} {team}2; ln -s {victim.parent} {team}",
    )
    await merge(race.stack.repos, ONE)
    assert team.is_symlink()
    assert not list(victim.iterdir())
    assert (race.roots / "team2" / "code" / "keys").read_text() == "an attacker's\n"
