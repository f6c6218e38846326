"""Folders of objects of the host, used through what the server opened itself.

git follows paths, so git never gets one of the host's. The server opens every file that git is to read,
without following a symbolic link, and shows it to git in a *lens*: a bare repository in the data folder that
holds the server's own configuration, copies of what is small, and links to the open files of what is large.
Nothing else of the host is there: no alternates, no commit-graph, no bitmap. No folder that is swapped on the
host meanwhile changes a lens.
"""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import stat
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from wonder_server.adapters.git.storage.bare_repository import BareRepository
from wonder_server.adapters.git.storage.references import FILE, NEW_FILE, HostRepositoryError, open_folder

_DESCRIPTORS: Final = Path("/proc/self/fd")
"""The open files of a process, on Linux. On other systems all is copied."""

_CONFIG: Final = """\
[core]
\trepositoryformatversion = 0
\tbare = true
\thooksPath = /dev/null
\tfsmonitor = false
\tattributesFile = /dev/null
[gc]
\tauto = 0
[maintenance]
\tauto = false
"""
_FAN: Final = re.compile(r"[0-9a-f]{2}\Z")
_REST: Final = re.compile(r"[0-9a-f]{38}\Z")
_PACK: Final = re.compile(r"(pack-[0-9a-f]{40})\.(pack|idx)\Z")

_MAX_COPIED_PACK: Final = 1 << 20
_MAX_LINKED: Final = 100
"""Packs that are open at once, with two files each: a process may have 1,024 open files on many machines."""

_MAX_COPIED: Final = 2 << 30
"""Bytes of loose objects and small packs for one lens: git itself packs long before."""

_MAX_LOOSE: Final = 1_000_000
_ADVICE: Final = "; run `git gc` there"


def check_object_store(store: int) -> None:
    """Raise HostProblem if a file that git would read as an object is a link, a pipe or the like."""
    list(_loose(store))
    with contextlib.suppress(FileNotFoundError), open_folder(store, ["pack"]) as folder:
        _regular_files(folder, _PACK)


@contextlib.contextmanager
def open_view(bare: BareRepository, stores: Sequence[int]) -> Iterator[ObjectView]:
    """Make a bare repository, for the time of the context, that has the objects of the open folders
    ``stores`` and those of ``bare``."""
    with (
        contextlib.ExitStack() as stack,
        tempfile.TemporaryDirectory(dir=bare.folder.parent, prefix=".new-") as draft,
    ):
        filling = _ViewBuilder(Path(draft), stack)
        filling.initialize(bare)
        for store in stores:
            # Loose objects first: git removes them once they are in a pack.
            filling.copy_loose(bare, store)
            filling.link_packs(store)
        yield ObjectView(filling.folder, tuple(filling.handles))


@dataclass(frozen=True, slots=True)
class ObjectView:
    """A bare repository of the server's. ``handles`` are the open files that git needs to inherit."""

    folder: Path
    handles: tuple[int, ...]

    def set_branches(self, branches: dict[str, str], default: str) -> None:
        """Let git see these branches: a list of the server's own, not the files of the host."""
        lines = [f"{commit_id} refs/heads/{name}\n" for name, commit_id in sorted(branches.items())]
        (self.folder / "packed-refs").write_text("".join(lines), "utf-8", "surrogateescape")
        if default:
            (self.folder / "HEAD").write_text(f"ref: refs/heads/{default}\n", "utf-8", "surrogateescape")


class _ViewBuilder:
    """The making of a lens."""

    def __init__(self, folder: Path, stack: contextlib.ExitStack) -> None:
        self.folder = folder
        self.handles: list[int] = []
        self._stack = stack
        self._remaining_bytes = _MAX_COPIED

    def initialize(self, bare: BareRepository) -> None:
        for name in ("refs", "objects", "objects/info", "objects/pack"):
            (self.folder / name).mkdir()
        (self.folder / "config").write_text(_CONFIG)
        (self.folder / "HEAD").write_text("ref: refs/heads/.none\n")
        known = bare.folder.resolve() / "objects"
        (self.folder / "objects" / "info" / "alternates").write_bytes(os.fsencode(known) + b"\n")

    def copy_loose(self, bare: BareRepository, store: int) -> None:
        """Copy the objects that are files of their own and that ``bare`` does not have."""
        names = list(_loose(store))
        if not names:
            return
        said = bare.git.run(
            bare.folder, "cat-file", "--batch-check=%(objectname)",
            input="".join(f"{name}\n" for name in names).encode(), allow_errors=True,
        ).text.split("\n")  # fmt: skip
        by_folder: dict[str, list[str]] = {}
        for line in said:
            if line.endswith(" missing"):
                by_folder.setdefault(line[:2], []).append(line[2:40])
        for fan, rests in by_folder.items():
            into = self.folder / "objects" / fan
            into.mkdir(exist_ok=True)
            with contextlib.suppress(FileNotFoundError), open_folder(store, [fan]) as folder:
                for rest in rests:
                    if not (into / rest).exists():
                        with contextlib.suppress(FileNotFoundError), _open_regular(folder, rest) as file:
                            self._copy(file, into / rest)

    def link_packs(self, store: int) -> None:
        with contextlib.suppress(FileNotFoundError), open_folder(store, ["pack"]) as folder:
            for _ in range(3):
                try:
                    return self._link_packs(folder)
                except FileNotFoundError:  # Packed anew meanwhile.
                    continue
            raise HostRepositoryError("its packs are being rewritten all the time")

    def _link_packs(self, folder: int) -> None:
        found = _regular_files(folder, _PACK)
        stems = {name.rpartition(".")[0] for name in found if name.endswith(".idx")}
        for stem in sorted(stems & {name.rpartition(".")[0] for name in found if name.endswith(".pack")}):
            if (self.folder / "objects" / "pack" / f"{stem}.idx").is_symlink():
                continue
            with contextlib.ExitStack() as here:
                files = [
                    here.enter_context(_open_regular(folder, f"{stem}{end}")) for end in (".pack", ".idx")
                ]
                is_small = sum(os.fstat(file).st_size for file in files) <= _MAX_COPIED_PACK
                for file, end in zip(files, (".pack", ".idx"), strict=True):
                    place = self.folder / "objects" / "pack" / f"{stem}{end}"
                    if is_small or not _DESCRIPTORS.is_dir():
                        place.unlink(missing_ok=True)
                        self._copy(file, place)
                    else:
                        place.symlink_to(_DESCRIPTORS / str(file))
                        self.handles.append(file)
                if not is_small:
                    self._stack.enter_context(here.pop_all())
            if len(self.handles) > 2 * _MAX_LINKED:
                raise HostRepositoryError(f"it has more than {_MAX_LINKED} large packs{_ADVICE}")

    def _copy(self, file: int, place: Path) -> None:
        """Copy as many bytes as the file had when it was opened."""
        size = os.fstat(file).st_size
        self._remaining_bytes -= size
        if self._remaining_bytes < 0:
            raise HostRepositoryError(
                f"its loose objects and small packs have more than {_MAX_COPIED} bytes{_ADVICE}"
            )
        with place.open("xb") as copy:
            while size > 0 and (part := os.read(file, min(size, 1 << 20))):
                copy.write(part)
                size -= len(part)


def _loose(store: int) -> Iterator[str]:
    """The ids of the objects that are files of their own."""
    count = 0
    for fan in os.listdir(store):
        if not _FAN.match(fan):
            continue
        try:
            with open_folder(store, [fan]) as folder:
                names = _regular_files(folder, _REST)
        except FileNotFoundError:
            continue
        count += len(names)
        if count > _MAX_LOOSE:
            raise HostRepositoryError(f"it has more than {_MAX_LOOSE} loose objects{_ADVICE}")
        yield from (fan + name for name in names)


def _regular_files(folder: int, wanted: re.Pattern[str]) -> list[str]:
    """The names of this form. HostProblem if one of them is no regular file."""
    with os.scandir(folder) as listing:
        found = [entry for entry in listing if wanted.match(entry.name)]
        for entry in found:
            if not entry.is_file(follow_symlinks=False):
                raise _not_regular(entry.name)
    return [entry.name for entry in found]


@contextlib.contextmanager
def _open_regular(folder: int, name: str) -> Iterator[int]:
    """Open a regular file. HostProblem if it is something else."""
    try:
        file = os.open(name, FILE, dir_fd=folder)
    except (FileNotFoundError, PermissionError):
        raise
    except OSError:
        raise _not_regular(name) from None
    try:
        if not stat.S_ISREG(os.fstat(file).st_mode):
            raise _not_regular(name)
        yield file
    finally:
        os.close(file)


def _not_regular(name: str) -> HostRepositoryError:
    return HostRepositoryError(f"its objects hold '{name[:100]}', which is no plain file")


# --- packs for the host ---------------------------------------------------------------------------


@contextlib.contextmanager
def add_pack(store: int, pack: Path) -> Iterator[None]:
    """Put a pack, with its index beside it, into a store of the host. In the context it is marked as kept, so
    that no clean-up there removes it before a branch has it."""
    with contextlib.suppress(FileExistsError):
        os.mkdir("pack", 0o777, dir_fd=store)
    with open_folder(store, ["pack"]) as folder:
        kept = f"{pack.stem}.keep"
        with contextlib.suppress(FileExistsError):
            with open(os.open(kept, NEW_FILE, 0o444, dir_fd=folder), "wb") as mark:
                mark.write(b"wonder\n")
        try:
            for place in (pack, pack.with_suffix(".idx")):
                _put(folder, place)
            os.fsync(folder)
            yield
        finally:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(kept, dir_fd=folder)


def _put(folder: int, place: Path) -> None:
    draft = f"tmp_wonder_{secrets.token_hex(8)}"  # git's own clean-up knows names that begin so.
    try:
        with place.open("rb") as source, open(os.open(draft, NEW_FILE, 0o444, dir_fd=folder), "wb") as copy:
            while part := source.read(1 << 20):
                copy.write(part)
            copy.flush()
            os.fsync(copy.fileno())
        os.rename(draft, place.name, src_dir_fd=folder, dst_dir_fd=folder)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(draft, dir_fd=folder)
        raise
