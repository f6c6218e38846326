"""``wonder.v1.LibraryService``: libraries, definitions, agents and projects (features A1 to A7).

A ``request_id`` is remembered in the catalog, with the change that it made, so a request that is sent again
after a restart gets its first answer too. Artifacts are in ``rpc/library/artifacts.py``; git remembers
theirs.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Sequence
from dataclasses import replace
from typing import Any, Final, NoReturn

from wonder.v1 import library_pb2
from wonder.v1 import library_service_pb2 as pb
from wonder_server.core.budget import Account
from wonder_server.core.definitions.fault_list import MAX_FAULTS
from wonder_server.core.definitions.resources import Agent, NetworkPolicy, Project
from wonder_server.core.errors import Fault, Reason, WonderError
from wonder_server.ports.accounts import Accounts
from wonder_server.rpc.library import codec
from wonder_server.rpc.library.artifacts import ArtifactMethods
from wonder_server.rpc.server.authorization import ADMIN, NO_GRANTS, ScopeGrants
from wonder_server.rpc.shared.fields import required
from wonder_server.rpc.shared.idempotency import idempotency_key
from wonder_server.rpc.shared.pages import encode_page
from wonder_server.rpc.shared.principal import current_principal
from wonder_server.services.catalog.definitions import MAX_APPLY
from wonder_server.services.catalog.library import Library
from wonder_server.services.catalog.transactions import IdempotencyKey
from wonder_server.services.content.artifacts import Artifacts
from wonder_server.services.content.repositories import RepositoryService
from wonder_server.services.paging import PageRequest

_DEFINITION_INDEX: Final = re.compile(r"^definitions\[(\d+)\]")


class LibraryServicer(ArtifactMethods):
    """The methods of the service."""

    def __init__(
        self,
        library: Library,
        artifacts: Artifacts,
        accounts: Accounts | None = None,
        repositories: RepositoryService | None = None,
        grants: ScopeGrants = NO_GRANTS,
    ) -> None:
        super().__init__(artifacts, grants)
        self._repositories = repositories
        self._definitions = library.definitions
        self._agents = library.agents
        self._accounts = accounts
        self._projects = library.projects

    # --- libraries ----------------------------------------------------------------------------------

    async def create_library(
        self, request: pb.CreateLibraryRequest, _context: Any
    ) -> pb.CreateLibraryResponse:
        library = await self._definitions.create_library(
            required(request.library.name, "library.name"),
            request.library.description,
            idempotency_key=_idempotency_key(request),
            validate_only=request.validate_only,
        )
        return pb.CreateLibraryResponse(library=codec.library_to_proto(library))

    async def get_library(self, request: pb.GetLibraryRequest, _context: Any) -> pb.GetLibraryResponse:
        library = await self._definitions.library(required(request.library_id, "library_id"))
        return pb.GetLibraryResponse(library=codec.library_to_proto(library))

    async def list_libraries(
        self, request: pb.ListLibrariesRequest, _context: Any
    ) -> pb.ListLibrariesResponse:
        page = await self._definitions.libraries(_page(request))
        libraries, token = await encode_page(page, codec.library_to_proto)
        return pb.ListLibrariesResponse(libraries=libraries, next_page_token=token)

    async def delete_library(
        self, request: pb.DeleteLibraryRequest, _context: Any
    ) -> pb.DeleteLibraryResponse:
        await self._definitions.delete_library(
            required(request.library_id, "library_id"),
            force=request.force,
            etag=request.etag,
            idempotency_key=_idempotency_key(request),
        )
        return pb.DeleteLibraryResponse()

    # --- definitions --------------------------------------------------------------------------------

    async def put_definition(
        self, request: pb.PutDefinitionRequest, _context: Any
    ) -> pb.PutDefinitionResponse:
        library = required(request.library_id, "library_id")
        draft, faults = codec.draft_from_proto_lenient(request.definition, "definition")
        if draft is None:
            raise WonderError(faults[0], faults=faults)
        if faults:
            await _raise_all_faults(faults, self._definitions.put(library, draft, validate_only=True))
        saved = await self._definitions.put(
            library,
            draft,
            etag=request.etag,
            idempotency_key=_idempotency_key(request),
            validate_only=request.validate_only,
        )
        return pb.PutDefinitionResponse(
            definition=codec.definition_to_proto(saved.definition), change=codec.change_to_proto(saved.change)
        )

    async def get_definition(
        self, request: pb.GetDefinitionRequest, _context: Any
    ) -> pb.GetDefinitionResponse:
        definition = await self._definitions.definition(required(request.definition_id, "definition_id"))
        return pb.GetDefinitionResponse(definition=codec.definition_to_proto(definition))

    async def list_definitions(
        self, request: pb.ListDefinitionsRequest, _context: Any
    ) -> pb.ListDefinitionsResponse:
        page = await self._definitions.definitions(
            _page(request),
            library=request.library_id,
            kinds=codec.kinds_from_proto(request.kinds),
            labels=dict(request.labels),
        )
        definitions, token = await encode_page(page, codec.definition_to_proto)
        return pb.ListDefinitionsResponse(definitions=definitions, next_page_token=token)

    async def list_revisions(
        self, request: pb.ListRevisionsRequest, _context: Any
    ) -> pb.ListRevisionsResponse:
        page = await self._definitions.revisions(
            required(request.definition_id, "definition_id"), _page(request)
        )
        definitions, token = await encode_page(page, codec.definition_to_proto)
        return pb.ListRevisionsResponse(definitions=definitions, next_page_token=token)

    async def delete_definition(
        self, request: pb.DeleteDefinitionRequest, _context: Any
    ) -> pb.DeleteDefinitionResponse:
        await self._definitions.delete(
            required(request.definition_id, "definition_id"),
            etag=request.etag,
            idempotency_key=_idempotency_key(request),
        )
        return pb.DeleteDefinitionResponse()

    async def apply_definitions(
        self, request: pb.ApplyDefinitionsRequest, _context: Any
    ) -> pb.ApplyDefinitionsResponse:
        library = required(request.library, "library")
        # One more than is taken is enough to be refused.
        parsed, faults = codec.drafts_from_proto(request.definitions[: MAX_APPLY + 1], "definitions")
        positions = [index for index, draft in enumerate(parsed) if draft is not None]
        drafts = [draft for draft in parsed if draft is not None]
        if faults:
            checking = self._definitions.apply(library, drafts, validate_only=True)
            await _raise_all_faults(faults, checking, positions)
        if request.prune and not request.validate_only:
            self._grants.require(ADMIN, "prune deletes definitions.", "prune")
        applied = await self._definitions.apply(
            library,
            drafts,
            prune=request.prune,
            idempotency_key=_idempotency_key(request),
            validate_only=request.validate_only,
        )
        return pb.ApplyDefinitionsResponse(
            changes=map(codec.change_to_proto, applied.changes),
            library=codec.library_to_proto(applied.library),
        )

    async def export_definitions(
        self, request: pb.ExportDefinitionsRequest, _context: Any
    ) -> pb.ExportDefinitionsResponse:
        page = await self._definitions.definitions(
            _page(request), library=required(request.library_id, "library_id")
        )
        definitions, token = await encode_page(page, lambda each: codec.draft_to_proto(each.draft))
        return pb.ExportDefinitionsResponse(definitions=definitions, next_page_token=token)

    # --- agents -------------------------------------------------------------------------------------

    async def create_agent(self, request: pb.CreateAgentRequest, _context: Any) -> pb.CreateAgentResponse:
        required(request.agent.name, "agent.name")
        agent = await self._agents.create(
            codec.agent_from_proto(request.agent),
            idempotency_key=_idempotency_key(request),
            validate_only=request.validate_only,
        )
        return pb.CreateAgentResponse(agent=await self._agent_to_proto(agent))

    async def get_agent(self, request: pb.GetAgentRequest, _context: Any) -> pb.GetAgentResponse:
        agent = await self._agents.agent(required(request.agent_id, "agent_id"))
        return pb.GetAgentResponse(agent=await self._agent_to_proto(agent, lenient=False))

    async def list_agents(self, request: pb.ListAgentsRequest, _context: Any) -> pb.ListAgentsResponse:
        page = await self._agents.agents(_page(request), project=request.project_id)
        accounts = await self._load_accounts(page.items)
        agents, token = await encode_page(
            page, lambda each: codec.agent_to_proto(each, accounts.get(each.id))
        )
        return pb.ListAgentsResponse(agents=agents, next_page_token=token)

    async def update_agent(self, request: pb.UpdateAgentRequest, _context: Any) -> pb.UpdateAgentResponse:
        agent = await self._agents.update(
            required(request.agent.id, "agent.id"),
            codec.agent_edit(request.agent, request.update_mask),
            etag=request.agent.etag,
            idempotency_key=_idempotency_key(request),
            validate_only=request.validate_only,
        )
        return pb.UpdateAgentResponse(agent=await self._agent_to_proto(agent))

    async def delete_agent(self, request: pb.DeleteAgentRequest, _context: Any) -> pb.DeleteAgentResponse:
        await self._agents.delete(
            required(request.agent_id, "agent_id"),
            etag=request.etag,
            idempotency_key=_idempotency_key(request),
        )
        return pb.DeleteAgentResponse()

    async def _agent_to_proto(self, agent: Agent, *, lenient: bool = True) -> library_pb2.Agent:
        return codec.agent_to_proto(
            agent, (await self._load_accounts([agent], lenient=lenient)).get(agent.id)
        )

    async def _load_accounts(self, agents: Sequence[Agent], *, lenient: bool = True) -> dict[str, Account]:
        """What each of them has spent, if that is known. ``lenient``: a damaged account is left out; lists
        and answers to changes do not fail for it."""
        if self._accounts is None or not agents:
            return {}
        return await self._accounts.accounts([agent.id for agent in agents], lenient=lenient)

    # --- projects -----------------------------------------------------------------------------------

    async def create_project(
        self, request: pb.CreateProjectRequest, _context: Any
    ) -> pb.CreateProjectResponse:
        required(request.project.name, "project.name")
        wanted = codec.project_from_proto(request.project)
        self._check_access_change(Project(id="", name=""), wanted)
        if self._repositories is not None:
            await self._repositories.check_repositories((), wanted.repositories, wanted.network)
        project = await self._projects.create(
            wanted,
            idempotency_key=_idempotency_key(request),
            validate_only=request.validate_only,
        )
        return pb.CreateProjectResponse(project=codec.project_to_proto(project))

    def _check_access_change(self, before: Project, changed: Project) -> None:
        """PERMISSION_DENIED if ``wanted`` reaches otherwise than ``before`` and the caller is no admin."""
        if (changed.network or NetworkPolicy()) != (before.network or NetworkPolicy()):
            self._grants.require(ADMIN, "It changes what the project reaches.", "project.network")
        if changed.repositories != before.repositories:
            self._grants.require(ADMIN, "It changes what the project reaches.", "project.repositories")

    async def get_project(self, request: pb.GetProjectRequest, _context: Any) -> pb.GetProjectResponse:
        project = await self._projects.project(required(request.project_id, "project_id"))
        return pb.GetProjectResponse(project=codec.project_to_proto(project))

    async def list_projects(self, request: pb.ListProjectsRequest, _context: Any) -> pb.ListProjectsResponse:
        page = await self._projects.projects(_page(request))
        projects, token = await encode_page(page, codec.project_to_proto)
        return pb.ListProjectsResponse(projects=projects, next_page_token=token)

    async def update_project(
        self, request: pb.UpdateProjectRequest, _context: Any
    ) -> pb.UpdateProjectResponse:
        key = required(request.project.id, "project.id")
        change = codec.project_edit(request.project, request.update_mask)

        def edit(stored: Project) -> Project:
            wanted = change(stored)
            self._check_access_change(stored, wanted)
            return wanted

        known = await self._projects.find(key)
        if known is not None and self._repositories is not None:
            wanted = edit(known)
            await self._repositories.check_repositories(
                known.repositories, wanted.repositories, wanted.network
            )
        project = await self._projects.update(
            key,
            edit,
            etag=request.project.etag,
            idempotency_key=_idempotency_key(request),
            validate_only=request.validate_only,
        )
        return pb.UpdateProjectResponse(project=codec.project_to_proto(project))

    async def delete_project(
        self, request: pb.DeleteProjectRequest, _context: Any
    ) -> pb.DeleteProjectResponse:
        key = required(request.project_id, "project_id")
        known = await self._projects.find(key)
        await self._projects.delete(key, etag=request.etag, idempotency_key=_idempotency_key(request))
        if known is not None:
            await self._artifacts.delete_project(known.id)
            if self._repositories is not None:
                await self._repositories.delete_project_work(known.id)
        return pb.DeleteProjectResponse()


def _page(request: Any) -> PageRequest:
    return PageRequest(size=request.page_size, token=request.page_token)


async def _raise_all_faults(
    faults: Sequence[Fault], check: Awaitable[Any], positions: Sequence[int] = ()
) -> NoReturn:
    """Refuse what cannot be read, with what ``checking`` finds wrong in the rest of it: one fault is not to
    hide another. ``places``: where the definitions that are checked stand in the request."""
    found = list(faults)
    known = {fault.field for fault in faults}
    try:
        await check
    except WonderError as refusal:
        for fault in refusal.faults:
            place = _DEFINITION_INDEX.sub(
                lambda index: f"definitions[{positions[int(index[1])]}]", fault.field
            )
            if fault.reason is Reason.DEFINITION_INVALID and place not in known:
                found.append(replace(fault, field=place))
    raise WonderError(found[0], faults=tuple(found[:MAX_FAULTS]))


def _idempotency_key(request: Any) -> IdempotencyKey | None:
    """The request's mark, each caller's by themselves. With ``validate_only`` nothing is kept, so
    nothing is remembered either."""
    key = idempotency_key(request)
    # The catalog has always kept ids with the caller's name before them, an empty one without tokens.
    return key and (key if current_principal.get() else IdempotencyKey(f"/{key.request_id}", key.fingerprint))
