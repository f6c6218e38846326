"""Codec of merge conflicts and their resolutions, for artifacts and for branches of repositories."""

from __future__ import annotations

from collections.abc import Sequence

from wonder.v1 import common_pb2
from wonder_server.core.errors import Reason, error
from wonder_server.ports.repositories import Change, Conflict

CONFLICT_KINDS = {
    "content": common_pb2.MERGE_CONFLICT_KIND_CONTENT,
    "both_added": common_pb2.MERGE_CONFLICT_KIND_BOTH_ADDED,
    "deleted": common_pb2.MERGE_CONFLICT_KIND_DELETED,
    "binary": common_pb2.MERGE_CONFLICT_KIND_BINARY,
}


def conflict_to_proto(conflict: Conflict) -> common_pb2.MergeConflict:
    """Encode a conflict."""
    return common_pb2.MergeConflict(
        path=conflict.path,
        kind=CONFLICT_KINDS[conflict.kind],
        base=conflict.base,
        ours=conflict.ours,
        theirs=conflict.theirs,
        truncated=conflict.truncated,
    )


def resolutions_from_proto(given: Sequence[common_pb2.MergeResolution]) -> list[Change]:
    """Decode the resolutions of a merge. Raises FIELD_INVALID for one without content or deletion."""
    found = []
    for number, each in enumerate(given):
        path = f"resolutions[{number}]"
        resolution = each.WhichOneof("resolution")
        if resolution is None or (resolution == "deletion" and not each.deletion):
            raise error(
                Reason.FIELD_INVALID,
                f"{path} has no resolution. Set content or deletion.",
                field=f"{path}.content",
            )
        found.append(Change(path=each.path, content=each.content if resolution == "content" else None))
    return found
