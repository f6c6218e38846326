"""Methods of the LibraryService for artifacts."""

from __future__ import annotations

from typing import Protocol

from wonder.v1 import artifact_pb2
from wonder.v1 import library_service_pb2 as pb
from wonder_server.core.access.permissions import DELETE_ARTIFACTS
from wonder_server.core.errors import Reason, error
from wonder_server.ports.repositories import Commit, Match
from wonder_server.rpc.library.parts import LibraryMethods
from wonder_server.rpc.server.authorization import require_permission, resolve_user
from wonder_server.rpc.shared.call_context import CallContext
from wonder_server.rpc.shared.fields import required
from wonder_server.rpc.shared.merge_codec import conflict_to_proto, resolutions_from_proto
from wonder_server.rpc.shared.pages import encode_page, page_request
from wonder_server.rpc.shared.request_keys import idempotency_key
from wonder_server.rpc.shared.times import to_timestamp
from wonder_server.services.content.artifacts import Artifact
from wonder_server.services.content.commit_metadata import CommitRequest


class ProjectRequest(Protocol):
    """A request of the contract that names a project."""

    @property
    def project_id(self) -> str: ...


class ArtifactMethods(LibraryMethods):
    """Methods of the LibraryServicer; see ``library_service.proto``."""

    async def read_artifact(
        self, request: pb.ReadArtifactRequest, _context: CallContext
    ) -> pb.ReadArtifactResponse:
        found = await self._own.artifacts.read(
            _project_id(request), request.path, branch=request.branch, revision_id=request.revision_id
        )
        return pb.ReadArtifactResponse(artifact=artifact_to_proto(found))

    async def write_artifact(
        self, request: pb.WriteArtifactRequest, _context: CallContext
    ) -> pb.WriteArtifactResponse:
        change = request.WhichOneof("change")
        if change is None or (change == "deletion" and not request.deletion):
            raise error(
                Reason.FIELD_INVALID, "The change is missing. Set content or deletion.", field="content"
            )
        if change == "deletion":
            require_permission(DELETE_ARTIFACTS, "The request deletes an artifact.", "deletion")
        written = await self._own.artifacts.write(
            _project_id(request),
            request.path,
            request.content if change == "content" else None,
            branch=request.branch,
            etag=request.etag,
            commit=CommitRequest(
                author=resolve_user(request.author, "author"),
                message=request.message,
                idempotency_key=idempotency_key(request),
            ),
        )
        return pb.WriteArtifactResponse(artifact=artifact_to_proto(written))

    async def list_artifacts(
        self, request: pb.ListArtifactsRequest, _context: CallContext
    ) -> pb.ListArtifactsResponse:
        page = await self._own.artifacts.list(
            _project_id(request),
            page_request(request),
            branch=request.branch,
            prefix=request.path_prefix,
        )
        artifacts, token = await encode_page(page, artifact_to_proto)
        return pb.ListArtifactsResponse(artifacts=artifacts, next_page_token=token)

    async def search_artifacts(
        self, request: pb.SearchArtifactsRequest, _context: CallContext
    ) -> pb.SearchArtifactsResponse:
        found = await self._own.artifacts.search(
            _project_id(request),
            request.query,
            branch=request.branch,
            prefix=request.path_prefix,
            limit=request.limit,
        )
        return pb.SearchArtifactsResponse(
            matches=map(_match_to_proto, found.matches), truncated=found.truncated
        )

    async def list_artifact_revisions(
        self, request: pb.ListArtifactRevisionsRequest, _context: CallContext
    ) -> pb.ListArtifactRevisionsResponse:
        page = await self._own.artifacts.revisions(
            _project_id(request),
            page_request(request),
            branch=request.branch,
            path=request.path,
        )
        revisions, token = await encode_page(page, _revision_to_proto)
        return pb.ListArtifactRevisionsResponse(revisions=revisions, next_page_token=token)

    async def merge_artifacts(
        self, request: pb.MergeArtifactsRequest, _context: CallContext
    ) -> pb.MergeArtifactsResponse:
        if any(each.deletion for each in request.resolutions):
            require_permission(DELETE_ARTIFACTS, "A resolution deletes an artifact.", "resolutions")
        merged = await self._own.artifacts.merge(
            _project_id(request),
            request.source_branch,
            target=request.target_branch,
            commit=CommitRequest(
                author=resolve_user(request.author, "author"),
                message=request.message,
                idempotency_key=idempotency_key(request),
            ),
            resolutions=resolutions_from_proto(request.resolutions),
            dry_run=request.validate_only,
        )
        return pb.MergeArtifactsResponse(
            merged=not merged.conflicts,
            revision=_revision_to_proto(merged.commit) if merged.commit is not None else None,
            conflicts=map(conflict_to_proto, merged.conflicts),
            nothing_to_merge=merged.is_up_to_date,
        )


def _project_id(request: ProjectRequest) -> str:
    return required(request.project_id, "project_id")


def artifact_to_proto(artifact: Artifact) -> artifact_pb2.Artifact:
    return artifact_pb2.Artifact(
        project_id=artifact.project_id,
        path=artifact.path,
        branch=artifact.branch,
        revision=_revision_to_proto(artifact.revision),
        size_bytes=artifact.size,
        content=artifact.content,
        etag=artifact.etag,
        damaged=artifact.is_damaged,
    )


def _revision_to_proto(commit: Commit) -> artifact_pb2.ArtifactRevision:
    return artifact_pb2.ArtifactRevision(
        id=commit.id,
        author=commit.author,
        message=commit.message,
        create_time=to_timestamp(commit.created_ms),
        paths=commit.paths,
    )


def _match_to_proto(match: Match) -> artifact_pb2.ArtifactMatch:
    return artifact_pb2.ArtifactMatch(path=match.path, line=match.line, text=match.text)
