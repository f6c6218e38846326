"""The file system and environment of a sandbox, as arguments for ``bwrap``."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Final

from wonder_server.adapters.sandbox.forwarder import PORT
from wonder_server.core.frozen import Value
from wonder_server.ports.sandbox import Mount, SandboxSpec

WORK: Final = "/work"
SUPERVISOR: Final = "/run/supervisor.py"
EGRESS: Final = "/run/egress"
"""Path of the egress proxy's socket in a sandbox with a network. The supervisor uses the same path."""
USER_ID: Final = 1000
FILTER: Final = "filter"
"""Name of the filter of system calls among the files passed to ``bwrap``."""

ENVIRONMENT: Final[Mapping[str, str]] = {
    "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    "HOME": "/tmp/home",
    "TMPDIR": "/tmp",
    "LANG": "C.UTF-8",
    "TERM": "dumb",
    "USER": "wonder",
}
"""The environment of a command, besides what its caller adds."""

PROXY: Final = f"http://127.0.0.1:{PORT}"
NETWORK_ENVIRONMENT: Final[Mapping[str, str]] = {
    **dict.fromkeys(
        ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy"), PROXY
    ),
    **dict.fromkeys(("NO_PROXY", "no_proxy"), "localhost,127.0.0.1,::1"),
}
"""Additional environment of a command with a network. The egress proxy is its only connection."""

_SYSTEM_LINKS: Final = ("/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32")
"""Folders of programs. On most systems they are links to folders below ``/usr``."""

_ETC: Final = (
    *("alternatives", "ld.so.cache", "ld.so.conf", "ld.so.conf.d", "localtime", "mime.types", "protocols"),
    *(
        "services",
        "ssl/certs",
        "ssl/openssl.cnf",
        "pki/tls/certs",
        "pki/ca-trust",
        "ca-certificates/extracted",
    ),
)
"""Files of ``/etc`` that programs need. The rest stays hidden, because it contains keys and passwords."""

_PROC: Final = (
    *("acpi", "asound", "kcore", "key-users", "keys", "kpagecgroup", "kpagecount", "kpageflags"),
    *("latency_stats", "sched_debug", "scsi", "timer_list"),
)
"""Entries of ``/proc`` about the machine instead of processes; they are hidden. The rest is read-only: on a
server that runs as root, the kernel treats a command as root, and ``/proc/sys`` would obey it."""

FILES: Final[Mapping[str, str]] = {
    "/etc/passwd": f"root:x:0:0::/:/bin/false\nwonder:x:{USER_ID}:{USER_ID}::/tmp/home:/bin/sh\n",
    "/etc/group": f"root:x:0:\nwonder:x:{USER_ID}:\n",
    "/etc/hosts": "127.0.0.1 localhost\n::1 localhost\n",
    "/etc/nsswitch.conf": "passwd: files\ngroup: files\nhosts: files dns\n",
}
"""Files with contents of the sandbox's own."""


class Limits(Value, frozen=True, kw_only=True):
    """Limits of all processes in one sandbox together; ``file_bytes`` and ``open_files`` apply per process.

    ``temporary_bytes`` is the size of ``/tmp``, which counts as memory.
    """

    memory_bytes: int = 2 << 30
    processes: int = 256
    file_bytes: int = 1 << 30
    open_files: int = 1024
    temporary_bytes: int = 256 << 20


class Host(Value, frozen=True, kw_only=True):
    """Folders of this machine. ``folders`` are visible read-only. ``hidden`` are never visible, wherever they
    are."""

    folders: tuple[Path, ...] = ()
    hidden: tuple[Path, ...] = ()


def bwrap_arguments(
    spec: SandboxSpec, limits: Limits, host: Host, files: Mapping[str, int], egress_socket: Path | None
) -> list[str]:
    """Return the arguments of ``bwrap`` up to the program.

    ``files`` are descriptors for `FILES`, and under `FILTER` one for the filter of system calls.
    ``egress_socket`` is the path of the egress proxy's socket for a sandbox with a network. Raises ValueError
    for an invalid mount target.
    """
    return [
        *("--unshare-user", "--unshare-ipc", "--unshare-pid", "--unshare-uts", "--unshare-cgroup-try"),
        "--unshare-net",
        *("--uid", str(USER_ID), "--gid", str(USER_ID), "--hostname", "sandbox"),
        *("--disable-userns", "--cap-drop", "ALL", "--new-session", "--as-pid-1"),
        "--clearenv",
        *(word for name, text in ENVIRONMENT.items() for word in ("--setenv", name, text)),
        *_system(),
        *("--proc", "/proc", *_hide_arguments(), "--remount-ro", "/proc"),
        *("--dev", "/dev", "--size", str(limits.temporary_bytes), "--tmpfs", "/dev/shm"),
        *("--remount-ro", "/dev", "--size", str(limits.temporary_bytes), "--tmpfs", "/tmp"),
        *("--dir", ENVIRONMENT["HOME"]),
        *(word for path in host.folders for word in ("--ro-bind", str(path), str(path))),
        *_check_hidden(host),
        *(word for path in FILES for word in ("--file", str(files[path]), path)),
        *(("--seccomp", str(files[FILTER])) if FILTER in files else ()),
        *_program("supervisor.py"),
        *((*_program("forwarder.py"), "--ro-bind", str(egress_socket), EGRESS) if egress_socket else ()),
        *("--bind", str(spec.folder), WORK),
        *(word for mount in spec.mounts for word in _mount_arguments(mount, host.folders)),
        *("--remount-ro", "/", "--chdir", "/"),
    ]


LAUNCHER: Final = (
    "/bin/sh",
    "-c",
    'echo 1000 > /proc/self/oom_score_adj; [ -z "$1" ] || echo $$ > "$1" || exit 1; shift; exec "$@"',
    "sh",
)
"""Precedes the path of a process group's ``cgroup.procs``, which may be empty, and ``bwrap``. When memory
runs out, the kernel kills processes of a sandbox first."""


def supervisor_arguments(limits: str) -> list[str]:
    """Return the command of the supervisor: the server's Python in isolated mode. ``limits`` is JSON."""
    return [os.path.realpath(sys.executable), "-I", "-S", "-B", SUPERVISOR, limits]


def _program(name: str) -> tuple[str, str, str]:
    """Return the arguments that mount a module of this package beside the supervisor."""
    return "--ro-bind", str(Path(__file__).with_name(name)), str(PurePosixPath(SUPERVISOR).with_name(name))


def _system() -> Iterator[str]:
    yield from ("--ro-bind", "/usr", "/usr")
    for path in _SYSTEM_LINKS:
        if os.path.islink(path):
            yield from ("--symlink", os.readlink(path), path)
        else:
            yield from ("--ro-bind-try", path, path)
    for name in _ETC:
        yield from ("--ro-bind-try", f"/etc/{name}", f"/etc/{name}")
    base = os.path.realpath(sys.base_prefix)
    if base != "/" and not PurePosixPath(base).is_relative_to("/usr"):
        yield from ("--ro-bind", base, base)


def _check_hidden(host: Host) -> Iterator[str]:
    """Yield arguments that cover each hidden folder inside a visible one with an empty folder."""
    visible = [Path("/usr"), Path(sys.base_prefix).resolve(), *(folder.resolve() for folder in host.folders)]
    for path in (path.resolve() for path in host.hidden):
        if any(path.is_relative_to(each) for each in visible) and path.is_dir():
            yield from ("--tmpfs", str(path), "--remount-ro", str(path))


def _hide_arguments() -> Iterator[str]:
    for path in (f"/proc/{name}" for name in _PROC):
        if os.path.isdir(path):
            yield from ("--tmpfs", path, "--remount-ro", path)
        elif os.path.exists(path):
            yield from ("--ro-bind", "/dev/null", path)


def _mount_arguments(mount: Mount, folders: Sequence[Path]) -> Iterator[str]:
    target = PurePosixPath(mount.target)
    reserved = ("/usr", "/etc", "/proc", "/dev", "/tmp", "/run", WORK, *_SYSTEM_LINKS, *map(str, folders))
    if not target.is_absolute() or ".." in target.parts or str(target) == "/":
        raise ValueError(f"{mount.target} is not a valid target of a mount")
    if any(target.is_relative_to(path) for path in reserved):
        raise ValueError(f"{mount.target} is reserved and cannot be the target of a mount")
    yield from ("--bind" if mount.writable else "--ro-bind", str(mount.source), str(target))
