"""Changes of definitions, agents, projects and files are audited in their transaction (feature N4)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc import aio

from tests.e2e.callers import calling_with
from tests.e2e.client import Client
from tests.e2e.process import serving
from tests.e2e.test_identity import developer, place
from wonder.v1 import identity_service_pb2 as identity
from wonder.v1 import library_pb2
from wonder.v1 import library_service_pb2 as library

pytestmark = pytest.mark.asyncio(loop_scope="session")

TOOLS = """
name: echo
task: {steps: [{id: say, action: {kind: context}, output_mapping: {output.text: "'hi'"}}]}
---
name: echo_tool
tool: {target_type: task, target_id: echo, description: Says hi., input_schema: {type: object}}
"""


async def audit(client: Client, **query: Any) -> list[Any]:
    found = await client.identity.ListAuditEntries(identity.ListAuditEntriesRequest(**query))
    return list(found.entries)


async def test_each_change_of_the_catalog_is_audited_once_and_survives_a_kill(tmp_path: Path) -> None:
    async with place(tmp_path) as at:
        key_id, token = await developer(at.root, "ann")
        async with calling_with(at.server, token) as client:
            await client.apply("acme/tools", TOOLS)
            await client.apply("acme/tools", TOOLS)  # Nothing changes.
            agent = {"name": "helper", "persona_id": "wonder/std/assistant", "project_ids": ["red"]}
            create = library.CreateAgentRequest(agent=agent, request_id="once")
            made = (await client.library.CreateAgent(create)).agent
            await client.library.CreateAgent(create)
            check = library.CreateAgentRequest(agent={**agent, "name": "other"}, validate_only=True)
            await client.library.CreateAgent(check)
            with pytest.raises(aio.AioRpcError):
                await client.library.CreateAgent(library.CreateAgentRequest(agent=agent))
            await client.library.DeleteAgent(library.DeleteAgentRequest(agent_id="helper"))
            change = library.UpdateProjectRequest(project=library_pb2.Project(id="red", description="Red."))
            change.update_mask.paths.append("description")
            await client.library.UpdateProject(change)
        await at.server.kill()
        async with serving(at.data, "--require-auth") as server, calling_with(server, at.token) as root:
            entries = await audit(root, principal="user:ann")
            assert [each.method for each in reversed(entries)] == [
                "ApplyDefinitions",
                "CreateAgent",
                "DeleteAgent",
                "UpdateProject",
            ]
            for each in entries:
                assert each.principal.subject == "ann" and each.key_id == key_id and each.peer
            project, deleted, created, applied = entries
            assert created.resource == deleted.resource == made.id
            assert created.project_id == project.resource == project.project_id == at.projects["red"]
            assert created.request_id == "once"
            assert dict(applied.details) == {
                "count": "2",
                "created": "task acme/tools/echo, tool acme/tools/echo_tool",
            }
            assert await audit(root, resource=made.id) == [deleted, created]


async def test_only_administrators_read_the_audit(tmp_path: Path) -> None:
    async with place(tmp_path) as at:
        _, token = await developer(at.root, "ann")
        async with calling_with(at.server, token) as client:
            await client.apply("acme/tools", TOOLS)
            with pytest.raises(aio.AioRpcError) as refused:
                await audit(client)
            assert refused.value.code() is grpc.StatusCode.PERMISSION_DENIED
