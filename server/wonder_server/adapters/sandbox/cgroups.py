"""A bound on processes for servers that are root's, on whom ``RLIMIT_NPROC`` has no hold: a control group.

Of both versions; in the second the group lies beside the server's own, since one with processes in it can
have no groups below. Where none can be made (not root, no such file system, a container that may not write
there), what is left is the supervisor's look.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import time
from pathlib import Path
from typing import Final

PREFIX: Final = "wonder-sandbox-"
EXTRA_PROCESSES: Final = 4
"""Processes of a sandbox that are not the command's."""
STALE_AFTER_S: Final = 60

_numbers = itertools.count(1)


class ProcessGroup:
    """Made by `make`; a process joins by writing its id into ``entrance``, its children are in it too."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    @classmethod
    def create(cls, processes: int) -> ProcessGroup | None:
        """A group of so many at most; None where none can be had."""
        if os.geteuid() != 0:
            return None
        try:
            base = _base()
            if base is None:
                return None
            group = cls(base / f"{PREFIX}{os.getpid()}-{next(_numbers)}")
            group._folder.mkdir()
        except OSError:
            return None
        try:
            (group._folder / "pids.max").write_text(str(processes + EXTRA_PROCESSES))
        except OSError:
            group.remove()
            return None
        return group

    @property
    def procs_path(self) -> str:
        return str(self._folder / "cgroup.procs")

    def remove(self) -> None:
        """Once its processes are over, which the kernel may notice a moment later than we."""
        for _ in range(20):
            try:
                self._folder.rmdir()
            except FileNotFoundError:
                return
            except OSError:
                time.sleep(0.01)


def remove_stale() -> None:
    """Take away groups that servers have left which were killed. Those in use cannot be."""
    with contextlib.suppress(OSError):
        base = _base() if os.geteuid() == 0 else None
        for folder in base.glob(f"{PREFIX}*") if base is not None else ():
            if time.time() - folder.stat().st_mtime > STALE_AFTER_S:
                with contextlib.suppress(OSError):
                    folder.rmdir()


def _base() -> Path | None:
    """The folder that groups which count processes may be made in."""
    own = {}
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        own.update(dict.fromkeys(controllers.split(","), path))
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        before, _, after = line.partition(" - ")
        kind, _, options = after.split(" ", 2)
        root, mounted = before.split(" ")[3:5]
        version_2 = kind == "cgroup2"
        if not version_2 and (kind != "cgroup" or "pids" not in options.split(",")):
            continue
        path = own.get("" if version_2 else "pids", "/")
        inside = Path(path).relative_to(root) if Path(path).is_relative_to(root) else Path()
        folder = Path(mounted) / inside
        if not version_2:
            return folder
        folder = folder.parent if inside.parts else folder
        if "pids" in (folder / "cgroup.subtree_control").read_text().split():
            return folder
    return None
