"""One bare repository that only this server writes: no working tree, no hooks, nothing of anybody else.

A change is made beside what is there (objects), and then with one step of one reference, given the value that
it must still have. Whatever happens before that step, happened to nobody; what is left of it are objects that
nobody refers to.
"""

from __future__ import annotations

import contextlib
import re
import shutil
import tempfile
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final
from urllib.parse import quote, unquote

from wonder_server.adapters.git.run import Git, GitError
from wonder_server.core.errors import Reason, error
from wonder_server.ports.repositories import Commit, Signed

NOTHING: Final = "0" * 40
EMPTY_TREE: Final = "4b825dc642cb6eb9a060e54bf8d69288fbee4904"
_ID: Final = re.compile(r"[0-9a-f]{40}\Z")
_SIGNATURE: Final = re.compile(rb"(.*) <(.*)> (-?\d+) [-+]\d{4}\Z", re.DOTALL)
_INDEX: Final = "wonder-index-"
_OURS: Final = "@wonder"


class Moved(Exception):
    """Somebody else has changed the branch meanwhile."""


class Bare:
    """The repository in ``folder``. Every method blocks."""

    def __init__(self, git: Git, folder: Path) -> None:
        self.git = git
        self.folder = folder
        self._opened = False
        self._opening = threading.Lock()

    def exists(self) -> bool:
        """Whether it is there; the first time, what a crash has left locked is unlocked."""
        if not self.folder.is_dir():
            return False
        with self._opening:
            if not self._opened:
                self._unlock()
                self._opened = True
        return True

    def make(self) -> None:
        """See that it is there, whole from the first moment."""
        if self.exists():
            return
        self.folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=self.folder.parent, prefix=".new-") as draft:
            fresh = Path(draft) / "bare"
            self.git.run(fresh, "init", "--quiet", "--bare", "--template=", "--initial-branch=main")
            with contextlib.suppress(OSError):  # Somebody else was faster.
                fresh.rename(self.folder)
        with self._opening:
            self._opened = True

    def remove(self) -> None:
        """Remove it: out of the way with one step, then for good."""
        if self.folder.is_dir():
            gone = Path(tempfile.mkdtemp(dir=self.folder.parent, prefix=".old-"))
            self.folder.rename(gone / "bare")
            shutil.rmtree(gone, ignore_errors=True)
        with self._opening:
            self._opened = False

    def _unlock(self) -> None:
        """A git that was killed leaves its locks, and a server that was killed its indexes; the data folder
        belongs to this server alone."""
        for name in ("HEAD.lock", "config.lock", "packed-refs.lock", "shallow.lock"):
            (self.folder / name).unlink(missing_ok=True)
        for lock in (self.folder / "refs").rglob("*.lock"):
            lock.unlink(missing_ok=True)
        for index in self.folder.glob(f"{_INDEX}*"):
            shutil.rmtree(index, ignore_errors=True)

    # --- references -------------------------------------------------------------------------------

    def resolve(self, at: str) -> str:
        """The id of a commit or tree: ``at`` itself, if it is one that is there, or a branch's newest commit.
        Empty if there is none."""
        if not self.exists():
            return ""
        if _ID.match(at):
            kind = self.git.run(self.folder, "cat-file", "-t", at, fine=(0, 1, 128)).text
            if kind in ("commit", "tree"):
                return at
        return self.head(at)

    def head(self, branch: str) -> str:
        """The newest commit of a branch; empty if there is none."""
        if not self.exists():
            return ""
        said = self.git.run(
            self.folder, "rev-parse", "--verify", "--quiet", "--end-of-options",
            f"refs/heads/{branch}^{{commit}}", fine=(0, 1, 128),
        )  # fmt: skip
        return said.text if said.code == 0 else ""

    def move(self, branch: str, new: str, old: str) -> None:
        """The one step that makes a change count. `Moved` if the branch is not at ``old`` any more."""
        try:
            self.git.run(self.folder, "update-ref", f"refs/heads/{branch}", new, old or NOTHING)
        except GitError as problem:
            if self.head(branch) != old:
                raise Moved from None
            if "exists; cannot create" in problem.text or "cannot lock ref" in problem.text:
                raise error(
                    Reason.FIELD_INVALID,
                    f"There can be no branch '{branch}': another's name begins so, or is its beginning.",
                    field="branch",
                ) from None
            raise

    def drop(self, branch: str) -> None:
        if self.head(branch):
            self.git.run(self.folder, "update-ref", "-d", f"refs/heads/{branch}")

    # --- objects ----------------------------------------------------------------------------------

    def put(self, content: bytes, kind: str = "blob") -> str:
        """Keep an object; its id."""
        return self.git.run(self.folder, "hash-object", "-w", "-t", kind, "--stdin", input=content).text

    def blob(self, blob_id: str, most: int) -> bytes:
        """A content. PAYLOAD_TOO_LARGE if it is longer than ``most``."""
        return self.git.run(self.folder, "cat-file", "blob", blob_id, most=most).out

    def blobs(self, ids: Sequence[str], most: int) -> dict[str, bytes]:
        """Many contents, by id."""
        wanted = "".join(f"{blob_id}\n" for blob_id in ids).encode()
        out = self.git.run(self.folder, "cat-file", "--batch", input=wanted, most=most).out if ids else b""
        return dict(_batched(out))

    def tree_with(self, base: str, entries: Iterable[tuple[str, str, str]]) -> str:
        """The tree ``base`` (empty: none) with other entries: mode, id and path; without id the path goes."""
        lines = [
            f"{mode} {blob}\t{path}\0" if blob else f"0 {NOTHING}\t{path}\0" for mode, blob, path in entries
        ]
        with tempfile.TemporaryDirectory(prefix=_INDEX, dir=self.folder) as folder:
            index = {"GIT_INDEX_FILE": f"{folder}/index"}
            self.git.run(self.folder, "read-tree", base or "--empty", also=index)
            listing = "".join(lines).encode("utf-8", "surrogateescape")
            self.git.run(self.folder, "update-index", "-z", "--index-info", input=listing, also=index)
            return self.git.run(self.folder, "write-tree", also=index).text

    def put_commit(self, tree: str, parents: Sequence[str], signed: Signed, at_s: int = 0) -> str:
        """Keep a commit that no branch knows of yet. ``at_s``: seconds since 1970; 0: now."""
        when = f"{at_s or int(time.time())} +0000"
        name = quote(signed.author or "anonymous", safe=" !#$'()*+-./:=?@_{|}~").strip(" .") or "anonymous"
        committer = f"{signed.key}.{signed.mark}" if signed.key else "server"
        lines = [f"tree {tree}", *(f"parent {parent}" for parent in parents)]
        lines += [f"author {name} <{_bare_word(name)}{_OURS}> {when}"]
        lines += [f"committer Wonder <{committer}{_OURS}> {when}", "", signed.message.rstrip() + "\n"]
        text = "\n".join(lines).replace("\0", "")
        return self.put(text.encode("utf-8", "replace"), "commit")

    def commits(self, ids: Sequence[str]) -> list[Commit]:
        """These commits, as they are written down."""
        wanted = "".join(f"{commit_id}\n" for commit_id in ids).encode()
        out = self.git.run(self.folder, "cat-file", "--batch", input=wanted).out if ids else b""
        return [_parsed(commit_id, raw) for commit_id, raw in _batched(out)]

    def marked(self, commit_id: str) -> str:
        """The mark of the request that made the commit."""
        raw = self.git.run(self.folder, "cat-file", "commit", commit_id).out
        found = re.search(rb"^committer Wonder <[0-9a-f]+\.([0-9a-f]*)@wonder>", raw, re.MULTILINE)
        return found[1].decode() if found else ""


def _bare_word(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9_.+-]+", "-", name)


def _batched(out: bytes) -> Iterator[tuple[str, bytes]]:
    """The answers of ``cat-file --batch``, what is missing left out."""
    at = 0
    while at < len(out):
        end = out.index(b"\n", at)
        head = out[at:end].split()
        at = end + 1
        if len(head) == 3:
            size = int(head[2])
            yield head[0].decode(), out[at : at + size]
            at += size + 1


def _parsed(commit_id: str, raw: bytes) -> Commit:
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
            if found[2].endswith(_OURS.encode()):
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
