"""Process 1 of a sandbox. It takes commands over a pipe, one at a time, and no process outlives its command.

The host's Python runs it inside the sandbox; it imports only the standard library. It withstands these
attacks of a command:

    signals             The kernel delivers no signal to process 1 of a pid namespace, not even SIGKILL,
                        unless the process handles it. This one handles only SIGCHLD, which makes it check
                        its children.
    ptrace, /proc/1     Blocked, since the process is not dumpable. So its environment and pipes are out of
                        reach.
    its pipes           Closed in every child. Output uses pipes of each command's own.
    its limits          A command could lower them with ``prlimit``, so the supervisor checks them before
                        each command, and exits if they have changed.
    outliving           When a command's first process ends, ``kill(-1)`` kills every process of the
                        namespace at once, whatever session or group they created.

The kernel enforces limits (`setrlimit`; children inherit them and cannot raise them). For the rest there is a
check of all processes every `CHECK_INTERVAL_S`: the number of tasks, their total memory, free disk space,
free memory of the machine. ``RLIMIT_NPROC`` has no effect if the server runs as root; then a control group
limits processes (``cgroups.py``), or only the check does.

The supervisor ends, and with it everything in the sandbox, when the host's end of its pipe closes, which the
death of the server causes too, and when ``bwrap`` is killed.

Frames in both directions: length of the rest (4 bytes, big-endian), kind (1 byte), content.

    from the host
        R  length of JSON (4 bytes), JSON {argv, start, env, timeout_ms, max_output, merged}, stdin
    to the host
        +  ready
        1  more of stdout, at most ``max_output`` bytes in total
        2  more of stderr, likewise
        3  last bytes of stdout, if output was dropped
        4  last bytes of stderr, if output was dropped
        X  JSON {exit_code, stopped, duration_ms, dropped: [stdout, stderr]}: the command has ended
        E  JSON {what, message}: the command did not start; ``what`` is ``start`` (no such folder) or
           ``program`` (not found)
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import resource
import select
import signal
import struct
import sys
import time
from collections.abc import Callable
from typing import TypedDict

CHECK_INTERVAL_S = 0.05
MAX_TOTAL_OUTPUT = 256 << 20
"""Maximum bytes of output of a command, kept or dropped."""
MAX_OUTGOING = 1 << 20
"""Maximum bytes that wait for the host. If the host does not read, the command's output waits too."""
DISK_RESERVE = 512 << 20
"""Bytes of free disk space below which a command that used much is killed."""
INODES_RESERVE = 50_000
"""Free inodes below which a command that used many is killed."""
MEMORY_RESERVE = 256 << 20
"""Available memory of the machine below which a command that uses much is killed."""
NOTICEABLE_BYTES = 64 << 20
NICENESS = 10
CHUNK = 1 << 16
PR_SET_PDEATHSIG, PR_SET_DUMPABLE = 1, 4
EGRESS = "/run/egress"


class Command(TypedDict):
    """The JSON of an ``R`` frame."""

    argv: list[str]
    start: str
    env: dict[str, str]
    timeout_ms: int
    max_output: int
    merged: bool


def main() -> None:
    """Close the process to others, report that it is ready, and serve until the host closes the pipe."""
    given = json.loads(sys.argv[1])
    limits = {
        resource.RLIMIT_CORE: 0,
        resource.RLIMIT_DATA: 2 * given["memory_bytes"],  # Per process; whole stacks count.
        resource.RLIMIT_FSIZE: given["file_bytes"],
        resource.RLIMIT_NOFILE: given["open_files"],
        resource.RLIMIT_NPROC: given["processes"],
    }
    for which, maximum in limits.items():
        resource.setrlimit(which, (maximum, maximum))
    prctl = ctypes.CDLL(None, use_errno=True).prctl
    if prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) != 0 or prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "the process cannot be closed to others")
    os.umask(0o022)
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    host = Host()
    egress_socket = open_egress()
    children, wake = os.pipe()
    os.set_blocking(children, False)
    os.set_blocking(wake, False)
    signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    host.send(b"+")
    while True:
        host.flush()
        frame = host.receive()
        if frame is None:
            return
        if any(resource.getrlimit(which) != (most, most) for which, most in limits.items()):
            return
        (length,) = struct.unpack_from(">I", frame, 1)
        command, stdin = json.loads(frame[5 : 5 + length]), frame[5 + length :]
        Run(host, children, given, command, stdin).execute(egress_socket)


def open_egress() -> Callable[[], object] | None:
    """Listen on loopback if the host has mounted an egress socket.

    Return a function that starts a forwarding process; None without a network.
    """
    if not os.path.exists(EGRESS):
        return None
    sys.path.append(os.path.dirname(__file__))
    import forwarder  # type: ignore[import-not-found]

    listener = forwarder.listen()
    return lambda: forwarder.fork(listener, EGRESS)


class Host:
    """The two pipes to the host. ``outgoing`` are bytes that the host has not read."""

    def __init__(self) -> None:
        self.outgoing = bytearray()
        os.set_blocking(1, False)

    def send(self, kind: bytes, content: bytes = b"") -> None:
        """Send a frame as soon as the host reads."""
        self.outgoing += struct.pack(">I", len(content) + 1) + kind + content
        self.write_available()

    def write_available(self) -> None:
        """Write what the pipe accepts without blocking."""
        try:
            while self.outgoing:
                del self.outgoing[: os.write(1, self.outgoing[:CHUNK])]
        except BlockingIOError:
            pass
        except OSError:
            os._exit(1)

    def flush(self) -> None:
        """Wait until everything is written."""
        while self.outgoing:
            select.select([], [1], [])
            self.write_available()

    def receive(self) -> bytes | None:
        """Return the next frame; None when the host has closed the pipe."""
        head = self._read_exactly(4)
        return None if head is None else self._read_exactly(struct.unpack(">I", head)[0])

    def _read_exactly(self, count: int) -> bytes | None:
        parts = bytearray()
        while len(parts) < count:
            part = os.read(0, min(count - len(parts), 1 << 20))
            if not part:
                return None
            parts += part
        return bytes(parts)


class Run:
    """One command, from its start until all its processes have ended."""

    def __init__(
        self, host: Host, children: int, limits: dict[str, int], command: Command, stdin: bytes
    ) -> None:
        self.host, self.children, self.limits, self.command = host, children, limits, command
        self.stdin = memoryview(stdin)
        self.stopped = ""
        self.status: int | None = None
        self.pid = 0
        self.stdin_fd = -1
        self.reading: dict[int, int] = {}  # Descriptor to stream: 0 for stdout, 1 for stderr.
        self.sent, self.received = [0, 0], [0, 0]
        self.tails = [bytearray(), bytearray()]

    def execute(self, start_egress: Callable[[], object] | None) -> None:
        """Run the command and send its result. ``start_egress`` starts the forwarder of a sandbox with a
        network."""
        started = time.monotonic()
        self.free_at_start = free_disk()
        self.shared_at_start = machine_memory()["Shmem"] << 10
        try:
            os.chdir(os.path.join("/work", self.command["start"]))
        except (OSError, ValueError) as problem:
            return self.report_rejection("start", problem)
        try:
            if start_egress is not None:
                start_egress()
            self.spawn()
        except (OSError, ValueError) as problem:  # ValueError: a null byte.
            self.end_all()
            return self.report_rejection("program", problem)
        finally:
            os.chdir("/")
        self.supervise(started + self.command["timeout_ms"] / 1000)
        self.end_all()
        self.drain()
        for stream in (0, 1):
            if self.tails[stream]:
                self.host.send(b"34"[stream : stream + 1], bytes(self.tails[stream]))
        status = self.status if self.status is not None else signal.SIGKILL
        code = os.waitstatus_to_exitcode(status)
        result = {
            "exit_code": code if code >= 0 else 128 - code,
            "stopped": self.stopped,
            "duration_ms": round((time.monotonic() - started) * 1000),
            "dropped": [
                received - sent - len(tail)
                for received, sent, tail in zip(self.received, self.sent, self.tails, strict=True)
            ],
        }
        self.host.send(b"X", json.dumps(result).encode())

    def report_rejection(self, what: str, problem: Exception) -> None:
        """Report that the command did not start."""
        for descriptor in (*self.reading, self.stdin_fd):
            if descriptor >= 0:
                os.close(descriptor)
        message = getattr(problem, "strerror", None) or str(problem)
        self.host.send(b"E", json.dumps({"what": what, "message": message}).encode())

    def spawn(self) -> None:
        """Start the first process in a session of its own, with three descriptors and no other."""
        out_read, out_write = os.pipe()
        self.reading[out_read] = 0
        ends = [out_write]
        err_write = out_write
        if not self.command["merged"]:
            err_read, err_write = os.pipe()
            self.reading[err_read] = 1
            ends.append(err_write)
        if self.stdin:
            source, self.stdin_fd = os.pipe()
            os.set_blocking(self.stdin_fd, False)
        else:
            source = os.open("/dev/null", os.O_RDONLY)
        ends.append(source)
        for descriptor in self.reading:
            os.set_blocking(descriptor, False)
        try:
            self.pid = os.posix_spawnp(
                self.command["argv"][0],
                self.command["argv"],
                self.command["env"],
                file_actions=[
                    (os.POSIX_SPAWN_DUP2, source, 0),
                    (os.POSIX_SPAWN_DUP2, out_write, 1),
                    (os.POSIX_SPAWN_DUP2, err_write, 2),
                ],
                setsid=True,
                setsigdef=[signal.SIGPIPE, signal.SIGXFSZ, signal.SIGCHLD],
            )
            with contextlib.suppress(OSError):  # The server already runs with a higher niceness.
                os.setpriority(os.PRIO_PROCESS, self.pid, NICENESS)
        finally:
            for descriptor in ends:
                os.close(descriptor)

    def supervise(self, deadline: float) -> None:
        """Wait until the first process has ended or a limit is exceeded."""
        next_check = time.monotonic()
        while self.status is None and not self.stopped:
            now = time.monotonic()
            if now >= deadline:
                self.stopped = "timeout"
            elif now >= next_check:
                self.stopped = self.exceeded_limit()
                next_check = time.monotonic() + CHECK_INTERVAL_S
            if self.stopped:
                return
            self.wait(min(deadline, next_check) - time.monotonic())

    def wait(self, seconds: float) -> None:
        """Handle ready descriptors, or wait up to ``seconds`` for one."""
        poll = select.poll()
        poll.register(0, select.POLLIN)
        poll.register(self.children, select.POLLIN)
        if self.host.outgoing:
            poll.register(1, select.POLLOUT)
        if len(self.host.outgoing) < MAX_OUTGOING:
            for descriptor in self.reading:
                poll.register(descriptor, select.POLLIN)
        if self.stdin_fd >= 0:
            poll.register(self.stdin_fd, select.POLLOUT)
        for descriptor, _ in poll.poll(max(seconds, 0) * 1000):
            if descriptor == 0:
                os._exit(0)  # The host has closed the pipe or broken the protocol: end everything.
            elif descriptor == self.children:
                os.read(self.children, CHUNK)
                self.reap()
            elif descriptor == 1:
                self.host.write_available()
            elif descriptor == self.stdin_fd:
                self.write_stdin()
            else:
                self.read(descriptor)

    def write_stdin(self) -> None:
        try:
            self.stdin = self.stdin[os.write(self.stdin_fd, self.stdin[:CHUNK]) :]
        except BlockingIOError:
            return
        except OSError:
            self.stdin = memoryview(b"")
        if not self.stdin:
            os.close(self.stdin_fd)
            self.stdin_fd = -1

    def read(self, descriptor: int) -> bool:
        """Read more of an output. Return True if more may be available."""
        try:
            chunk = os.read(descriptor, CHUNK)
        except BlockingIOError:
            return False
        stream = self.reading[descriptor]
        if not chunk:
            os.close(descriptor)
            del self.reading[descriptor]
            return False
        self.received[stream] += len(chunk)
        remaining = self.command["max_output"] - self.sent[stream]
        if remaining > 0:
            self.host.send(b"12"[stream : stream + 1], chunk[:remaining])
            self.sent[stream] += min(remaining, len(chunk))
            chunk = chunk[remaining:]
        tail, max_tail = self.tails[stream], self.command["max_output"] // 4
        tail += chunk
        if len(tail) > max_tail:
            del tail[: len(tail) - max_tail]
        if sum(self.received) > MAX_TOTAL_OUTPUT:
            self.stopped = self.stopped or "output"
        return True

    def reap(self, options: int = os.WNOHANG) -> bool:
        """Reap ended processes. Return True if children are left."""
        try:
            while True:
                pid, status = os.waitpid(-1, options)
                if pid == 0:
                    return True
                if pid == self.pid:
                    self.status = status
        except ChildProcessError:
            return False

    def end_all(self) -> None:
        """Kill all processes of the command and wait for their end."""
        while True:
            try:
                os.kill(-1, signal.SIGKILL)
            except ProcessLookupError:
                pass
            if not self.reap(0):
                return

    def drain(self) -> None:
        """Read the rest of the pipes. No process writes to them any more, so this ends."""
        if self.stdin_fd >= 0:
            os.close(self.stdin_fd)
        for descriptor in list(self.reading):
            while self.read(descriptor):
                pass
            if descriptor in self.reading:
                os.close(descriptor)

    def exceeded_limit(self) -> str:
        """Return the limit that all processes together exceed, or ""."""
        tasks = memory = 0
        ids = [name for name in os.listdir("/proc") if name.isdecimal() and name != "1"]
        if len(ids) > self.limits["processes"]:
            return "processes"  # Too many to read the status of each.
        machine = machine_memory()
        for name in ids:
            status = read_fields(f"/proc/{name}/status")
            tasks += status.get("Threads", 0)
            memory += (status.get("RssAnon", 0) + status.get("RssShmem", 0)) << 10
        if tasks > self.limits["processes"]:
            return "processes"
        memory += used_bytes("/tmp") + used_bytes("/dev/shm")
        if (machine["Shmem"] << 10) > self.shared_at_start + NOTICEABLE_BYTES:
            memory += memfd_bytes(ids)
        is_short = memory > NOTICEABLE_BYTES and (machine["MemAvailable"] << 10) < MEMORY_RESERVE
        if memory > self.limits["memory_bytes"] or is_short:
            return "memory"
        (free, inodes), (free_before, inodes_before) = free_disk(), self.free_at_start
        if free < DISK_RESERVE and free < free_before - NOTICEABLE_BYTES:
            return "disk"
        if inodes < INODES_RESERVE and inodes < inodes_before - INODES_RESERVE // 10:
            return "disk"
        return ""


def read_fields(path: str) -> dict[str, int]:
    """Return the numbers in a file of ``/proc`` by name; empty if the process has ended."""
    found = {}
    try:
        with open(path) as file:
            for line in file:
                name, _, text = line.partition(":")
                number = text.split(maxsplit=1)[:1]
                if number and number[0].isdecimal():
                    found[name] = int(number[0])
    except OSError:
        pass
    return found


def machine_memory() -> dict[str, int]:
    """Return ``MemAvailable``, ``Shmem`` and other memory figures of the machine, in KiB."""
    return {"MemAvailable": MEMORY_RESERVE, "Shmem": 0, **read_fields("/proc/meminfo")}


def memfd_bytes(ids: list[str]) -> int:
    """Return the bytes of unnamed files in memory (``memfd_create``), which no limit counts."""
    sizes = {}
    for name in ids:
        try:
            for number in os.listdir(f"/proc/{name}/fd"):
                path = f"/proc/{name}/fd/{number}"
                if os.readlink(path).startswith("/memfd:"):
                    stat = os.stat(path)
                    sizes[stat.st_dev, stat.st_ino] = stat.st_blocks * 512
        except OSError:
            continue  # The process has ended.
    return sum(sizes.values())


def used_bytes(path: str) -> int:
    """Return the used bytes of a file system in memory."""
    stat = os.statvfs(path)
    return (stat.f_blocks - stat.f_bfree) * stat.f_frsize


def free_disk() -> tuple[int, int]:
    """Return free bytes and inodes of the disk with the folder. Without an inode count, return a huge one."""
    stat = os.statvfs("/work")
    return stat.f_bavail * stat.f_frsize, stat.f_favail if stat.f_files else 1 << 60


if __name__ == "__main__":
    main()
