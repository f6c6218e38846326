"""A control group that limits the number of processes, for servers that run as root.

``RLIMIT_NPROC`` does not limit root. Both versions of control groups are supported. In version 2 the group is
a sibling of the server's own group, because a group with processes can have no child groups. If no group can
be created (not root, no such file system, a read-only one in a container), only the supervisor's periodic
check remains.
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
"""Processes of a sandbox besides the command's."""
STALE_AFTER_S: Final = 60
"""Age in seconds from which `remove_stale` removes an unused group."""

_numbers = itertools.count(1)


class ProcessGroup:
    """A control group. A process joins by writing its id to ``procs_path``; its children join too."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    @classmethod
    def create(cls, processes: int) -> ProcessGroup | None:
        """Create a group of at most ``processes`` processes. Return None if that is not possible."""
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
        """Remove the group after its processes have ended. The kernel may notice their end a moment later."""
        for _ in range(20):
            try:
                self._folder.rmdir()
            except FileNotFoundError:
                return
            except OSError:
                time.sleep(0.01)


def remove_stale() -> None:
    """Remove the groups of killed servers. Groups in use cannot be removed."""
    with contextlib.suppress(OSError):
        base = _base() if os.geteuid() == 0 else None
        for folder in base.glob(f"{PREFIX}*") if base is not None else ():
            if time.time() - folder.stat().st_mtime > STALE_AFTER_S:
                with contextlib.suppress(OSError):
                    folder.rmdir()


def _base() -> Path | None:
    """Return the folder in which groups that count processes can be created, or None."""
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
