"""The calls of a client that are about artifacts, and about what conversations change in repositories."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence

from wonder_sdk._proto import stubs
from wonder_sdk._proto.wonder import v1

_PAGE = 200

Resolutions = Mapping[str, bytes | str | None]
"""New content of files in conflict, by path; None deletes the file."""


class ArtifactMethods:
    """Methods of `Client` for artifacts and branches. Projects are named by id or name; a branch that is
    left out is ``main``."""

    library: stubs.LibraryServiceStub
    conversations: stubs.ConversationServiceStub

    async def read_artifact(
        self, path: str, *, project: str = "default", branch: str = "", revision: str = ""
    ) -> v1.Artifact:
        """A document with its ``content`` (bytes), as it is or as it was in a revision. Raises
        NotFoundError."""
        request = v1.ReadArtifactRequest(project_id=project, path=path, branch=branch, revision_id=revision)
        return _require_artifact((await self.library.read_artifact(request)).artifact)

    async def write_artifact(
        self,
        path: str,
        content: bytes | str,
        *,
        project: str = "default",
        branch: str = "",
        author: str = "",
        message: str = "",
        etag: str = "",
        request_id: str = "",
    ) -> v1.Artifact:
        """Give a document new content, as one commit; the document as it is then, without content.

        With ``etag`` it must not have changed since it was read, ``"none"``: not be there: else AbortedError.
        """
        request = v1.WriteArtifactRequest(
            project_id=project,
            path=path,
            branch=branch,
            content=_bytes(content),
            author=author,
            message=message,
            etag=etag,
            request_id=request_id,
        )
        return _require_artifact((await self.library.write_artifact(request)).artifact)

    async def delete_artifact(
        self,
        path: str,
        *,
        project: str = "default",
        branch: str = "",
        author: str = "",
        message: str = "",
        etag: str = "",
        request_id: str = "",
    ) -> None:
        """Delete a document; its history stays. Raises NotFoundError."""
        await self.library.write_artifact(
            v1.WriteArtifactRequest(
                project_id=project,
                path=path,
                branch=branch,
                deletion=True,
                author=author,
                message=message,
                etag=etag,
                request_id=request_id,
            )
        )

    async def list_artifacts(
        self, prefix: str = "", *, project: str = "default", branch: str = ""
    ) -> AsyncIterator[v1.Artifact]:
        """The documents by path, without content, those whose paths begin with ``prefix``."""
        token = ""
        while True:
            page = await self.library.list_artifacts(
                v1.ListArtifactsRequest(
                    project_id=project, branch=branch, path_prefix=prefix, page_size=_PAGE, page_token=token
                )
            )
            for artifact in page.artifacts:
                yield artifact
            if not (token := page.next_page_token):
                return

    async def search_artifacts(
        self, query: str, *, prefix: str = "", project: str = "default", branch: str = "", limit: int = 0
    ) -> list[v1.ArtifactMatch]:
        """Lines and paths that contain all words of ``query``; ``limit`` 0 is 50."""
        request = v1.SearchArtifactsRequest(
            project_id=project, query=query, branch=branch, path_prefix=prefix, limit=limit
        )
        return (await self.library.search_artifacts(request)).matches

    async def list_artifact_revisions(
        self, path: str = "", *, project: str = "default", branch: str = ""
    ) -> AsyncIterator[v1.ArtifactRevision]:
        """The commits of a branch, or those that changed one document, newest first."""
        token = ""
        while True:
            page = await self.library.list_artifact_revisions(
                v1.ListArtifactRevisionsRequest(
                    project_id=project, path=path, branch=branch, page_size=_PAGE, page_token=token
                )
            )
            for revision in page.revisions:
                yield revision
            if not (token := page.next_page_token):
                return

    async def merge_artifacts(
        self,
        source: str,
        *,
        target: str = "",
        project: str = "default",
        author: str = "",
        message: str = "",
        resolutions: Resolutions | None = None,
        validate_only: bool = False,
        request_id: str = "",
    ) -> v1.MergeArtifactsResponse:
        """Merge one branch of documents into another. Conflicts are no error: see ``conflicts``; then
        nothing was merged, unless ``resolutions`` say what all of them become."""
        return await self.library.merge_artifacts(
            v1.MergeArtifactsRequest(
                project_id=project,
                source_branch=source,
                target_branch=target,
                author=author,
                message=message,
                resolutions=_resolutions(resolutions),
                validate_only=validate_only,
                request_id=request_id,
            )
        )

    async def diff_branch(
        self, conversation_id: str, *, repository: str = "", base: str = "", paths: Sequence[str] = ()
    ) -> v1.DiffBranchResponse:
        """Return a conversation's changes in a repository, including uncommitted ones, included. The id of a
        run, instead of a conversation's, shows what that has changed."""
        return await self.conversations.diff_branch(
            v1.DiffBranchRequest(
                **_work(conversation_id),
                repository=repository,
                base_branch=base,
                paths=list(paths),
            )
        )

    async def merge_branch(
        self,
        conversation_id: str,
        *,
        repository: str = "",
        target: str = "",
        message: str = "",
        expected_head: str = "",
        user: str = "",
        resolutions: Resolutions | None = None,
        remove_branch: bool = False,
        validate_only: bool = False,
        request_id: str = "",
    ) -> v1.MergeBranchResponse:
        """Merge what a conversation, or a run, has changed. Conflicts are no error: see ``conflicts``; then
        nothing was merged, unless ``resolutions`` say what all of them become.

        ``expected_head`` is the ``head_commit`` of the diff that was looked at, or how it begins:
        AbortedError if the work has changed since."""
        return await self.conversations.merge_branch(
            v1.MergeBranchRequest(
                **_work(conversation_id),
                repository=repository,
                target_branch=target,
                message=message,
                expected_head_commit=expected_head,
                user_id=user,
                resolutions=_resolutions(resolutions),
                remove_branch=remove_branch,
                validate_only=validate_only,
                request_id=request_id,
            )
        )


def _work(work_id: str) -> dict[str, str]:
    return {"run_id" if work_id.startswith("run_") else "conversation_id": work_id}


def _bytes(content: bytes | str) -> bytes:
    return content.encode() if isinstance(content, str) else content


def _resolutions(given: Resolutions | None) -> list[v1.MergeResolution]:
    return [
        v1.MergeResolution(path=path, deletion=True)
        if content is None
        else v1.MergeResolution(path=path, content=_bytes(content))
        for path, content in (given or {}).items()
    ]


def _require_artifact(artifact: v1.Artifact | None) -> v1.Artifact:
    if artifact is None:
        raise ValueError("the server answered without an artifact")
    return artifact
