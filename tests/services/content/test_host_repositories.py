"""Repositories in folders of the host: only below the operator's roots, and without executing their files."""

from __future__ import annotations

import os
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from tests.services.catalog.library_kit import reason, refusal
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
    "applypatch-msg", "commit-msg", "fsmonitor-watchman", "post-applypatch", "post-checkout", "post-commit",
    "post-index-change", "post-merge", "post-receive", "post-rewrite", "post-update", "pre-applypatch",
    "pre-auto-gc", "pre-commit", "pre-merge-commit", "pre-push", "pre-rebase", "pre-receive",
    "prepare-commit-msg", "proc-receive", "push-to-checkout", "reference-transaction", "sendemail-validate",
    "update",
)  # fmt: skip


class Hostile:
    """A user's repository in which every file that git could execute leaves a mark, and a server."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.mark = folder / "outside" / "mark"
        self.mark.parent.mkdir()
        self.script = folder / "outside" / "evil"
        self.script.write_text(f'#!/bin/sh\necho "$0 $*" >> {self.mark}\ncat\n')
        self.script.chmod(0o755)
        self.origin = UsersRepository(folder / "users" / "code")
        self.stack = self.server()

    @property
    def git(self) -> Path:
        return self.origin.folder / ".git"

    def server(self, *, updates_checkouts: bool = False) -> RepositoryStack:
        return RepositoryStack(
            self.folder / "data",
            FixedProjects(web={"code": str(self.origin.folder)}),
            roots=[self.folder / "users"],
            updates_checkouts=updates_checkouts,
        )

    def hooks(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        for name in HOOKS:
            (folder / name).unlink(missing_ok=True)
            (folder / name).write_bytes(self.script.read_bytes())
            (folder / name).chmod(0o755)

    def config(self, text: str) -> None:
        with (self.git / "config").open("a") as file:
            file.write(text.replace("EVIL", str(self.script)))

    async def everything(self, *, target: str = "") -> None:
        """Copy, read, write and merge."""
        repos = self.stack.repos
        await repos.files.tree(ONE)
        await repos.files.write(ONE, "src", b"merged\n")
        await repos.files.commit(ONE, "agt", "m")
        await repos.files.diff(ONE)
        assert not (await merge(repos, ONE, target=target)).conflicts
        assert self.origin.git("cat-file", "-p", f"{target or 'main'}:src") == "merged"
        await repos.files.update(ONE, "agt")


@pytest_asyncio.fixture
async def hostile(tmp_path: Path) -> AsyncIterator[Hostile]:
    made = Hostile(tmp_path)
    made.origin.git("switch", "--quiet", "--detach")
    yield made
    await made.stack.close()
    said = made.mark.read_text() if made.mark.exists() else ""
    assert not said, f"the server ran code of the repository: {said}"


async def test_no_hook_of_a_host_repository_runs(hostile: Hostile) -> None:
    hostile.hooks(hostile.git / "hooks")
    await hostile.everything()


async def test_no_hook_runs_from_a_folder_that_the_configuration_names(hostile: Hostile) -> None:
    hostile.hooks(hostile.origin.folder / ".hooks")
    hostile.config("[core]\n\thooksPath = .hooks\n")
    await hostile.everything()


CONFIGURATIONS = {
    "hooks elsewhere": "[core]\n\thooksPath = EVIL.d\n",
    "fsmonitor": "[core]\n\tfsmonitor = EVIL\n\tuntrackedCache = true\n",
    "programs": (
        "[core]\n\tsshCommand = EVIL\n\tgitProxy = EVIL\n\taskPass = EVIL\n\teditor = EVIL\n\tpager = EVIL\n"
        "\talternateRefsCommand = EVIL\n[credential]\n\thelper = !EVIL\n[sequence]\n\teditor = EVIL\n"
    ),
    "upload-pack": (
        '[uploadpack]\n\tpackObjectsHook = EVIL\n\tallowFilter = true\n[remote "origin"]\n'
        "\turl = ext::EVIL\n\tuploadpack = EVIL\n\treceivepack = EVIL\n\tpromisor = true\n"
        '\tpartialclonefilter = blob:none\n[protocol "ext"]\n\tallow = always\n'
        "[protocol]\n\tallow = always\n[extensions]\n\tpartialClone = origin\n"
    ),
    "receive-pack": (
        "[receive]\n\tdenyCurrentBranch = updateInstead\n\tprocReceiveRefs = refs\n\tautogc = true\n"
        "\tcertNonceSeed = x\n\tadvertisePushOptions = true\n[gpg]\n\tprogram = EVIL\n"
        '[gpg "ssh"]\n\tprogram = EVIL\n\tdefaultKeyCommand = EVIL\n[commit]\n\tgpgSign = true\n'
    ),
    "drivers": (
        '[filter "evil"]\n\tclean = EVIL\n\tsmudge = EVIL\n\tprocess = EVIL\n\trequired = true\n'
        '[diff "evil"]\n\tcommand = EVIL\n\ttextconv = EVIL\n[merge "evil"]\n\tdriver = EVIL %O %A %B\n'
        "[merge]\n\tdefault = evil\n[diff]\n\texternal = EVIL\n"
        "[core]\n\tattributesFile = .gitattributes\n"
    ),
    "upkeep": (
        "[gc]\n\tauto = 1\n\tautoDetach = false\n\trecentObjectsHook = EVIL\n[maintenance]\n\tauto = true\n"
        "[alias]\n\tgc = !EVIL\n\tupload-pack = !EVIL\n\trev-list = !EVIL\n[trace2]\n\tnormalTarget = EVIL\n"
    ),
    "included": '[include]\n\tpath = ../evil.config\n[includeIf "gitdir:**"]\n\tpath = ../evil.config\n',
    "instead of": '[url "ext::EVIL "]\n\tinsteadOf = /\n\tpushInsteadOf = /\n',
    "another folder": "[core]\n\tworktree = /\n\tbare = false\n",
    "no configuration at all": "[[[\n",
}


@pytest.mark.parametrize("name", CONFIGURATIONS)
async def test_no_configuration_of_a_host_repository_counts(hostile: Hostile, name: str) -> None:
    hostile.hooks(Path(f"{hostile.script}.d"))
    (hostile.origin.folder / ".gitattributes").write_text("* filter=evil diff=evil merge=evil\n")
    hostile.origin.git("add", ".gitattributes")
    hostile.origin.git("commit", "--quiet", "-m", "attributes")
    hostile.origin.git("branch", "-f", "main")
    (hostile.git / "info").mkdir(exist_ok=True)
    (hostile.git / "info" / "attributes").write_text("* filter=evil diff=evil merge=evil\n")
    (hostile.origin.folder / "evil.config").write_text(f"[core]\n\tfsmonitor = {hostile.script}\n")
    before = (hostile.git / "config").read_text()
    hostile.config(CONFIGURATIONS[name])
    repos = hostile.stack.repos
    await repos.files.write(ONE, "src", b"merged\n")
    await merge(repos, ONE)
    await repos.files.write(ONE, "readme", b"again\n")
    await repos.files.diff(ONE)
    await merge(repos, ONE)
    assert not hostile.mark.exists()
    (hostile.git / "config").write_text(before)
    assert hostile.origin.show("src") == "merged" and hostile.origin.show("readme") == "again"
    hostile.origin.git("fsck", "--strict")


async def test_a_merge_that_brings_the_hooks_along_runs_none_of_them(hostile: Hostile) -> None:
    """Attack: the hooks of the receiving repository are in its tree, which an agent may change."""
    hostile.origin.git("switch", "--quiet", "main")
    hostile.config("[core]\n\thooksPath = .hooks\n[receive]\n\tdenyCurrentBranch = updateInstead\n")
    hostile.stack = hostile.server(updates_checkouts=True)
    worktree = await hostile.stack.repos.worktrees.open(ONE)
    hostile.hooks(worktree.folder / "code" / ".hooks")
    (worktree.folder / "code" / ".gitattributes").write_text("* filter=evil\n")
    hostile.config('[filter "evil"]\n\tsmudge = EVIL\n\tclean = EVIL\n')
    hostile.stack.repos.worktrees.command_finished(worktree.key)
    assert (await merge(hostile.stack.repos, ONE)).commit is not None
    assert (hostile.origin.folder / ".hooks" / "post-receive").exists()
    await hostile.stack.repos.files.write(ONE, "src", b"second\n")
    await merge(hostile.stack.repos, ONE)
    assert (hostile.origin.folder / "src").read_text() == "second\n"


# --- working folders ------------------------------------------------------------------------------


async def test_a_branch_that_is_checked_out_is_not_merged_into_unless_the_operator_says_so(
    hostile: Hostile,
) -> None:
    hostile.origin.git("switch", "--quiet", "main")
    await hostile.stack.repos.files.write(ONE, "src", b"merged\n")
    refused = await refusal(merge(hostile.stack.repos, ONE))
    assert refused.reason is Reason.RESOURCE_IN_USE and "repository_update_checkouts" in refused.message
    assert hostile.origin.show("src") == "one\ntwo\nthree"
    hostile.stack = hostile.server(updates_checkouts=True)
    await merge(hostile.stack.repos, ONE)
    assert (hostile.origin.folder / "src").read_text() == "merged\n"
    assert hostile.origin.git("status", "--porcelain") == ""


async def test_a_branch_of_a_linked_working_folder_is_never_merged_into(hostile: Hostile) -> None:
    hostile.origin.git("worktree", "add", "--quiet", str(hostile.folder / "linked"), "main")
    hostile.stack = hostile.server(updates_checkouts=True)
    await hostile.stack.repos.files.write(ONE, "src", b"merged\n")
    refused = await refusal(merge(hostile.stack.repos, ONE))
    assert refused.reason is Reason.RESOURCE_IN_USE and "repository_update" not in refused.message


@pytest.mark.parametrize("change", ["edited", "staged", "in the way", "locked", "a folder in the way"])
async def test_work_in_a_working_folder_is_never_lost(hostile: Hostile, change: str) -> None:
    hostile.origin.git("switch", "--quiet", "main")
    hostile.stack = hostile.server(updates_checkouts=True)
    for path in ("a", "new", "src"):
        await hostile.stack.repos.files.write(ONE, path, b"merged\n")
    place = hostile.origin.folder
    if change in ("edited", "staged"):
        (place / "src").write_text("mine\n")
    if change == "staged":
        hostile.origin.git("add", "src")
    if change == "in the way":
        (place / "new").write_text("mine\n")
    if change == "a folder in the way":
        (place / "new").mkdir()
        (place / "new" / "mine").write_text("mine\n")
    if change == "locked":
        (hostile.git / "index.lock").touch()
    before, head = hostile.origin.git("status", "--porcelain"), hostile.origin.git("rev-parse", "main")
    assert await reason(merge(hostile.stack.repos, ONE)) is Reason.RESOURCE_IN_USE
    assert hostile.origin.git("status", "--porcelain") == before
    assert hostile.origin.git("rev-parse", "main") == head and not (place / "a").exists()


async def test_a_merge_that_was_killed_in_the_middle_is_finished(hostile: Hostile) -> None:
    hostile.origin.git("switch", "--quiet", "main")
    hostile.stack = hostile.server(updates_checkouts=True)
    await hostile.stack.repos.files.write(ONE, "src", b"merged\n")
    await hostile.stack.repos.files.write(ONE, "new", b"new\n")
    (hostile.origin.folder / "src").write_text("merged\n")  # As far as it came.
    await merge(hostile.stack.repos, ONE)
    assert hostile.origin.git("status", "--porcelain") == "" and hostile.origin.show("new") == "new"


# --- roots ----------------------------------------------------------------------------------------


async def _refused(folder: Path, url: str, roots: list[Path]) -> None:
    """The repository can be neither saved nor used."""
    stack = RepositoryStack(folder / "data", FixedProjects(web={"code": url}), roots=roots)
    (project,) = stack.projects.projects.values()
    for asked in (
        stack.repos.check_repositories((), project.repositories),
        stack.repos.files.read(ONE, "readme"),
        stack.repos.files.write(ONE, "readme", b""),
        stack.repos.worktrees.open(ONE),
        merge(stack.repos, ONE),
    ):
        refused = await refusal(asked)
        assert refused.reason is Reason.FIELD_INVALID and "repository_roots" in refused.message, refused
        assert roots or refused.message.endswith("server with --repository-roots DIR, or use a URL.")
    assert (await stack.repos.files.index(ONE))["code"] is None
    await stack.close()


async def test_without_roots_no_folder_is_a_repository(tmp_path: Path) -> None:
    origin = UsersRepository(tmp_path / "users" / "code")
    for url in (str(origin.folder), f"file://{origin.folder}", "/", "/nothing/there", "/etc"):
        await _refused(tmp_path, url, [])


async def test_a_link_out_of_the_roots_is_not_a_repository(tmp_path: Path) -> None:
    UsersRepository(tmp_path / "private")
    (tmp_path / "users").mkdir()
    (tmp_path / "users2").symlink_to(tmp_path / "private")
    (tmp_path / "users" / "link").symlink_to(tmp_path / "private")
    (tmp_path / "users" / "loop").symlink_to(tmp_path / "users" / "loop")
    (tmp_path / "data").mkdir()
    for path in ("private", "users2", "users/link", "users/../private", "users/x/../../private",
                 "data", "data/repositories/x.git", "users/link/.git"):  # fmt: skip
        await _refused(tmp_path, f"{tmp_path}/{path}", [tmp_path / "users"])
    await _refused(tmp_path, f"file://{tmp_path}/users/%2e%2e/private", [tmp_path / "users"])
    await _refused(tmp_path, f"{tmp_path}/data/repositories", [tmp_path])


async def test_a_folder_that_is_swapped_for_a_link_later_is_refused(hostile: Hostile) -> None:
    private = UsersRepository(hostile.folder / "private", secret="a secret\n")
    await hostile.stack.repos.files.read(ONE, "readme")
    hostile.origin.folder.rename(hostile.folder / "away")
    hostile.origin.folder.symlink_to(private.folder)
    for asked in (
        hostile.stack.repos.files.read(ONE, "secret"),
        merge(hostile.stack.repos, ONE),
    ):
        assert await reason(asked) is Reason.FIELD_INVALID


async def test_a_copy_is_not_readable_after_its_root_is_removed(hostile: Hostile) -> None:
    await hostile.stack.repos.files.write(ONE, "new", b"1")
    later = RepositoryStack(hostile.folder / "data", hostile.stack.projects, roots=[])
    assert await reason(later.repos.files.read(ONE, "readme")) is Reason.FIELD_INVALID
    await later.close()


async def test_a_root_below_another_cannot_be_turned_into_a_link_out_of_both(tmp_path: Path) -> None:
    UsersRepository(tmp_path / "victim" / "code")
    upper, lower = tmp_path / "root", tmp_path / "root" / "sub"
    lower.mkdir(parents=True)
    projects = FixedProjects(web={"code": f"{lower}/code"})
    stack = RepositoryStack(tmp_path / "data", projects, roots=[upper, lower])
    lower.rmdir()
    lower.symlink_to(tmp_path / "victim")
    assert await reason(stack.repos.files.read(ONE, "readme")) is Reason.FIELD_INVALID
    await stack.close()


async def test_a_root_may_itself_be_a_link(tmp_path: Path) -> None:
    origin = UsersRepository(tmp_path / "users" / "code")
    (tmp_path / "root").symlink_to(tmp_path / "users")
    stack = RepositoryStack(
        tmp_path / "data", FixedProjects(web={"code": f"{tmp_path}/root/code"}), roots=[tmp_path / "root"]
    )
    assert (await stack.repos.files.read(ONE, "readme")).content == b"hello\n"
    assert origin.folder.is_dir()
    await stack.close()


@pytest.mark.parametrize(
    "kind", ["git file", "git link", "objects", "packs", "alternates", "far alternates", "common", "refs"]
)
async def test_a_repository_that_points_outside_the_roots_is_refused(hostile: Hostile, kind: str) -> None:
    """The folder is below a root, but its objects, or the whole folder, are a link to another place."""
    private = UsersRepository(hostile.folder / "private", secret="a secret\n")
    (private.folder / ".git" / "objects" / "pack").mkdir(exist_ok=True)
    git, theirs = hostile.git, private.folder / ".git"
    if kind == "git file":
        git.rename(hostile.folder / "moved")
        git.write_text(f"gitdir: {theirs}\n")
    elif kind == "git link":
        git.rename(hostile.folder / "moved")
        git.symlink_to(theirs)
    elif kind in ("objects", "refs"):
        (git / kind).rename(git / "moved")
        (git / kind).symlink_to(theirs / kind)
    elif kind == "packs":
        private.git("gc", "--quiet")
        (pack,) = (theirs / "objects" / "pack").glob("*.pack")
        (git / "objects" / "pack" / pack.name).symlink_to(pack)
        (git / "objects" / "pack" / pack.name).with_suffix(".idx").symlink_to(pack.with_suffix(".idx"))
    elif kind == "common":
        (git / "commondir").write_text(f"{theirs}\n")
    else:
        between = git / "objects"
        if kind == "far alternates":
            between = UsersRepository(hostile.folder / "users" / "between").folder / ".git" / "objects"
            (git / "objects" / "info" / "alternates").write_text(f"{between}\n")
        (between / "info" / "alternates").write_text(f"{theirs / 'objects'}\n")
    secret = private.git("rev-parse", "main")
    if kind not in ("git file", "git link", "refs"):
        (git / "refs" / "heads" / "main").write_text(f"{secret}\n")
    refused = await refusal(hostile.stack.repos.files.read(ONE, "secret"))
    assert refused.reason in (Reason.STORAGE_UNAVAILABLE, Reason.FIELD_INVALID)
    (project,) = hostile.stack.projects.projects.values()
    assert (
        await reason(hostile.stack.repos.check_repositories((), project.repositories)) is Reason.FIELD_INVALID
    )


async def test_alternates_below_the_roots_are_read(hostile: Hostile) -> None:
    origin = hostile.origin
    shared = hostile.folder / "users" / "shared"
    environment = {**os.environ, "GIT_CONFIG_GLOBAL": "/dev/null"}
    subprocess.run(  # noqa: ASYNC221
        ["git", "clone", "--quiet", "--shared", "--bare", "--branch", "main", origin.folder, shared],
        check=True,
        env=environment,
    )
    stack = RepositoryStack(
        hostile.folder / "data2", FixedProjects(web={"code": str(shared)}), roots=[hostile.folder / "users"]
    )
    await stack.repos.files.write(ONE, "src", b"merged\n")
    await merge(stack.repos, ONE)
    assert (await stack.repos.files.read(scope("conv_2"), "src")).content == b"merged\n"
    await stack.close()


async def test_objects_that_would_block_git_are_reported(hostile: Hostile) -> None:
    found = hostile.origin.git("rev-parse", "main:readme")
    place = hostile.git / "objects" / found[:2] / found[2:]
    place.unlink()
    os.mkfifo(place)
    refused = await refusal(hostile.stack.repos.files.read(ONE, "readme"))
    assert refused.reason is Reason.STORAGE_UNAVAILABLE and "not a regular file" in refused.message


async def test_invalid_references_are_reported(hostile: Hostile) -> None:
    refs = hostile.git / "refs" / "heads"
    (refs / "link").symlink_to("/etc/passwd")
    refused = await refusal(hostile.stack.repos.files.read(ONE, "readme"))
    assert refused.reason is Reason.STORAGE_UNAVAILABLE and "link" in refused.message
    (refs / "link").unlink()
    os.mkfifo(refs / "pipe")
    assert await reason(hostile.stack.repos.files.read(ONE, "readme")) is Reason.STORAGE_UNAVAILABLE
    (refs / "pipe").unlink()
    (refs / "out").write_text("ref: refs/heads/../../../../etc/passwd\n")
    assert await reason(hostile.stack.repos.files.read(ONE, "readme")) is Reason.STORAGE_UNAVAILABLE
    (refs / "out").unlink()
    assert (await hostile.stack.repos.files.read(ONE, "readme")).content == b"hello\n"
