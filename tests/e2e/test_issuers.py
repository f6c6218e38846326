"""Tokens of an OpenID Connect issuer through a real server: who calls, by which groups, and for how long."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
import pytest
from aiohttp import web
from grpc import aio

from tests.conformance.oidc.test_verifier import HOSTILE
from tests.e2e.callers import calling_with
from tests.e2e.client import PATIENCE_S, Client
from tests.e2e.process import Server, serving
from tests.e2e.test_identity import give, key, principal
from tests.fakes.issuer import AUDIENCE, Issuer, public_jwk
from wonder.v1 import conversation_service_pb2 as pb
from wonder.v1 import identity_pb2
from wonder.v1 import identity_service_pb2 as identity
from wonder.v1 import library_service_pb2 as library
from wonder.v1.common_pb2 import PRINCIPAL_KIND_USER

UNAUTHENTICATED, PERMISSION_DENIED = grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.PERMISSION_DENIED

CONFIG = """
[[issuers]]
issuer = "{url}"
audiences = ["{audience}", "another"]
name_claim = "preferred_username"
"""


@dataclass
class Place:
    data: Path
    config: Path
    issuer: Issuer
    server: Server
    root: Client
    project: str

    def token(self, lifetime_s: float = 600, **claims: Any) -> str:
        return self.issuer.token(exp=time.time() + lifetime_s, **claims)

    def calling(self, **claims: Any) -> Any:
        return calling_with(self.server, self.token(**claims))


@asynccontextmanager
async def published(issuer: Issuer) -> AsyncIterator[None]:
    """Serve the discovery document and the keys of an issuer."""

    async def answer(request: web.Request) -> web.Response:
        issuer.requests.append(request.path)
        return web.json_response(issuer.answer(request.path), status=issuer.status)

    app = web.Application()
    app.router.add_get("/{path:.*}", answer)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    issuer.url = f"http://127.0.0.1:{runner.addresses[0][1]}/realms/shop"
    try:
        yield
    finally:
        await runner.cleanup()


@asynccontextmanager
async def place(folder: Path) -> AsyncIterator[Place]:
    """Yield a server with an issuer, and an administrator with a key."""
    issuer, config = Issuer(), folder / "wonder.toml"
    async with asyncio.timeout(PATIENCE_S), AsyncExitStack() as stack:
        await stack.enter_async_context(published(issuer))
        config.write_text(CONFIG.format(url=issuer.url, audience=AUDIENCE))
        async with serving(folder / "data") as server, server.client() as client:
            root_id = await principal(client, "user", "root")
            await give(client, root_id, "admin")
            _, token = await key(client, root_id)
            wanted = library.CreateProjectRequest(project={"name": "red"})
            project = (await client.library.CreateProject(wanted)).project.id
            await server.kill()
        server = await stack.enter_async_context(serving(folder / "data", "--config", str(config)))
        root = await stack.enter_async_context(calling_with(server, token))
        yield Place(folder / "data", config, issuer, server, root, project)


async def give_group(client: Client, group: str, role: Any, **where: Any) -> None:
    binding = identity_pb2.RoleBinding(group=group, role=role, **where)
    await client.identity.CreateRoleBinding(identity.CreateRoleBindingRequest(role_binding=binding))


async def refused(call: Any) -> grpc.StatusCode:
    with pytest.raises(aio.AioRpcError) as caught:
        await call
    return caught.value.code()


async def test_a_user_of_the_issuer_has_the_roles_of_its_groups(tmp_path: Path) -> None:
    async with place(tmp_path) as at:
        await give_group(at.root, "makers", identity_pb2.ROLE_DEVELOPER, project_id=at.project)
        async with at.calling(iat=time.time() - 20) as ada:
            who = await ada.identity.WhoAmI(identity.WhoAmIRequest())
            assert (who.stored.name, list(who.stored.groups)) == ("ada", ["makers"])
            assert who.stored.external_id == f"{at.issuer.url} u-1"
            agent = {"name": "helper", "persona_id": "wonder/std/assistant", "project_ids": [at.project]}
            await ada.library.CreateAgent(library.CreateAgentRequest(agent=agent))
            turn, view = await ada.turn(await ada.open("helper", project_id=at.project), "say 2 words")
            assert turn.principal.subject == "ada" and "turn.completed" in view.names
            projects = await ada.library.ListProjects(library.ListProjectsRequest())
            assert [each.name for each in projects.projects] == ["red"]
        # The groups of the newest token hold, for older tokens too.
        now = time.time()
        async with at.calling(iat=now, groups=["readers"]) as ada, at.calling(iat=now - 5) as before:
            await ada.identity.WhoAmI(identity.WhoAmIRequest())
            for client in (ada, before):
                request = library.ListProjectsRequest()
                assert await refused(client.library.ListProjects(request)) is PERMISSION_DENIED
        listed = await at.root.identity.ListPrincipals(identity.ListPrincipalsRequest())
        assert sorted(each.name for each in listed.principals) == ["ada", "root"]
        audit = await at.root.identity.ListAuditEntries(identity.ListAuditEntriesRequest(method="Login"))
        assert len(audit.entries) >= 2


async def test_a_user_keeps_its_principal_after_a_kill_and_its_name_to_itself(
    tmp_path: Path,
) -> None:
    async with place(tmp_path) as at:
        ids = []
        async with at.calling() as ada:
            ids.append((await ada.identity.WhoAmI(identity.WhoAmIRequest())).stored.id)
        # Others with the name of a known principal, or of the administrator, are other principals.
        for claims in ({"sub": "u-2"}, {"sub": "u-3", "preferred_username": "root"}):
            async with at.calling(**claims) as other:
                who = await other.identity.WhoAmI(identity.WhoAmIRequest())
                assert who.stored.id not in ids and who.stored.name not in ("ada", "root")
                assert not who.permissions and not who.project_permissions
        await at.server.kill()
        async with serving(at.data, "--config", str(at.config)) as again:
            async with calling_with(again, at.token(preferred_username="ada the second")) as ada:
                who = await ada.identity.WhoAmI(identity.WhoAmIRequest())
                assert (who.stored.id, who.stored.name) == (ids[0], "ada")


async def test_a_disabled_user_and_an_ended_token_end_open_streams(tmp_path: Path) -> None:
    async with place(tmp_path) as at:
        await give_group(at.root, "makers", identity_pb2.ROLE_MEMBER)
        conversation = await at.root.open()
        # The leeway of a minute belongs to the token: it ends two seconds from now.
        tokens = {"short": at.token(-58), "long": at.token(jti="long")}
        codes = {}
        async with (
            calling_with(at.server, tokens["short"]) as short,
            calling_with(at.server, tokens["long"]) as long,
        ):
            streams = {}
            for name, client in (("short", short), ("long", long)):
                attach = pb.ConverseAttach(conversation_id=conversation)
                streams[name] = client.conversations.Subscribe(pb.SubscribeRequest(attach=attach))
                await streams[name].read()
            while await _read(streams["short"]) is not aio.EOF:
                pass
            codes["short"] = await streams["short"].code()
            ada = (await long.identity.WhoAmI(identity.WhoAmIRequest())).stored.id
            change = identity_pb2.StoredPrincipal(id=ada, disabled=True)
            await at.root.identity.UpdatePrincipal(
                identity.UpdatePrincipalRequest(principal=change, update_mask={"paths": ["disabled"]})
            )
            while await _read(streams["long"]) is not aio.EOF:
                pass
            codes["long"] = await streams["long"].code()
            assert await refused(long.identity.WhoAmI(identity.WhoAmIRequest())) is UNAUTHENTICATED
        assert codes == {"short": UNAUTHENTICATED, "long": UNAUTHENTICATED}


async def _read(call: Any) -> Any:
    try:
        return await call.read()
    except aio.AioRpcError:
        return aio.EOF


async def test_a_hostile_token_opens_nothing_and_gets_one_text(tmp_path: Path) -> None:
    async with place(tmp_path) as at:
        texts = set()
        for token in (*HOSTILE.values(), f"{'a' * 5_000}.b.c"):
            if not token.isascii() or not token.isprintable():
                continue  # No metadata can have it.
            async with calling_with(at.server, token) as client:
                with pytest.raises(aio.AioRpcError) as caught:
                    await client.identity.WhoAmI(identity.WhoAmIRequest())
                texts.add((caught.value.code(), caught.value.details()))
        assert len(texts) == 1 and texts.pop()[0] is UNAUTHENTICATED
        listed = await at.root.identity.ListPrincipals(
            identity.ListPrincipalsRequest(kind=PRINCIPAL_KIND_USER)
        )
        assert [each.name for each in listed.principals] == ["root"]
        assert len(at.issuer.requests) <= 2, "unknown keys make no flood"


async def test_keys_rotate_under_load(tmp_path: Path) -> None:
    async with place(tmp_path) as at:
        at.issuer.keys = [public_jwk("one"), public_jwk("two")]
        async with AsyncExitStack() as stack:
            clients = [
                await stack.enter_async_context(at.calling(key=name, jti=f"{name} {number}"))
                for number in range(20)
                for name in ("one", "two")
            ]
            answers = await asyncio.gather(
                *(each.identity.WhoAmI(identity.WhoAmIRequest()) for each in clients)
            )
        assert len({each.stored.id for each in answers}) == 1
        assert len(at.issuer.requests) == 2
