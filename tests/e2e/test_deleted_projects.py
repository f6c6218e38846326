"""A deleted project leaves nothing on disk, also if the server dies in the middle."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from grpc import aio

from tests.e2e.client import Client
from tests.e2e.process import Server, serving
from wonder.v1 import library_pb2
from wonder.v1 import library_service_pb2 as library

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def fill(client: Client, name: str) -> str:
    """Create a project with a document; return its id."""
    request = library.CreateProjectRequest(project=library_pb2.Project(name=name))
    project = (await client.library.CreateProject(request)).project
    await client.library.WriteArtifact(
        library.WriteArtifactRequest(project_id=name, path="a.txt", content=b"hello", message="Begin.")
    )
    return str(project.id)


@pytest.mark.parametrize(("point", "is_deleted"), [("catalog-in-commit", False), ("catalog-committed", True)])
async def test_a_kill_after_the_deletion_is_finished_by_the_next_start(
    tmp_path: Path, point: str, is_deleted: bool
) -> None:
    data = tmp_path / "data"
    async with serving(data) as server, server.client() as client:
        gone, kept = await fill(client, "gone"), await fill(client, "kept")
    repositories = data / "artifacts"
    assert {gone, kept} <= {path.name.removesuffix(".git") for path in repositories.iterdir()}
    doomed = await Server(data, doom=point).start()
    async with doomed.client() as client:
        with pytest.raises(aio.AioRpcError):
            await client.library.DeleteProject(library.DeleteProjectRequest(project_id="gone"))
    assert await doomed.ended() == -9
    assert (repositories / f"{gone}.git").exists()
    # A folder that no catalog knows is no leftover: it is never removed.
    unknown = repositories / f"proj_{'0' * 26}.git"
    unknown.mkdir()
    async with serving(data) as server, server.client() as client:
        if not is_deleted:
            await client.library.GetProject(library.GetProjectRequest(project_id="gone"))
            await client.library.DeleteProject(library.DeleteProjectRequest(project_id="gone"))
        async with asyncio.timeout(60):
            while (repositories / f"{gone}.git").exists():  # noqa: ASYNC110 - no event says so
                await asyncio.sleep(0.01)
        assert unknown.exists() and (repositories / f"{kept}.git").exists()
        listed = await client.library.ListArtifacts(library.ListArtifactsRequest(project_id="kept"))
        assert [each.path for each in listed.artifacts] == ["a.txt"]
