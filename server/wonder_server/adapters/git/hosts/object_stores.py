"""Object folders of the host, read only through files that the server opened itself.

git follows paths, so git never gets a path of the host. The server opens every file that git needs, without
following a symbolic link, and presents it to git in a *view*: a bare repository in the data folder with the
server's own configuration, copies of small files, and links to the open large files. A view contains nothing
else of the host: no alternates, no commit-graph, no bitmap. Folders that are swapped on the host meanwhile do
not affect a view.
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
from wonder_server.adapters.git.storage.command import RunOptions
from wonder_server.adapters.git.storage.references import FILE, NEW_FILE, HostRepositoryError, open_folder

_DESCRIPTORS: Final = Path("/proc/self/fd")
"""The open files of the process, on Linux. Other systems lack the folder, and all files are copied."""

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
"""Maximum number of large packs, with two open files each. Many machines allow 1,024 open files per
process."""

_MAX_COPIED: Final = 2 << 30
"""Maximum bytes of loose objects and small packs per view. git itself packs long before."""

_MAX_LOOSE: Final = 1_000_000
_ADVICE: Final = "; run `git gc` there"


def check_object_store(store: int) -> None:
    """Raise `HostRepositoryError` if an object file is a link, a pipe or another special file."""
    list(_loose(store))
    with contextlib.suppress(FileNotFoundError), open_folder(store, ["pack"]) as folder:
        _regular_files(folder, _PACK)


@contextlib.contextmanager
def open_view(bare: BareRepository, stores: Sequence[int]) -> Iterator[ObjectView]:
    """Create a bare repository, for the duration of the context, with the objects of ``stores`` and of
    ``bare``."""
    with (
        contextlib.ExitStack() as stack,
        tempfile.TemporaryDirectory(dir=bare.folder.parent, prefix=".new-") as draft,
    ):
        builder = _ViewBuilder(Path(draft), stack)
        builder.initialize(bare)
        for store in stores:
            # Loose objects first: git deletes them after it has packed them.
            builder.copy_loose(bare, store)
            builder.link_packs(store)
        yield ObjectView(builder.folder, tuple(builder.handles))


@dataclass(frozen=True, slots=True)
class ObjectView:
    """A temporary bare repository of the server. ``handles`` are the open files that git must inherit."""

    folder: Path
    handles: tuple[int, ...]

    def set_branches(self, branches: dict[str, str], default: str) -> None:
        """Set the branches of the view. They are a list of the server's own, not files of the host."""
        lines = [f"{commit_id} refs/heads/{name}\n" for name, commit_id in sorted(branches.items())]
        (self.folder / "packed-refs").write_text("".join(lines), "utf-8", "surrogateescape")
        if default:
            (self.folder / "HEAD").write_text(f"ref: refs/heads/{default}\n", "utf-8", "surrogateescape")


class _ViewBuilder:
    """Build an `ObjectView`."""

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
        """Copy the loose objects that ``bare`` does not have."""
        names = list(_loose(store))
        if not names:
            return
        options = RunOptions(input="".join(f"{name}\n" for name in names).encode(), allow_errors=True)
        lines = bare.git.run(
            bare.folder, "cat-file", "--batch-check=%(objectname)", options=options
        ).text.split("\n")
        by_folder: dict[str, list[str]] = {}
        for line in lines:
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
                except FileNotFoundError:  # git has repacked the repository meanwhile.
                    continue
            raise HostRepositoryError("its packs change during every attempt to read them; try again")

    def _link_packs(self, folder: int) -> None:
        found = _regular_files(folder, _PACK)
        stems = {name.rpartition(".")[0] for name in found if name.endswith(".idx")}
        for stem in sorted(stems & {name.rpartition(".")[0] for name in found if name.endswith(".pack")}):
            if (self.folder / "objects" / "pack" / f"{stem}.idx").is_symlink():
                continue
            with contextlib.ExitStack() as opened:
                files = [
                    opened.enter_context(_open_regular(folder, f"{stem}{end}")) for end in (".pack", ".idx")
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
                    self._stack.enter_context(opened.pop_all())
            if len(self.handles) > 2 * _MAX_LINKED:
                raise HostRepositoryError(f"it has more than {_MAX_LINKED} large packs{_ADVICE}")

    def _copy(self, file: int, place: Path) -> None:
        """Copy the number of bytes that the file has now."""
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
    """Yield the ids of all loose objects."""
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
    """Return the names that match. `HostRepositoryError` if one of them is not a regular file."""
    with os.scandir(folder) as listing:
        found = [entry for entry in listing if wanted.match(entry.name)]
        for entry in found:
            if not entry.is_file(follow_symlinks=False):
                raise _not_regular(entry.name)
    return [entry.name for entry in found]


@contextlib.contextmanager
def _open_regular(folder: int, name: str) -> Iterator[int]:
    """Open a regular file. `HostRepositoryError` if it is something else."""
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
    return HostRepositoryError(f"its objects contain '{name[:100]}', which is not a regular file")


# --- packs for the host ---------------------------------------------------------------------------


@contextlib.contextmanager
def add_pack(store: int, pack: Path) -> Iterator[None]:
    """Add a pack and its index to an object folder of the host.

    During the context a ``.keep`` file prevents a clean-up there from deleting it before a branch refers to
    it.
    """
    with contextlib.suppress(FileExistsError):
        os.mkdir("pack", 0o777, dir_fd=store)
    with open_folder(store, ["pack"]) as folder:
        keep = f"{pack.stem}.keep"
        with contextlib.suppress(FileExistsError):
            with open(os.open(keep, NEW_FILE, 0o444, dir_fd=folder), "wb") as file:
                file.write(b"wonder\n")
        try:
            for place in (pack, pack.with_suffix(".idx")):
                _put(folder, place)
            os.fsync(folder)
            yield
        finally:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(keep, dir_fd=folder)


def _put(folder: int, place: Path) -> None:
    draft = f"tmp_wonder_{secrets.token_hex(8)}"  # git's own clean-up deletes names with this prefix.
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
