"""What a sandbox sees, as arguments for ``bwrap``."""

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
"""The egress proxy's socket, where a sandbox has a network; the supervisor knows it by the same name."""
USER_ID: Final = 1000
FILTER: Final = "filter"
"""The name of what is no file in a sandbox, but is handed over as one."""

ENVIRONMENT: Final[Mapping[str, str]] = {
    "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    "HOME": "/tmp/home",
    "TMPDIR": "/tmp",
    "LANG": "C.UTF-8",
    "TERM": "dumb",
    "USER": "wonder",
}
"""All that a command finds in its environment, beside what its caller adds."""

PROXY: Final = f"http://127.0.0.1:{PORT}"
NETWORK_ENVIRONMENT: Final[Mapping[str, str]] = {
    **dict.fromkeys(
        ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy"), PROXY
    ),
    **dict.fromkeys(("NO_PROXY", "no_proxy"), "localhost,127.0.0.1,::1"),
}
"""What a command finds besides where there is a network: it leads through the egress proxy alone."""

_SYSTEM_LINKS: Final = ("/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32")
"""Folders of programs that are links to those below ``/usr`` nearly everywhere."""

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
"""What programs need of ``/etc``. Never all of it: there are keys and passwords in it."""

_PROC: Final = (
    *("acpi", "asound", "kcore", "key-users", "keys", "kpagecgroup", "kpagecount", "kpageflags"),
    *("latency_stats", "sched_debug", "scsi", "timer_list"),
)
"""What of ``/proc`` speaks of the machine, not of processes. The rest may only be read: where the server is
root's, so is a command to the kernel, and ``/proc/sys`` would obey it."""

FILES: Final[Mapping[str, str]] = {
    "/etc/passwd": f"root:x:0:0::/:/bin/false\nwonder:x:{USER_ID}:{USER_ID}::/tmp/home:/bin/sh\n",
    "/etc/group": f"root:x:0:\nwonder:x:{USER_ID}:\n",
    "/etc/hosts": "127.0.0.1 localhost\n::1 localhost\n",
    "/etc/nsswitch.conf": "passwd: files\ngroup: files\nhosts: files dns\n",
}
"""Files of a sandbox's own."""


class Limits(Value, frozen=True, kw_only=True):
    """What everything in one sandbox may take together; ``file_bytes`` and ``open_files`` are each
    process's. ``temporary_bytes`` is what ``/tmp`` holds, which counts as memory."""

    memory_bytes: int = 2 << 30
    processes: int = 256
    file_bytes: int = 1 << 30
    open_files: int = 1024
    temporary_bytes: int = 256 << 20


class Host(Value, frozen=True, kw_only=True):
    """What the operator says of this machine: ``folders`` are seen too, read-only; ``hidden`` are never
    seen, wherever they lie."""

    folders: tuple[Path, ...] = ()
    hidden: tuple[Path, ...] = ()


def bwrap_arguments(
    spec: SandboxSpec, limits: Limits, host: Host, files: Mapping[str, int], egress_socket: Path | None
) -> list[str]:
    """Build the arguments of ``bwrap`` up to the program. ``files`` are descriptors to read `FILES` from, and
    under `FILTER` one for the filter of system calls; ``way_out`` is the socket of the egress proxy, for a
    place with a network. Raises ValueError for a mount whose target is in the way."""
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
"""In front of ``bwrap`` and the entrance of its process group, which may be empty. Where memory runs out, the
kernel ends what is in a sandbox first."""


def supervisor_arguments(limits: str) -> list[str]:
    """The program: the server's own Python, alone; ``limits`` is JSON."""
    return [os.path.realpath(sys.executable), "-I", "-S", "-B", SUPERVISOR, limits]


def _program(name: str) -> tuple[str, str, str]:
    """A module of this folder, beside the supervisor."""
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
    """Nothing in the place of what is hidden, where it lies in something that is seen."""
    seen = [Path("/usr"), Path(sys.base_prefix).resolve(), *(folder.resolve() for folder in host.folders)]
    for path in (path.resolve() for path in host.hidden):
        if any(path.is_relative_to(each) for each in seen) and path.is_dir():
            yield from ("--tmpfs", str(path), "--remount-ro", str(path))


def _hide_arguments() -> Iterator[str]:
    for path in (f"/proc/{name}" for name in _PROC):
        if os.path.isdir(path):
            yield from ("--tmpfs", path, "--remount-ro", path)
        elif os.path.exists(path):
            yield from ("--ro-bind", "/dev/null", path)


def _mount_arguments(mount: Mount, folders: Sequence[Path]) -> Iterator[str]:
    target = PurePosixPath(mount.target)
    taken = ("/usr", "/etc", "/proc", "/dev", "/tmp", "/run", WORK, *_SYSTEM_LINKS, *map(str, folders))
    if not target.is_absolute() or ".." in target.parts or str(target) == "/":
        raise ValueError(f"{mount.target} is no place for a mount")
    if any(target.is_relative_to(path) for path in taken):
        raise ValueError(f"{mount.target} is taken")
    yield from ("--bind" if mount.writable else "--ro-bind", str(mount.source), str(target))
