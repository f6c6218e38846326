"""Artifacts and branches with the SDK and the `wonder` command, against the server's services."""

from __future__ import annotations

import asyncio
import io
import os
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from tests.services.catalog.library_kit import STANDARD, make
from tests.services.content.repositories_kit import need_git
from tests.views import ForAll
from wonder.v1 import common_pb2
from wonder.v1 import conversation_service_pb2 as conversations
from wonder.v1 import conversation_service_pb2_grpc as rpc
from wonder_sdk import AbortedError, Client, NotFoundError, cli
from wonder_sdk.cli.shared.terminal import Terminal
from wonder_server.adapters.git.repositories import GitRepositories
from wonder_server.adapters.git.storage.command import Git, ThreadPool
from wonder_server.adapters.in_memory.catalog import MemoryCatalog
from wonder_server.rpc.library.parts import LibraryParts
from wonder_server.rpc.library.servicer import LibraryServicer
from wonder_server.rpc.server.server import RpcServer
from wonder_server.services.content.artifacts import Artifacts
from wonder_server.settings import Settings

need_git()


class FakeConversations(rpc.ConversationServiceServicer):
    """Fake branches: one conversation has changed a file; the branch is in conflict until it is resolved."""

    def __init__(self) -> None:
        self.asked: list[Any] = []

    async def diff_branch(self, request: Any, context: object) -> conversations.DiffBranchResponse:
        self.asked.append(request)
        file = conversations.FileDiff(
            path="src",
            change=conversations.FILE_CHANGE_MODIFIED,
            additions=1,
            patch="@@ -1 +1,2 @@\n one\n+two\n",
        )
        return conversations.DiffBranchResponse(
            branch="wonder/conv-1", head_commit="ab" * 20, base_branch="main", files=[file]
        )

    async def merge_branch(self, request: Any, context: object) -> conversations.MergeBranchResponse:
        self.asked.append(request)
        if request.target_branch == "old" or request.conversation_id == "conv_old":
            return conversations.MergeBranchResponse(merged=True, commit="cd" * 20, nothing_to_merge=True)
        if request.resolutions or request.target_branch == "free":
            kept = request.remove_branch  # Something is always written meanwhile.
            return conversations.MergeBranchResponse(merged=True, commit="cd" * 20, branch_kept=kept)
        kind = common_pb2.MERGE_CONFLICT_KIND_CONTENT
        conflict = common_pb2.MergeConflict(path="src", kind=kind, ours="1", theirs="2")
        return conversations.MergeBranchResponse(conflicts=[conflict])


@pytest.fixture
def fake() -> FakeConversations:
    return FakeConversations()


@pytest_asyncio.fixture
async def address(
    fake: FakeConversations, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[str]:
    library, pool = make(MemoryCatalog()), ThreadPool(2, "git")
    await library.ensure_standard(STANDARD)
    artifacts = Artifacts(GitRepositories(Git(os.environ), pool, tmp_path), library.project_id)
    services = {
        "wonder.v1.LibraryService": LibraryServicer(ForAll(LibraryParts(library, artifacts))),
        "wonder.v1.ConversationService": fake,
    }
    server = RpcServer(Settings(listen="127.0.0.1:0"))
    target = server.bind()
    await server.start(services)
    monkeypatch.setenv("WONDER_SERVER", target)
    yield target
    await server.stop(0)
    await pool.close()


async def output(capsys: pytest.CaptureFixture[str], *words: str, code: int = 0) -> list[str]:
    """Run the command; return its output lines."""
    assert await asyncio.to_thread(cli.main, list(words)) == code, capsys.readouterr().err
    # The server of the test logs to the same stream.
    return [line for line in capsys.readouterr().out.splitlines() if "component=" not in line]


async def test_documents_with_the_sdk(address: str) -> None:
    async with Client(address) as client:
        first = await client.write_artifact("a/b.md", "one\n", author="ada", message="why", etag="none")
        assert first.etag and (await client.read_artifact("a/b.md")).content == b"one\n"
        with pytest.raises(AbortedError):
            await client.write_artifact("a/b.md", b"two", etag="none")
        await client.write_artifact("a/b.md", "two\n", branch="drafts")
        await client.write_artifact("a/b.md", "three\n", etag=first.etag)
        assert [each.path async for each in client.list_artifacts("a/")] == ["a/b.md"]
        assert [match.line for match in await client.search_artifacts("THREE")] == [1]
        met = await client.merge_artifacts("drafts")
        assert not met.merged and met.conflicts[0].theirs == "two\n"
        assert (await client.merge_artifacts("drafts", resolutions={"a/b.md": "both\n"})).merged
        assert (await client.read_artifact("a/b.md")).content == b"both\n"
        revisions = [each async for each in client.list_artifact_revisions("a/b.md")]
        assert revisions[-1].author == "ada" and revisions[-1].message == "why"
        assert (await client.read_artifact("a/b.md", revision=revisions[-1].id)).content == b"one\n"
        await client.delete_artifact("a/b.md")
        with pytest.raises(NotFoundError):
            await client.read_artifact("a/b.md")


def lose(folder: Path, etag: str) -> None:
    """Remove the content of a document from the one repository below ``folder``."""
    (bare,) = folder.glob("*.git")
    (bare / "objects" / etag[:2] / etag[2:]).unlink()


async def test_a_damaged_document_is_named_by_the_command(
    address: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    async with Client(address) as client:
        lost = (await client.write_artifact("d2.md", "two\n")).etag
        await client.write_artifact("d1.md", "")
    lose(tmp_path, lost)

    listed = await output(capsys, "artifact", "list")
    assert [line.split("\t")[:2] for line in listed] == [["d1.md", "0"], ["d2.md", "damaged"]]
    assert await asyncio.to_thread(cli.main, ["artifact", "read", "d2.md"]) == 1
    assert "Artifact 'd2.md' on branch 'main' is unreadable. " in capsys.readouterr().err


async def test_branches_with_the_sdk(address: str, fake: FakeConversations) -> None:
    async with Client(address) as client:
        assert (await client.diff_branch("conv_1", paths=["src"])).files[0].path == "src"
        assert (await client.merge_branch("conv_1", expected_head="ab")).conflicts[0].path == "src"
        assert (await client.merge_branch("conv_1", resolutions={"src": None})).merged
    assert fake.asked[1].expected_head_commit == "ab" and fake.asked[2].resolutions[0].deletion


async def test_documents_with_the_command(
    address: str, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("one\ntwo\n")
    wrote = ["artifact", "write", "a/b.md", "-f", str(tmp_path / "file"), "-m", "why", "--author", "ada"]
    assert (await output(capsys, *wrote))[0].startswith("a/b.md written on main (8 bytes, ")
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"from stdin\n")))
    await output(capsys, "artifact", "write", "a/b.md", "--branch", "drafts")
    (line,) = await output(capsys, "artifact", "list", "a/")
    assert line.split("\t")[:2] == ["a/b.md", "8"] and line.endswith("\tada")
    assert await output(capsys, "artifact", "read", "a/b.md", "--branch", "drafts") == ["from stdin"]
    assert await output(capsys, "artifact", "search", "TWO") == ["a/b.md:2:two"]
    assert await output(capsys, "artifact", "search", "nowhere", code=1) == []
    (revision,) = await output(capsys, "artifact", "history", "a/b.md")
    assert revision.endswith("\tada\twhy")
    await output(capsys, *wrote[:2], "a/b.md", "-f", os.devnull)
    conflict = await output(capsys, "artifact", "merge", "drafts", code=1)
    assert conflict == [
        "nothing was merged: 1 file in conflict with main",
        "  a/b.md: both changed the same lines",
        "show both sides: wonder artifact merge drafts --show",
        "resolve all conflicts: wonder artifact merge drafts --resolve a/b.md=FILE",
    ]
    texts = await output(capsys, "artifact", "merge", "drafts", "--check", "--show", code=1)
    assert texts[0] == "cannot be merged: 1 file in conflict with main"
    assert "  --- a/b.md, drafts" in texts and "from stdin" in texts
    resolved = ["artifact", "merge", "drafts", "--resolve", f"a/b.md={tmp_path / 'file'}"]
    assert await output(capsys, *resolved) == ["drafts merged into main"]
    assert await output(capsys, "artifact", "read", "a/b.md") == ["one", "two"]
    for flags in ([], ["--check"]):
        again = await output(capsys, "artifact", "merge", "drafts", *flags)
        assert again == ["nothing to merge: main already contains drafts"]
    await output(capsys, "artifact", "write", "c", "-f", str(tmp_path / "file"), "--branch", "more")
    assert await output(capsys, "artifact", "merge", "more", "--check") == ["more can be merged into main"]
    assert await output(capsys, "artifact", "merge", "more") == ["more merged into main"]
    questions: list[str] = []
    await output(capsys, "artifact", "delete", "c", code=2)
    with monkeypatch.context() as patch:
        patch.setattr(Terminal, "can_ask", True)
        patch.setattr(Terminal, "confirm", lambda self, question: bool(questions.append(question)))
        assert await output(capsys, "artifact", "delete", "c", code=1) == ["nothing was deleted"]
        assert questions == ["Delete c in default, branch main?"]
        assert await output(capsys, "artifact", "delete", "c", "--yes") == ["c deleted"]
    await output(capsys, "artifact", "read", "c", code=1)
    assert await asyncio.to_thread(cli.main, ["artifact", "list", "nowhere"]) == 0
    assert capsys.readouterr().err == "default has no matching documents\n"


async def test_branches_with_the_command(
    address: str, fake: FakeConversations, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "mine"
    file.write_text("both")
    shown = await output(capsys, "branch", "diff", "conv_1")
    assert shown[:4] == [
        "wonder/conv-1 (abababababab) compared with main",
        "M src  +1 -0",
        "@@ -1 +1,2 @@",
        " one",
    ]
    assert shown[-1].endswith(f"wonder branch merge conv_1 --head {'ab' * 6}")
    assert len(await output(capsys, "branch", "diff", "conv_1", "--stat")) == 3
    merged = await output(capsys, "branch", "diff", "conv_old")
    assert merged[-1] == "the default branch already contains these changes" and "wonder" not in merged[-2]
    asked = fake.asked[-1]
    assert (asked.validate_only, asked.expected_head_commit) == (True, "ab" * 20)
    met = await output(capsys, "branch", "merge", "conv_1", code=1)
    assert met == [
        "nothing was merged: 1 file in conflict with the default branch",
        "  src: both changed the same lines",
        "show both sides: wonder branch merge conv_1 --show",
        "resolve all conflicts: wonder branch merge conv_1 --resolve src=FILE",
    ]
    assert await output(capsys, "branch", "merge", "conv_1", "--into", "free") == ["merged (cdcdcdcdcdcd)"]
    kept = await output(capsys, "branch", "merge", "conv_1", "--into", "free", "--remove")
    assert kept[1] == "the branch is kept: it has new changes or a running command. Merge again."
    old = await output(capsys, "branch", "merge", "conv_1", "--into", "old")
    assert old == ["nothing to merge: old already contains these changes"]
    checked = await output(capsys, "branch", "merge", "conv_1", "--check", "--show", code=1)
    assert checked[0] == "cannot be merged: 1 file in conflict with the default branch"
    assert checked[2:7] == [
        "  --- src, merge base: empty",
        "  --- src, the default branch", "1", "  --- src, conv_1", "2",
    ]  # fmt: skip
    await output(capsys, "branch", "merge", "run_1", "--resolve", f"src={file}", "--resolve", "gone=")
    asked = fake.asked[-1]
    assert (asked.run_id, asked.conversation_id) == ("run_1", "")
    assert [(each.path, each.content, each.deletion) for each in asked.resolutions] == [
        ("src", b"both", False),
        ("gone", b"", True),
    ]
    with pytest.raises(SystemExit):
        await output(capsys, "branch", "merge", "conv_1", "--resolve", "src")
    await output(capsys, "branch", "merge", "conv_1", "--resolve", "src=/not/there", code=1)


async def test_repositories_of_a_project_with_the_command(
    address: str, capsys: pytest.CaptureFixture[str]
) -> None:
    url = "https://example.com/shop.git"
    added = await output(capsys, "project", "repository", "default", "code", url, "--branch", "main")
    assert f"repository code: {url} (main)" in added
    assert f"repository code: {url} (main)" in await output(capsys, "project", "show", "default")
    await output(capsys, "project", "repository", "default", "code", "not a place", code=1)
    assert "code" not in str(await output(capsys, "project", "repository", "default", "code"))
    await output(capsys, "project", "repository", "default", "code", code=1)
