"""Work of conversations on code: one branch each, and explicit merges (features F2, F3, F5, F6)."""

from __future__ import annotations

import asyncio
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
from wonder_server.core.actor.commands import Scope
from wonder_server.core.errors import Reason
from wonder_server.core.idempotency import IdempotencyKey
from wonder_server.ports.repositories import Change
from wonder_server.services.content.repositories import RepositoryService

need_git()

ONE, TWO = scope("conv_1"), scope("conv_2")


@pytest.fixture
def origin(tmp_path: Path) -> UsersRepository:
    return UsersRepository(tmp_path / "users" / "code")


@pytest_asyncio.fixture
async def stack(tmp_path: Path, origin: UsersRepository) -> AsyncIterator[RepositoryStack]:
    projects = FixedProjects(web={"code": str(origin.folder)}, none={}, other={"code": str(origin.folder)})
    made = RepositoryStack(tmp_path / "data", projects)
    yield made
    await made.close()


@pytest.fixture
def repos(stack: RepositoryStack) -> RepositoryService:
    return stack.repos


async def content(repos: RepositoryService, work: Scope, path: str) -> str:
    return (await repos.files.read(work, path)).content.decode()


async def test_a_first_read_returns_the_default_branch_and_creates_nothing(
    stack: RepositoryStack, origin: UsersRepository
) -> None:
    repos = stack.repos
    assert [file.path for file in (await repos.files.tree(ONE)).files] == ["readme", "src"]
    assert await content(repos, ONE, "readme") == "hello\n"
    assert [(m.path, m.line) for m in (await repos.files.search(ONE, "TWO")).matches] == [("src", 2)]
    changed = await repos.files.diff(ONE)
    assert changed.branch == "wonder/conv-1" and changed.base_branch == "main"
    assert changed.head is None and not changed.diff.files
    assert changed.diff.base == origin.git("rev-parse", "main")
    assert await stack.workspaces.keys() == []


async def test_two_conversations_do_not_see_each_others_work(repos: RepositoryService) -> None:
    await repos.files.write(ONE, "src", b"one by one\n")
    await repos.files.write(TWO, "new/deep/file", b"two\n")
    assert await content(repos, ONE, "src") == "one by one\n"
    assert await content(repos, TWO, "src") == "one\ntwo\nthree\n"
    assert await reason(repos.files.read(ONE, "new/deep/file")) is Reason.ARTIFACT_NOT_FOUND
    assert not (await repos.files.search(TWO, "one by one")).matches
    assert [file.path for file in (await repos.files.diff(ONE)).diff.files] == ["src"]
    assert [file.path for file in (await repos.files.diff(TWO)).diff.files] == ["new/deep/file"]


async def test_one_merges_the_other_gets_its_conflict_and_loses_nothing(
    repos: RepositoryService, origin: UsersRepository
) -> None:
    await repos.files.write(ONE, "src", b"one\nfirst\nthree\n")
    await repos.files.write(TWO, "src", b"one\nsecond\nthree\n")
    await repos.files.write(TWO, "extra", b"kept\n")
    await repos.files.commit(TWO, "agt_two", "The second way")
    merged = await merge(repos, ONE)
    assert merged.commit is not None and origin.show("src") == "one\nfirst\nthree"
    assert origin.git("log", "-1", "--format=%an") == "ada"
    before = origin.git("rev-parse", "main")
    for dry in (True, False):
        met = await merge(repos, TWO, author="bob", dry_run=dry)
        (conflict,) = met.conflicts
        assert met.commit is None and (conflict.path, conflict.kind) == ("src", "content")
        assert conflict.ours == "one\nfirst\nthree\n" and conflict.theirs == "one\nsecond\nthree\n"
    assert origin.git("rev-parse", "main") == before
    assert await content(repos, TWO, "src") == "one\nsecond\nthree\n"
    assert await content(repos, TWO, "extra") == "kept\n"
    # It brings the other's work in, decides what becomes of the file, and is merged.
    assert (await repos.files.update(TWO, "agt_two")).conflicts
    resolved = await repos.files.update(
        TWO, "agt_two", resolutions=[Change(path="src", content=b"one\nboth\nthree\n")]
    )
    assert not resolved.conflicts
    assert await content(repos, TWO, "src") == "one\nboth\nthree\n"
    assert not (await merge(repos, TWO, author="bob")).conflicts
    assert origin.show("src") == "one\nboth\nthree" and origin.show("extra") == "kept"


async def test_a_conflict_can_be_resolved_as_it_is_merged(
    repos: RepositoryService, origin: UsersRepository
) -> None:
    await repos.files.write(ONE, "src", b"mine\n")
    origin.change("src", "theirs\n")
    assert (await merge(repos, ONE)).conflicts
    assert not (await merge(repos, ONE, resolutions=[Change(path="src", content=b"ours\n")])).conflicts
    assert origin.show("src") == "ours" and origin.show("readme") == "hello"


async def test_a_resolution_of_a_file_without_conflict_or_a_second_one_is_rejected(
    repos: RepositoryService, origin: UsersRepository
) -> None:
    await repos.files.write(ONE, "src", b"mine\n")
    await repos.files.write(ONE, "new", b"new\n")
    free = [Change(path="new", content=b"ours\n")]
    assert (await refusal(merge(repos, ONE, resolutions=free))).field == "resolutions[0].path"
    origin.change("src", "theirs\n")
    decided = Change(path="src", content=b"ours\n")
    for odd in (free[0], Change(path="readme", content=None), Change(path="nowhere", content=b""), decided):
        for dry in (True, False):
            fault = await refusal(merge(repos, ONE, resolutions=[decided, odd], dry_run=dry))
            assert (fault.reason, fault.field) == (Reason.FIELD_INVALID, "resolutions[1].path")
        fault = await refusal(repos.files.update(ONE, "ada", resolutions=[decided, odd]))
        assert (fault.reason, fault.field) == (Reason.FIELD_INVALID, "resolutions[1].path")
    assert origin.show("src") == "theirs" and await content(repos, ONE, "src") == "mine\n"
    assert not (await merge(repos, ONE, resolutions=[decided])).conflicts
    assert origin.show("src") == "ours" and origin.show("new") == "new"


async def test_a_merge_includes_uncommitted_changes(
    repos: RepositoryService, origin: UsersRepository
) -> None:
    await repos.files.write(ONE, "src", b"changed\n")
    await repos.files.write(ONE, "readme", None)
    shown = await repos.files.diff(ONE)
    assert shown.head is not None and (await repos.files.diff(ONE)).head == shown.head
    assert [(f.path, f.change) for f in shown.diff.files] == [("readme", "deleted"), ("src", "modified")]
    await merge(repos, ONE, expected_head=shown.head.id)
    assert origin.git("ls-tree", "--name-only", "main") == "src"
    assert origin.git("status", "--porcelain") == "" and (origin.folder / "src").read_text() == "changed\n"
    assert not (await repos.files.diff(ONE)).diff.files


async def test_a_merge_with_an_expected_head_includes_nothing_else(
    repos: RepositoryService, origin: UsersRepository
) -> None:
    await repos.files.write(ONE, "src", b"1\n")
    shown = (await repos.files.diff(ONE)).head
    await repos.files.write(ONE, "src", b"2\n")
    assert shown is not None
    assert await reason(merge(repos, ONE, expected_head=shown.id)) is Reason.ETAG_MISMATCH
    assert await reason(merge(repos, ONE, expected_head=shown.id, dry_run=True)) is Reason.ETAG_MISMATCH
    assert origin.show("src") == "one\ntwo\nthree"


async def test_a_request_to_merge_that_comes_again_merges_once(
    repos: RepositoryService, origin: UsersRepository
) -> None:
    await repos.files.write(ONE, "src", b"1\n")
    first = await merge(repos, ONE, idempotency_key=IdempotencyKey("", "r1", "aa"))
    await repos.files.write(ONE, "src", b"2\n")
    assert (await merge(repos, ONE, idempotency_key=IdempotencyKey("", "r1", "aa"))).commit == first.commit
    assert origin.show("src") == "1"
    other = await refusal(merge(repos, ONE, idempotency_key=IdempotencyKey("", "r1", "bb")))
    assert other.reason is Reason.REQUEST_ID_REUSED


async def test_concurrent_merges_both_succeed(repos: RepositoryService, origin: UsersRepository) -> None:
    await asyncio.gather(repos.files.write(ONE, "a", b"1"), repos.files.write(TWO, "b", b"2"))
    done = await asyncio.gather(
        merge(repos, ONE),
        merge(repos, TWO, author="bob"),
    )
    assert not any(merged.conflicts for merged in done)
    assert origin.git("ls-tree", "--name-only", "main").split() == ["a", "b", "readme", "src"]


async def test_a_merge_never_overwrites_changes_of_the_user(
    repos: RepositoryService, origin: UsersRepository
) -> None:
    await repos.files.write(ONE, "src", b"1\n")
    (origin.folder / "src").write_text("a user is at work here\n")
    refused = await refusal(merge(repos, ONE))
    assert refused.reason is Reason.RESOURCE_IN_USE
    assert (origin.folder / "src").read_text() == "a user is at work here\n"
    assert origin.show("src") == "one\ntwo\nthree" and await content(repos, ONE, "src") == "1\n"
    origin.git("checkout", "--", "src")
    assert (await merge(repos, ONE)).commit is not None


async def test_branches_to_merge_into(repos: RepositoryService, origin: UsersRepository) -> None:
    origin.git("branch", "next")
    await repos.files.write(ONE, "src", b"1\n")
    assert await reason(merge(repos, ONE, target="nowhere")) is Reason.FIELD_INVALID
    assert await reason(repos.files.diff(ONE, base_branch="nowhere")) is Reason.FIELD_INVALID
    assert await reason(repos.files.update(ONE, "ada", source="nowhere")) is Reason.FIELD_INVALID
    assert await reason(merge(repos, ONE, target="../x")) is Reason.FIELD_INVALID
    await merge(repos, ONE, target="next")
    assert origin.show("src", "next") == "1" and origin.show("src") == "one\ntwo\nthree"
    assert not (await repos.files.diff(ONE, base_branch="next")).diff.files


async def test_a_branch_starts_again_after_a_merge_that_removed_it(
    stack: RepositoryStack, origin: UsersRepository
) -> None:
    await stack.repos.files.write(ONE, "src", b"1\n")
    await merge(stack.repos, ONE, remove_branch=True, idempotency_key=IdempotencyKey("", "r", "aa"))
    assert await stack.repositories.of("proj_web.code").commit("wonder/conv-1") is None
    assert (await stack.repos.files.diff(ONE)).head is None
    await merge(stack.repos, ONE, remove_branch=True, idempotency_key=IdempotencyKey("", "r", "aa"))
    origin.change("src", "2\n")
    await stack.repos.files.write(ONE, "new", b"")
    assert await content(stack.repos, ONE, "src") == "2\n"


async def test_a_deleted_conversation_leaves_no_files(stack: RepositoryStack) -> None:
    await stack.repos.files.write(ONE, "src", b"1\n")
    await stack.repos.files.write(TWO, "src", b"2\n")
    for _ in range(2):
        await stack.repos.worktrees.delete_conversation_work("conv_1")
    assert await stack.workspaces.keys() == ["proj_web-conv_2"]
    assert stack.released[0] == "proj_web-conv_1"
    assert await content(stack.repos, ONE, "src") == "one\ntwo\nthree\n"
    assert await content(stack.repos, TWO, "src") == "2\n"


async def test_work_survives_a_restart(stack: RepositoryStack, origin: UsersRepository) -> None:
    await stack.repos.files.write(ONE, "src", b"1\n")
    await stack.repos.files.commit(ONE, "agt", "committed")
    await stack.repos.files.write(ONE, "new", b"not committed\n")
    head = (await stack.repos.files.diff(ONE)).head
    after = stack.restarted()
    assert await content(after.repos, ONE, "new") == "not committed\n"
    assert (await after.repos.files.diff(ONE)).head == head
    await merge(after.repos, ONE)
    assert origin.show("new") == "not committed"
    await after.close()


async def test_a_worktree_for_commands_holds_the_files(
    stack: RepositoryStack, origin: UsersRepository
) -> None:
    origin.git("update-index", "--chmod=+x", "readme")
    origin.git("commit", "--quiet", "-m", "x")
    worktree = await stack.repos.worktrees.open(ONE)
    assert worktree.key == "proj_web-conv_1" and worktree.working_dir == "code"
    root = worktree.folder / "code"
    assert sorted(path.name for path in root.iterdir()) == ["readme", "src"]
    assert (root / "readme").stat().st_mode & 0o111
    (root / "src").write_text("by a command\n")
    (root / "src").chmod(0o755)
    assert await content(stack.repos, ONE, "src") == "by a command\n"
    again = await stack.repos.worktrees.open(ONE)
    assert again == worktree and (root / "src").read_text() == "by a command\n"
    plain = await stack.repos.worktrees.open(scope(project="none"))
    assert plain.working_dir == "" and list(plain.folder.iterdir()) == []


async def test_scopes_on_a_named_branch_share_its_files(repos: RepositoryService) -> None:
    child = scope("conv_child", branch="wonder/conv-1")
    await repos.files.write(ONE, "src", b"parent\n")
    await repos.files.write(child, "new", b"child\n")
    assert await content(repos, child, "src") == "parent\n"
    assert await content(repos, ONE, "new") == "child\n"
    assert (await repos.worktrees.open(child)).key == (await repos.worktrees.open(ONE)).key
    await repos.files.write(scope("", branch="topic/x"), "src", b"topic\n")
    assert await content(repos, ONE, "src") == "parent\n"
    assert await reason(repos.files.read(scope(""), "src")) is Reason.FIELD_INVALID
    assert await reason(repos.files.read(scope(branch="origin/main"), "src")) is Reason.FIELD_INVALID


async def test_projects_with_the_same_repository_are_apart(repos: RepositoryService) -> None:
    await repos.files.write(ONE, "src", b"1\n")
    other = scope("conv_1", project="other")
    assert await content(repos, other, "src") == "one\ntwo\nthree\n"
    assert (await repos.files.diff(other)).head is None


async def test_an_etag_protects_a_file(repos: RepositoryService) -> None:
    before = await repos.files.read(ONE, "src")
    first = await repos.files.write(ONE, "src", b"1", etag=before.id)
    assert (await repos.files.read(ONE, "src")).id == first
    for etag in (before.id, "none"):
        assert await reason(repos.files.write(ONE, "src", b"2", etag=etag)) is Reason.ETAG_MISMATCH
    assert await repos.files.write(ONE, "new", b"", etag="none")
    assert await repos.files.write(ONE, "new", None) == "none"


async def test_bad_input_is_refused(repos: RepositoryService) -> None:
    for path in ("", "../x", "/etc/passwd", "a/../b", ".git/config", "a\0", "x" * 600):
        assert await reason(repos.files.write(ONE, path, b"")) is Reason.FIELD_INVALID
        assert await reason(repos.files.read(ONE, path)) is Reason.FIELD_INVALID
    assert await reason(repos.files.write(ONE, "src/x", b"")) is Reason.FIELD_INVALID
    assert await reason(repos.files.write(ONE, "x", bytes(5 << 20))) is Reason.PAYLOAD_TOO_LARGE
    assert await reason(repos.files.tree(ONE, "nope")) is Reason.FIELD_INVALID
    assert await reason(repos.files.tree(scope(project="none"))) is Reason.FIELD_INVALID
    assert await reason(repos.files.tree(scope(project="nope"))) is Reason.PROJECT_NOT_FOUND
    assert await reason(repos.files.commit(ONE, "a" * 600, "m")) is Reason.FIELD_INVALID


@pytest.mark.parametrize(
    "url",
    ["", "relative", "-x", "--upload-pack=touch /tmp/x", "ext::sh -c true", "https://", "http://a b", "/a\nb",
     "file:relative", "ftp://x/y", "fd::3"],
)  # fmt: skip
async def test_an_invalid_repository_url_is_rejected(tmp_path: Path, url: str) -> None:
    stack = RepositoryStack(tmp_path / "data", FixedProjects(web={"code": url}))
    assert await reason(stack.repos.files.write(ONE, "a", b"")) is Reason.FIELD_INVALID
    await stack.close()


async def test_an_unreachable_repository_is_reported(tmp_path: Path) -> None:
    projects = FixedProjects(web={"code": str(tmp_path / "nothing")}, own={"code": str(tmp_path / "data/x")})
    stack = RepositoryStack(tmp_path / "data", projects)
    gone = await refusal(stack.repos.files.read(ONE, "a"))
    assert gone.reason is Reason.STORAGE_UNAVAILABLE and gone.transient
    assert str(tmp_path) not in gone.message
    assert await reason(stack.repos.files.read(scope(project="own"), "a")) is Reason.FIELD_INVALID
    await stack.close()


async def test_a_fork_begins_with_the_files_as_they_are(stack: RepositoryStack) -> None:
    repos = stack.repos
    old = Scope(project_id="proj_web", run_id="run_1")
    new = Scope(project_id="proj_web", run_id="run_2")
    await repos.worktrees.fork(old, new)
    assert not repos.worktrees.has_files(new)
    await repos.files.write(old, "made", b"committed\n")
    await repos.files.commit(old, "agt", "m")
    await repos.files.write(old, "made", b"not committed\n")
    await repos.worktrees.fork(old, new)
    assert repos.worktrees.has_files(new)
    await repos.files.write(old, "made", b"later\n")
    assert (await repos.files.read(new, "made")).content == b"not committed\n"
    assert [f.path for f in (await repos.files.diff(new)).diff.files] == ["made"]
    await repos.worktrees.delete_fork(new)
    assert (
        not repos.worktrees.has_files(new)
        and await reason(repos.files.read(new, "made")) is Reason.ARTIFACT_NOT_FOUND
    )
    assert (await repos.files.read(old, "made")).content == b"later\n"
    same = scope("conv_1")
    await repos.files.write(same, "made", b"1\n")
    await repos.worktrees.fork(same, same)


async def test_an_empty_repository_takes_its_first_commit(tmp_path: Path) -> None:
    origin = UsersRepository(tmp_path / "users")
    origin.git("checkout", "--quiet", "--orphan", "void")
    origin.git("branch", "-D", "main")
    origin.git("symbolic-ref", "HEAD", "refs/heads/main")
    stack = RepositoryStack(tmp_path / "data", FixedProjects(web={"code": str(origin.folder)}))
    assert (await stack.repos.files.tree(ONE)).files == ()
    await stack.repos.files.write(ONE, "a", b"1\n")
    assert [f.path for f in (await stack.repos.files.diff(ONE)).diff.files] == ["a"]
    origin.git("symbolic-ref", "HEAD", "refs/heads/elsewhere")
    assert (await merge(stack.repos, ONE, target="main")).commit is not None
    assert origin.show("a") == "1"
    await stack.close()
