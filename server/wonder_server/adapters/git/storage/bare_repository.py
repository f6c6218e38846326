"""One bare repository that only this server writes: no working tree, no hooks, no files of others.

A change first adds objects, then moves one reference in one step that requires its expected old value. A
failure before that step changes nothing visible. It leaves unreferenced objects, which packing deletes later.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import shutil
import tempfile
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import IO, Final
from urllib.parse import quote, unquote

from wonder_server.adapters.git.storage import references
from wonder_server.adapters.git.storage.command import (
    MAX_OUTPUT,
    Git,
    GitError,
    RepositoryDamagedError,
    RunOptions,
)
from wonder_server.adapters.git.storage.references import BrokenReferenceError
from wonder_server.core.errors import Reason, error
from wonder_server.ports.repositories import Commit, CommitMetadata

ZERO_ID: Final = "0" * 40
EMPTY_TREE: Final = "4b825dc642cb6eb9a060e54bf8d69288fbee4904"
_ID: Final = re.compile(r"[0-9a-f]{40}\Z")
_SIGNATURE: Final = re.compile(rb"(.*) <(.*)> (-?\d+) [-+]\d{4}\Z", re.DOTALL)
_INDEX: Final = "wonder-index-"
_EMAIL_DOMAIN: Final = "@wonder"


class RefConflictError(Exception):
    """Another change has moved the branch."""


class BareRepository:
    """The bare repository in ``folder``. Every method blocks."""

    def __init__(self, git: Git, folder: Path) -> None:
        self.git = git
        self.folder = folder
        self._is_open = False
        self._lock = threading.Lock()
        self._known_branches: frozenset[str] = frozenset()

    def exists(self) -> bool:
        """Return True if the repository exists. The first call removes locks that a crash left.

        Raises `RepositoryDamagedError` if the folder is missing although branches were created in it.
        """
        is_there = self.folder.is_dir()
        with self._lock:
            if not self._is_open:
                self._known_branches = self._read_branch_list()
                if is_there:
                    self._remove_stale_locks()
                    self._write_branch_list(self._known_branches | self._own_branches())
                self._is_open = is_there
        if not is_there and self._known_branches:
            raise RepositoryDamagedError(f"the folder {self.folder.name} is missing")
        return is_there

    def create(self) -> None:
        """Create the repository if it does not exist, in one step."""
        if self.exists():
            return
        self.folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=self.folder.parent, prefix=".new-") as draft:
            fresh = Path(draft) / "bare"
            self.git.run(fresh, "init", "--quiet", "--bare", "--template=", "--initial-branch=main")
            with contextlib.suppress(OSError):  # A concurrent call created it.
                fresh.rename(self.folder)
        with self._lock:
            self._is_open = True

    def remove(self) -> None:
        """Delete the repository: move it away in one step, then delete its files."""
        with self._lock:
            self._known_branches = frozenset()
            self._branch_list_path.unlink(missing_ok=True)
        if self.folder.is_dir():
            trash = Path(tempfile.mkdtemp(dir=self.folder.parent, prefix=".old-"))
            self.folder.rename(trash / "bare")
            shutil.rmtree(trash, ignore_errors=True)
        with self._lock:
            self._is_open = False

    def _remove_stale_locks(self) -> None:
        """Remove the locks of a killed git and the index files of a killed server.

        Only this server uses the data folder, so no lock is in use at startup.
        """
        for name in ("HEAD.lock", "config.lock", "packed-refs.lock", "shallow.lock"):
            (self.folder / name).unlink(missing_ok=True)
        for lock in (self.folder / "refs").rglob("*.lock"):
            lock.unlink(missing_ok=True)
        for index in self.folder.glob(f"{_INDEX}*"):
            shutil.rmtree(index, ignore_errors=True)

    # --- the list of branches ---------------------------------------------------------------------

    # A branch with a lost file looks as if it never existed. So a file beside the repository lists the
    # branches.

    @property
    def _branch_list_path(self) -> Path:
        return self.folder.with_suffix(".branches")

    def _read_branch_list(self) -> frozenset[str]:
        try:
            return frozenset(self._branch_list_path.read_text("utf-8", "surrogateescape").split("\n")) - {""}
        except FileNotFoundError:
            return frozenset()

    def _own_branches(self) -> frozenset[str]:
        """Return the existing branches, without those of an origin, which appear and disappear."""
        try:
            with self._handle() as handle:
                names = references.branches(handle)
        except (BrokenReferenceError, OSError):
            return frozenset()  # Reading the branch raises the error.
        return frozenset(name for name in names if not name.startswith("origin/"))

    def _write_branch_list(self, names: frozenset[str]) -> None:
        """Store the list of branches; it is on disk when this returns. The caller holds the lock."""
        if names == self._known_branches and (self._branch_list_path.exists() or not names):
            return
        draft = self.folder.with_suffix(".new-branches")
        with draft.open("w", encoding="utf-8", errors="surrogateescape") as file:
            file.write("\n".join(sorted(names)) + "\n")
            file.flush()
            os.fsync(file.fileno())
        draft.replace(self._branch_list_path)
        self._known_branches = names

    @contextlib.contextmanager
    def _handle(self) -> Iterator[int]:
        handle = os.open(self.folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            yield handle
        finally:
            os.close(handle)

    # --- references -------------------------------------------------------------------------------

    def resolve(self, at: str) -> str:
        """Return ``at`` if it is an id, or the newest commit of the branch ``at``; "" if there is no such
        branch.

        An id may name a missing object; reading the object raises the error.
        """
        if not self.exists():
            return ""
        return at if _ID.match(at) else self.head(at)

    def has_commit(self, commit_id: str) -> bool:
        """Return True if a commit with this id, which a client named, exists.

        Raises `RepositoryDamagedError` if it may be missing because of damage.
        """
        if not self.exists():
            return False
        ((_, kind, _),) = self.batch([commit_id])
        if kind == "missing":
            for branch in self._known_branches:
                self.head(branch)
            self.git.run(self.folder, "-c", "core.commitGraph=false", "rev-list", "--branches", "--quiet")
        return kind == "commit"

    def head(self, branch: str) -> str:
        """Return the newest commit of a branch, or "". `RepositoryDamagedError` if the list has this
        branch."""
        if not self.exists():
            return ""
        try:
            with self._handle() as handle:
                found = references.branch(handle, branch)
        except BrokenReferenceError as problem:
            raise RepositoryDamagedError(str(problem)) from None
        if not found and branch in self._known_branches:
            raise RepositoryDamagedError(f"the reference of the branch '{branch}' is missing")
        return found

    def set_branch(self, branch: str, new: str, old: str) -> None:
        """Move a branch from ``old`` to ``new`` in one step. `RefConflictError` if it is not at ``old``."""
        try:
            self.git.run(self.folder, "update-ref", f"refs/heads/{branch}", new, old or ZERO_ID)
            if not old and not branch.startswith("origin/"):
                with self._lock:
                    self._write_branch_list(self._known_branches | {branch})
        except GitError as problem:
            if self.head(branch) != old:
                raise RefConflictError from None
            if "exists; cannot create" in problem.complaint or "cannot lock ref" in problem.complaint:
                raise error(
                    Reason.FIELD_INVALID,
                    f"The branch '{branch}' cannot be created: git allows no branch whose name continues "
                    "that of another one after a slash. Choose another name.",
                    field="branch",
                ) from None
            raise

    def delete_branch(self, branch: str) -> None:
        """Delete a branch. A missing or damaged branch is no error."""
        if not self.exists():
            return
        with self._lock:
            self._write_branch_list(self._known_branches - {branch})
        try:
            is_there = bool(self.head(branch))
        except RepositoryDamagedError:
            is_there = True
        if is_there:
            self.git.run(self.folder, "update-ref", "-d", f"refs/heads/{branch}")

    # --- objects ----------------------------------------------------------------------------------

    def write_object(self, content: bytes, kind: str = "blob") -> str:
        """Store an object. Return its id."""
        options = RunOptions(input=content)
        return self.git.run(self.folder, "hash-object", "-w", "-t", kind, "--stdin", options=options).text

    def blob(self, blob_id: str, max_bytes: int) -> bytes:
        """Return a content. PAYLOAD_TOO_LARGE above ``max_bytes``; `RepositoryDamagedError` if it is
        damaged."""
        options = RunOptions(max_bytes=max_bytes)
        content = self.git.run(self.folder, "cat-file", "blob", blob_id, options=options).out
        _check_id(blob_id, "blob", content)
        return content

    def blob_into(self, blob_id: str, stream: IO[bytes], size: int) -> None:
        """Write a content of at most ``size`` bytes to a file and rewind it. For contents too large for
        memory.

        Errors: as for `blob`.
        """
        options = RunOptions(max_bytes=size, output=stream)
        self.git.run(self.folder, "cat-file", "blob", blob_id, options=options)
        found = hashlib.sha1(b"blob %d\0" % stream.tell(), usedforsecurity=False)
        stream.seek(0)
        while part := stream.read(1 << 20):
            found.update(part)
        if found.hexdigest() != blob_id:
            raise RepositoryDamagedError(f"the blob {blob_id} has another content")
        stream.seek(0)

    def blobs(self, ids: Sequence[str], max_bytes: int) -> dict[str, bytes]:
        """Return many contents, by id."""
        return dict(zip(ids, self.objects(ids, "blob", max_bytes), strict=True))

    def batch(self, names: Sequence[str], max_bytes: int = MAX_OUTPUT) -> list[tuple[str, str, bytes]]:
        """Return id, kind and content of each named object; kind ``missing`` if it is missing or unreadable.

        Raises `RepositoryDamagedError` for an object whose content does not match its id.
        """
        wanted = "".join(f"{name}\n" for name in names).encode("utf-8", "surrogateescape")
        if not names:
            return []
        options = RunOptions(input=wanted, max_bytes=max_bytes, allow_errors=True)
        found = list(_parse_batch(self.git.run(self.folder, "cat-file", "--batch", options=options).out))
        if len(found) != len(names):
            raise RepositoryDamagedError("git ended in the middle of the objects")
        for object_id, kind, content in found:
            if kind != "missing":
                _check_id(object_id, kind, content)
        return found

    def objects(self, ids: Sequence[str], kind: str, max_bytes: int = MAX_OUTPUT) -> list[bytes]:
        """Return the contents of objects that must exist. Raises `RepositoryDamagedError`."""
        found = self.batch(ids, max_bytes)
        for wanted, (object_id, is_kind, _) in zip(ids, found, strict=True):
            if (object_id, is_kind) != (wanted, kind):
                raise RepositoryDamagedError(f"the {kind} {wanted} is missing or cannot be read")
        return [content for _, _, content in found]

    def tree_with(self, base: str, entries: Iterable[tuple[str, str, str]]) -> str:
        """Return the tree ``base`` ("": empty) with changed entries (mode, id, path). An empty id removes a
        path."""
        lines = [
            f"{mode} {blob}\t{path}\0" if blob else f"0 {ZERO_ID}\t{path}\0" for mode, blob, path in entries
        ]
        with tempfile.TemporaryDirectory(prefix=_INDEX, dir=self.folder) as folder:
            index = {"GIT_INDEX_FILE": f"{folder}/index"}
            options = RunOptions(environment=index)
            self.git.run(self.folder, "read-tree", base or "--empty", options=options)
            listing = "".join(lines).encode("utf-8", "surrogateescape")
            update = RunOptions(environment=index, input=listing)
            self.git.run(self.folder, "update-index", "-z", "--index-info", options=update)
            return self.git.run(self.folder, "write-tree", options=options).text

    def write_commit(self, tree: str, parents: Sequence[str], metadata: CommitMetadata, at_s: int = 0) -> str:
        """Store a commit without moving a branch. Return its id. ``at_s``: seconds since 1970; 0: now."""
        return self.write_object(self.commit_text(tree, parents, metadata, at_s), "commit")

    def commit_text(
        self, tree: str, parents: Sequence[str], metadata: CommitMetadata, at_s: int = 0
    ) -> bytes:
        """Return a commit in git's format."""
        when = f"{at_s or int(time.time())} +0000"
        name = quote(metadata.author or "anonymous", safe=" !#$'()*+-./:=?@_{|}~").strip(" .") or "anonymous"
        committer = f"{metadata.key}.{metadata.fingerprint}" if metadata.key else "server"
        lines = [f"tree {tree}", *(f"parent {parent}" for parent in parents)]
        lines += [f"author {name} <{_email_word(name)}{_EMAIL_DOMAIN}> {when}"]
        lines += [
            f"committer Wonder <{committer}{_EMAIL_DOMAIN}> {when}",
            "",
            metadata.message.rstrip() + "\n",
        ]
        text = "\n".join(lines).replace("\0", "")
        return text.encode("utf-8", "replace")

    def commits(self, ids: Sequence[str]) -> list[Commit]:
        """Return these commits. Raises `RepositoryDamagedError` if one is missing."""
        found = self.objects(ids, "commit")
        return [parse_commit(commit_id, raw) for commit_id, raw in zip(ids, found, strict=True)]

    def request_fingerprint(self, commit_id: str) -> str:
        """Return the fingerprint of the request that created the commit, or ""."""
        raw = self.git.run(self.folder, "cat-file", "commit", commit_id).out
        found = re.search(rb"^committer Wonder <[0-9a-f]+\.([0-9a-f]*)@wonder>", raw, re.MULTILINE)
        return found[1].decode() if found else ""


def _email_word(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9_.+-]+", "-", name)


def _check_id(object_id: str, kind: str, content: bytes) -> None:
    """Raise `RepositoryDamagedError` if an object does not match its id: git reads objects without this
    check."""
    head = f"{kind} {len(content)}\0".encode()
    if hashlib.sha1(head + content, usedforsecurity=False).hexdigest() != object_id:
        raise RepositoryDamagedError(f"the {kind} {object_id} has another content")


def _parse_batch(out: bytes) -> Iterator[tuple[str, str, bytes]]:
    """Yield id, kind and content from the output of ``cat-file --batch``."""
    at = 0
    while at < len(out):
        end = out.find(b"\n", at)
        head = out[at:end].rsplit(b" ", 2)
        at = end + 1
        if end < 0 or (len(head) == 3 and head[2].isdigit() and at + int(head[2]) > len(out)):
            return
        if len(head) == 3 and head[2].isdigit():
            size = int(head[2])
            yield head[0].decode(), head[1].decode(), out[at : at + size]
            at += size + 1
        else:
            yield "", "missing", b""


def parse_commit(commit_id: str, raw: bytes) -> Commit:
    """Parse a commit in git's format."""
    head, _, message = raw.partition(b"\n\n")
    tree, parents, author, created = "", [], "", 0
    for line in head.split(b"\n"):
        word, _, rest = line.partition(b" ")
        if word == b"tree":
            tree = rest.decode()
        elif word == b"parent":
            parents.append(rest.decode())
        elif word == b"author" and (found := _SIGNATURE.match(rest)):
            author = found[1].decode("utf-8", "replace")
            if found[2].endswith(_EMAIL_DOMAIN.encode()):
                author = unquote(author)
        elif word == b"committer" and (found := _SIGNATURE.match(rest)):
            created = int(found[3]) * 1_000
    return Commit(
        id=commit_id,
        tree=tree,
        parents=tuple(parents),
        author=author,
        message=message.decode("utf-8", "replace").rstrip("\n"),
        created_ms=max(created, 0),
    )
