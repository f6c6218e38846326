"""LibraryService over a real connection: round trips, and faults with their fields."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest
import pytest_asyncio
from google.protobuf.field_mask_pb2 import FieldMask
from google.protobuf.json_format import ParseDict
from google.protobuf.message import Message

from tests.fakes.repositories import no_artifacts
from tests.paths import ROOT
from tests.rpc.rpc_kit import rejected, serving, token_principal
from tests.services.catalog.library_kit import STANDARD, make
from tests.views import ForAll
from wonder.v1 import common_pb2, definition_pb2, library_pb2
from wonder.v1 import library_service_pb2 as pb
from wonder.v1.library_service_pb2_grpc import LibraryServiceStub
from wonder_sdk.definitions.definition_files import load
from wonder_server.adapters.in_memory.catalog import MemoryCatalog
from wonder_server.core.definitions.resources import Repository
from wonder_server.core.errors import Reason, WonderError
from wonder_server.core.json_types import JsonDict
from wonder_server.ports.catalog import Put
from wonder_server.rpc.library.parts import LibraryParts
from wonder_server.rpc.library.servicer import LibraryServicer
from wonder_server.rpc.shared.principal import current_principal


@pytest_asyncio.fixture
async def service() -> AsyncIterator[LibraryServiceStub]:
    library = make(MemoryCatalog())
    await library.ensure_standard(STANDARD)
    async with serving(
        {"wonder.v1.LibraryService": LibraryServicer(ForAll(LibraryParts(library, no_artifacts())))}
    ) as channel:
        yield LibraryServiceStub(channel)


def definition(document: JsonDict) -> definition_pb2.Definition:
    return ParseDict(document, definition_pb2.Definition())


EVERYTHING: list[JsonDict] = [
    {
        "name": "helper",
        "description": "Helps.",
        "labels": {"team": "core"},
        "persona": {
            "system_prompt": "You help.",
            "instructions": ["Be brief."],
            "model_profile_id": "fast",
            "context_assembly_workflow_id": "flow",
            "memory_extraction_workflow_id": "none",
            "recent_turns_limit": 0,
            "tool_ids": ["look"],
            "constraints": {"max_moves_per_turn": 3, "allowed_actions": ["memory.*"], "max_turn_ms": 1000},
        },
    },
    {
        "name": "look",
        "description": "Looks.",
        "tool": {
            "name": "look_up",
            "input_schema": {"type": "object", "properties": {"q": {"type": "string", "maxLength": 9}}},
            "target_type": "TARGET_TYPE_TASK",
            "target_id": "search",
            "async": True,
            "input_mapping": {"query": "input.q"},
            "retry": {"max_attempts": 2, "backoff_ms": 0, "timeout_ms": 5},
        },
    },
    {
        "name": "flow",
        "workflow": {
            "nodes": [
                {"id": "a", "task_id": "search", "input_mapping": {"query": "input.q"}, "timeout_ms": 7},
                {
                    "id": "b",
                    "task_id": "search",
                    "output_mapping": {"output.x": "result"},
                    "description": "B.",
                },
            ],
            "transitions": [{"from_node_id": "a", "to_node_id": "b", "condition": "true", "priority": -1}],
            "initial_node_id": "a",
            "output_mapping": {"y": "output.x"},
        },
    },
    {
        "name": "search",
        "task": {
            "steps": [
                {
                    "id": "s",
                    "action": {"kind": "memory.search", "config": {"limit": 3}, "max_attempts": 1},
                    "condition": "has(input.query)",
                    "input_mapping": {"query": "input.query"},
                    "on_failure": "ON_FAILURE_CONTINUE",
                },
                {"id": "t", "action_id": "note"},
            ],
        },
    },
    {"name": "note", "action": {"kind": "context", "config": {"deep": {"list": [1, 2.5, None, "é", {}]}}}},
    {
        "name": "fast",
        "model_profile": {
            "provider": "anthropic",
            "model": "claude",
            "format": "MODEL_FORMAT_ANTHROPIC_MESSAGES",
            "parameters": {"temperature": 0.5},
            "timeout_ms": 1,
        },
    },
]


# --- round trips --------------------------------------------------------------------------------------


async def test_every_kind_of_definition_survives_a_round_trip(service: LibraryServiceStub) -> None:
    sent = [definition(document) for document in EVERYTHING]
    applied = await service.ApplyDefinitions(pb.ApplyDefinitionsRequest(library="team", definitions=sent))
    assert [change.action for change in applied.changes] == [pb.DEFINITION_CHANGE_ACTION_CREATED] * 6
    exported = await service.ExportDefinitions(pb.ExportDefinitionsRequest(library_id="team"))
    by_name = {each.name: each for each in exported.definitions}
    for document in sent:
        got = by_name[document.name]
        got.ClearField("kind")
        assert got == document
    again = await service.ApplyDefinitions(
        pb.ApplyDefinitionsRequest(library="team", definitions=exported.definitions, prune=True)
    )
    assert {change.action for change in again.changes} == {pb.DEFINITION_CHANGE_ACTION_UNCHANGED}


async def test_a_definition_is_returned_with_all_server_fields(service: LibraryServiceStub) -> None:
    await service.CreateLibrary(pb.CreateLibraryRequest(library=library_pb2.Library(name="team")))
    request = pb.PutDefinitionRequest(library_id="team", definition=definition(EVERYTHING[4]))
    saved = await service.PutDefinition(request)
    got = await service.GetDefinition(pb.GetDefinitionRequest(definition_id="team/note@1"))
    assert got.definition == saved.definition
    assert saved.definition.id.startswith("def_") and saved.definition.library_id.startswith("lib_")
    assert (saved.definition.library, saved.definition.kind, saved.definition.revision) == (
        "team",
        definition_pb2.DEFINITION_KIND_ACTION,
        1,
    )
    assert len(saved.definition.content_hash) == 64 and saved.definition.create_time.seconds > 0
    listed = await service.ListRevisions(pb.ListRevisionsRequest(definition_id=saved.definition.id))
    assert list(listed.definitions) == [saved.definition]
    stale = pb.PutDefinitionRequest(library_id="team", definition=definition(EVERYTHING[4]), etag="old")
    assert await rejected(service.PutDefinition(stale)) == ("ETAG_MISMATCH", ["etag"])
    await service.DeleteDefinition(
        pb.DeleteDefinitionRequest(definition_id="team/note", etag=saved.definition.etag)
    )
    gone = service.GetDefinition(pb.GetDefinitionRequest(definition_id=saved.definition.id))
    assert await rejected(gone) == ("DEFINITION_NOT_FOUND", ["definition_id"])


async def test_lists_come_in_pages_and_filtered(service: LibraryServiceStub) -> None:
    await service.ApplyDefinitions(
        pb.ApplyDefinitionsRequest(library="team", definitions=[definition(each) for each in EVERYTHING])
    )

    async def names(**filters: object) -> list[str]:
        found: list[str] = []
        token = ""
        while True:
            request = pb.ListDefinitionsRequest(page_size=2, page_token=token, **filters)
            answer = await service.ListDefinitions(request)
            assert len(answer.definitions) <= 2
            found += [each.name for each in answer.definitions]
            token = answer.next_page_token
            if not token:
                return found

    assert await names(library_id="team") == ["fast", "flow", "helper", "look", "note", "search"]
    kinds = [definition_pb2.DEFINITION_KIND_TOOL, definition_pb2.DEFINITION_KIND_TASK]
    assert await names(library_id="team", kinds=kinds) == ["look", "search"]
    assert await names(labels={"team": "core"}) == ["helper"]
    libraries = await service.ListLibraries(pb.ListLibrariesRequest())
    assert [each.name for each in libraries.libraries] == ["team", "wonder/std"]


async def test_an_agent_is_created_updated_by_mask_and_deleted(service: LibraryServiceStub) -> None:
    agent = library_pb2.Agent(name="bot", persona_id="wonder/std/assistant", description="A bot.")
    agent.metadata.update({"owner": "ada", "n": 3})
    made = (await service.CreateAgent(pb.CreateAgentRequest(agent=agent))).agent
    assert made.id.startswith("agt_") and len(made.project_ids) == 1 and made.metadata == agent.metadata

    change = library_pb2.Agent(id="bot", etag=made.etag, description="", name="robot")
    request = pb.UpdateAgentRequest(agent=change, update_mask=FieldMask(paths=["description"]))
    masked = (await service.UpdateAgent(request)).agent
    assert (masked.name, masked.description, masked.persona_id) == ("bot", "", "wonder/std/assistant")

    inline = library_pb2.Agent(id=made.id, persona=definition_pb2.PersonaSpec(system_prompt="Hi."))
    unmasked = (await service.UpdateAgent(pb.UpdateAgentRequest(agent=inline))).agent
    assert unmasked.persona.system_prompt == "Hi." and unmasked.WhichOneof("identity") == "persona"
    assert unmasked.metadata == agent.metadata

    assert (await service.GetAgent(pb.GetAgentRequest(agent_id="bot"))).agent == unmasked
    listed = await service.ListAgents(pb.ListAgentsRequest(project_id="default"))
    assert [each.name for each in listed.agents] == ["bot", "assistant"]
    await service.DeleteAgent(pb.DeleteAgentRequest(agent_id="bot", etag=unmasked.etag))
    missing = service.GetAgent(pb.GetAgentRequest(agent_id=made.id))
    assert await rejected(missing) == ("AGENT_NOT_FOUND", ["agent_id"])


async def test_a_project_with_a_password_in_a_url_is_refused(service: LibraryServiceStub) -> None:
    project = library_pb2.Project(name="site")
    project.repositories.add(name="code", url="https://me:hunter2@example.com/a.git")
    wrong = ("FIELD_INVALID", ["project.repositories[0].url"])
    assert await rejected(service.CreateProject(pb.CreateProjectRequest(project=project))) == wrong
    change = library_pb2.Project(id="default", repositories=project.repositories)
    assert await rejected(service.UpdateProject(pb.UpdateProjectRequest(project=change))) == wrong


async def test_a_stored_password_is_hidden_and_preserved() -> None:
    stored = MemoryCatalog()
    url = "https://me:hunter2@example.com/a.git"
    library = make(stored)
    await library.ensure_standard(STANDARD)
    found = await stored.project("default")
    assert found is not None
    old = replace(found, repositories=(Repository(name="code", url=url),), version=found.version + 1)
    await stored.commit([Put(old)])
    async with serving(
        {"wonder.v1.LibraryService": LibraryServicer(ForAll(LibraryParts(library, no_artifacts())))}
    ) as channel:
        service: LibraryServiceStub = LibraryServiceStub(channel)
        shown = (await service.GetProject(pb.GetProjectRequest(project_id="default"))).project
        assert shown.repositories[0].url == "https://me:***@example.com/a.git"
        assert "hunter2" not in str(await service.ListProjects(pb.ListProjectsRequest()))
        shown.description = "Ours."
        shown.repositories[0].default_branch = "dev"
        changed = (await service.UpdateProject(pb.UpdateProjectRequest(project=shown))).project
        assert changed.description == "Ours." and "hunter2" not in str(changed)
    kept = await stored.project("default")
    assert kept is not None
    assert kept.repositories == (Repository(name="code", url=url, default_branch="dev"),)


async def test_a_project_is_created_updated_by_mask_and_deleted(service: LibraryServiceStub) -> None:
    project = library_pb2.Project(
        name="site",
        repositories=[library_pb2.Repository(name="code", url="/srv/code", default_branch="main")],
        network=library_pb2.NetworkPolicy(http_allow=["10.0.0.0/8"], shell_network=True),
    )
    made = (await service.CreateProject(pb.CreateProjectRequest(project=project))).project
    assert made.repositories == project.repositories and made.network == project.network
    change = library_pb2.Project(id="site", description="Ours.")
    paths = FieldMask(paths=["network", "description"])
    changed = await service.UpdateProject(pb.UpdateProjectRequest(project=change, update_mask=paths))
    assert not changed.project.HasField("network") and changed.project.description == "Ours."
    assert changed.project.repositories == project.repositories
    assert (await service.GetProject(pb.GetProjectRequest(project_id="site"))).project == changed.project
    await service.DeleteProject(pb.DeleteProjectRequest(project_id="site"))
    left = await service.ListProjects(pb.ListProjectsRequest())
    assert [each.name for each in left.projects] == ["default"]


async def test_a_repeated_entry_of_the_network_policy_is_stored_once(service: LibraryServiceStub) -> None:
    network = library_pb2.NetworkPolicy(http_allow=["10.0.0.0/8", "ci.internal", "10.0.0.0/8"])
    project = library_pb2.Project(name="site", network=network)
    made = (await service.CreateProject(pb.CreateProjectRequest(project=project))).project
    assert made.network.http_allow == ["10.0.0.0/8", "ci.internal"]
    made.network.http_allow.append("ci.internal")
    changed = (await service.UpdateProject(pb.UpdateProjectRequest(project=made))).project
    assert changed.network.http_allow == ["10.0.0.0/8", "ci.internal"] and changed.etag == made.etag


async def test_a_request_id_applies_a_change_once(service: LibraryServiceStub) -> None:
    request = pb.CreateAgentRequest(
        agent=library_pb2.Agent(name="bot", persona_id="wonder/std/assistant"), request_id="r"
    )
    assert await service.CreateAgent(request) == await service.CreateAgent(request)
    request.agent.name = "other"
    answer = await rejected(service.CreateAgent(request))
    assert answer == ("REQUEST_ID_REUSED", ["request_id"])


async def test_validate_only_saves_nothing(service: LibraryServiceStub) -> None:
    agent = library_pb2.Agent(name="bot", persona_id="wonder/std/assistant")
    shown = await service.CreateAgent(pb.CreateAgentRequest(agent=agent, validate_only=True))
    assert shown.agent.name == "bot"
    missing = service.GetAgent(pb.GetAgentRequest(agent_id="bot"))
    assert (await rejected(missing))[0] == "AGENT_NOT_FOUND"


async def test_client_and_server_read_the_standard_library_alike(
    service: LibraryServiceStub,
) -> None:
    folder = load(STANDARD)
    sent = [definition_pb2.Definition.FromString(bytes(each)) for each in folder.definitions]
    request = pb.ApplyDefinitionsRequest(library=folder.library, definitions=sent)
    applied = await service.ApplyDefinitions(request)
    assert {change.action for change in applied.changes} == {pb.DEFINITION_CHANGE_ACTION_UNCHANGED}


# --- refusals -----------------------------------------------------------------------------------------


async def test_the_faults_of_a_batch_name_their_fields(service: LibraryServiceStub) -> None:
    batch = [
        {"name": "a", "task": {"steps": [{"id": "s", "action": {"kind": "context"}, "condition": "1 +"}]}},
        {"name": "b", "workflow": {"nodes": [{"id": "n", "task_id": "nope"}]}},
    ]
    request = pb.ApplyDefinitionsRequest(library="team", definitions=map(definition, batch))
    assert await rejected(service.ApplyDefinitions(request)) == (
        "DEFINITION_INVALID",
        ["definitions[0].task.steps[0].condition", "definitions[1].workflow.nodes[0].task_id"],
    )
    unread = [{"name": "a"}, {"name": "Ä", "task": {}}]
    request = pb.ApplyDefinitionsRequest(library="team", definitions=map(definition, unread))
    assert (await rejected(service.ApplyDefinitions(request)))[1] == [
        "definitions[0].spec",
        "definitions[1].name",
        "definitions[1].task.steps",
    ]


async def test_an_unreadable_definition_hides_no_other_fault(service: LibraryServiceStub) -> None:
    node = {"human_gate": {}, "input_mapping": {"x": "1 +"}}
    wrong = {"name": "a", "workflow": {"nodes": [node]}}
    places = [f"workflow.nodes[0].{name}" for name in ("id", "input_mapping.x", "human_gate.prompt")]
    batch = [{"name": "x"}, wrong]
    request = pb.ApplyDefinitionsRequest(library="team", definitions=map(definition, batch))
    reason, found = await rejected(service.ApplyDefinitions(request))
    assert (reason, found[0]) == ("DEFINITION_INVALID", "definitions[0].spec")
    assert {f"definitions[1].{place}" for place in places} <= set(found)
    assert len(set(found)) == len(found)
    await service.CreateLibrary(pb.CreateLibraryRequest(library={"name": "team"}))
    put = pb.PutDefinitionRequest(library_id="team", definition=definition(wrong))
    reason, found = await rejected(service.PutDefinition(put))
    assert {f"definition.{place}" for place in places} <= set(found)


async def test_the_budget_of_an_agent_can_be_changed_and_removed(service: LibraryServiceStub) -> None:
    agent = library_pb2.Agent(name="frugal", persona_id="wonder/std/assistant")
    agent.budget.max_tokens = -1
    answer = await rejected(service.CreateAgent(pb.CreateAgentRequest(agent=agent)))
    assert answer == ("FIELD_INVALID", ["agent.budget.max_tokens"])
    agent.budget.max_tokens = 5
    made = (await service.CreateAgent(pb.CreateAgentRequest(agent=agent, request_id="once"))).agent
    assert made.budget == agent.budget
    assert (await service.CreateAgent(pb.CreateAgentRequest(agent=agent, request_id="once"))).agent == made
    change = library_pb2.Agent(id=made.id, budget=common_pb2.Budget(max_cost_micros=7))
    request = pb.UpdateAgentRequest(agent=change, update_mask=FieldMask(paths=["budget"]))
    assert (await service.UpdateAgent(request)).agent.budget == change.budget
    change.ClearField("budget")
    request = pb.UpdateAgentRequest(agent=change, update_mask=FieldMask(paths=["budget"]))
    assert not (await service.UpdateAgent(request)).agent.HasField("budget")
    assert not (await service.GetAgent(pb.GetAgentRequest(agent_id="frugal"))).agent.HasField("budget")


EMPTY: list[tuple[str, Message, str]] = [
    ("CreateLibrary", pb.CreateLibraryRequest(), "library.name"),
    ("GetLibrary", pb.GetLibraryRequest(), "library_id"),
    ("DeleteLibrary", pb.DeleteLibraryRequest(), "library_id"),
    ("PutDefinition", pb.PutDefinitionRequest(), "library_id"),
    ("GetDefinition", pb.GetDefinitionRequest(), "definition_id"),
    ("ListRevisions", pb.ListRevisionsRequest(), "definition_id"),
    ("DeleteDefinition", pb.DeleteDefinitionRequest(), "definition_id"),
    ("ApplyDefinitions", pb.ApplyDefinitionsRequest(), "library"),
    ("ExportDefinitions", pb.ExportDefinitionsRequest(), "library_id"),
    ("CreateAgent", pb.CreateAgentRequest(), "agent.name"),
    ("GetAgent", pb.GetAgentRequest(), "agent_id"),
    ("UpdateAgent", pb.UpdateAgentRequest(), "agent.id"),
    ("DeleteAgent", pb.DeleteAgentRequest(), "agent_id"),
    ("CreateProject", pb.CreateProjectRequest(), "project.name"),
    ("GetProject", pb.GetProjectRequest(), "project_id"),
    ("UpdateProject", pb.UpdateProjectRequest(), "project.id"),
    ("DeleteProject", pb.DeleteProjectRequest(), "project_id"),
]


@pytest.mark.parametrize(("method", "request_", "field"), EMPTY, ids=[each[0] for each in EMPTY])
async def test_an_empty_request_is_refused_with_the_missing_field(
    service: LibraryServiceStub, method: str, request_: Message, field: str
) -> None:
    answer = await rejected(getattr(service, method)(request_))
    assert answer == ("FIELD_INVALID", [field])


UNKNOWN: list[tuple[str, Message, str]] = [
    ("GetLibrary", pb.GetLibraryRequest(library_id="nope"), "LIBRARY_NOT_FOUND"),
    ("DeleteLibrary", pb.DeleteLibraryRequest(library_id="nope"), "LIBRARY_NOT_FOUND"),
    ("ListDefinitions", pb.ListDefinitionsRequest(library_id="nope"), "LIBRARY_NOT_FOUND"),
    ("ExportDefinitions", pb.ExportDefinitionsRequest(library_id="nope"), "LIBRARY_NOT_FOUND"),
    ("GetDefinition", pb.GetDefinitionRequest(definition_id="a/b"), "DEFINITION_NOT_FOUND"),
    ("ListRevisions", pb.ListRevisionsRequest(definition_id="a/b"), "DEFINITION_NOT_FOUND"),
    ("DeleteDefinition", pb.DeleteDefinitionRequest(definition_id="a/b"), "DEFINITION_NOT_FOUND"),
    ("ListAgents", pb.ListAgentsRequest(project_id="nope"), "PROJECT_NOT_FOUND"),
    ("UpdateAgent", pb.UpdateAgentRequest(agent=library_pb2.Agent(id="nope")), "AGENT_NOT_FOUND"),
    ("DeleteAgent", pb.DeleteAgentRequest(agent_id="nope"), "AGENT_NOT_FOUND"),
    ("UpdateProject", pb.UpdateProjectRequest(project=library_pb2.Project(id="nope")), "PROJECT_NOT_FOUND"),
    ("DeleteProject", pb.DeleteProjectRequest(project_id="nope"), "PROJECT_NOT_FOUND"),
]


@pytest.mark.parametrize(("method", "request_", "reason"), UNKNOWN, ids=[each[0] for each in UNKNOWN])
async def test_a_missing_resource_is_not_found(
    service: LibraryServiceStub, method: str, request_: Message, reason: str
) -> None:
    assert (await rejected(getattr(service, method)(request_)))[0] == reason


BAD: list[tuple[str, Message, str, str]] = [
    ("ListLibraries", pb.ListLibrariesRequest(page_token="x"), "PAGE_TOKEN_INVALID", "page_token"),
    ("ListAgents", pb.ListAgentsRequest(page_token="W1siIl0="), "PAGE_TOKEN_INVALID", "page_token"),
    ("ListProjects", pb.ListProjectsRequest(page_size=-1), "FIELD_INVALID", "page_size"),
    ("ListDefinitions", pb.ListDefinitionsRequest(kinds=[0]), "FIELD_INVALID", "kinds"),
    ("GetDefinition", pb.GetDefinitionRequest(definition_id="x" * 600), "FIELD_INVALID", "definition_id"),
    ("GetDefinition", pb.GetDefinitionRequest(definition_id="a@0"), "FIELD_INVALID", "definition_id"),
    (
        "UpdateAgent",
        pb.UpdateAgentRequest(
            agent=library_pb2.Agent(id="assistant"), update_mask=FieldMask(paths=["usage"])
        ),
        "FIELD_MASK_UNSUPPORTED",
        "update_mask",
    ),
    (
        "UpdateProject",
        pb.UpdateProjectRequest(
            project=library_pb2.Project(id="default"), update_mask=FieldMask(paths=["repositories.name"])
        ),
        "FIELD_MASK_UNSUPPORTED",
        "update_mask",
    ),
    (
        "CreateProject",
        pb.CreateProjectRequest(project=library_pb2.Project(name="p"), request_id="x" * 200),
        "FIELD_INVALID",
        "request_id",
    ),
]


@pytest.mark.parametrize(("method", "request_", "reason", "field"), BAD)
async def test_bad_input_is_refused_with_its_field(
    service: LibraryServiceStub, method: str, request_: Message, reason: str, field: str
) -> None:
    answer = await rejected(getattr(service, method)(request_))
    assert answer == (reason, [field])


# --- agents and projects in an apply ----------------------------------------------------------------------


def team(**fields: object) -> pb.ApplyDefinitionsRequest:
    read = load(ROOT / "examples" / "team")
    return pb.ApplyDefinitionsRequest(
        library=read.library,
        definitions=[definition_pb2.Definition.FromString(bytes(each)) for each in read.definitions],
        agents=[library_pb2.Agent.FromString(bytes(each)) for each in read.agents],
        projects=[library_pb2.Project.FromString(bytes(each)) for each in read.projects],
        **fields,
    )


async def test_the_example_team_is_set_up_by_one_apply_and_again_changes_nothing(
    service: LibraryServiceStub,
) -> None:
    shown = await service.ApplyDefinitions(team(validate_only=True))
    assert [(each.type, each.name, each.id) for each in shown.resource_changes] == [
        (pb.APPLIED_RESOURCE_PROJECT, "office", ""),
        (pb.APPLIED_RESOURCE_AGENT, "clara", ""),
    ]
    applied = await service.ApplyDefinitions(team(request_id="r1"))
    assert await service.ApplyDefinitions(team(request_id="r1")) == applied
    assert "+name: clara" in applied.resource_changes[1].diff
    clara = (await service.GetAgent(pb.GetAgentRequest(agent_id="clara"))).agent
    assert clara.id == applied.resource_changes[1].id and clara.budget.max_tokens == 1_000_000
    assert (clara.persona_id, list(clara.project_ids)) == (
        "acme/office/secretary",
        [applied.resource_changes[0].id],
    )
    again = await service.ApplyDefinitions(team())
    unchanged = pb.DEFINITION_CHANGE_ACTION_UNCHANGED
    assert {each.action for each in (*again.changes, *again.resource_changes)} == {unchanged}


async def test_faults_of_agents_and_projects_in_an_apply_have_their_place(
    service: LibraryServiceStub,
) -> None:
    bad = team()
    bad.agents[0].budget.max_tokens = -1
    assert await rejected(service.ApplyDefinitions(bad)) == ("FIELD_INVALID", ["agents[0].budget.max_tokens"])
    bad = team()
    bad.agents[0].persona.system_prompt = ""
    assert await rejected(service.ApplyDefinitions(bad)) == (
        "DEFINITION_INVALID",
        ["agents[0].persona.system_prompt"],
    )
    bad = team()
    bad.projects[0].network.http_allow.append("no host!")
    assert await rejected(service.ApplyDefinitions(bad)) == (
        "FIELD_INVALID",
        ["projects[0].network.http_allow[0]"],
    )
    bad = team()
    bad.projects.add()
    assert await rejected(service.ApplyDefinitions(bad)) == ("FIELD_INVALID", ["projects[1].name"])


class _Context:
    def peer(self) -> str:
        return "ipv4:127.0.0.1:1"

    def invocation_metadata(self) -> tuple[()]:
        return ()


CALL: Any = _Context()


async def test_only_an_admin_applies_network_and_repositories(service: LibraryServiceStub) -> None:
    library = make(MemoryCatalog())
    await library.ensure_standard(STANDARD)
    servicer = LibraryServicer(ForAll(LibraryParts(library, no_artifacts())))
    await servicer.apply_definitions(team(), CALL)
    request = team()
    request.projects[0].network.shell_network = True
    token = current_principal.set(token_principal("bob"))
    try:
        with pytest.raises(WonderError) as refused:
            await servicer.apply_definitions(request, CALL)
        await servicer.apply_definitions(team(), CALL)
    finally:
        current_principal.reset(token)
    fault = refused.value.fault
    assert (fault.reason, fault.field) == (Reason.PERMISSION_DENIED, "projects[0].network")
    assert (await library.projects.project("office")).network is None
