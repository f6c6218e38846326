"""Repositories in folders of the host, used only as data.

The server treats such a folder as hostile. An agent's command may have written to it, and so may a merged
branch whose files ``core.hooksPath`` names. Therefore git never runs with the folder as its repository:

- A folder must lie below one of the operator's roots. The server resolves every symbolic link at each use.
- The server reads HEAD and the branches itself (`references`). It never reads ``config`` or ``hooks``.
- git reads the objects through a *view* that the server creates (`object_stores`), and writes nothing. The
  server writes packs, branches and files itself, into folders that it opened from the root down.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import unquote

from wonder_server.adapters.git.hosts.object_stores import check_object_store
from wonder_server.adapters.git.storage import references
from wonder_server.adapters.git.storage.references import (
    FOLDER,
    BrokenReferenceError,
    HostRepositoryError,
    open_folder,
    read_file,
)
from wonder_server.core.errors import Reason, WonderError, error

_MAX_ALTERNATES: Final = 5
_MAX_STORES: Final = 32


@dataclass(frozen=True, slots=True)
class Checkout:
    """A working folder in which a branch is checked out.

    ``folder`` is the open folder, or None if the server may not write to it. It may write only to a folder
    below a root whose ``.git`` is the repository.
    """

    folder: int | None


@dataclass(frozen=True, slots=True)
class HostRepository:
    """An opened repository of the host.

    ``git_dir`` and ``common_dir`` are open folders. They are equal except for a linked worktree, whose
    ``git_dir`` contains only its HEAD and index. ``path`` is the path of ``common_dir``. ``worktree`` is the
    open folder whose ``.git`` it is, if any. ``object_stores`` are open folders of objects: its own, then
    alternates.
    """

    path: Path
    git_dir: int
    common_dir: int
    worktree: int | None
    object_stores: Sequence[int]

    def default_branch(self) -> str:
        """Return the branch that HEAD names, or ""."""
        return references.head_of(self.git_dir)

    def branches(self) -> dict[str, str]:
        """Return the commit id of each branch."""
        return references.branches(self.common_dir)

    def branch(self, name: str) -> str:
        """Return the commit id of a branch, or ""."""
        return references.branch(self.common_dir, name)

    def checkout_of(self, branch: str) -> Checkout | None:
        """Return the working folder in which the branch is checked out, or None.

        A repository has a working folder if its name is ``.git`` or it has an index. A bare one has neither.
        """
        if self.path.name == ".git" or "index" in os.listdir(self.common_dir):
            if references.head_of(self.common_dir) == branch:
                return Checkout(self.worktree)
        with contextlib.suppress(FileNotFoundError), open_folder(self.common_dir, ["worktrees"]) as linked:
            for name in sorted(os.listdir(linked)):
                with contextlib.suppress(OSError), open_folder(linked, [name]) as worktree:
                    if references.head_of(worktree) == branch:
                        return Checkout(None)
        return None


@dataclass(frozen=True, slots=True)
class HostAccess:
    """Access to repositories of the host.

    ``forbidden`` is the server's data folder. ``roots`` are the folders below which repositories may lie.
    With ``updates_checkouts``, a merge also updates the working folder in which its target is checked out.
    """

    forbidden: Path
    roots: Sequence[Path] = ()
    updates_checkouts: bool = False


class HostFolders:
    """Open repositories below the operator's roots. ``forbidden`` is the server's data folder."""

    def __init__(self, roots: Sequence[Path], forbidden: Path) -> None:
        # Resolve the roots once: a command that may write below one root could replace an inner root by a
        # link.
        real = sorted({root.resolve() for root in roots})
        self._roots = tuple(
            root for root in real if not any(root.is_relative_to(above) for above in real if above != root)
        )
        self._forbidden = forbidden.resolve()

    def check(self, url: str) -> Path:
        """Return the resolved path of a host folder. FIELD_INVALID if it lies below no root.

        The error does not reveal whether a path outside the roots exists.
        """
        path = local_path(url)
        try:
            real = path.resolve()
            self._root_of(real)
        except (OSError, RuntimeError, ValueError, HostRepositoryError):
            # resolve() raises RuntimeError for a cycle of symbolic links.
            raise self._outside_roots(url) from None
        return real

    @contextlib.contextmanager
    def open(self, url: str) -> Iterator[HostRepository]:
        """Open the repository at ``url`` for the duration of the context. FIELD_INVALID,
        `HostRepositoryError`."""
        real = self.check(url)
        with contextlib.ExitStack() as stack:
            try:
                git_path = self._find_git_dir(real)
                path, (worktree, git_dir) = git_path, self._open_with_worktree(stack, git_path)
                common = git_dir
                if content := read_file(git_dir, "commondir", 4_096):
                    path = (git_path / os.fsdecode(content.strip())).resolve()
                    worktree, common = self._open_with_worktree(stack, path)
                self._check_format(common)
                stores: list[int] = []
                own_store = stack.enter_context(open_folder(common, ["objects"]))
                self._collect_stores(stack, stores, path / "objects", own_store, _MAX_ALTERNATES)
            except BrokenReferenceError as problem:
                raise HostRepositoryError(str(problem)) from None
            except OSError as problem:
                raise HostRepositoryError(f"it cannot be read ({problem.strerror})") from None
            yield HostRepository(path, git_dir, common, worktree, stores)

    # --- checks -----------------------------------------------------------------------------------

    def _root_of(self, real: Path) -> Path:
        """Return the resolved root above a resolved path. Raises `HostRepositoryError` if there is none."""
        if not real.is_relative_to(self._forbidden):
            for root in self._roots:
                if real.is_relative_to(root):
                    return root
        raise HostRepositoryError("it leads to a folder outside the setting repository_roots")

    def _outside_roots(self, url: str) -> WonderError:
        rule = (
            "The operator can add a parent folder to the setting repository_roots."
            if self._roots
            else "The setting repository_roots is empty, so no folder of the host can be used. Start the "
            "server with --repository-roots DIR, or use a URL."
        )
        return error(
            Reason.FIELD_INVALID,
            f"'{url[:500]}' is not below a root for repositories. {rule}",
            field="url",
        )

    def _find_git_dir(self, real: Path) -> Path:
        """Return the resolved folder that contains HEAD: ``<real>/.git`` or ``real`` itself."""
        for place in (real / ".git", real, real.with_name(f"{real.name}.git")):
            resolved = place.resolve()
            self._root_of(resolved)
            if resolved.is_dir() and (resolved / "HEAD").exists():
                return resolved
            if resolved.is_file() and resolved.name == ".git":
                return self._read_git_file(resolved)
        raise HostRepositoryError("there is no repository in this folder")

    def _read_git_file(self, file: Path) -> Path:
        """Return the folder that a ``.git`` file names."""
        with self._open_folder(file.parent) as folder:
            text = (read_file(folder, file.name, 4_096) or b"").decode("utf-8", "surrogateescape").strip()
        if not text.startswith("gitdir: "):
            raise HostRepositoryError("its .git file names no repository")
        resolved = (file.parent / text.removeprefix("gitdir: ")).resolve()
        self._root_of(resolved)
        return resolved

    @contextlib.contextmanager
    def _open_folder(self, real: Path) -> Iterator[int]:
        """Open a resolved folder from its root down, so that a link created meanwhile is not followed."""
        root = self._root_of(real)
        handle = os.open(root, FOLDER)
        try:
            with open_folder(handle, list(real.relative_to(root).parts)) as inner:
                yield inner
        finally:
            os.close(handle)

    def _open_with_worktree(self, stack: contextlib.ExitStack, place: Path) -> tuple[int | None, int]:
        """Open a repository for the duration of ``stack``, and the working folder whose ``.git`` it is.

        The working folder is None if there is none, or if it lies below no root.
        """
        if place.name == ".git":
            with contextlib.suppress(HostRepositoryError):
                worktree = stack.enter_context(self._open_folder(place.parent))
                return worktree, stack.enter_context(open_folder(worktree, [place.name]))
        return None, stack.enter_context(self._open_folder(place))

    def _check_format(self, common: int) -> None:
        names = os.listdir(common)
        if "reftable" in names:
            raise HostRepositoryError("it stores references as reftable, which is not supported")
        if "shallow" in names:
            raise HostRepositoryError("it is a shallow clone; run `git fetch --unshallow` there")
        if not {"objects", "refs"} <= set(names):
            raise HostRepositoryError("there is no repository in this folder")

    def _collect_stores(
        self, stack: contextlib.ExitStack, stores: list[int], place: Path, store: int, depth: int
    ) -> None:
        """Collect the object folder ``store`` and its alternates, open for the duration of ``stack``.

        Alternates must lie below a root.
        """
        check_object_store(store)
        stores.append(store)
        listed = read_file(store, "info/alternates", 1 << 16)
        for line in (listed or b"").decode("utf-8", "surrogateescape").split("\n"):
            if not line or line.startswith("#"):
                continue
            if line.startswith('"') or depth == 0 or len(stores) == _MAX_STORES:
                raise HostRepositoryError(
                    "it shares objects with other repositories in a way that is not supported"
                )
            other = (place / line).resolve()
            inner = stack.enter_context(self._open_folder(other))
            self._collect_stores(stack, stores, other, inner, depth - 1)


def is_local(url: str) -> bool:
    """Return True if the URL names a folder of the host."""
    return url.startswith(("/", "file://"))


def local_path(url: str) -> Path:
    """Return the path that a local URL names."""
    return Path(unquote(url.removeprefix("file://")) if url.startswith("file://") else url)
