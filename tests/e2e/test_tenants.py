"""Two tenants on one server: the same names, and nothing of the other."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc import aio

from tests.e2e.callers import calling_with
from tests.e2e.client import PATIENCE_S, Client
from tests.e2e.process import Server, serving
from tests.e2e.test_identity import give, key, principal, refusal
from tests.rpc.rpc_kit import rejected
from wonder.v1 import conversation_service_pb2 as pb
from wonder.v1 import executor_service_pb2 as executor
from wonder.v1 import identity_pb2
from wonder.v1 import identity_service_pb2 as identity
from wonder.v1 import library_service_pb2 as library
from wonder.v1 import memory_service_pb2 as memory
from wonder.v1.common_pb2 import PRINCIPAL_KIND_USER, PRINCIPAL_KIND_WORKER

NAMES = ("acme", "zenith")

DEFINITIONS = """
kind: persona
name: guide
persona:
  system_prompt: You guide the visitors of {tenant}.
"""


@dataclass
class Tenant:
    """A tenant with an administrator, and with a project, a library and an agent of the same names."""

    id: str
    admin: Client
    token: str
    project: str
    agent: str
    conversation: str


@dataclass
class Place:
    data: Path
    server: Server
    root: Client
    tenants: dict[str, Tenant]


async def create_tenant(root: Client, name: str) -> str:
    request = identity.CreateTenantRequest(tenant={"name": name}, request_id=f"tenant-{name}")
    return str((await root.identity.CreateTenant(request)).tenant.id)


async def admin_of(root: Client, tenant: str) -> str:
    """Return the key of a new administrator of a tenant."""
    wanted = identity_pb2.StoredPrincipal(kind=PRINCIPAL_KIND_USER, name="chief", tenant_id=tenant)
    made = await root.identity.CreatePrincipal(identity.CreatePrincipalRequest(principal=wanted))
    binding = identity_pb2.RoleBinding(principal_id=made.principal.id, role=identity_pb2.ROLE_ADMIN)
    await root.identity.CreateRoleBinding(identity.CreateRoleBindingRequest(role_binding=binding))
    _, token = await key(root, made.principal.id)
    return token


async def furnish(client: Client, name: str) -> tuple[str, str, str]:
    """Make a project, a library, an agent and a conversation, each with the name that others have too."""
    project = (
        await client.library.CreateProject(library.CreateProjectRequest(project={"name": "web"}))
    ).project
    await client.library.CreateLibrary(library.CreateLibraryRequest(library={"name": "team"}))
    await client.apply("team", DEFINITIONS.format(tenant=name))
    agent = {"name": "guide", "persona_id": "team/guide", "project_ids": ["web"]}
    made = await client.library.CreateAgent(library.CreateAgentRequest(agent=agent))
    return project.id, made.agent.id, await client.open("guide", project_id="web")


@asynccontextmanager
async def place(folder: Path) -> AsyncIterator[Place]:
    """Yield a server with two tenants, whose administrator set them up on loopback."""
    async with asyncio.timeout(PATIENCE_S), AsyncExitStack() as stack:
        async with serving(folder / "data") as server, server.client() as client:
            root_id = await principal(client, "user", "root")
            await give(client, root_id, "admin")
            _, root_token = await key(client, root_id)
            chiefs = {}
            for name in NAMES:
                chiefs[name] = await create_tenant(client, name), await admin_of(client, name)
            await server.kill()
        server = await stack.enter_async_context(serving(folder / "data", "--require-auth"))
        root = await stack.enter_async_context(calling_with(server, root_token))
        tenants = {}
        for name, (tenant_id, token) in chiefs.items():
            client = await stack.enter_async_context(calling_with(server, token))
            project, agent, conversation = await furnish(client, name)
            tenants[name] = Tenant(tenant_id, client, token, project, agent, conversation)
        yield Place(folder / "data", server, root, tenants)


async def test_tenants_have_the_same_names_and_each_its_own_things(tmp_path: Path) -> None:
    async with place(tmp_path) as at:
        for name, tenant in at.tenants.items():
            own = tenant.admin
            projects = await own.library.ListProjects(library.ListProjectsRequest())
            assert {each.name for each in projects.projects} == {"default", "web"}
            assert tenant.project in {each.id for each in projects.projects}
            libraries = await own.library.ListLibraries(library.ListLibrariesRequest())
            assert {each.name for each in libraries.libraries} == {"team", "wonder/std"}
            agents = await own.library.ListAgents(library.ListAgentsRequest())
            assert {each.name for each in agents.agents} == {"assistant", "guide"}
            found = await own.library.GetAgent(library.GetAgentRequest(agent_id="guide"))
            assert found.agent.id == tenant.agent
            listed = await own.conversations.ListConversations(pb.ListConversationsRequest())
            assert [each.id for each in listed.conversations] == [tenant.conversation]
            preview = await own.conversations.PreviewContext(
                pb.PreviewContextRequest(conversation_id=tenant.conversation, send={"content": "Hello"})
            )
            assert f"visitors of {name}" in str(preview)
            who = await own.identity.WhoAmI(identity.WhoAmIRequest())
            assert (who.tenant.id, who.tenant.name) == (tenant.id, name)
            # The standard agent answers, and its work knows its tenant after a kill, too.
            turn, view = await own.turn(await own.open("assistant"), "say 2 words")
            assert turn.principal.subject == "chief" and "turn.completed" in view.names
        seen = await at.root.library.ListProjects(library.ListProjectsRequest())
        assert [each.name for each in seen.projects] == ["default"]


async def test_a_tenant_finds_nothing_of_another(tmp_path: Path) -> None:
    async with place(tmp_path) as at:
        own, other = at.tenants["acme"].admin, at.tenants["zenith"]
        stub, send = own.conversations, {"content": "x"}
        calls: list[tuple[Any, Any]] = [
            (stub.GetConversation, pb.GetConversationRequest(conversation_id=other.conversation)),
            (stub.ListMessages, pb.ListMessagesRequest(conversation_id=other.conversation)),
            (stub.SendMessage, pb.SendMessageRequest(conversation_id=other.conversation, send=send)),
            (own.memory.ListMemories, memory.ListMemoriesRequest(agent_id=other.agent)),
            (own.library.GetProject, library.GetProjectRequest(project_id=other.project)),
            (own.library.GetAgent, library.GetAgentRequest(agent_id=other.agent)),
            (own.library.GetProject, library.GetProjectRequest(project_id=f"{other.id}:web")),
            (own.library.GetLibrary, library.GetLibraryRequest(library_id=f"{other.id}:team")),
            (own.library.GetAgent, library.GetAgentRequest(agent_id=f"{other.id}:guide")),
            (own.identity.GetTenant, identity.GetTenantRequest(tenant="zenith")),
            (own.identity.ListPrincipals, identity.ListPrincipalsRequest(tenant=other.id)),
            (own.identity.ListAuditEntries, identity.ListAuditEntriesRequest(tenant="default")),
        ]
        for method, request in calls:
            reason, _ = await rejected(method(request))
            assert reason.endswith("_NOT_FOUND"), request
        for client in (at.root, own):
            for text in (other.project, f"{other.id}:web"):
                reason, _ = await rejected(
                    client.library.GetProject(library.GetProjectRequest(project_id=text))
                )
                assert reason == "PROJECT_NOT_FOUND"
        audit = await own.identity.ListAuditEntries(identity.ListAuditEntriesRequest(page_size=500))
        assert {each.tenant_id for each in audit.entries} == {at.tenants["acme"].id}


async def test_an_administrator_of_a_tenant_does_not_reach_the_server(tmp_path: Path) -> None:
    async with place(tmp_path) as at:
        own = at.tenants["acme"].admin
        chief = (await own.identity.WhoAmI(identity.WhoAmIRequest())).stored.id
        for request in (
            own.identity.CreateTenant(identity.CreateTenantRequest(tenant={"name": "third"})),
            own.identity.CreateRoleBinding(
                identity.CreateRoleBindingRequest(
                    role_binding={"principal_id": chief, "role": identity_pb2.ROLE_ADMIN, "server": True}
                )
            ),
            own.library.UpdateProject(
                library.UpdateProjectRequest(
                    project={"id": "web", "network": {"http_allow": ["127.0.0.1"]}},
                    update_mask={"paths": ["network"]},
                )
            ),
            own.apply("wonder/std", DEFINITIONS.format(tenant="acme")),
        ):
            code, _ = await refusal(request)
            assert code is grpc.StatusCode.PERMISSION_DENIED
        # Nor does one of the tenant `default`, where the administrators of the server are.
        root = (await at.root.identity.WhoAmI(identity.WhoAmIRequest())).stored.id
        helper = await principal(at.root, "user", "helper")
        binding = identity_pb2.RoleBinding(principal_id=helper, role=identity_pb2.ROLE_ADMIN)
        await at.root.identity.CreateRoleBinding(identity.CreateRoleBindingRequest(role_binding=binding))
        _, token = await key(at.root, helper)
        async with calling_with(at.server, token) as client:
            code, text = await refusal(key(client, root))
            assert code is grpc.StatusCode.PERMISSION_DENIED and "administers the server" in text
            made = await principal(client, "user", "newcomer")
            assert made


async def test_members_and_workers_of_a_tenant_stay_in_it(tmp_path: Path) -> None:
    async with place(tmp_path) as at, AsyncExitStack() as stack:
        acme, zenith = at.tenants["acme"], at.tenants["zenith"]
        ann = await principal(acme.admin, "user", "ann")
        await give(acme.admin, ann, "member", "web")
        reason, _ = await rejected(give(acme.admin, ann, "member", zenith.project))
        assert reason == "PROJECT_NOT_FOUND"
        _, token = await key(acme.admin, ann)
        client = await stack.enter_async_context(calling_with(at.server, token))
        turn, _ = await client.turn(acme.conversation, "say 1 word")
        assert turn.principal.subject == "ann"

        wanted = identity_pb2.StoredPrincipal(kind=PRINCIPAL_KIND_WORKER, name="hands")
        made = await acme.admin.identity.CreatePrincipal(identity.CreatePrincipalRequest(principal=wanted))
        binding = identity_pb2.RoleBinding(principal_id=made.principal.id, role=identity_pb2.ROLE_WORKER)
        await acme.admin.identity.CreateRoleBinding(identity.CreateRoleBindingRequest(role_binding=binding))
        _, token = await key(acme.admin, made.principal.id)
        hands = await stack.enter_async_context(calling_with(at.server, token))
        call = hands.executor.Work()
        registration = {"name": "hands", "kinds": [{"name": "lift"}], "max_concurrency": 1}
        await call.write(executor.WorkRequest(register=registration))
        assert (await call.read()).WhichOneof("item") == "registered"
        kinds = {}
        for name, tenant in at.tenants.items():
            listed = await tenant.admin.executor.ListActionKinds(
                executor.ListActionKindsRequest(page_size=500)
            )
            kinds[name] = {each.name for each in listed.action_kinds}
        assert "lift" in kinds["acme"] and "lift" not in kinds["zenith"]
        call.cancel()


async def test_tenants_survive_a_kill_and_a_repeated_request_makes_no_second_one(tmp_path: Path) -> None:
    async with place(tmp_path) as at:
        acme = at.tenants["acme"]
        third = await create_tenant(at.root, "third")
        assert await create_tenant(at.root, "third") == third
        request = identity.CreateTenantRequest(tenant={"name": "acme"})
        reason, _ = await rejected(at.root.identity.CreateTenant(request))
        assert reason == "ALREADY_EXISTS"
        listed = await at.root.identity.ListTenants(identity.ListTenantsRequest())
        assert [each.name for each in listed.tenants] == ["third", "zenith", "acme", "default"]
        await at.server.kill()
        async with serving(at.data, "--require-auth") as again, calling_with(again, acme.token) as client:
            turn, view = await client.turn(acme.conversation, "say 2 words")
            assert "turn.completed" in view.names
            mine = await client.identity.ListTenants(identity.ListTenantsRequest())
            assert [each.name for each in mine.tenants] == ["acme"]
            with pytest.raises(aio.AioRpcError):
                await client.library.GetProject(
                    library.GetProjectRequest(project_id=at.tenants["zenith"].project)
                )
            assert turn.id
