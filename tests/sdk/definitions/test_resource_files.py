"""Agents and projects as files: names in place of ids, and nothing outside of the folder."""

from __future__ import annotations

from pathlib import Path

import pytest

from wonder_sdk import v1
from wonder_sdk.definitions import definition_files, resource_files

HOME = v1.Library(name="acme/team")
PERSONA = v1.Definition(id="def_1", name="secretary", persona=v1.PersonaSpec(system_prompt="You help."))
PROJECTS = [
    v1.Project(id="proj_1", name="office", description="Work."),
    v1.Project(id="proj_2", name="default"),
    v1.Project(id="proj_3", name="unused"),
]


def agent(persona: str, name: str = "clara", projects: tuple[str, ...] = ("proj_1", "proj_2")) -> v1.Agent:
    return v1.Agent(id="agt_1", name=name, persona_id=persona, project_ids=list(projects))


def exported(*agents: v1.Agent, projects: list[v1.Project] = PROJECTS) -> resource_files.Resources:
    return resource_files.of_library(HOME, [PERSONA], agents, projects)


@pytest.mark.parametrize(
    ("persona", "written"),
    [
        ("acme/team/secretary", "secretary"),
        ("acme/team/secretary@3", "secretary@3"),
        ("def_1", "secretary"),
        ("def_1@2", "secretary@2"),
        ("acme/other/secretary", None),
        ("acme/team/more/secretary", None),
        ("acme/teams/secretary", None),
        ("def_2", None),
        ("", None),
    ],
)
def test_agents_of_the_library_name_their_persona_in_it(persona: str, written: str | None) -> None:
    found = exported(agent(persona))
    assert [each.persona_id for each in found.agents] == ([written] if written else [])
    assert bool(found.notices) is (written is not None and "@" in written)
    if written:
        assert found.agents[0].project_ids == ["office", "default"] and not found.agents[0].id
        assert [each.name for each in found.projects] == ["office"]


def test_an_agent_of_a_library_below_is_of_another_one() -> None:
    found = resource_files.of_library(v1.Library(name="acme"), [], [agent("acme/team/secretary")], PROJECTS)
    assert not found.agents


def test_the_default_project_is_written_if_it_has_a_content() -> None:
    own = v1.Project(id="proj_2", name="default", repositories=[v1.Repository(name="code", url="/srv/code")])
    found = exported(agent("acme/team/secretary"), projects=[PROJECTS[0], own])
    assert [each.name for each in found.projects] == ["office", "default"]


def test_files_are_read_as_they_were_written(tmp_path: Path) -> None:
    found = exported(agent("def_1"), agent("def_1", "library"))
    definition_files.save(tmp_path, HOME, [PERSONA])
    resource_files.save(tmp_path, found)
    folder = definition_files.load(tmp_path)
    assert folder.library == "acme/team" and len(folder.definitions) == 1
    assert sorted(each.name for each in folder.agents) == ["clara", "library"]
    assert folder.agents[0] == found.agents[0] or folder.agents[1] == found.agents[0]
    assert [each.name for each in folder.projects] == ["office"]


@pytest.mark.parametrize("name", ["../escape", "/etc/passwd", "", ".hidden", "a/b", "A", "a\n"])
def test_a_server_cannot_name_a_file_outside_of_the_folder(tmp_path: Path, name: str) -> None:
    with pytest.raises(ValueError, match="no name of a file"):
        resource_files.save(tmp_path, exported(agent("def_1", name)))
    assert not list(tmp_path.rglob("*.yaml"))
