"""Methods of the LibraryService for projects."""

from __future__ import annotations

from wonder.v1 import library_service_pb2 as pb
from wonder_server.core.access.permissions import PROJECT_LIMITS
from wonder_server.core.budget import Account
from wonder_server.core.definitions.resources import NetworkPolicy, Project
from wonder_server.rpc.library import codec
from wonder_server.rpc.library.parts import LibraryMethods
from wonder_server.rpc.server.authorization import require_permission
from wonder_server.rpc.shared.call_context import CallContext
from wonder_server.rpc.shared.fields import required
from wonder_server.rpc.shared.pages import encode_page, page_request
from wonder_server.rpc.shared.request_keys import audited_origin
from wonder_server.services.content.project_removals import ProjectRemovals
from wonder_server.services.content.repositories import RepositoryService


def check_access_change(before: Project, changed: Project) -> None:
    """Raise PERMISSION_DENIED if the network or the repositories change and the caller is no admin."""
    if (changed.network or NetworkPolicy()) != (before.network or NetworkPolicy()):
        require_permission(PROJECT_LIMITS, "The request changes the project's network.", "project.network")
    if changed.repositories != before.repositories:
        require_permission(
            PROJECT_LIMITS, "The request changes the project's repositories.", "project.repositories"
        )


class ProjectMethods(LibraryMethods):
    """Methods of the LibraryServicer; see ``library_service.proto``."""

    _repositories: RepositoryService | None
    _removals: ProjectRemovals | None

    async def create_project(
        self, request: pb.CreateProjectRequest, context: CallContext
    ) -> pb.CreateProjectResponse:
        required(request.project.name, "project.name")
        wanted = codec.project_from_proto(request.project)
        check_access_change(Project(id="", name=""), wanted)
        if self._repositories is not None:
            await self._repositories.check_repositories((), wanted.repositories, wanted.network)
        project = await self._own.library.projects.create(
            wanted,
            origin=audited_origin(request, "CreateProject", context),
            validate_only=request.validate_only,
        )
        return pb.CreateProjectResponse(project=codec.project_to_proto(project))

    async def get_project(
        self, request: pb.GetProjectRequest, _context: CallContext
    ) -> pb.GetProjectResponse:
        project = await self._own.library.projects.project(required(request.project_id, "project_id"))
        return pb.GetProjectResponse(
            project=codec.project_to_proto(project, await self._project_account(project))
        )

    async def _project_account(self, project: Project) -> Account | None:
        accounts = self._own.accounts
        return None if accounts is None else (await accounts.accounts([project.id])).get(project.id)

    async def list_projects(
        self, request: pb.ListProjectsRequest, _context: CallContext
    ) -> pb.ListProjectsResponse:
        page = await self._own.library.projects.projects(page_request(request))
        projects, token = await encode_page(page, codec.project_to_proto)
        return pb.ListProjectsResponse(projects=projects, next_page_token=token)

    async def update_project(
        self, request: pb.UpdateProjectRequest, context: CallContext
    ) -> pb.UpdateProjectResponse:
        key = required(request.project.id, "project.id")
        change = codec.project_edit(request.project, request.update_mask)

        def edit(stored: Project) -> Project:
            wanted = change(stored)
            check_access_change(stored, wanted)
            return wanted

        known = await self._own.library.projects.find(key)
        if known is not None and self._repositories is not None:
            wanted = edit(known)
            await self._repositories.check_repositories(
                known.repositories, wanted.repositories, wanted.network
            )
        project = await self._own.library.projects.update(
            key,
            edit,
            etag=request.project.etag,
            origin=audited_origin(request, "UpdateProject", context),
            validate_only=request.validate_only,
        )
        return pb.UpdateProjectResponse(project=codec.project_to_proto(project))

    async def delete_project(
        self, request: pb.DeleteProjectRequest, context: CallContext
    ) -> pb.DeleteProjectResponse:
        key = required(request.project_id, "project_id")
        await self._own.library.projects.delete(
            key, etag=request.etag, origin=audited_origin(request, "DeleteProject", context)
        )
        if self._removals is not None:
            await self._removals.finish()
        return pb.DeleteProjectResponse()
