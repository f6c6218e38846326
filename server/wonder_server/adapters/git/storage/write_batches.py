"""Concurrent writes on one branch: one commit each, and one step that makes all of them visible."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from wonder_server.adapters.git.storage import queries
from wonder_server.adapters.git.storage.bare_repository import EMPTY_TREE, BareRepository, parse_commit
from wonder_server.adapters.git.storage.trees import FOLDER, Objects, TreeEntry, object_id
from wonder_server.core.errors import Reason, WonderError, error
from wonder_server.core.frozen import replace
from wonder_server.ports.repositories import Change, Commit, CommitMetadata


@dataclass(frozen=True, slots=True)
class WriteRequest:
    """One call of ``Repository.write``."""

    branch: str
    changes: Sequence[Change]
    metadata: CommitMetadata
    begin: str = ""
    expected: Mapping[str, str] = field(default_factory=dict)

    @property
    def size(self) -> int:
        return sum(len(change.content or b"") for change in self.changes)


def write_all(bare: BareRepository, writes: Sequence[WriteRequest]) -> list[Commit | Exception]:
    """Execute writes on one branch in order. Return the commit or the error of each.

    A write sees the changes of earlier ones. `RefConflictError` if the branch was moved meanwhile; then none
    applies.
    """
    bare.create()
    branch = writes[0].branch
    head = bare.head(branch)
    answers: list[Commit | Exception] = []
    state: _BranchState | None = None
    has_begun = bool(head)
    for write in writes:
        if state is None:
            state = _BranchState(bare, head or (bare.head(write.begin) if write.begin else ""), writes)
        try:
            answers.append(state.write(write))
            has_begun = True
        except WonderError as problem:
            answers.append(problem)
            if not has_begun:
                state = None  # The next write may start the branch at another commit.
    if state is not None and state.head != head:
        state.objects.flush()
        bare.set_branch(branch, state.head, head)
    return answers


class _BranchState:
    """The branch after the writes executed so far."""

    def __init__(self, bare: BareRepository, base: str, writes: Sequence[WriteRequest]) -> None:
        self.objects = Objects(bare)
        self.head = base
        self._bare = bare
        self._head_commit: Commit | None = None
        self._tree = ""
        if base:
            paths = {change.path for write in writes for change in write.changes}
            paths.update(path for write in writes for path in write.expected)
            self._tree = self.objects.preload(base, paths)
            self._tree = "" if self._tree == EMPTY_TREE else self._tree

    def write(self, write: WriteRequest) -> Commit:
        """Create the commit of one write."""
        for path, wanted in write.expected.items():
            self._check_expected(path, wanted)
        for change in write.changes:
            if change.content is not None:
                self._check_path_free(change.path)
        tree, paths = self._tree, []
        for change in write.changes:
            before = self.objects.at(tree, change.path)
            leaf = None
            if change.content is not None:
                leaf = TreeEntry(change.mode, self.objects.add("blob", change.content))
            elif before is None or before.mode == FOLDER:
                continue
            if leaf != before:
                tree = self.objects.with_entry(tree, change.path, leaf)
                paths.append(change.path)
        if self.head and not write.metadata.key and tree == self._tree:
            return self._unchanged()
        stored_tree = tree or self.objects.add("tree", b"")
        raw = self._bare.commit_text(stored_tree, [self.head] if self.head else [], write.metadata)
        self._tree, self.head = tree, self.objects.add("commit", raw)
        self._head_commit = replace(parse_commit(self.head, raw), paths=tuple(sorted(paths)))
        return self._head_commit

    def _unchanged(self) -> Commit:
        if self._head_commit is None:
            self._head_commit = queries.with_paths(self._bare, self._bare.commits([self.head]))[0]
        return self._head_commit

    def _check_expected(self, path: str, wanted: str) -> None:
        found = self.objects.at(self._tree, path) if self._tree else None
        if (found.id if found is not None else "") != wanted:
            raise error(
                Reason.ETAG_MISMATCH,
                f"'{path}' has changed since it was read. Read it again and repeat the change.",
                field="etag",
                etag=found.id if found is not None else "none",
            )

    def _check_path_free(self, path: str) -> None:
        """Raise FIELD_INVALID if a file would replace a folder, or a folder a file, since that deletes
        content."""
        parts = path.split("/")
        for count in range(1, len(parts)):
            above = "/".join(parts[:count])
            found = self.objects.at(self._tree, above) if self._tree else None
            if found is None:
                return
            if found.mode != FOLDER:
                raise _path_blocked(path, f"cannot be written: '{above}' is a file, not a folder")
        found = self.objects.at(self._tree, path) if self._tree else None
        if found is not None and found.mode == FOLDER:
            raise _path_blocked(path, "is a folder that contains files")


def _path_blocked(path: str, problem: str) -> WonderError:
    return error(Reason.FIELD_INVALID, f"'{path}' {problem}.", field="path")


def content_id(content: bytes) -> str:
    """Return the hash of a file's content, as in ``File.id``."""
    return object_id("blob", content)
