"""Methods of the LibraryService for libraries and definitions."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import Final, NoReturn

from google.protobuf.field_mask_pb2 import FieldMask

from wonder.v1 import library_pb2
from wonder.v1 import library_service_pb2 as pb
from wonder_server.core.definitions.fault_list import MAX_FAULTS
from wonder_server.core.definitions.resources import Project
from wonder_server.core.errors import Fault, Reason, WonderError
from wonder_server.rpc.library import codec
from wonder_server.rpc.library.parts import LibraryMethods
from wonder_server.rpc.library.projects import check_access_change
from wonder_server.rpc.server.authorization import require_permission
from wonder_server.rpc.shared.call_context import CallContext
from wonder_server.rpc.shared.fields import required
from wonder_server.rpc.shared.pages import encode_page, page_request
from wonder_server.rpc.shared.request_keys import audited_origin
from wonder_server.services.catalog.applied import WantedResources, check_names, placed
from wonder_server.services.catalog.definitions import MAX_APPLY
from wonder_server.services.content.repositories import RepositoryService

_DEFINITION_INDEX: Final = re.compile(r"^definitions\[(\d+)\]")


class DefinitionMethods(LibraryMethods):
    """Methods of the LibraryServicer; see ``library_service.proto``."""

    _repositories: RepositoryService | None

    async def create_library(
        self, request: pb.CreateLibraryRequest, context: CallContext
    ) -> pb.CreateLibraryResponse:
        library = await self._own.library.definitions.create_library(
            required(request.library.name, "library.name"),
            request.library.description,
            origin=audited_origin(request, "CreateLibrary", context),
            validate_only=request.validate_only,
        )
        return pb.CreateLibraryResponse(library=codec.library_to_proto(library))

    async def get_library(
        self, request: pb.GetLibraryRequest, _context: CallContext
    ) -> pb.GetLibraryResponse:
        library = await self._own.library.definitions.library(required(request.library_id, "library_id"))
        return pb.GetLibraryResponse(library=codec.library_to_proto(library))

    async def list_libraries(
        self, request: pb.ListLibrariesRequest, _context: CallContext
    ) -> pb.ListLibrariesResponse:
        page = await self._own.library.definitions.libraries(page_request(request))
        libraries, token = await encode_page(page, codec.library_to_proto)
        return pb.ListLibrariesResponse(libraries=libraries, next_page_token=token)

    async def delete_library(
        self, request: pb.DeleteLibraryRequest, context: CallContext
    ) -> pb.DeleteLibraryResponse:
        await self._own.library.definitions.delete_library(
            required(request.library_id, "library_id"),
            force=request.force,
            etag=request.etag,
            origin=audited_origin(request, "DeleteLibrary", context),
        )
        return pb.DeleteLibraryResponse()

    async def put_definition(
        self, request: pb.PutDefinitionRequest, context: CallContext
    ) -> pb.PutDefinitionResponse:
        library = required(request.library_id, "library_id")
        draft, faults = codec.draft_from_proto_lenient(request.definition, "definition")
        if draft is None:
            raise WonderError(faults[0], faults=faults)
        if faults:
            await _raise_all_faults(
                faults, self._own.library.definitions.put(library, draft, validate_only=True)
            )
        saved = await self._own.library.definitions.put(
            library,
            draft,
            etag=request.etag,
            origin=audited_origin(request, "PutDefinition", context),
            validate_only=request.validate_only,
        )
        return pb.PutDefinitionResponse(
            definition=codec.definition_to_proto(saved.definition), change=codec.change_to_proto(saved.change)
        )

    async def get_definition(
        self, request: pb.GetDefinitionRequest, _context: CallContext
    ) -> pb.GetDefinitionResponse:
        definition = await self._own.library.definitions.definition(
            required(request.definition_id, "definition_id")
        )
        return pb.GetDefinitionResponse(definition=codec.definition_to_proto(definition))

    async def list_definitions(
        self, request: pb.ListDefinitionsRequest, _context: CallContext
    ) -> pb.ListDefinitionsResponse:
        page = await self._own.library.definitions.definitions(
            page_request(request),
            library=request.library_id,
            kinds=codec.kinds_from_proto(request.kinds),
            labels=dict(request.labels),
        )
        definitions, token = await encode_page(page, codec.definition_to_proto)
        return pb.ListDefinitionsResponse(definitions=definitions, next_page_token=token)

    async def list_revisions(
        self, request: pb.ListRevisionsRequest, _context: CallContext
    ) -> pb.ListRevisionsResponse:
        page = await self._own.library.definitions.revisions(
            required(request.definition_id, "definition_id"), page_request(request)
        )
        definitions, token = await encode_page(page, codec.definition_to_proto)
        return pb.ListRevisionsResponse(definitions=definitions, next_page_token=token)

    async def delete_definition(
        self, request: pb.DeleteDefinitionRequest, context: CallContext
    ) -> pb.DeleteDefinitionResponse:
        await self._own.library.definitions.delete(
            required(request.definition_id, "definition_id"),
            etag=request.etag,
            origin=audited_origin(request, "DeleteDefinition", context),
        )
        return pb.DeleteDefinitionResponse()

    async def apply_definitions(
        self, request: pb.ApplyDefinitionsRequest, context: CallContext
    ) -> pb.ApplyDefinitionsResponse:
        library = required(request.library, "library")
        # One definition above the limit is enough for its rejection.
        parsed, faults = codec.drafts_from_proto(request.definitions[: MAX_APPLY + 1], "definitions")
        positions = [index for index, draft in enumerate(parsed) if draft is not None]
        drafts = [draft for draft in parsed if draft is not None]
        if faults:
            checking = self._own.library.definitions.apply(library, drafts, validate_only=True)
            await _raise_all_faults(faults, checking, positions)
        if request.prune and not request.validate_only:
            require_permission("definitions.delete", "prune deletes definitions.", "prune")
        applied = await self._own.library.apply(
            library,
            drafts,
            await self._wanted(request),
            prune=request.prune,
            origin=audited_origin(request, "ApplyDefinitions", context),
            validate_only=request.validate_only,
        )
        return pb.ApplyDefinitionsResponse(
            changes=map(codec.change_to_proto, applied.changes),
            library=codec.library_to_proto(applied.library),
            resource_changes=[
                codec.resource_change_to_proto(change, is_saved=not request.validate_only)
                for change in applied.resources
            ],
            notices=self._own.library.notices(drafts),
        )

    async def _wanted(self, request: pb.ApplyDefinitionsRequest) -> WantedResources:
        """Decode the agents and projects of an apply. Errors: PERMISSION_DENIED, and those of decoding and
        of repositories."""
        check_names("agents", [agent.name for agent in request.agents])
        check_names("projects", [project.name for project in request.projects])
        agents = []
        for index, agent in enumerate(request.agents):
            with placed("agent", f"agents[{index}]"):
                agents.append((agent.name, codec.agent_edit(agent, FieldMask())))
        projects = []
        for index, project in enumerate(request.projects):
            with placed("project", f"projects[{index}]"):
                projects.append((project.name, await self._project_edit(project)))
        return WantedResources(agents=agents, projects=projects)

    async def _project_edit(self, project: library_pb2.Project) -> Callable[[Project], Project]:
        """Return the function that edits a stored project, after checking access and repositories."""
        change = codec.project_edit(project, FieldMask())

        def edit(stored: Project) -> Project:
            wanted = change(stored)
            check_access_change(stored, wanted)
            return wanted

        known = await self._own.library.projects.find(project.name) or Project(id="", name=project.name)
        wanted = edit(known)
        if self._repositories is not None:
            await self._repositories.check_repositories(
                known.repositories, wanted.repositories, wanted.network
            )
        return edit

    async def export_definitions(
        self, request: pb.ExportDefinitionsRequest, _context: CallContext
    ) -> pb.ExportDefinitionsResponse:
        page = await self._own.library.definitions.definitions(
            page_request(request), library=required(request.library_id, "library_id")
        )
        definitions, token = await encode_page(page, lambda each: codec.draft_to_proto(each.draft))
        return pb.ExportDefinitionsResponse(definitions=definitions, next_page_token=token)


async def _raise_all_faults(
    faults: Sequence[Fault], check: Awaitable[object], positions: Sequence[int] = ()
) -> NoReturn:
    """Raise the faults of decoding together with those that ``check`` finds in the rest of the request.

    ``positions`` are the indices in the request of the definitions that ``check`` checks.
    """
    found = list(faults)
    known = {fault.field for fault in faults}
    try:
        await check
    except WonderError as refusal:
        for fault in refusal.faults:
            field = _DEFINITION_INDEX.sub(
                lambda index: f"definitions[{positions[int(index[1])]}]", fault.field
            )
            if fault.reason is Reason.DEFINITION_INVALID and field not in known:
                found.append(replace(fault, field=field))
    raise WonderError(found[0], faults=tuple(found[:MAX_FAULTS]))
