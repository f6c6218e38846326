"""Principals, keys and roles through a real server: what a key opens, and when it stops."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc import aio

from tests.e2e.callers import calling_with
from tests.e2e.client import PATIENCE_S, Client
from tests.e2e.process import Server, serving
from tests.e2e.test_turn_overrides import chat
from tests.rpc.rpc_kit import rejected
from wonder.v1 import conversation_service_pb2 as pb
from wonder.v1 import identity_pb2, library_service_pb2
from wonder.v1 import identity_service_pb2 as identity
from wonder.v1 import memory_service_pb2 as memory
from wonder.v1.common_pb2 import (
    PRINCIPAL_KIND_SERVICE,
    PRINCIPAL_KIND_USER,
    PRINCIPAL_KIND_WORKER,
)

KINDS = {"user": PRINCIPAL_KIND_USER, "service": PRINCIPAL_KIND_SERVICE, "worker": PRINCIPAL_KIND_WORKER}


@dataclass
class Place:
    """A server with two projects, each with an agent and a conversation, and its administrator."""

    data: Path
    server: Server
    root: Client
    projects: dict[str, str]
    conversations: dict[str, str]
    token: str = ""
    """The key of the administrator."""


async def principal(client: Client, kind: str, name: str) -> str:
    wanted = identity_pb2.StoredPrincipal(kind=KINDS[kind], name=name)
    made = await client.identity.CreatePrincipal(identity.CreatePrincipalRequest(principal=wanted))
    return str(made.principal.id)


async def give(client: Client, principal_id: str, role: str, project: str = "") -> str:
    binding = identity_pb2.RoleBinding(
        principal_id=principal_id, role=identity_pb2.Role.Value(f"ROLE_{role.upper()}")
    )
    if role == "admin":
        binding.server = True
    elif project:
        binding.project_id = project
    request = identity.CreateRoleBindingRequest(role_binding=binding)
    return str((await client.identity.CreateRoleBinding(request)).role_binding.id)


async def key(client: Client, principal_id: str, **limits: Any) -> tuple[str, str]:
    """Return a new key's id and the whole key."""
    wanted = identity_pb2.ApiKey(principal_id=principal_id, **limits)
    made = await client.identity.CreateKey(identity.CreateKeyRequest(key=wanted))
    return made.key.id, made.token


async def developer(client: Client, name: str) -> tuple[str, str]:
    """Create a user with the role everywhere; return the id of its key, and the whole key."""
    made = await principal(client, "user", name)
    await give(client, made, "developer")
    return await key(client, made)


@asynccontextmanager
async def place(folder: Path) -> AsyncIterator[Place]:
    """Set up without authentication on loopback, as an operator does, then serve with it."""
    async with asyncio.timeout(PATIENCE_S):
        async with serving(folder / "data") as server, server.client() as client:
            admin = await principal(client, "user", "root")
            await give(client, admin, "admin")
            _, token = await key(client, admin)
            projects, conversations = {}, {}
            for name in ("red", "blue"):
                project = {"name": name}
                request = library_service_pb2.CreateProjectRequest(project=project)
                projects[name] = (await client.library.CreateProject(request)).project.id
                agent = {
                    "name": f"agent_{name}",
                    "persona_id": "wonder/std/assistant",
                    "project_ids": [projects[name]],
                }
                await client.library.CreateAgent(library_service_pb2.CreateAgentRequest(agent=agent))
                conversations[name] = await client.open(f"agent_{name}", project_id=projects[name])
            await server.kill()
        async with (
            serving(folder / "data", "--require-auth") as server,
            calling_with(server, token) as root,
        ):
            yield Place(folder / "data", server, root, projects, conversations, token)


async def refusal(call: Any) -> tuple[grpc.StatusCode, str]:
    with pytest.raises(aio.AioRpcError) as caught:
        await call
    return caught.value.code(), caught.value.details() or ""


async def test_a_member_of_one_project_sees_nothing_of_another(tmp_path: Path) -> None:
    async with place(tmp_path) as at:
        ann = await principal(at.root, "user", "ann")
        await give(at.root, ann, "member", at.projects["red"])
        _, token = await key(at.root, ann)
        async with calling_with(at.server, token) as client:
            own, foreign = at.conversations["red"], at.conversations["blue"]
            said, _ = await client.turn(own, "say 2 words")
            assert said.principal.subject == "ann" and said.principal.kind == PRINCIPAL_KIND_USER
            stub, send = client.conversations, {"content": "x"}
            for method, request in (
                (stub.GetConversation, pb.GetConversationRequest(conversation_id=foreign)),
                (stub.ListEvents, pb.ListEventsRequest(conversation_id=foreign)),
                (stub.SendMessage, pb.SendMessageRequest(conversation_id=foreign, send=send)),
                (client.memory.ListMemories, memory.ListMemoriesRequest(agent_id="agent_blue")),
                (client.library.GetProject, library_service_pb2.GetProjectRequest(project_id="blue")),
            ):
                reason, _ = await rejected(method(request))
                assert reason.endswith("_NOT_FOUND"), request
            listed = await client.conversations.ListConversations(pb.ListConversationsRequest())
            assert [each.id for each in listed.conversations] == [own]
            projects = await client.library.ListProjects(library_service_pb2.ListProjectsRequest())
            assert [each.name for each in projects.projects] == ["red"]


async def test_the_text_about_a_foreign_id_is_that_of_one_that_does_not_exist(tmp_path: Path) -> None:
    async with place(tmp_path) as at:
        ann = await principal(at.root, "user", "ann")
        await give(at.root, ann, "developer", at.projects["red"])
        _, token = await key(at.root, ann)
        async with calling_with(at.server, token) as client:
            texts = set()
            for conversation_id in (at.conversations["blue"], f"{at.conversations['blue'][:-6]}ZZZZZZ"):
                request = pb.GetConversationRequest(conversation_id=conversation_id)
                code, text = await refusal(client.conversations.GetConversation(request))
                texts.add((code, text.replace(conversation_id, "ID")))
            assert len(texts) == 1


@pytest.mark.parametrize("role", ["viewer", "worker"])
async def test_a_role_without_the_permission_is_refused_with_its_name(tmp_path: Path, role: str) -> None:
    async with place(tmp_path) as at:
        ann = await principal(at.root, "user", "ann")
        await give(at.root, ann, role, "" if role == "worker" else at.projects["red"])
        _, token = await key(at.root, ann)
        async with calling_with(at.server, token) as client:
            send = pb.SendMessageRequest(conversation_id=at.conversations["red"], send={"content": "x"})
            code, text = await refusal(client.conversations.SendMessage(send))
            assert (code, text) == (
                grpc.StatusCode.PERMISSION_DENIED,
                "The permission conversations.write is missing.",
            )


async def test_a_revoked_key_opens_nothing_and_its_streams_end(tmp_path: Path) -> None:
    async with place(tmp_path) as at:
        ann = await principal(at.root, "user", "ann")
        await give(at.root, ann, "member")
        key_id, token = await key(at.root, ann)
        async with calling_with(at.server, token) as client:
            attach = pb.ConverseAttach(conversation_id=at.conversations["red"])
            stream = client.conversations.Subscribe(pb.SubscribeRequest(attach=attach))
            await stream.read()
            await at.root.identity.RevokeKey(identity.RevokeKeyRequest(key_id=key_id))
            with pytest.raises(aio.AioRpcError) as caught:
                while True:
                    await stream.read()
            assert caught.value.code() is grpc.StatusCode.UNAUTHENTICATED
            code, _ = await refusal(client.identity.WhoAmI(identity.WhoAmIRequest()))
            assert code is grpc.StatusCode.UNAUTHENTICATED


async def test_a_role_that_is_taken_ends_the_streams_that_it_opened(tmp_path: Path) -> None:
    async with place(tmp_path) as at:
        ann = await principal(at.root, "user", "ann")
        binding = await give(at.root, ann, "member", at.projects["red"])
        _, token = await key(at.root, ann)
        async with calling_with(at.server, token) as client:
            attach = pb.ConverseAttach(conversation_id=at.conversations["red"])
            stream = client.conversations.Subscribe(pb.SubscribeRequest(attach=attach))
            await stream.read()
            request = identity.DeleteRoleBindingRequest(role_binding_id=binding)
            await at.root.identity.DeleteRoleBinding(request)
            with pytest.raises(aio.AioRpcError):
                while True:
                    await stream.read()
            code, _ = await refusal(client.conversations.ListConversations(pb.ListConversationsRequest()))
            assert code is grpc.StatusCode.PERMISSION_DENIED


async def test_both_keys_of_a_rotation_are_valid_and_survive_a_kill(tmp_path: Path) -> None:
    async with place(tmp_path) as at:
        ann = await principal(at.root, "user", "ann")
        await give(at.root, ann, "viewer")
        old_id, old = await key(at.root, ann, label="laptop", scopes=["*.read", "keys.own"])
        async with calling_with(at.server, old) as client:
            made = await client.identity.RotateKey(identity.RotateKeyRequest())
            assert made.replaced_key.id == old_id and made.key.scopes == ["*.read", "keys.own"]
            reason, _ = await rejected(client.identity.RotateKey(identity.RotateKeyRequest()))
            assert reason == "FIELD_INVALID"
        await at.server.kill()
        async with serving(at.data, "--require-auth") as server:
            for token in (old, made.token):
                async with calling_with(server, token) as client:
                    found = await client.identity.WhoAmI(identity.WhoAmIRequest())
                    assert found.principal.subject == "ann" and found.key.label == "laptop"


async def test_a_limited_key_does_less_than_its_principal(tmp_path: Path) -> None:
    async with place(tmp_path) as at:
        bot = await principal(at.root, "service", "bot")
        await give(at.root, bot, "admin")
        _, token = await key(at.root, bot, scopes=["*"], project_ids=["red"])
        async with calling_with(at.server, token) as client:
            await client.turn(at.conversations["red"], "say 2 words")
            foreign = pb.GetConversationRequest(conversation_id=at.conversations["blue"])
            assert (await rejected(client.conversations.GetConversation(foreign)))[
                0
            ] == "CONVERSATION_NOT_FOUND"
            wanted = identity_pb2.ApiKey(principal_id=bot)
            wider = client.identity.CreateKey(identity.CreateKeyRequest(key=wanted))
            assert (await rejected(wider))[0] == "PERMISSION_DENIED"


async def test_a_service_speaks_for_its_users_and_a_user_for_itself_only(tmp_path: Path) -> None:
    async with place(tmp_path) as at:
        for kind, name in (("service", "bot"), ("user", "ann")):
            who = await principal(at.root, kind, name)
            await give(at.root, who, "member", at.projects["red"])
            _, token = await key(at.root, who)
            async with calling_with(at.server, token) as client:
                send = pb.SendMessageRequest(
                    conversation_id=at.conversations["red"], send={"content": "say 1 word", "user_id": "eve"}
                )
                if kind == "service":
                    await client.conversations.SendMessage(send)
                else:
                    assert (await rejected(client.conversations.SendMessage(send)))[0] == "PERMISSION_DENIED"


async def test_each_change_is_audited_with_its_key_and_no_secret_is_shown(tmp_path: Path) -> None:
    async with place(tmp_path) as at:
        ann = await principal(at.root, "user", "ann")
        key_id, token = await key(at.root, ann)
        await at.root.identity.RevokeKey(identity.RevokeKeyRequest(key_id=key_id))
        found = await at.root.identity.ListAuditEntries(identity.ListAuditEntriesRequest(resource=key_id))
        assert [each.method for each in found.entries] == ["RevokeKey", "CreateKey"]
        for each in found.entries:
            assert each.principal.subject == "root" and each.key_id and each.peer
        listed = await at.root.identity.ListKeys(identity.ListKeysRequest())
        secret = token.rpartition("_")[2]
        assert secret not in str(found) + str(listed)
        assert secret.encode() not in b"".join(
            path.read_bytes() for path in at.data.rglob("*") if path.is_file()
        )


async def test_work_of_a_disabled_principal_ends_and_it_can_come_back(tmp_path: Path) -> None:
    async with place(tmp_path) as at:
        ann = await principal(at.root, "user", "ann")
        await give(at.root, ann, "member", at.projects["red"])
        _, token = await key(at.root, ann)
        async with calling_with(at.server, token) as client:
            for disabled in (True, False):
                change = identity.UpdatePrincipalRequest(principal={"id": ann, "disabled": disabled})
                change.update_mask.paths.append("disabled")
                await at.root.identity.UpdatePrincipal(change)
                call = client.identity.WhoAmI(identity.WhoAmIRequest())
                if disabled:
                    assert (await refusal(call))[0] is grpc.StatusCode.UNAUTHENTICATED
                else:
                    assert (await call).principal.subject == "ann"


async def test_an_invalid_key_says_nothing_about_itself(tmp_path: Path) -> None:
    async with place(tmp_path) as at:
        ann = await principal(at.root, "user", "ann")
        key_id, _ = await key(at.root, ann)
        longest = 7_000  # gRPC itself rejects larger metadata.
        wrong = ["wk_", "wk__", "wk_0_0", "nonsense", f"wk_{key_id}", f"wk_{key_id}_", f"wk_{key_id}_wrong"]
        for token in (*wrong, "wk_" + "a" * longest):
            async with calling_with(at.server, token) as client:
                assert await refusal(client.identity.WhoAmI(identity.WhoAmIRequest())) == (
                    grpc.StatusCode.UNAUTHENTICATED,
                    "The call has no valid token. Send one in the metadata 'authorization: Bearer <token>'.",
                )


async def test_the_last_administrator_stays(tmp_path: Path) -> None:
    async with place(tmp_path) as at:
        root = (await at.root.identity.WhoAmI(identity.WhoAmIRequest())).stored.id
        roles = await at.root.identity.ListRoleBindings(identity.ListRoleBindingsRequest(principal_id=root))
        disable = identity.UpdatePrincipalRequest(
            principal=identity_pb2.StoredPrincipal(id=root, disabled=True),
            update_mask={"paths": ["disabled"]},
        )
        for call in (
            at.root.identity.UpdatePrincipal(disable),
            at.root.identity.DeletePrincipal(identity.DeletePrincipalRequest(principal_id=root)),
            at.root.identity.DeleteRoleBinding(
                identity.DeleteRoleBindingRequest(role_binding_id=roles.role_bindings[0].id)
            ),
        ):
            code, text = await refusal(call)
            assert code is grpc.StatusCode.INVALID_ARGUMENT and "no administrator left" in text
        # Beside another one, it may go, and its own last call is answered.
        second = await principal(at.root, "user", "second")
        await give(at.root, second, "admin")
        await at.root.identity.UpdatePrincipal(disable)
        code, _ = await refusal(at.root.identity.WhoAmI(identity.WhoAmIRequest()))
        assert code is grpc.StatusCode.UNAUTHENTICATED


async def test_a_start_without_an_administrator_says_so(tmp_path: Path) -> None:
    async with serving(tmp_path / "data", "--require-auth") as server:
        line = await server.logged("no_administrator")
        assert "wonder roles give" in line["remedy"]


async def test_the_command_takes_roles_of_every_place_and_of_groups(tmp_path: Path) -> None:
    async with serving(tmp_path / "data") as server, server.client() as client:
        for name in ("ann", "bob"):
            await principal(client, "user", name)
        await give(client, await principal(client, "user", "root"), "admin")
        for flags in (("ann", "viewer"), ("ann", "admin"), ("bob", "member", "--project", "default")):
            assert await chat(server, command=("roles", "give", *flags)) == (0, "")
            assert await chat(server, command=("roles", "take", *flags)) == (0, "")
        group = "--group", "engineers", "member"
        assert await chat(server, command=("roles", "give", *group)) == (0, "")
        assert await chat(server, command=("roles", "take", *group)) == (0, "")
        left = await client.identity.ListRoleBindings(identity.ListRoleBindingsRequest())
        assert len(left.role_bindings) == 1


async def test_the_command_lists_adds_and_removes_members_of_a_project(tmp_path: Path) -> None:
    async with serving(tmp_path / "data") as server, server.client() as client:
        ann = await principal(client, "user", "ann")
        await give(client, ann, "viewer")
        members = "project", "members"
        for flags in (("ann", "member"), ("ann", "developer"), ("--group", "engineers", "viewer")):
            assert await chat(server, command=(*members, "add", "default", *flags)) == (0, "")
        listed = await client.identity.ListRoleBindings(
            identity.ListRoleBindingsRequest(project="default", principal_id=ann)
        )
        assert [bool(each.project_id) for each in listed.role_bindings] == [True, True, False]
        assert await chat(server, command=(*members, "list", "default")) == (0, "")
        for flags, code in (
            (("ann", "--role", "member"), 0),
            (("ann", "--role", "member"), 1),  # It has none there any more.
            (("ann",), 0),
            (("ann",), 1),  # The role that holds everywhere stays.
            (("--group", "engineers"), 0),
            (("ann", "--group", "engineers"), 1),
            ((), 1),
            (("nobody",), 1),
        ):
            assert (await chat(server, command=(*members, "remove", "default", *flags)))[0] == code, flags
        code, problem = await chat(server, command=(*members, "add", "nowhere", "ann", "member"))
        assert code == 1 and "nowhere" in problem
        code, problem = await chat(server, command=(*members, "list", "nowhere"))
        assert code == 1 and "nowhere" in problem
        (left,) = (await client.identity.ListRoleBindings(identity.ListRoleBindingsRequest())).role_bindings
        assert left.principal_id == ann and not left.project_id


async def test_the_command_changes_roles_in_projects_of_another_tenant(tmp_path: Path) -> None:
    async with serving(tmp_path / "data") as server, server.client() as client:
        await client.identity.CreateTenant(identity.CreateTenantRequest(tenant={"name": "acme"}))
        wanted = identity_pb2.StoredPrincipal(kind=PRINCIPAL_KIND_USER, name="ann", tenant_id="acme")
        await client.identity.CreatePrincipal(identity.CreatePrincipalRequest(principal=wanted))
        tenant = "--tenant", "acme"
        place_of = "ann", "member", *tenant, "--project", "default"
        assert await chat(server, command=("roles", "give", *place_of)) == (0, "")
        assert await chat(server, command=("roles", "take", *place_of)) == (0, "")
        members = "project", "members"
        assert await chat(server, command=(*members, "add", "default", "ann", "member", *tenant)) == (0, "")
        assert await chat(server, command=(*members, "remove", "default", "ann", *tenant)) == (0, "")
        request = identity.ListRoleBindingsRequest(tenant="acme")
        assert not (await client.identity.ListRoleBindings(request)).role_bindings
