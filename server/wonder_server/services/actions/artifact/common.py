"""Parts of the ``artifact.*`` actions: schemas, access to artifacts, authors, JSON forms."""

from __future__ import annotations

import base64
import binascii
import hashlib
from typing import Final

import msgspec

from wonder_server.core.errors import Reason, error
from wonder_server.core.idempotency import IdempotencyKey
from wonder_server.core.json_types import JsonDict
from wonder_server.ports.repositories import Commit, Merged
from wonder_server.services.actions.contract.kind import ActionCall
from wonder_server.services.content.artifacts import Artifact, Artifacts
from wonder_server.services.content.commit_metadata import CommitRequest

PATH: Final = {
    "type": "string",
    "minLength": 1,
    "description": "Path of the artifact, such as designs/auth.md.",
}
BRANCH: Final = {"type": "string", "description": "Branch. Default: main."}
PREFIX: Final = {"type": "string", "description": "Filter by the beginning of the path."}
LIMIT: Final = {
    "type": "integer",
    "minimum": 0,
    "maximum": 500,
    "description": "Maximum number of results. 0 means 50.",
}
MESSAGE: Final = {"type": "string", "description": "Reason for the change, shown in the history."}
PAGE_TOKEN: Final = {"type": "string", "description": "next_page_token of the previous page."}

REVISION_SCHEMA: Final = {
    "type": "object",
    "properties": {
        "id": {"type": "string"},
        "author": {"type": "string"},
        "message": {"type": "string"},
        "create_time_ms": {"type": "integer"},
        "paths": {"type": "array", "items": {"type": "string"}},
    },
}
ARTIFACT_SCHEMA: Final = {
    "type": "object",
    "properties": {
        "path": {"type": "string"},
        "branch": {"type": "string"},
        "size_bytes": {"type": "integer"},
        "etag": {"type": "string"},
        "revision": REVISION_SCHEMA,
        "content": {"type": "string"},
        "content_base64": {"type": "string", "description": "Content that is not text, instead of content."},
    },
}
CONFLICT_SCHEMA: Final = {
    "type": "object",
    "properties": {
        **{name: {"type": "string"} for name in ("path", "kind", "base", "ours", "theirs")},
        "truncated": {"type": "boolean"},
    },
}


def artifacts_of(call: ActionCall) -> Artifacts:
    """Return the artifacts of the server. Raises NOT_IMPLEMENTED if it has none."""
    artifacts = call.services.content.artifacts
    if artifacts is None:
        raise error(Reason.NOT_IMPLEMENTED, "This server has no artifacts: git is not set up.")
    return artifacts


def author_of(call: ActionCall) -> str:
    """Return the author of a change: the agent's id, or the run's."""
    return call.context.agent_id or call.context.run_id or "task"


def idempotency_key(call: ActionCall) -> IdempotencyKey | None:
    """Return the idempotency key of a step with its input, so that a repeated step changes nothing."""
    if not call.context.key:
        return None
    encoded = msgspec.json.encode(dict(call.input), order="deterministic")
    fingerprint = hashlib.blake2b(encoded, digest_size=16).hexdigest()
    return IdempotencyKey("", f"{call.context.key}/{fingerprint}", fingerprint)


def commit_request(call: ActionCall) -> CommitRequest:
    """Return author, message and idempotency key of the commit that a step makes."""
    return CommitRequest(
        author=author_of(call), message=call.input.get("message", ""), idempotency_key=idempotency_key(call)
    )


def content_of(call: ActionCall) -> bytes | None:
    """Return the new content; None to delete. Raises INPUT_INVALID unless the input has exactly one of
    content, content_base64 and delete."""
    given = [name for name in ("content", "content_base64") if name in call.input]
    if call.input.get("delete"):
        given.append("delete")
    if len(given) != 1:
        raise error(
            Reason.INPUT_INVALID,
            f"The input has {len(given)} of content, content_base64 and delete; give exactly one.",
            field="input.content",
        )
    if given == ["content"]:
        try:
            return str(call.input["content"]).encode()
        except UnicodeEncodeError:
            raise error(
                Reason.INPUT_INVALID, "content is not valid Unicode text.", field="input.content"
            ) from None
    if given == ["delete"]:
        return None
    try:
        return base64.b64decode(call.input["content_base64"], validate=True)
    except (binascii.Error, ValueError):
        raise error(
            Reason.INPUT_INVALID, "content_base64 is not valid base64.", field="input.content_base64"
        ) from None


def content_as_json(content: bytes) -> dict[str, str]:
    """Return a content as text if it is text, else in base64."""
    try:
        text = content.decode()
    except UnicodeDecodeError:
        text = "\0"
    if "\0" in text:
        return {"content_base64": base64.b64encode(content).decode()}
    return {"content": text}


def artifact_as_json(artifact: Artifact) -> JsonDict:
    """Return an artifact without its content."""
    return {
        "path": artifact.path,
        "branch": artifact.branch,
        "size_bytes": artifact.size,
        "etag": artifact.etag,
        "revision": revision_as_json(artifact.revision),
    }


def revision_as_json(commit: Commit) -> JsonDict:
    """Return a revision, with up to 100 of its paths."""
    return {
        "id": commit.id,
        "author": commit.author,
        "message": commit.message,
        "create_time_ms": commit.created_ms,
        "paths": list(commit.paths[:100]),
    }


def merged_as_json(merged: Merged) -> JsonDict:
    """Return the outcome of a merge, with its conflicts."""
    return {
        "merged": not merged.conflicts,
        "commit": merged.commit.id if merged.commit is not None else "",
        "conflicts": [
            msgspec.to_builtins(conflict) | {"kind": conflict.kind} for conflict in merged.conflicts
        ],
    }
