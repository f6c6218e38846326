"""An exported library sets up another server: definitions, agents and projects (``wonder export``)."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.e2e.client import Client
from tests.e2e.process import serving
from tests.paths import ROOT
from tests.rpc.rpc_kit import rejected
from wonder.v1 import conversation_pb2 as conversation
from wonder.v1 import library_service_pb2 as library
from wonder_sdk import cli

pytestmark = pytest.mark.asyncio(loop_scope="session")

TEAM = """
name: secretary
persona: {system_prompt: You are the secretary., tool_ids: [ask_archivist]}
---
name: keeper
persona: {system_prompt: You keep the files.}
---
name: ask_archivist
description: Asks the archivist.
tool: {target_type: agent, target_id: archivist}
---
name: office
description: Work of the office.
project:
  metadata: {floor: 3}
  network: {http_allow: [ci.internal:8080], http_only_allowed: true}
---
name: cellar
project: {}
---
name: clara
description: The secretary.
agent:
  persona_id: secretary
  project_ids: [office, cellar, default]
  budget: {max_tokens: 1000000}
  metadata: {desk: "7", keys: [1, 2]}
---
name: archivist
agent: {persona_id: keeper, project_ids: [cellar]}
---
name: library
agent: {persona_id: keeper@1}
"""


async def wonder(*arguments: str) -> int:
    return await asyncio.to_thread(cli.main, list(arguments))


async def shown(client: Client, name: str) -> tuple[object, ...]:
    """Return what an export must carry of an agent, with the names of its projects."""
    agent = (await client.library.GetAgent(library.GetAgentRequest(agent_id=name))).agent
    projects = [
        (await client.library.GetProject(library.GetProjectRequest(project_id=each))).project
        for each in agent.project_ids
    ]
    own = [(each.name, each.description, each.metadata, each.network, each.repositories) for each in projects]
    return agent.name, agent.description, agent.persona_id, agent.metadata, agent.budget, own


async def test_an_export_sets_up_another_server_and_changes_nothing_on_its_own(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, copy, again = tmp_path / "team", tmp_path / "copy", tmp_path / "again"
    folder.mkdir()
    (folder / "library.yaml").write_text("name: acme/team\ndescription: All of us.\n")
    (folder / "team.yaml").write_text(TEAM)
    names = ("clara", "archivist", "library")
    async with serving(tmp_path / "first") as server, server.client() as client:
        at = ("--server", server.address)
        assert await wonder("apply", "-f", str(folder), "--yes", *at) == 0
        # Of another library, or inline: not of this export.
        await client.agent("stranger", "wonder/std/assistant")
        assert await wonder("export", "acme/team", "-o", str(copy), *at) == 0
        assert "agent library has revision 1 of its persona" in capsys.readouterr().out
        assert await wonder("apply", "-f", str(copy), "--dry-run", *at) == 0
        said = capsys.readouterr().out
        assert "nothing to change" in said and "+" not in said and "~" not in said
        before = [await shown(client, name) for name in names]
        assert await wonder("export", "acme/team", "-o", str(again), "--definitions-only", *at) == 0
        assert sorted(file.name for file in again.rglob("*.yaml")) == [
            "ask_archivist.yaml", "keeper.yaml", "library.yaml", "secretary.yaml",
        ]  # fmt: skip
    written = {str(file.relative_to(copy)) for file in copy.rglob("*.yaml")}
    assert written == {
        "library.yaml", "secretary.yaml", "keeper.yaml", "ask_archivist.yaml", "agents/clara.yaml",
        "agents/archivist.yaml", "agents/_library.yaml", "projects/office.yaml", "projects/cellar.yaml",
    }  # fmt: skip
    assert "agt_" not in (copy / "agents/clara.yaml").read_text()
    assert "proj_" not in (copy / "agents/clara.yaml").read_text()
    async with serving(tmp_path / "second") as server, server.client() as client:
        assert await wonder("apply", "-f", str(copy), "--yes", "--server", server.address) == 0
        assert [await shown(client, name) for name in names] == before
        missing = client.library.GetAgent(library.GetAgentRequest(agent_id="stranger"))
        assert (await rejected(missing))[0] == "AGENT_NOT_FOUND"
        turn, _ = await client.turn(await client.open("clara"), "hello")
        assert turn.status == conversation.TURN_STATUS_COMPLETED
        assert await wonder("export", "acme/team", "-o", str(copy), "--server", server.address) == 0
    assert {str(file.relative_to(copy)) for file in copy.rglob("*.yaml")} == written


async def test_the_example_of_a_team_survives_an_export(tmp_path: Path) -> None:
    async with serving(tmp_path / "data") as server:
        at = ("--server", server.address)
        assert await wonder("apply", "-f", str(ROOT / "examples/team"), "--yes", *at) == 0
        assert await wonder("export", "acme/office", "-o", str(tmp_path / "copy"), *at) == 0
    assert (tmp_path / "copy/agents/clara.yaml").read_text() == (
        "name: clara\ndescription: The secretary.\nagent:\n  project_ids:\n    - office\n"
        "  persona_id: secretary\n  budget:\n    max_tokens: 1000000\n"
    )
