"""Methods of the ConversationService for branches of code."""

from __future__ import annotations

from wonder.v1 import conversation_service_pb2 as pb
from wonder_server.core.actor.commands import Scope
from wonder_server.core.conversation.model.values import BranchMerge
from wonder_server.core.errors import Reason, WonderError, error
from wonder_server.logs import logger
from wonder_server.ports.repositories import Commit, FileDiff
from wonder_server.rpc.conversation.parts import ConversationMethods
from wonder_server.rpc.server.authorization import resolve_user
from wonder_server.rpc.shared.call_context import CallContext
from wonder_server.rpc.shared.fields import bounded, map_fault_fields, required
from wonder_server.rpc.shared.merge_codec import conflict_to_proto, resolutions_from_proto
from wonder_server.rpc.shared.principal import current_principal
from wonder_server.rpc.shared.request_keys import idempotency_key
from wonder_server.services.content.merges import MergeRequest
from wonder_server.services.content.repositories import RepositoryService

_log = logger("rpc")

CHANGE_KINDS = {
    "added": pb.FILE_CHANGE_ADDED,
    "modified": pb.FILE_CHANGE_MODIFIED,
    "deleted": pb.FILE_CHANGE_DELETED,
    "renamed": pb.FILE_CHANGE_RENAMED,
}
_MERGE_FIELDS = {"author": "user_id"}


class BranchMethods(ConversationMethods):
    """Methods of the ConversationServicer; see ``conversation_service.proto``."""

    _repositories: RepositoryService

    async def diff_branch(
        self, request: pb.DiffBranchRequest, _context: CallContext
    ) -> pb.DiffBranchResponse:
        scope = await self._scope(request)
        found = await self._repositories.files.diff(
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

    async def merge_branch(
        self, request: pb.MergeBranchRequest, _context: CallContext
    ) -> pb.MergeBranchResponse:
        scope = await self._scope(request)
        with map_fault_fields(_MERGE_FIELDS):
            merge = MergeRequest(
                author=resolve_user(request.user_id, "user_id"),
                target=request.target_branch,
                message=request.message,
                expected_head=request.expected_head_commit,
                resolutions=resolutions_from_proto(request.resolutions),
                dry_run=request.validate_only,
                remove_branch=request.remove_branch,
                idempotency_key=idempotency_key(request),
            )
            repository = bounded(request.repository, "repository")
            merged = await self._repositories.merges.merge(scope, merge, repository)
        if merged.commit is not None and merged.tree and not request.validate_only and scope.conversation_id:
            await self._record_merge(scope, request, merged.commit)
        return pb.MergeBranchResponse(
            merged=not merged.conflicts,
            commit=merged.commit.id if merged.commit is not None else "",
            conflicts=map(conflict_to_proto, merged.conflicts),
            nothing_to_merge=merged.is_up_to_date,
            branch_kept=merged.is_kept,
        )

    async def _record_merge(self, scope: Scope, request: pb.MergeBranchRequest, commit: Commit) -> None:
        """Tell the conversation's readers about the merge. A failure is logged: the merge itself is done."""
        target = await self._repositories.merges.target_of(scope, request.repository, request.target_branch)
        merge = BranchMerge(
            repository=target.repository,
            branch=target.branch,
            target_branch=target.target,
            commit=commit.id,
            user_id=resolve_user(request.user_id, "user_id"),
        )
        try:
            await self._lifecycle.record_merge(scope.conversation_id, merge, current_principal.get())
        except WonderError as problem:
            _log.warning(
                "merge_not_recorded", conversation=scope.conversation_id, reason=problem.fault.reason
            )

    async def _scope(self, request: pb.DiffBranchRequest | pb.MergeBranchRequest) -> Scope:
        """Return the scope of the conversation or run. Raises CONVERSATION_NOT_FOUND or RUN_NOT_FOUND."""
        if request.run_id:
            if request.conversation_id:
                raise error(Reason.FIELD_INVALID, "Set conversation_id or run_id, not both.", field="run_id")
            scope = (await self._own.runs.run(bounded(request.run_id, "run_id"))).scope
        else:
            found = await self._conversations.lookup.get(required(request.conversation_id, "conversation_id"))
            scope = Scope(project_id=found.project_id, conversation_id=found.id, branch=found.branch)
        return await self._repositories.worktrees.find_scope(scope, request.repository)


def _file_to_proto(file: FileDiff) -> pb.FileDiff:
    return pb.FileDiff(
        path=file.path,
        old_path=file.old_path,
        change=CHANGE_KINDS[file.change],
        additions=file.additions,
        deletions=file.deletions,
        patch=file.patch,
    )
