"""The part of the ConversationService that concerns work on code (features F3, F6)."""

from __future__ import annotations

from typing import Any

from wonder.v1 import conversation_service_pb2 as pb
from wonder_server.actors.conversations import Conversations
from wonder_server.actors.rooms import Rooms
from wonder_server.actors.run_lookup import RunLookup
from wonder_server.core.commands import Scope
from wonder_server.core.conversation.values import BranchMerge
from wonder_server.core.errors import Reason, WonderError, error
from wonder_server.logs import logger
from wonder_server.ports.repositories import Commit, FileDiff
from wonder_server.rpc.fields import bounded, renamed, required
from wonder_server.rpc.merge_codec import conflict_to_proto, resolutions_from_proto
from wonder_server.rpc.once import once_of
from wonder_server.rpc.rights import Rights
from wonder_server.services.repos import Repos

_log = logger("rpc")

CHANGES = {
    "added": pb.FILE_CHANGE_ADDED,
    "modified": pb.FILE_CHANGE_MODIFIED,
    "deleted": pb.FILE_CHANGE_DELETED,
    "renamed": pb.FILE_CHANGE_RENAMED,
}
_IN_MERGE = {"author": "user_id"}


class BranchMethods:
    """Methods of the ConversationServicer; see ``conversation_service.proto``."""

    _repos: Repos
    _conversations: Conversations
    _rooms: Rooms
    _runs: RunLookup
    _rights: Rights

    async def diff_branch(self, request: pb.DiffBranchRequest, _context: Any) -> pb.DiffBranchResponse:
        scope = await self._scope(request)
        found = await self._repos.diff(
            scope,
            bounded(request.repository, "repository"),
            base_branch=request.base_branch,
            paths=request.paths,
        )
        return pb.DiffBranchResponse(
            branch=found.branch,
            head_commit=found.head.id if found.head is not None else "",
            base_branch=found.base_branch,
            base_commit=found.diff.base,
            files=map(_file_to_proto, found.diff.files),
            truncated=found.diff.truncated,
        )

    async def merge_branch(self, request: pb.MergeBranchRequest, _context: Any) -> pb.MergeBranchResponse:
        scope = await self._scope(request)
        with renamed(_IN_MERGE):
            merged = await self._repos.merge(
                scope,
                self._rights.user(request.user_id, "user_id"),
                bounded(request.repository, "repository"),
                target=request.target_branch,
                message=request.message,
                expected=request.expected_head_commit,
                resolutions=resolutions_from_proto(request.resolutions),
                dry=request.validate_only,
                remove=request.remove_branch,
                once=once_of(request),
            )
        if merged.commit is not None and merged.tree and not request.validate_only and scope.conversation_id:
            await self._note(scope, request, merged.commit)
        return pb.MergeBranchResponse(
            merged=not merged.conflicts,
            commit=merged.commit.id if merged.commit is not None else "",
            conflicts=map(conflict_to_proto, merged.conflicts),
            nothing_to_merge=merged.is_nothing,
            branch_kept=merged.is_kept,
        )

    async def _note(self, scope: Scope, request: pb.MergeBranchRequest, commit: Commit) -> None:
        """Tell those who watch the conversation. What is merged is merged, whether or not that works."""
        place = await self._repos.named(scope, request.repository, request.target_branch)
        merge = BranchMerge(
            repository=place.repository,
            branch=place.branch,
            target_branch=place.target,
            commit=commit.id,
            user_id=self._rights.user(request.user_id, "user_id"),
        )
        try:
            await self._rooms.note_merge(scope.conversation_id, merge)
        except WonderError as problem:
            _log.warning(
                "merge_not_recorded", conversation=scope.conversation_id, reason=problem.fault.reason
            )

    async def _scope(self, request: Any) -> Scope:
        """Where the conversation, or the run, works. CONVERSATION_NOT_FOUND, RUN_NOT_FOUND."""
        if request.run_id:
            if request.conversation_id:
                raise error(Reason.FIELD_INVALID, "Name a conversation or a run, not both.", field="run_id")
            scope = (await self._runs.run(bounded(request.run_id, "run_id"))).scope
        else:
            found = await self._conversations.get(required(request.conversation_id, "conversation_id"))
            scope = Scope(project_id=found.project_id, conversation_id=found.id, branch=found.branch)
        return await self._repos.sought(scope, request.repository)


def _file_to_proto(file: FileDiff) -> pb.FileDiff:
    return pb.FileDiff(
        path=file.path,
        old_path=file.old_path,
        change=CHANGES[file.change],
        additions=file.additions,
        deletions=file.deletions,
        patch=file.patch,
    )
