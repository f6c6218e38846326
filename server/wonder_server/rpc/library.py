"""``wonder.v1.LibraryService``: libraries, definitions, agents and projects (features A1 to A7).

A ``request_id`` is remembered in the catalog, with the change that it made, so a request that is sent again
after a restart gets its first answer too. Artifacts are in ``rpc/artifacts.py``; git remembers theirs.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Sequence
from dataclasses import replace
from typing import Any, Final, NoReturn

from wonder.v1 import library_pb2
from wonder.v1 import library_service_pb2 as pb
from wonder_server.core.budget import Account
from wonder_server.core.definitions.faults import MAX_FAULTS
from wonder_server.core.definitions.resources import Agent, NetworkPolicy, Project
from wonder_server.core.errors import Fault, Reason, WonderError
from wonder_server.ports.accounts import Accounts
from wonder_server.rpc import library_codec as codec
from wonder_server.rpc.artifacts import ArtifactMethods
from wonder_server.rpc.fields import required
from wonder_server.rpc.once import once_of
from wonder_server.rpc.pages import encoded
from wonder_server.rpc.principal import caller
from wonder_server.rpc.rights import ADMIN, NO_RIGHTS, Rights
from wonder_server.services.artifacts import Artifacts
from wonder_server.services.catalog_writes import Once
from wonder_server.services.definitions import MAX_APPLY
from wonder_server.services.library import Library
from wonder_server.services.paging import PageRequest
from wonder_server.services.repos import Repos

_PLACE: Final = re.compile(r"^definitions\[(\d+)\]")


class LibraryServicer(ArtifactMethods):
    """The methods of the service."""

    def __init__(
        self,
        library: Library,
        artifacts: Artifacts,
        accounts: Accounts | None = None,
        repos: Repos | None = None,
        rights: Rights = NO_RIGHTS,
    ) -> None:
        super().__init__(artifacts, rights)
        self._repos = repos
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
            once=_once(request),
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
        libraries, token = await encoded(page, codec.library_to_proto)
        return pb.ListLibrariesResponse(libraries=libraries, next_page_token=token)

    async def delete_library(
        self, request: pb.DeleteLibraryRequest, _context: Any
    ) -> pb.DeleteLibraryResponse:
        await self._definitions.delete_library(
            required(request.library_id, "library_id"),
            force=request.force,
            etag=request.etag,
            once=_once(request),
        )
        return pb.DeleteLibraryResponse()

    # --- definitions --------------------------------------------------------------------------------

    async def put_definition(
        self, request: pb.PutDefinitionRequest, _context: Any
    ) -> pb.PutDefinitionResponse:
        library = required(request.library_id, "library_id")
        draft, faults = codec.salvaged_from_proto(request.definition, "definition")
        if draft is None:
            raise WonderError(faults[0], faults=faults)
        if faults:
            await _refuse(faults, self._definitions.put(library, draft, validate_only=True))
        saved = await self._definitions.put(
            library,
            draft,
            etag=request.etag,
            once=_once(request),
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
        definitions, token = await encoded(page, codec.definition_to_proto)
        return pb.ListDefinitionsResponse(definitions=definitions, next_page_token=token)

    async def list_revisions(
        self, request: pb.ListRevisionsRequest, _context: Any
    ) -> pb.ListRevisionsResponse:
        page = await self._definitions.revisions(
            required(request.definition_id, "definition_id"), _page(request)
        )
        definitions, token = await encoded(page, codec.definition_to_proto)
        return pb.ListRevisionsResponse(definitions=definitions, next_page_token=token)

    async def delete_definition(
        self, request: pb.DeleteDefinitionRequest, _context: Any
    ) -> pb.DeleteDefinitionResponse:
        await self._definitions.delete(
            required(request.definition_id, "definition_id"), etag=request.etag, once=_once(request)
        )
        return pb.DeleteDefinitionResponse()

    async def apply_definitions(
        self, request: pb.ApplyDefinitionsRequest, _context: Any
    ) -> pb.ApplyDefinitionsResponse:
        library = required(request.library, "library")
        # One more than is taken is enough to be refused.
        salvaged, faults = codec.drafts_from_proto(request.definitions[: MAX_APPLY + 1], "definitions")
        places = [index for index, draft in enumerate(salvaged) if draft is not None]
        drafts = [draft for draft in salvaged if draft is not None]
        if faults:
            checking = self._definitions.apply(library, drafts, validate_only=True)
            await _refuse(faults, checking, places)
        if request.prune and not request.validate_only:
            self._rights.demand(ADMIN, "prune deletes definitions.", "prune")
        applied = await self._definitions.apply(
            library,
            drafts,
            prune=request.prune,
            once=_once(request),
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
        definitions, token = await encoded(page, lambda each: codec.draft_to_proto(each.draft))
        return pb.ExportDefinitionsResponse(definitions=definitions, next_page_token=token)

    # --- agents -------------------------------------------------------------------------------------

    async def create_agent(self, request: pb.CreateAgentRequest, _context: Any) -> pb.CreateAgentResponse:
        required(request.agent.name, "agent.name")
        agent = await self._agents.create(
            codec.agent_from_proto(request.agent), once=_once(request), validate_only=request.validate_only
        )
        return pb.CreateAgentResponse(agent=await self._agent(agent))

    async def get_agent(self, request: pb.GetAgentRequest, _context: Any) -> pb.GetAgentResponse:
        agent = await self._agents.agent(required(request.agent_id, "agent_id"))
        return pb.GetAgentResponse(agent=await self._agent(agent, lenient=False))

    async def list_agents(self, request: pb.ListAgentsRequest, _context: Any) -> pb.ListAgentsResponse:
        page = await self._agents.agents(_page(request), project=request.project_id)
        accounts = await self._spent(page.items)
        agents, token = await encoded(page, lambda each: codec.agent_to_proto(each, accounts.get(each.id)))
        return pb.ListAgentsResponse(agents=agents, next_page_token=token)

    async def update_agent(self, request: pb.UpdateAgentRequest, _context: Any) -> pb.UpdateAgentResponse:
        agent = await self._agents.update(
            required(request.agent.id, "agent.id"),
            codec.agent_edit(request.agent, request.update_mask),
            etag=request.agent.etag,
            once=_once(request),
            validate_only=request.validate_only,
        )
        return pb.UpdateAgentResponse(agent=await self._agent(agent))

    async def delete_agent(self, request: pb.DeleteAgentRequest, _context: Any) -> pb.DeleteAgentResponse:
        await self._agents.delete(
            required(request.agent_id, "agent_id"), etag=request.etag, once=_once(request)
        )
        return pb.DeleteAgentResponse()

    async def _agent(self, agent: Agent, *, lenient: bool = True) -> library_pb2.Agent:
        return codec.agent_to_proto(agent, (await self._spent([agent], lenient=lenient)).get(agent.id))

    async def _spent(self, agents: Sequence[Agent], *, lenient: bool = True) -> dict[str, Account]:
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
        self._check_reach(Project(id="", name=""), wanted)
        if self._repos is not None:
            await self._repos.look((), wanted.repositories, wanted.network)
        project = await self._projects.create(
            wanted,
            once=_once(request),
            validate_only=request.validate_only,
        )
        return pb.CreateProjectResponse(project=codec.project_to_proto(project))

    def _check_reach(self, before: Project, wanted: Project) -> None:
        """PERMISSION_DENIED if ``wanted`` reaches otherwise than ``before`` and the caller is no admin."""
        if (wanted.network or NetworkPolicy()) != (before.network or NetworkPolicy()):
            self._rights.demand(ADMIN, "It changes what the project reaches.", "project.network")
        if wanted.repositories != before.repositories:
            self._rights.demand(ADMIN, "It changes what the project reaches.", "project.repositories")

    async def get_project(self, request: pb.GetProjectRequest, _context: Any) -> pb.GetProjectResponse:
        project = await self._projects.project(required(request.project_id, "project_id"))
        return pb.GetProjectResponse(project=codec.project_to_proto(project))

    async def list_projects(self, request: pb.ListProjectsRequest, _context: Any) -> pb.ListProjectsResponse:
        page = await self._projects.projects(_page(request))
        projects, token = await encoded(page, codec.project_to_proto)
        return pb.ListProjectsResponse(projects=projects, next_page_token=token)

    async def update_project(
        self, request: pb.UpdateProjectRequest, _context: Any
    ) -> pb.UpdateProjectResponse:
        key = required(request.project.id, "project.id")
        change = codec.project_edit(request.project, request.update_mask)

        def edit(stored: Project) -> Project:
            wanted = change(stored)
            self._check_reach(stored, wanted)
            return wanted

        known = await self._projects.find(key)
        if known is not None and self._repos is not None:
            wanted = edit(known)
            await self._repos.look(known.repositories, wanted.repositories, wanted.network)
        project = await self._projects.update(
            key,
            edit,
            etag=request.project.etag,
            once=_once(request),
            validate_only=request.validate_only,
        )
        return pb.UpdateProjectResponse(project=codec.project_to_proto(project))

    async def delete_project(
        self, request: pb.DeleteProjectRequest, _context: Any
    ) -> pb.DeleteProjectResponse:
        key = required(request.project_id, "project_id")
        known = await self._projects.find(key)
        await self._projects.delete(key, etag=request.etag, once=_once(request))
        if known is not None:
            await self._artifacts.forget(known.id)
            if self._repos is not None:
                await self._repos.forget_project(known.id)
        return pb.DeleteProjectResponse()


def _page(request: Any) -> PageRequest:
    return PageRequest(size=request.page_size, token=request.page_token)


async def _refuse(faults: Sequence[Fault], checking: Awaitable[Any], places: Sequence[int] = ()) -> NoReturn:
    """Refuse what cannot be read, with what ``checking`` finds wrong in the rest of it: one fault is not to
    hide another. ``places``: where the definitions that are checked stand in the request."""
    found = list(faults)
    known = {fault.field for fault in faults}
    try:
        await checking
    except WonderError as refusal:
        for fault in refusal.faults:
            place = _PLACE.sub(lambda index: f"definitions[{places[int(index[1])]}]", fault.field)
            if fault.reason is Reason.DEFINITION_INVALID and place not in known:
                found.append(replace(fault, field=place))
    raise WonderError(found[0], faults=tuple(found[:MAX_FAULTS]))


def _once(request: Any) -> Once | None:
    """The request's mark, each caller's by themselves. With ``validate_only`` nothing is kept, so
    nothing is remembered either."""
    once = once_of(request)
    # The catalog has always kept ids with the caller's name before them, an empty one without tokens.
    return once and (once if caller.get() else Once(f"/{once.request_id}", once.fingerprint))
