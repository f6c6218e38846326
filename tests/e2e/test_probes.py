"""Foreign ids in every text field of every request: a caller learns nothing, not even that something exists.

The requests come from the descriptors of the contract, so a new method or field is probed by itself. Each
probe is sent twice: with what belongs to another tenant or project, and with a twin that never existed.
Both get the same answer, word for word, and no answer has a word of the other's.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from google.protobuf.descriptor import FieldDescriptor, MethodDescriptor
from google.protobuf.message import Message
from google.rpc import error_details_pb2, status_pb2
from grpc import aio

from tests.e2e.callers import calling_with
from tests.e2e.client import Client
from tests.e2e.process import Server, serving
from tests.e2e.test_bad_input import Path as FieldPath
from tests.e2e.test_bad_input import World, fill, make_world, places
from tests.e2e.test_identity import give, key, principal
from tests.e2e.test_tenants import admin_of, create_tenant
from wonder.v1 import conversation_service_pb2 as pb
from wonder.v1 import coordinator_service_pb2 as runs
from wonder.v1 import file_service_pb2 as files
from wonder.v1 import identity_pb2
from wonder.v1 import identity_service_pb2 as identity
from wonder.v1 import library_service_pb2 as library
from wonder.v1 import memory_service_pb2 as memory
from wonder_server.rpc.server.server import contract_services

PATIENCE_S = 400
"""Time for some ten thousand calls on a machine under load."""
CANARY, NAME = "zzcanary", "zzname"
"""A word in every title and content of the other tenant, which no probe sends; and one in all its names."""
TEXT = f"{CANARY} {NAME}"
ROLES = ("admin", "developer", "member", "viewer", "worker")

DEFINITIONS = f"""
kind: persona
name: {NAME}-persona
persona:
  system_prompt: You keep {TEXT} secrets.
---
kind: workflow
name: {NAME}-asks
workflow:
  nodes:
    - id: ask
      human_gate: {{prompt: "Shall {TEXT} be?"}}
"""

STREAMED: dict[str, dict[str, Any]] = {
    "Work": {"register": {"name": "hands", "kinds": [{"name": "lift"}], "max_concurrency": 1}},
    "UploadFile": {"start": {"name": "probe.txt"}},
}
"""First messages of the methods whose requests are streams. Converse attaches."""


@dataclass
class Other:
    """The other tenant: its ids by the names of the fields that have them."""

    ids: dict[str, str] = field(default_factory=dict)

    def value(self, path: FieldPath) -> str:
        """Return what a probe of this field says."""
        name = path[-1].name
        owner = path[-2].name if len(path) > 1 else ""
        if name == "id":
            name = f"{owner}.id"
        return self.ids.get(name, self.ids["name"])


def twin(value: str) -> str:
    """Return a text of the same form that names nothing: another letter in the middle of its second half."""
    place = len(value) * 3 // 4
    letter = {"0": "1", "z": "y", "Z": "Y"}.get(value[place], "z" if value[place].islower() else "0")
    return f"{value[:place]}{letter}{value[place + 1 :]}"


async def furnish(client: Client, tenant_id: str) -> Other:
    """Make one thing of each kind, and return its ids."""
    lib, ids = client.library, {"name": f"{NAME}-vault"}
    wanted = library.CreateProjectRequest(project={"name": f"{NAME}-vault", "description": TEXT})
    project_id = (await lib.CreateProject(wanted)).project.id
    made = await lib.CreateLibrary(library.CreateLibraryRequest(library={"name": f"{NAME}/team"}))
    await client.apply(f"{NAME}/team", DEFINITIONS)
    persona, workflow = f"{NAME}/team/{NAME}-persona", f"{NAME}/team/{NAME}-asks"
    agent = {"name": f"{NAME}-agent", "persona_id": persona, "project_ids": [project_id]}
    agent_id = (await lib.CreateAgent(library.CreateAgentRequest(agent=agent))).agent.id
    definition = (await lib.GetDefinition(library.GetDefinitionRequest(definition_id=persona))).definition
    for names, value in (
        ("project_id project.id project project_ids", project_id),
        ("library_id", made.library.id),
        ("library", f"{NAME}/team"),
        ("agent_id agent.id speaker_id", agent_id),
        ("other_agent", f"{NAME}-agent"),
        ("persona_id", persona),
        ("workflow_id workflow task_id action_id tool_ids model_profile_id", workflow),
        ("context_assembly_workflow_id memory_extraction_workflow_id consolidation_workflow_id", workflow),
        ("definition_id definition.id", definition.id),
        ("tenant tenant_id tenant.id", tenant_id),
        ("query", NAME),
        ("user_id", f"{NAME}-ann"),
        ("group", f"{NAME}-group"),
        *await work_of(client, agent_id, project_id, workflow),
        *await contents_of(client, agent_id, project_id),
        *await access_of(client, project_id),
    ):
        ids |= dict.fromkeys(names.split(), value)
    return Other(ids)


Rows = list[tuple[str, str]]
"""Names of fields, separated by spaces, with the id that they have in common."""


async def work_of(client: Client, agent_id: str, project_id: str, workflow: str) -> Rows:
    """Make a conversation with a turn, and a run that waits at a gate."""
    conv = await client.open(agent_id, project_id=project_id, title=TEXT, external_ref=f"{NAME}-ref")
    turn, _ = await client.turn(conv, f"say 2 words about {TEXT}")
    message, moves = (await client.messages(conv))[0], await client.moves(turn.id, conv)
    started = await client.coordinator.StartRun(runs.StartRunRequest(workflow_id=workflow))
    gates = (await client.coordinator.ListGates(runs.ListGatesRequest())).gates
    while not gates:
        await asyncio.sleep(0.01)
        gates = (await client.coordinator.ListGates(runs.ListGatesRequest())).gates
    return [
        ("conversation_id conversation.id", conv),
        ("external_ref former_external_ref", f"{NAME}-ref"),
        ("turn_id active_turn_ids", turn.id),
        ("message_id reply_to_message_id", message.id),
        ("move_id", moves[0].id if moves else turn.id),
        ("run_id parent_run_id", started.run.id),
        ("gate_id", gates[0].id),
        ("signal", "ask"),
    ]


async def contents_of(client: Client, agent_id: str, project_id: str) -> Rows:
    """Make a memory, a memory block, a file and a document."""
    written = memory.WriteMemoryRequest(agent_id=agent_id, memory={"type": "fact", "content": TEXT})
    memory_id = (await client.memory.WriteMemory(written)).memory.id
    block = {"label": f"{NAME}_block", "content": TEXT}
    await client.memory.SetMemoryBlock(memory.SetMemoryBlockRequest(agent_id=agent_id, block=block))
    start = {"name": f"{NAME}.txt", "project_id": project_id}
    pieces = [files.UploadFileRequest(start=start), files.UploadFileRequest(content=TEXT.encode())]
    file_id = (await client.files.UploadFile(iter(pieces))).file.id
    document = library.WriteArtifactRequest(project_id=project_id, path=f"{NAME}/plan", content=TEXT.encode())
    await client.library.WriteArtifact(document)
    listed = library.ListArtifactRevisionsRequest(project_id=project_id, path=f"{NAME}/plan")
    revision = (await client.library.ListArtifactRevisions(listed)).revisions[0]
    return [
        ("memory_id memory.id supersedes_id superseded_by_id contradicts_ids target_id", memory_id),
        ("label", f"{NAME}_block"),
        ("file_id", file_id),
        ("path paths", f"{NAME}/plan"),
        ("path_prefix", f"{NAME}/"),
        ("revision_id", revision.id),
    ]


async def access_of(client: Client, project_id: str) -> Rows:
    """Make a principal with a role and a key."""
    ann = await principal(client, "user", f"{NAME}-ann")
    binding = await give(client, ann, "member", project_id)
    key_id, _ = await key(client, ann, label=TEXT)
    return [
        ("principal_id principal.id resource", ann),
        ("key_id replaced_by", key_id),
        ("role_binding_id role_binding.id", binding),
    ]


@dataclass
class Asker:
    """A caller, its own world, and the channel."""

    who: str
    channel: aio.Channel
    token: str
    world: World

    def request(self, method: MethodDescriptor) -> Message:
        message: Message = self.world.request(method)
        if method.name == "Converse":
            fill(message, {"attach": {"conversation_id": self.world.conv}})
        fill(message, STREAMED.get(method.name, {}))
        if "request_id" in message.DESCRIPTOR.fields_by_name:
            message.ClearField("request_id")  # Each probe is a request of its own.
        return message

    async def ask(self, method: MethodDescriptor, request: Message, value: str) -> tuple[str, bytes]:
        """Return the outcome of a call in words, without the value, and the bytes of its answers."""
        path = f"/{method.containing_service.full_name}/{method.name}"
        metadata = (("authorization", f"Bearer {self.token}"),)
        kind = f"{'stream' if method.client_streaming else 'unary'}_"
        kind += "stream" if method.server_streaming else "unary"
        data: Any = request.SerializeToString()
        given = iter([data]) if method.client_streaming else data
        answers = b""
        try:
            call = getattr(self.channel, kind)(path)(given, metadata=metadata, timeout=60)
            if method.server_streaming:
                async for answer in call:
                    answers += answer
                    if method.name in ("Subscribe", "Converse", "Work"):  # They stay open.
                        call.cancel()
                        break
            else:
                answers = await call
        except aio.AioRpcError as problem:
            if problem.details() == "Internal error from Core":
                # The client lost the reason of a stream that was refused while it sent: ask again.
                return await self.ask(method, request, value)
            return described(problem, value), answers
        return "OK", answers


def described(problem: aio.AioRpcError, value: str) -> str:
    """Return code, text and details of an error, in which the probed value is X."""
    found = [str(problem.code()), problem.details() or ""]
    for name, content in problem.trailing_metadata() or ():
        if name == "grpc-status-details-bin":
            for detail in status_pb2.Status.FromString(content).details:
                for kind in (error_details_pb2.ErrorInfo, error_details_pb2.BadRequest):
                    message = kind()
                    if detail.Unpack(message):
                        found.append(str(message))
    return "\n".join(found).replace(value, "X")


def texts(method: MethodDescriptor) -> Iterator[FieldPath]:
    """Yield the paths of all text fields of a request."""
    for path in places(method.input_type):
        if path[-1].type == FieldDescriptor.TYPE_STRING and not path[-1].message_type:
            yield path


def with_text(request: Message, path: FieldPath, value: str) -> Message:
    """Return a copy of a request with a text at a path; lists get one item."""
    made = type(request)()
    made.CopyFrom(request)
    message: Any = made
    for place in path[:-1]:
        message = getattr(message, place.name)
        if place.is_repeated:
            message = message[0] if len(message) else message.add()
    last = path[-1]
    if last.is_repeated:
        del getattr(message, last.name)[:]
        getattr(message, last.name).append(value)
    else:
        setattr(message, last.name, value)
    return made


def is_map(path: FieldPath) -> bool:
    return any(place.message_type and place.message_type.GetOptions().map_entry for place in path)


METHODS = [method for service in contract_services() for method in service.methods]
CURSORS = ("page_token", "etag", "request_id")
"""Opaque texts: a probe of them is no probe of an id."""


def _is_any(_path: FieldPath) -> bool:
    return True


async def probed(asker: Asker, other: Other, wanted: Any = _is_any) -> tuple[int, list[str]]:
    """Probe each field of each method. Return the number of calls, and what was learned."""
    count, leaks = 0, []
    for method in METHODS:
        # What a good request makes is there before the first probe.
        await asker.ask(method, asker.request(method), "X")
        for path in texts(method):
            if is_map(path) or path[-1].name in CURSORS or not wanted(path):
                continue
            value = other.value(path)
            outcomes = []
            for text in (value, twin(value)):
                request = with_text(asker.request(method), path, text)
                outcome, answers = await asker.ask(method, request, text)
                outcomes.append(outcome)
                count += 1
                if CANARY.encode() in answers:
                    leaks.append(f"{asker.who}: {method.name}: {path_of(path)}: an answer has {CANARY}")
            if outcomes[0] != outcomes[1]:
                where = f"{asker.who}: {method.name}: {path_of(path)}: {value}"
                leaks.append(f"{where}\n  {outcomes[0]!r}\n  {outcomes[1]!r}")
    return count, leaks


def path_of(path: FieldPath) -> str:
    return ".".join(place.name for place in path)


@dataclass
class Place:
    server: Server
    acme: Client
    zenith: Client
    root: Client
    other: Other
    world: World


@asynccontextmanager
async def place(folder: Path) -> AsyncIterator[Place]:
    """Yield a server with the tenants acme and zenith. The second has one thing of each kind."""
    async with asyncio.timeout(PATIENCE_S), AsyncExitStack() as stack:
        async with serving(folder / "data") as server, server.client() as client:
            root_id = await principal(client, "user", "root")
            await give(client, root_id, "admin")
            _, root = await key(client, root_id)
            tenants, tokens = {}, {}
            for name in ("acme", "zenith"):
                tenants[name] = await create_tenant(client, name)
                tokens[name] = await admin_of(client, name)
            await server.kill()
        flags = ("--require-auth", "--max-concurrent-rpcs", "1000")
        server = await stack.enter_async_context(serving(folder / "data", *flags))
        clients = {
            name: await stack.enter_async_context(calling_with(server, token))
            for name, token in {**tokens, "root": root}.items()
        }
        other = await furnish(clients["zenith"], tenants["zenith"])
        world = await make_world(clients["acme"])
        yield Place(server, clients["acme"], clients["zenith"], clients["root"], other, world)


async def caller(admin: Client, role: str, project: str = "") -> str:
    """Return the key of a new principal with a role."""
    name = f"{role}-{project[-6:]}".rstrip("-").lower()
    made = await principal(admin, "user", name)
    binding = identity_pb2.RoleBinding(
        principal_id=made, role=identity_pb2.Role.Value(f"ROLE_{role.upper()}"), project_id=project or None
    )
    await admin.identity.CreateRoleBinding(identity.CreateRoleBindingRequest(role_binding=binding))
    return (await key(admin, made))[1]


async def state_of(client: Client, other: Other) -> list[Any]:
    """Return everything that a probe could have changed in the other tenant."""
    conv, agent = other.ids["conversation_id"], other.ids["agent_id"]
    return [
        await client.events(conv),
        await client.messages(conv),
        await client.memories(agent),
        await client.coordinator.GetRun(runs.GetRunRequest(run_id=other.ids["run_id"])),
        await client.coordinator.ListGates(runs.ListGatesRequest()),
        await client.conversations.ListConversations(pb.ListConversationsRequest(page_size=500)),
        await client.library.ListAgents(library.ListAgentsRequest(page_size=500)),
        await client.library.ListProjects(library.ListProjectsRequest(page_size=500)),
        await client.library.ListLibraries(library.ListLibrariesRequest(page_size=500)),
        await client.library.ListDefinitions(library.ListDefinitionsRequest(page_size=500)),
        await client.library.ListArtifacts(
            library.ListArtifactsRequest(project_id=other.ids["project_id"], page_size=500)
        ),
        await client.files.ListFiles(files.ListFilesRequest(page_size=500)),
        await client.identity.ListPrincipals(identity.ListPrincipalsRequest(page_size=500)),
        await client.identity.ListRoleBindings(identity.ListRoleBindingsRequest(page_size=500)),
    ]


async def test_no_caller_learns_anything_of_another_tenant(tmp_path: Path) -> None:
    async with place(tmp_path) as at:
        before = await state_of(at.zenith, at.other)
        total, leaks = 0, []
        async with at.server.client() as client:
            for role in ROLES:
                token = await caller(at.acme, role)
                count, found = await probed(Asker(role, client.channel, token, at.world), at.other)
                total += count
                leaks += found
            # An administrator of the server administers every tenant, and sees the contents of none; one of
            # the tenant `default` administers that only.
            root = (await at.root.identity.WhoAmI(identity.WhoAmIRequest())).stored.id
            own = await make_world(at.root)
            for who, token, wanted in (
                ("root", (await key(at.root, root))[1], _is_content),
                ("default", await caller(at.root, "admin"), _is_any),
            ):
                count, found = await probed(Asker(who, client.channel, token, own), at.other, wanted)
                total, leaks = total + count, leaks + found
        assert not leaks, "\n".join(leaks)
        assert await state_of(at.zenith, at.other) == before
        assert total >= 10_000


async def test_no_caller_learns_anything_of_another_project(tmp_path: Path) -> None:
    async with place(tmp_path) as at:
        wanted = library.CreateProjectRequest(project={"name": "open"})
        project = (await at.zenith.library.CreateProject(wanted)).project.id
        before = await state_of(at.zenith, at.other)
        leaks = []
        async with at.server.client() as client:
            for role in ("developer", "member", "viewer"):
                token = await caller(at.zenith, role, project)
                asker = Asker(role, client.channel, token, at.world)
                _, found = await probed(asker, at.other, _is_of_a_project)
                leaks += found
        assert not leaks, "\n".join(leaks)
        after = await state_of(at.zenith, at.other)
        # The principals that the test made are new.
        assert after[:-2] == before[:-2]


def _is_content(path: FieldPath) -> bool:
    return path[0].containing_type.file.name != "wonder/v1/identity_service.proto"


def _is_of_a_project(path: FieldPath) -> bool:
    """Return True for ids of what belongs to a project; definitions and libraries are seen in all projects
    of a tenant, and so are the names that are taken."""
    kinds = ("conversation_id", "turn_id", "message_id", "project_id", "project_ids", "agent_id", "run_id")
    return path[-1].name in (*kinds, "gate_id", "memory_id", "file_id", "reply_to_message_id", "move_id")
