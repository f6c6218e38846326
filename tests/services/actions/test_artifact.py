"""The ``artifact.*`` actions, which share their implementation with LibraryService (features F1, H3)."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import pytest_asyncio

from tests.services.catalog.library_kit import reason
from wonder_server.adapters.git.repositories import GitRepositories
from wonder_server.adapters.git.storage.command import Git, ThreadPool
from wonder_server.core.errors import Reason
from wonder_server.core.json_types import JsonValue
from wonder_server.core.schema.schemas import validate
from wonder_server.services.actions import ACTIONS, ActionCall, ContentAccess, ExecutionContext
from wonder_server.services.content.artifacts import Artifacts

git = Git(os.environ)
if git.probe():
    pytest.skip(f"artifacts cannot be tried: {git.probe()}", allow_module_level=True)


class ActionRunner:
    def __init__(self, artifacts: Artifacts | None) -> None:
        self.services: Any = SimpleNamespace(content=ContentAccess(artifacts=artifacts))

    async def __call__(
        self, kind: str, key: str = "op/n/s", project: str = "p", **input: JsonValue
    ) -> JsonValue:
        action = ACTIONS[f"artifact.{kind}"]
        assert not validate(action.input_schema, input, name="input")
        context = ExecutionContext(project_id=project, agent_id="agt_ada", run_id="run_1", key=key)
        result = await action.run(ActionCall(input=input, context=context, services=self.services))
        assert not validate(action.output_schema, result, name="output")
        return result


@pytest_asyncio.fixture
async def act(tmp_path: Path) -> AsyncIterator[ActionRunner]:
    async def project_id(key: str) -> str:
        return key

    pool = ThreadPool(2, "git")
    yield ActionRunner(Artifacts(GitRepositories(git, pool, tmp_path), project_id))
    await pool.close()


async def test_an_agent_writes_reads_finds_lists_and_looks_back(act: ActionRunner) -> None:
    written = await act("write", path="designs/auth.md", content="JWT\n", message="Decided")
    assert written["revision"]["author"] == "agt_ada" and written["revision"]["message"] == "Decided"
    found = await act("read", path="designs/auth.md")
    assert found["content"] == "JWT\n" and found["etag"] == written["etag"]
    assert (await act("search", query="jwt"))["matches"] == [
        {"path": "designs/auth.md", "line": 1, "text": "JWT"}
    ]
    assert (await act("search", query=" "))["matches"] == []
    assert [item["path"] for item in (await act("list", limit=1))["artifacts"]] == ["designs/auth.md"]
    (revision,) = (await act("history", path="designs/auth.md"))["revisions"]
    assert revision == written["revision"]
    await act("write", path="designs/auth.md", delete=True)
    assert await reason(act("read", path="designs/auth.md")) is Reason.ARTIFACT_NOT_FOUND
    assert (await act("list"))["artifacts"] == []


async def test_a_step_that_runs_again_writes_once(act: ActionRunner) -> None:
    first = await act("write", path="a", content="1")
    await act("write", key="other", path="a", content="2")
    assert await act("write", path="a", content="1") == first
    assert (await act("read", path="a"))["content"] == "2"
    await act("write", path="a", content="another attempt says something else")
    assert len((await act("history"))["revisions"]) == 3


async def test_content_that_is_not_text_is_encoded_in_base64(act: ActionRunner) -> None:
    await act("write", path="a", content_base64="AP8=")
    assert (await act("read", path="a"))["content_base64"] == "AP8="
    for wrong in ({}, {"content": "a", "delete": True}, {"content_base64": "!"}, {"content": "\ud800"}):
        assert await reason(act("write", path="a", **wrong)) is Reason.INPUT_INVALID


async def test_a_merge_reports_conflicts(act: ActionRunner) -> None:
    await act("write", key="1", path="a", content="base")
    await act("write", key="2", path="a", content="theirs", branch="drafts")
    await act("write", key="3", path="a", content="ours")
    merged = await act("merge", source_branch="drafts")
    assert not merged["merged"] and merged["conflicts"][0]["theirs"] == "theirs"
    await act("write", key="4", path="b", content="more", branch="more")
    assert (await act("merge", source_branch="more"))["merged"]


async def test_another_projects_are_not_seen(act: ActionRunner) -> None:
    await act("write", path="a", content="secret")
    assert await reason(act("read", path="a", project="q")) is Reason.ARTIFACT_NOT_FOUND
    assert (await act("list", project="q"))["artifacts"] == []


async def test_without_git_the_actions_are_not_implemented() -> None:
    assert await reason(ActionRunner(None)("list")) is Reason.NOT_IMPLEMENTED


async def test_a_missing_git_is_reported(tmp_path: Path) -> None:
    async def project_id(key: str) -> str:
        return key

    missing, pool = Git(os.environ, program="no-such-git"), ThreadPool(1, "git")
    assert "not installed" in missing.probe()
    act = ActionRunner(Artifacts(GitRepositories(missing, pool, tmp_path), project_id))
    assert await reason(act("write", path="a", content="x")) is Reason.STORAGE_UNAVAILABLE
    await pool.close()
