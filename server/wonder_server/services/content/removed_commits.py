"""Answers to repeated requests whose repository was deleted since.

A repository keeps the key of each request in its commits. Before a project's repository is removed, the
recent keys are copied to the catalog, which keeps them for two days.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final, Protocol

import msgspec

from wonder_server.core.idempotency import IdempotencyKey, check_fingerprint, own_key
from wonder_server.ports.catalog import Answer
from wonder_server.ports.repositories import Commit, CommitMetadata, Repository

MAX_KEPT: Final = 10_000
"""Commits of one deleted project, the newest."""
_AT_ONCE: Final = 500
_PART: Final = "artifacts"


class Answers(Protocol):
    """The part of the catalog that stores answers."""

    async def answer(self, request_id: str) -> Answer | None: ...

    async def keep_answers(self, answers: Sequence[Answer]) -> None: ...


class RemovedCommits:
    """The commits of deleted projects, by the keys of their requests."""

    def __init__(self, answers: Answers) -> None:
        self._answers = answers

    async def keep(self, project_id: str, repository: Repository) -> None:
        """Copy the recent keys of a repository that will be removed."""
        found = await repository.keyed_commits(MAX_KEPT)
        for start in range(0, len(found), _AT_ONCE):
            await self._answers.keep_answers(
                [
                    Answer(
                        request_id=_stored_id(each.key),
                        fingerprint=each.fingerprint,
                        result={"project_id": project_id, "commit": msgspec.to_builtins(each.commit)},
                        created_ms=each.commit.created_ms,
                    )
                    for each in found[start : start + _AT_ONCE]
                ]
            )
            await asyncio.sleep(0)

    async def find(self, key: IdempotencyKey | None, metadata: CommitMetadata) -> tuple[str, Commit] | None:
        """Return the project and the commit of an earlier request with this key, None if no project with
        such a commit was deleted. Raises REQUEST_ID_REUSED."""
        if key is None or (answer := await self._answers.answer(_stored_id(metadata.key))) is None:
            return None
        check_fingerprint(answer.fingerprint, key)
        return str(answer.result["project_id"]), msgspec.convert(answer.result["commit"], Commit)


def _stored_id(key: str) -> str:
    return own_key(_PART, key).qualified_id
