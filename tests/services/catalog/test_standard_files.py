"""The tools of wonder/std for documents and code, from the model's call to git (features F1, F2, K1)."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest_asyncio

from tests.services.catalog.library_kit import STANDARD, Ticking, make
from tests.services.content.repositories_kit import (
    FixedProjects,
    RepositoryStack,
    UsersRepository,
    need_git,
    scope,
)
from tests.views import ForAll
from wonder_server.adapters.git.repositories import GitRepositories
from wonder_server.adapters.git.storage.command import Git
from wonder_server.adapters.in_memory.catalog import MemoryCatalog
from wonder_server.core.definitions.resources import Definition
from wonder_server.core.definitions.specs import Tool
from wonder_server.core.frozen import replace
from wonder_server.core.json_types import JsonDict, JsonValue
from wonder_server.core.schema.schemas import validate
from wonder_server.services.actions import ContentAccess
from wonder_server.services.catalog.library import Library
from wonder_server.services.content.artifacts import Artifacts
from wonder_server.services.tasks.executor import Executor

need_git()


class Model:
    """Calls tools of the standard library by name."""

    def __init__(self, library: Library, executor: Executor) -> None:
        self._library, self._executor, self._calls = library, executor, 0

    async def __call__(self, tool: str, **given: JsonValue) -> JsonDict:
        definition: Definition = await self._library.definitions.definition(f"wonder/std/{tool}")
        spec = definition.spec
        assert isinstance(spec, Tool) and not validate(spec.input_schema, given, name="input")
        task = await self._library.pin_task(spec.target_id, library="wonder/std")
        self._calls += 1
        context = replace(scope(), agent_id="agt_ada", key=f"op_{self._calls}")
        outcome = await self._executor.execute(task, given, context, None, None)
        assert outcome.fault is None, outcome.fault
        return outcome.output or {}


@pytest_asyncio.fixture
async def call(tmp_path: Path) -> AsyncIterator[Model]:
    library = make(MemoryCatalog())
    await library.ensure_standard(STANDARD)
    origin = UsersRepository(tmp_path / "users")
    stack = RepositoryStack(tmp_path / "data", FixedProjects(web={"code": str(origin.folder)}))

    async def project_id(key: str) -> str:
        return key

    artifacts = Artifacts(GitRepositories(Git(os.environ), stack.pool, tmp_path / "a"), project_id)
    services: Any = SimpleNamespace(
        content=ContentAccess(artifacts=artifacts, repositories=stack.repos), clock=Ticking()
    )
    yield Model(library, Executor(ForAll(services), services.clock))
    await stack.close()


async def test_tools_for_documents(call: Model) -> None:
    assert (await call("list_documents"))["documents"] == []
    await call("write_document", path="designs/auth.md", content="We use JWT.\n", message="Decided")
    (listed,) = (await call("list_documents", prefix="designs/"))["documents"]
    assert listed["path"] == "designs/auth.md" and listed["message"] == "Decided"
    assert listed["author"] == "agt_ada"
    assert (await call("read_document", path="designs/auth.md"))["content"] == "We use JWT.\n"
    assert (await call("find_documents", words="jwt"))["matches"][0]["line"] == 1


async def test_tools_for_code(call: Model) -> None:
    assert (await call("list_files"))["files"] == ["readme", "src"]
    assert await call("read_file", path="src", first_line=2, lines=1) == {
        "content": "two\n",
        "total_lines": 3,
    }
    assert (await call("find_in_files", words="THREE"))["matches"][0]["path"] == "src"
    await call("write_file", path="src", content="one\n")
    (changed,) = (await call("show_changes"))["files"]
    assert changed["change"] == "modified" and "-two" in changed["patch"]
    assert (await call("commit_changes", message="Less of it"))["paths"] == ["src"]
    assert (await call("read_file", path="src", repository="code"))["content"] == "one\n"
