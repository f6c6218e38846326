"""Client methods for artifacts and for the branches of conversations and runs."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence

from wonder_sdk._proto import stubs
from wonder_sdk._proto.wonder import v1
from wonder_sdk.methods.paging import pages

_PAGE = 200

Resolutions = Mapping[str, bytes | str | None]
"""New content of files in conflict, by path; None deletes the file."""


class ArtifactMethods:
    """Methods of `Client` for artifacts and branches.

    ``project`` is an id or a name. An empty ``branch`` means ``main``.
    """

    library: stubs.LibraryServiceStub
    conversations: stubs.ConversationServiceStub

    async def read_artifact(
        self, path: str, *, project: str = "default", branch: str = "", revision: str = ""
    ) -> v1.Artifact:
        """Return a document with its ``content`` (bytes), at the branch's head or in a revision.

        Raises NotFoundError.
        """
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
        """Replace a document's content in one commit. Return the new document without its content.

        With an ``etag``, raises AbortedError if the document has changed since the client read it. The etag
        ``"none"`` requires that the document does not exist.
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
        """Delete a document. Its history remains. Raises NotFoundError."""
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
        """Yield the documents below ``prefix`` in the order of their paths, without content."""
        request = v1.ListArtifactsRequest(
            project_id=project, branch=branch, path_prefix=prefix, page_size=_PAGE
        )
        async for page in pages(self.library.list_artifacts, request):
            for artifact in page.artifacts:
                yield artifact

    async def search_artifacts(
        self, query: str, *, prefix: str = "", project: str = "default", branch: str = "", limit: int = 0
    ) -> list[v1.ArtifactMatch]:
        """Return the lines and paths that contain all words of ``query``. A ``limit`` of 0 means 50."""
        request = v1.SearchArtifactsRequest(
            project_id=project, query=query, branch=branch, path_prefix=prefix, limit=limit
        )
        return (await self.library.search_artifacts(request)).matches

    async def list_artifact_revisions(
        self, path: str = "", *, project: str = "default", branch: str = ""
    ) -> AsyncIterator[v1.ArtifactRevision]:
        """Yield the commits of a branch, or those that changed one document, newest first."""
        request = v1.ListArtifactRevisionsRequest(
            project_id=project, path=path, branch=branch, page_size=_PAGE
        )
        async for page in pages(self.library.list_artifact_revisions, request):
            for revision in page.revisions:
                yield revision

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
        """Merge one branch of documents into another.

        Conflicts raise no error: the response lists them in ``conflicts``, and the server merges nothing. To
        merge anyway, pass ``resolutions`` with the content of every file in conflict.
        """
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
        """Return a conversation's changes in a repository, including uncommitted ones.

        The id of a run in place of a conversation's returns the run's changes.
        """
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
        """Merge the changes of a conversation or a run.

        Conflicts raise no error: the response lists them in ``conflicts``, and the server merges nothing. To
        merge anyway, pass ``resolutions`` with the content of every file in conflict.

        ``expected_head`` is the ``head_commit`` of the reviewed diff, or a prefix of it. Raises AbortedError
        if the branch has changed since.
        """
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
        raise ValueError("The server's response has no artifact. Check the versions of SDK and server.")
    return artifact
