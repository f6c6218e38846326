"""Repositories in folders of the host, used as data only.

The server treats such a folder as hostile. An agent's command may have written to it. So may a merged branch
whose files ``core.hooksPath`` names. Therefore git never runs with the folder as its repository:

- A folder must lie below one of the operator's roots. Every symbolic link is resolved at each use.
- The server reads HEAD and the branches itself (`references`). It never reads ``config`` or ``hooks``.
- For the objects, git runs on a *lens*: a bare repository in the data folder with the server's own
  configuration. Its ``objects`` and ``refs`` are the host folder's, opened beforehand.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import unquote

from wonder_server.adapters.git import references
from wonder_server.adapters.git.references import FOLDER, BrokenReference, opened, read_file
from wonder_server.core.errors import Reason, WonderError, error

_DESCRIPTORS: Final = Path("/proc/self/fd")
"""The open files of a process, on Linux. Through it git reaches the folder that was checked, even if the path
has been replaced since. On other systems git gets the resolved path."""

_CONFIG: Final = """\
[core]
\trepositoryformatversion = 0
\tbare = true
\thooksPath = /dev/null
\tfsmonitor = false
\tattributesFile = /dev/null
\tfsync = committed,loose-object,reference
[gc]
\tauto = 0
[maintenance]
\tauto = false
"""
_MAX_ALTERNATES: Final = 5


class HostProblem(Exception):
    """A host folder that cannot be used as a repository. The message is a clause for people."""


@dataclass(frozen=True, slots=True)
class Checkout:
    """A working folder in which a branch is checked out. ``is_main``: the repository lies in its ``.git``."""

    folder: Path
    is_main: bool


@dataclass(frozen=True, slots=True)
class Host:
    """An opened repository of the host. ``own`` and ``common`` are open folders: the same one, except for a
    linked worktree, whose ``own`` holds only its HEAD and index. ``place`` is the path of ``common``."""

    place: Path
    own_place: Path
    own: int
    common: int

    def default_branch(self) -> str:
        """Return the branch that HEAD names, or ""."""
        return references.head_of(self.own)

    def branches(self) -> dict[str, str]:
        """Return the commit id of each branch."""
        return references.branches(self.common)

    def branch(self, name: str) -> str:
        """Return the commit id of a branch, or ""."""
        return references.branch(self.common, name)

    def checkout_of(self, branch: str) -> Checkout | None:
        """Return the working folder in which the branch is checked out, or None.

        The repository has a working folder if it is named ``.git`` or has an index: a bare one has neither.
        """
        if self.place.name == ".git" or "index" in os.listdir(self.common):
            if references.head_of(self.common) == branch:
                return Checkout(self.place.parent, self.place.name == ".git")
        with contextlib.suppress(FileNotFoundError), opened(self.common, ["worktrees"]) as linked:
            for name in sorted(os.listdir(linked)):
                with contextlib.suppress(OSError), opened(linked, [name]) as worktree:
                    if references.head_of(worktree) == branch:
                        said = read_file(worktree, "gitdir", 4_096) or name.encode()
                        return Checkout(Path(os.fsdecode(said.strip())).parent, False)
        return None

    def check_way(self, branch: str) -> None:
        """Raise HostProblem if a symbolic link lies on the way to the file of the branch, or if the branch is
        but a name of another."""
        if (read_file(self.common, f"refs/heads/{branch}", 4_096) or b"").startswith(b"ref:"):
            raise HostProblem(f"its branch '{branch}' is a symbolic reference")
        folders = ["refs", "heads", *branch.split("/")[:-1]]
        try:
            with opened(self.common, folders):
                return
        except FileNotFoundError:
            return
        except OSError as problem:
            raise HostProblem(
                f"'{'/'.join(folders)}' in it is no plain folder ({problem.strerror})"
            ) from None


class HostFolders:
    """Opens repositories below the operator's roots. ``forbidden`` is the server's data folder."""

    def __init__(self, roots: Sequence[Path], forbidden: Path) -> None:
        self._roots = tuple(roots)
        self._forbidden = forbidden.resolve()

    def check(self, url: str) -> Path:
        """Return the resolved path of a host folder. FIELD_INVALID if it lies below no root.

        The answer is the same whether or not something exists at a path outside the roots."""
        path = local_path(url)
        try:
            real = path.resolve()
            self._below_a_root(real)
        except (OSError, RuntimeError, ValueError, HostProblem):
            # RuntimeError: symbolic links that lead to each other.
            raise self._refused(url) from None
        return real

    @contextlib.contextmanager
    def open(self, url: str) -> Iterator[Host]:
        """Open the repository at ``url`` for the time of the context. FIELD_INVALID, HostProblem."""
        real = self.check(url)
        with contextlib.ExitStack() as stack:
            try:
                own_place = self._found(real)
                own = stack.enter_context(self._opened(own_place))
                place, common = own_place, own
                if said := read_file(own, "commondir", 4_096):
                    place = (own_place / os.fsdecode(said.strip())).resolve()
                    common = stack.enter_context(self._opened(place))
                self._check_format(common)
                self._check_objects(place, common, _MAX_ALTERNATES)
            except BrokenReference as problem:
                raise HostProblem(str(problem)) from None
            except OSError as problem:
                raise HostProblem(f"it cannot be read ({problem.strerror})") from None
            yield Host(place, own_place, own, common)

    @contextlib.contextmanager
    def lens(self, host: Host, where: Path) -> Iterator[Lens]:
        """Make a bare repository in the folder ``where`` that has the objects of the host's."""
        with (
            opened(host.common, ["objects"]) as objects,
            opened(host.common, ["refs"]) as refs,
            tempfile.TemporaryDirectory(dir=where, prefix=".new-") as draft,
        ):
            folder = Path(draft)
            (folder / "config").write_text(_CONFIG)
            (folder / "HEAD").write_text("ref: refs/heads/.none\n")
            (folder / "objects").symlink_to(_seen(objects, host.place / "objects"))
            yield Lens(folder, (objects, refs, host.common), host.place)

    # --- checks -----------------------------------------------------------------------------------

    def _below_a_root(self, real: Path) -> Path:
        """Return the resolved root above a resolved path. Raises HostProblem if there is none."""
        if not real.is_relative_to(self._forbidden):
            for root in self._roots:
                resolved = root.resolve()
                if real.is_relative_to(resolved):
                    return resolved
        raise HostProblem("it leads to a folder that the operator has not opened to repositories")

    def _refused(self, url: str) -> WonderError:
        rule = (
            "The operator can add a parent folder of it to the setting repository_roots."
            if self._roots
            else "The setting repository_roots is empty, so no folder of the host can be used."
        )
        return error(
            Reason.FIELD_INVALID,
            f"'{url[:500]}' is not below a root for repositories. {rule}",
            field="url",
        )

    def _found(self, real: Path) -> Path:
        """Return the resolved folder that holds HEAD: ``<real>/.git`` or ``real`` itself."""
        for place in (real / ".git", real, real.with_name(f"{real.name}.git")):
            resolved = place.resolve()
            self._below_a_root(resolved)
            if resolved.is_dir() and (resolved / "HEAD").exists():
                return resolved
            if resolved.is_file() and resolved.name == ".git":
                return self._pointed(resolved)
        raise HostProblem("there is no repository there")

    def _pointed(self, file: Path) -> Path:
        """Return the folder that a ``.git`` file names."""
        with self._opened(file.parent) as folder:
            said = (read_file(folder, file.name, 4_096) or b"").decode("utf-8", "surrogateescape").strip()
        if not said.startswith("gitdir: "):
            raise HostProblem("its .git file names no repository")
        resolved = (file.parent / said.removeprefix("gitdir: ")).resolve()
        self._below_a_root(resolved)
        return resolved

    @contextlib.contextmanager
    def _opened(self, real: Path) -> Iterator[int]:
        """Open a resolved folder from its root down, so that a link put there meanwhile is not followed."""
        root = self._below_a_root(real)
        handle = os.open(root, FOLDER)
        try:
            with opened(handle, list(real.relative_to(root).parts)) as inner:
                yield inner
        finally:
            os.close(handle)

    def _check_format(self, common: int) -> None:
        names = os.listdir(common)
        if "reftable" in names:
            raise HostProblem("it keeps its references as reftable, which is not supported")
        if "shallow" in names:
            raise HostProblem("it is a shallow clone; run `git fetch --unshallow` there")
        if not {"objects", "refs"} <= set(names):
            raise HostProblem("there is no repository there")

    def _check_objects(self, place: Path, common: int, depth: int) -> None:
        with opened(common, ["objects"]) as objects:
            self._check_store(place / "objects", objects, depth)

    def _check_store(self, place: Path, objects: int, depth: int) -> None:
        """See that a store of objects leads nowhere outside the roots, and that git need not wait there:
        no symbolic links, no pipes, and alternates only below a root."""
        with os.scandir(objects) as listing:
            inner_names = [entry.name for entry in listing if entry.is_dir(follow_symlinks=False)]
        for folders in ([], *([name] for name in inner_names)):
            with contextlib.suppress(FileNotFoundError), opened(objects, folders) as inner:
                with os.scandir(inner) as listing:
                    odd = [
                        entry.name
                        for entry in listing
                        if not entry.is_file(follow_symlinks=False)
                        and not entry.is_dir(follow_symlinks=False)
                    ]
                if odd:
                    raise HostProblem(f"its objects hold '{odd[0][:100]}', which is no plain file")
        listed = read_file(objects, "info/alternates", 1 << 20)
        for line in (listed or b"").decode("utf-8", "surrogateescape").split("\n"):
            if not line or line.startswith("#"):
                continue
            if line.startswith('"') or depth == 0:
                raise HostProblem("its objects lie in other repositories in a way that is not supported")
            other = (place / line).resolve()
            with self._opened(other) as inner:
                self._check_store(other, inner, depth - 1)


@dataclass(frozen=True, slots=True)
class Lens:
    """A bare repository of the server's that shows the objects of a host's. ``handles`` are the open folders
    that git needs to inherit."""

    folder: Path
    handles: tuple[int, int, int]
    place: Path

    def show(self, branches: dict[str, str], default: str) -> None:
        """Let git see these branches: a list of the server's own, not the files of the host."""
        lines = [f"{commit_id} refs/heads/{name}\n" for name, commit_id in sorted(branches.items())]
        (self.folder / "refs").mkdir(exist_ok=True)
        (self.folder / "packed-refs").write_text("".join(lines), "utf-8", "surrogateescape")
        if default:
            (self.folder / "HEAD").write_text(f"ref: refs/heads/{default}\n", "utf-8", "surrogateescape")

    def open_references(self) -> None:
        """Let git see, and change, the references of the host."""
        _, refs, common = self.handles
        (self.folder / "refs").symlink_to(_seen(refs, self.place / "refs"))
        if "packed-refs" in os.listdir(common):
            (self.folder / "packed-refs").symlink_to(_seen(common, self.place) / "packed-refs")

    def release(self, kept: str) -> None:
        """Remove the mark that kept a new pack from being removed."""
        with opened(self.handles[0], ["pack"]) as packs, contextlib.suppress(FileNotFoundError):
            os.unlink(f"pack-{kept}.keep", dir_fd=packs)


def _seen(handle: int, place: Path) -> Path:
    return _DESCRIPTORS / str(handle) if _DESCRIPTORS.is_dir() else place


def is_local(url: str) -> bool:
    """Return True if the URL names a folder of the host."""
    return url.startswith(("/", "file://"))


def local_path(url: str) -> Path:
    """Return the path that a local URL names."""
    return Path(unquote(url.removeprefix("file://")) if url.startswith("file://") else url)
