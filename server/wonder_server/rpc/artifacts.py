"""The part of the LibraryService that concerns artifacts (feature F1)."""

from __future__ import annotations

from typing import Any

from wonder.v1 import artifact_pb2
from wonder.v1 import library_service_pb2 as pb
from wonder_server.core.errors import Reason, error
from wonder_server.ports.repositories import Commit, Match
from wonder_server.rpc.fields import required
from wonder_server.rpc.merge_codec import conflict_to_proto, resolutions_from_proto
from wonder_server.rpc.once import once_of
from wonder_server.rpc.pages import encoded
from wonder_server.rpc.rights import ADMIN, Rights
from wonder_server.rpc.times import to_timestamp
from wonder_server.services.artifacts import Artifact, Artifacts
from wonder_server.services.paging import PageRequest


class ArtifactMethods:
    """Methods of the LibraryServicer; see ``library_service.proto``."""

    def __init__(self, artifacts: Artifacts, rights: Rights) -> None:
        self._artifacts = artifacts
        self._rights = rights

    async def read_artifact(self, request: pb.ReadArtifactRequest, _context: Any) -> pb.ReadArtifactResponse:
        found = await self._artifacts.read(
            _project(request), request.path, branch=request.branch, revision_id=request.revision_id
        )
        return pb.ReadArtifactResponse(artifact=artifact_to_proto(found))

    async def write_artifact(
        self, request: pb.WriteArtifactRequest, _context: Any
    ) -> pb.WriteArtifactResponse:
        change = request.WhichOneof("change")
        if change is None or (change == "deletion" and not request.deletion):
            raise error(Reason.FIELD_INVALID, "Give the new content, or set deletion.", field="content")
        if change == "deletion":
            self._rights.demand(ADMIN, "It deletes an artifact.", "deletion")
        written = await self._artifacts.write(
            _project(request),
            request.path,
            request.content if change == "content" else None,
            branch=request.branch,
            author=self._rights.user(request.author, "author"),
            message=request.message,
            etag=request.etag,
            once=once_of(request),
        )
        return pb.WriteArtifactResponse(artifact=artifact_to_proto(written))

    async def list_artifacts(
        self, request: pb.ListArtifactsRequest, _context: Any
    ) -> pb.ListArtifactsResponse:
        page = await self._artifacts.list(
            _project(request),
            PageRequest(size=request.page_size, token=request.page_token),
            branch=request.branch,
            prefix=request.path_prefix,
        )
        artifacts, token = await encoded(page, artifact_to_proto)
        return pb.ListArtifactsResponse(artifacts=artifacts, next_page_token=token)

    async def search_artifacts(
        self, request: pb.SearchArtifactsRequest, _context: Any
    ) -> pb.SearchArtifactsResponse:
        found = await self._artifacts.search(
            _project(request),
            request.query,
            branch=request.branch,
            prefix=request.path_prefix,
            limit=request.limit,
        )
        return pb.SearchArtifactsResponse(
            matches=map(_match_to_proto, found.matches), truncated=found.truncated
        )

    async def list_artifact_revisions(
        self, request: pb.ListArtifactRevisionsRequest, _context: Any
    ) -> pb.ListArtifactRevisionsResponse:
        page = await self._artifacts.revisions(
            _project(request),
            PageRequest(size=request.page_size, token=request.page_token),
            branch=request.branch,
            path=request.path,
        )
        revisions, token = await encoded(page, _revision_to_proto)
        return pb.ListArtifactRevisionsResponse(revisions=revisions, next_page_token=token)

    async def merge_artifacts(
        self, request: pb.MergeArtifactsRequest, _context: Any
    ) -> pb.MergeArtifactsResponse:
        if any(each.deletion for each in request.resolutions):
            self._rights.demand(ADMIN, "A resolution deletes an artifact.", "resolutions")
        merged = await self._artifacts.merge(
            _project(request),
            request.source_branch,
            target=request.target_branch,
            author=self._rights.user(request.author, "author"),
            message=request.message,
            resolutions=resolutions_from_proto(request.resolutions),
            dry=request.validate_only,
            once=once_of(request),
        )
        return pb.MergeArtifactsResponse(
            merged=not merged.conflicts,
            revision=_revision_to_proto(merged.commit) if merged.commit is not None else None,
            conflicts=map(conflict_to_proto, merged.conflicts),
            nothing_to_merge=merged.is_nothing,
        )


def _project(request: Any) -> str:
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
