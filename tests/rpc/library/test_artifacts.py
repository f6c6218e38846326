"""Artifacts over a real connection, stored in a real repository (feature F1)."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from google.protobuf.message import Message

from tests.rpc.rpc_kit import rejected, serving
from tests.services.catalog.library_kit import STANDARD, make
from tests.views import ForAll
from wonder.v1 import common_pb2, library_pb2
from wonder.v1 import library_service_pb2 as pb
from wonder.v1.library_service_pb2_grpc import LibraryServiceStub
from wonder_server.adapters.git.repositories import GitRepositories
from wonder_server.adapters.git.storage.command import Git, ThreadPool
from wonder_server.adapters.in_memory.catalog import MemoryCatalog
from wonder_server.rpc.library.parts import LibraryParts
from wonder_server.rpc.library.servicer import LibraryServicer
from wonder_server.services.content.artifacts import Artifacts

git = Git(os.environ)
if git.probe():
    pytest.skip(f"artifacts cannot be tried: {git.probe()}", allow_module_level=True)


@pytest_asyncio.fixture
async def service(tmp_path: Path) -> AsyncIterator[LibraryServiceStub]:
    library, pool = make(MemoryCatalog()), ThreadPool(4, "git")
    await library.ensure_standard(STANDARD)
    artifacts = Artifacts(GitRepositories(git, pool, tmp_path), library.project_id)
    async with serving(
        {"wonder.v1.LibraryService": LibraryServicer(ForAll(LibraryParts(library, artifacts)))}
    ) as channel:
        yield LibraryServiceStub(channel)
    await pool.close()


async def write(service: LibraryServiceStub, path: str, content: str = "x\n", **fields: object) -> Any:
    request = pb.WriteArtifactRequest(project_id="default", path=path, content=content.encode(), **fields)
    return (await service.WriteArtifact(request)).artifact


async def read(service: LibraryServiceStub, path: str, **fields: object) -> Any:
    request = pb.ReadArtifactRequest(project_id="default", path=path, **fields)
    return (await service.ReadArtifact(request)).artifact


async def test_a_written_document_is_read_with_its_author_and_message(service: LibraryServiceStub) -> None:
    written = await write(service, "designs/auth.md", "JWT\n", author="ada", message="We decided")
    found = await read(service, "designs/auth.md")
    assert found.content == b"JWT\n" and found.etag == written.etag and found.size_bytes == 4
    assert (found.branch, found.revision.author, found.revision.message) == ("main", "ada", "We decided")
    assert found.revision == written.revision and found.revision.paths == ["designs/auth.md"]
    assert found.revision.create_time.seconds > 1_600_000_000
    assert found.project_id.startswith("proj_")


async def test_the_newest_revision_is_the_revision_of_the_document(service: LibraryServiceStub) -> None:
    first = await write(service, "a")
    await write(service, "b")
    assert (await read(service, "a")).revision == first.revision
    listed = (await service.ListArtifacts(pb.ListArtifactsRequest(project_id="default"))).artifacts
    assert [item.path for item in listed] == ["a", "b"] and listed[0].revision == first.revision
    old = await write(service, "a", "y\n")
    assert (await read(service, "a", revision_id=first.revision.id)).content == b"x\n"
    assert (await read(service, "a", revision_id=old.revision.id)).content == b"y\n"


async def test_a_repeated_request_writes_once(service: LibraryServiceStub) -> None:
    first = await write(service, "a", "1", request_id="r-1")
    await write(service, "a", "2")
    assert await write(service, "a", "1", request_id="r-1") == first
    assert (await read(service, "a")).content == b"2"
    same = await write(service, "a", "2", request_id="r-2")
    await write(service, "a", "3")
    assert await write(service, "a", "2", request_id="r-2") == same
    assert (await read(service, "a")).content == b"3"
    reason, fields = await rejected(write(service, "a", "9", request_id="r-1"))
    assert (reason, fields) == ("REQUEST_ID_REUSED", ["request_id"])
    many = await asyncio.gather(*(write(service, "b", "1", request_id="r-3") for _ in range(8)))
    assert all(item == many[0] for item in many)
    revisions = await service.ListArtifactRevisions(pb.ListArtifactRevisionsRequest(project_id="default"))
    assert len(revisions.revisions) == 5


async def test_a_stale_etag_is_refused(service: LibraryServiceStub) -> None:
    first = await write(service, "a", "1", etag="none")
    await write(service, "a", "2", etag=first.etag)
    for etag in (first.etag, "none", "nonsense"):
        assert (await rejected(write(service, "a", "3", etag=etag)))[0] == "ETAG_MISMATCH"
    delete = pb.WriteArtifactRequest(project_id="default", path="a", deletion=True, etag=first.etag)
    assert (await rejected(service.WriteArtifact(delete)))[0] == "ETAG_MISMATCH"


async def test_a_deleted_document_is_not_found_and_stays_in_the_history(service: LibraryServiceStub) -> None:
    first = await write(service, "a/b", "1")
    delete = pb.WriteArtifactRequest(project_id="default", path="a/b", deletion=True, request_id="d")
    gone = (await service.WriteArtifact(delete)).artifact
    assert gone.etag == "none" and gone.revision.paths == ["a/b"]
    assert (await rejected(read(service, "a/b")))[0] == "ARTIFACT_NOT_FOUND"
    assert (await service.WriteArtifact(delete)).artifact == gone
    again = pb.WriteArtifactRequest(project_id="default", path="a/b", deletion=True)
    assert (await rejected(service.WriteArtifact(again)))[0] == "ARTIFACT_NOT_FOUND"
    assert (await read(service, "a/b", revision_id=first.revision.id)).content == b"1"
    history = pb.ListArtifactRevisionsRequest(project_id="default", path="a/b")
    assert len((await service.ListArtifactRevisions(history)).revisions) == 2


async def test_lists_and_histories_come_in_pages(service: LibraryServiceStub) -> None:
    for number in range(7):
        await write(service, f"d/{number}")
    names: list[str] = []
    token = ""
    while True:
        page = await service.ListArtifacts(
            pb.ListArtifactsRequest(project_id="default", path_prefix="d/", page_size=3, page_token=token)
        )
        names += [item.path for item in page.artifacts]
        if not (token := page.next_page_token):
            break
    assert names == [f"d/{number}" for number in range(7)]
    first = await service.ListArtifactRevisions(
        pb.ListArtifactRevisionsRequest(project_id="default", page_size=4)
    )
    await write(service, "meanwhile")
    second = await service.ListArtifactRevisions(
        pb.ListArtifactRevisionsRequest(project_id="default", page_size=4, page_token=first.next_page_token)
    )
    both = [*first.revisions, *second.revisions]
    assert [revision.paths[0] for revision in both] == [f"d/{number}" for number in range(6, -1, -1)]
    assert not second.next_page_token


async def test_a_conflict_of_two_branches_loses_no_content(service: LibraryServiceStub) -> None:
    await write(service, "plan", "base\n")
    await write(service, "plan", "one\n", branch="drafts/one")
    await write(service, "plan", "two\n", branch="drafts/two")
    merge = pb.MergeArtifactsRequest(project_id="default", source_branch="drafts/one", request_id="m1")
    merged = await service.MergeArtifacts(merge)
    assert merged.merged and merged.revision.paths == ["plan"]
    assert await service.MergeArtifacts(merge) == merged
    other = pb.MergeArtifactsRequest(project_id="default", source_branch="drafts/two", request_id="m2")
    met = await service.MergeArtifacts(other)
    assert not met.merged and not met.HasField("revision")
    (conflict,) = met.conflicts
    assert (conflict.path, conflict.base, conflict.ours, conflict.theirs) == (
        "plan", "base\n", "one\n", "two\n",
    )  # fmt: skip
    assert conflict.kind == common_pb2.MERGE_CONFLICT_KIND_CONTENT
    assert (await read(service, "plan")).content == b"one\n"
    assert (await read(service, "plan", branch="drafts/two")).content == b"two\n"
    other.resolutions.add(path="plan", content=b"one and two\n")
    other.validate_only = True
    assert (await service.MergeArtifacts(other)).merged
    assert (await read(service, "plan")).content == b"one\n"
    other.validate_only = False
    assert (await service.MergeArtifacts(other)).merged
    assert (await read(service, "plan")).content == b"one and two\n"


async def revision_ids(service: LibraryServiceStub, path: str) -> list[str]:
    request = pb.ListArtifactRevisionsRequest(project_id="default", path=path)
    return [each.id for each in (await service.ListArtifactRevisions(request)).revisions]


@pytest.mark.parametrize("kept", ["branch", "main"])
async def test_a_merge_removes_no_revision_from_the_history_of_a_document(
    service: LibraryServiceStub, kept: str
) -> None:
    first = await write(service, "n.md", "a\n")
    branch = await write(service, "n.md", "b\n", branch="t/x")
    main = await write(service, "n.md", "c\n")
    merge = pb.MergeArtifactsRequest(project_id="default", source_branch="t/x")
    merge.resolutions.add(path="n.md", content=b"b\n" if kept == "branch" else b"c\n")
    merged = await service.MergeArtifacts(merge)
    assert merged.merged
    await write(service, "other.md", "x\n", branch="t/y")
    last = await write(service, "n.md", "d\n")
    merge = pb.MergeArtifactsRequest(project_id="default", source_branch="t/y")
    assert (await service.MergeArtifacts(merge)).merged  # It does not concern this document.
    ids = await revision_ids(service, "n.md")
    made = [last.revision.id, merged.revision.id, branch.revision.id, main.revision.id, first.revision.id]
    assert (ids[:2], sorted(ids[2:4]), ids[4:]) == (made[:2], sorted(made[2:4]), made[4:])


@pytest.mark.parametrize("kept", ["branch", "main"])
async def test_the_revision_of_a_merged_document_is_that_of_its_content(
    service: LibraryServiceStub, kept: str
) -> None:
    await write(service, "n.md", "a\n")
    branch = await write(service, "n.md", "b\n", branch="t/x")
    merge = pb.MergeArtifactsRequest(project_id="default", source_branch="t/x")
    main = await write(service, "n.md", "c\n")
    merge.resolutions.add(path="n.md", content=b"b\n" if kept == "branch" else b"c\n")
    assert (await service.MergeArtifacts(merge)).merged
    newest = main if kept == "main" else branch
    assert (await read(service, "n.md")).revision.id == newest.revision.id


async def test_a_merge_without_a_conflict_is_a_revision_of_the_document(service: LibraryServiceStub) -> None:
    first = await write(service, "n.md", "a\n")
    branch = await write(service, "n.md", "b\n", branch="t/x")
    await write(service, "other.md")
    merge = pb.MergeArtifactsRequest(project_id="default", source_branch="t/x")
    merged = (await service.MergeArtifacts(merge)).revision
    assert await revision_ids(service, "n.md") == [merged.id, branch.revision.id, first.revision.id]


async def test_artifacts_are_searched(service: LibraryServiceStub) -> None:
    await write(service, "designs/auth.md", "We use JWT.\nTokens expire.\n")
    await write(service, "other.md", "jwt too\n", branch="drafts")
    found = await service.SearchArtifacts(pb.SearchArtifactsRequest(project_id="default", query="use jwt"))
    assert [(m.path, m.line, m.text) for m in found.matches] == [("designs/auth.md", 1, "We use JWT.")]
    drafts = pb.SearchArtifactsRequest(project_id="default", query="JWT", branch="drafts", limit=1)
    found = await service.SearchArtifacts(drafts)
    assert len(found.matches) == 1 and found.truncated


async def test_projects_never_see_artifacts_of_each_other(service: LibraryServiceStub) -> None:
    await service.CreateProject(pb.CreateProjectRequest(project=library_pb2.Project(name="other")))
    mine = await write(service, "a", "secret")
    reading = pb.ReadArtifactRequest(project_id="other", path="a", revision_id=mine.revision.id)
    assert (await rejected(service.ReadArtifact(reading)))[0] == "ARTIFACT_NOT_FOUND"
    assert not (await service.ListArtifacts(pb.ListArtifactsRequest(project_id="other"))).artifacts
    found = await service.SearchArtifacts(pb.SearchArtifactsRequest(project_id="other", query="secret"))
    assert not found.matches
    theirs = pb.WriteArtifactRequest(project_id="other", path="a", content=b"mine")
    await service.WriteArtifact(theirs)
    await service.DeleteProject(pb.DeleteProjectRequest(project_id="other"))
    assert (await rejected(service.WriteArtifact(theirs)))[0] == "PROJECT_NOT_FOUND"
    await service.CreateProject(pb.CreateProjectRequest(project=library_pb2.Project(name="other")))
    assert not (await service.ListArtifacts(pb.ListArtifactsRequest(project_id="other"))).artifacts
    assert (await read(service, "a")).content == b"secret"


PATHS = (
    "", "/etc/passwd", "..", "a/../b", "a/./b", "a//b", "a/", ".git", "a/.git/config", ".GIT/hooks/x",
    "git~1/x", ".git\u200c/x", ".git. /x", ".git::$INDEX_ALLOCATION/x", "a\\b", "a\0b", "a\nb",
    "x" * 256, "/".join(["x" * 100] * 6),
)  # fmt: skip


@pytest.mark.parametrize("path", PATHS)
async def test_paths_outside_the_repository_are_refused(service: LibraryServiceStub, path: str) -> None:
    assert await rejected(write(service, path)) == ("FIELD_INVALID", ["path"])
    assert await rejected(read(service, path)) == ("FIELD_INVALID", ["path"])


@pytest.mark.parametrize("path", ["a\u202egpj.md", "a ", " a", "folder /a", "a\u200b"])
async def test_new_documents_have_printable_names(service: LibraryServiceStub, path: str) -> None:
    assert await rejected(write(service, path)) == ("FIELD_INVALID", ["path"])
    assert (await rejected(read(service, path)))[0] == "ARTIFACT_NOT_FOUND"  # It may be there from before.


@pytest.mark.parametrize(
    "branch",
    ["a..b", "-x", "a b", "x.lock", "a/.b", "@", "a@{1}", "HEAD^", "a:b", "/a", "a/", "x" * 300, "a\0"],
)
async def test_invalid_branch_names_are_refused(service: LibraryServiceStub, branch: str) -> None:
    assert await rejected(write(service, "a", branch=branch)) == ("FIELD_INVALID", ["branch"])
    assert await rejected(read(service, "a", branch=branch)) == ("FIELD_INVALID", ["branch"])
    merge = pb.MergeArtifactsRequest(project_id="default", source_branch=branch)
    assert await rejected(service.MergeArtifacts(merge)) == ("FIELD_INVALID", ["source_branch"])


BAD: list[tuple[str, Message, str]] = [
    ("ReadArtifact", pb.ReadArtifactRequest(path="a"), "FIELD_INVALID"),
    ("ReadArtifact", pb.ReadArtifactRequest(project_id="nope", path="a"), "PROJECT_NOT_FOUND"),
    ("ReadArtifact", pb.ReadArtifactRequest(project_id="default", path="a"), "ARTIFACT_NOT_FOUND"),
    (
        "ReadArtifact",
        pb.ReadArtifactRequest(project_id="default", path="a", branch="b"),
        "ARTIFACT_NOT_FOUND",
    ),
    (
        "ReadArtifact",
        pb.ReadArtifactRequest(project_id="default", path="a", revision_id="HEAD~1"),
        "ARTIFACT_NOT_FOUND",
    ),
    (
        "ReadArtifact",
        pb.ReadArtifactRequest(project_id="default", path="a", revision_id="\0"),
        "ARTIFACT_NOT_FOUND",
    ),
    ("WriteArtifact", pb.WriteArtifactRequest(project_id="default", path="a"), "FIELD_INVALID"),
    (
        "WriteArtifact",
        pb.WriteArtifactRequest(project_id="default", path="a", deletion=False),
        "FIELD_INVALID",
    ),
    (
        "WriteArtifact",
        pb.WriteArtifactRequest(project_id="default", path="a", content=b"", message="m" * 20_000),
        "FIELD_INVALID",
    ),
    (
        "WriteArtifact",
        pb.WriteArtifactRequest(project_id="default", path="a", content=b"", author="m" * 2_000),
        "FIELD_INVALID",
    ),
    (
        "WriteArtifact",
        pb.WriteArtifactRequest(project_id="default", path="a", content=b"x" * ((4 << 20) + 1)),
        "PAYLOAD_TOO_LARGE",
    ),
    ("ListArtifacts", pb.ListArtifactsRequest(project_id="default", branch="b"), "ARTIFACT_NOT_FOUND"),
    ("ListArtifacts", pb.ListArtifactsRequest(project_id="default", path_prefix="../"), "FIELD_INVALID"),
    ("ListArtifacts", pb.ListArtifactsRequest(project_id="default", page_token="x"), "PAGE_TOKEN_INVALID"),
    ("SearchArtifacts", pb.SearchArtifactsRequest(project_id="default"), "FIELD_INVALID"),
    (
        "SearchArtifacts",
        pb.SearchArtifactsRequest(project_id="default", query="a", limit=501),
        "FIELD_INVALID",
    ),
    ("SearchArtifacts", pb.SearchArtifactsRequest(project_id="default", query="a " * 30), "FIELD_INVALID"),
    (
        "ListArtifactRevisions",
        pb.ListArtifactRevisionsRequest(project_id="default", path="a"),
        "ARTIFACT_NOT_FOUND",
    ),
    (
        "MergeArtifacts",
        pb.MergeArtifactsRequest(project_id="default", source_branch="b"),
        "ARTIFACT_NOT_FOUND",
    ),
    ("MergeArtifacts", pb.MergeArtifactsRequest(project_id="default"), "FIELD_INVALID"),
]


@pytest.mark.parametrize(("method", "request_", "reason"), BAD)
async def test_bad_input_is_refused(
    service: LibraryServiceStub, method: str, request_: Message, reason: str
) -> None:
    assert (await rejected(getattr(service, method)(request_)))[0] == reason
