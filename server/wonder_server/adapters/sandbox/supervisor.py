"""Process 1 of a sandbox: takes commands over a pipe, one after another, and lets none outlive itself.

It is run by the host's Python inside of the sandbox, alone: it imports nothing but the standard library. What
a command could do to it, and why it cannot:

    signals             the kernel keeps them from process 1 of a pid namespace, SIGKILL included, unless it
                        has asked for them; it asks for SIGCHLD alone, which makes it look around once
    ptrace, /proc/1     closed, since it is not dumpable; so its environment and its pipes cannot be had
    its pipes           are closed in every child; output comes by pipes of each command's own
    its limits          could be lowered by ``prlimit``: it looks before each command, and gives up
    outliving           when a command's first process is over, so is everything: ``kill(-1)`` ends every
                        process of the namespace at once, whatever session or group it has made itself

Limits are the kernel's (`setrlimit`, inherited by all, not to be raised again) and, for what those cannot
hold, a look at everything that runs, every `LOOK_S`: how many tasks there are, what memory they have
together, whether the disk or the machine's memory runs out. ``RLIMIT_NPROC`` does not hold where the server
is root's; there a control group does (``cgroups.py``), or the look alone.

It ends, and with it all that is in the sandbox, when the host's end of its pipe is closed, which the server's
death does too, and when ``bwrap`` is killed.

Frames in both directions: length (4 bytes, big-endian, of what follows), kind (1 byte), content.

    host    R  length of JSON (4 bytes), JSON {argv, start, env, timeout_ms, max_output, merged}, stdin
    here    +  ready
            1  more of stdout, at most ``max_output`` altogether; 2: of stderr
            3  last bytes of stdout, if there were too many; 4: of stderr
            X  JSON {exit_code, stopped, duration_ms, dropped: [stdout, stderr]}: the command is over
            E  JSON {what, message}: it could not begin: ``start`` is no folder, or there is no ``program``
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
from typing import Any

CHECK_INTERVAL_S = 0.05
MAX_TOTAL_OUTPUT = 256 << 20
"""What a command may put out, kept or not."""
MAX_OUTGOING = 1 << 20
"""What may wait for the host to read it; a command whose host does not read waits too."""
DISK_RESERVE = 512 << 20
INODES_RESERVE = 50_000
"""As many files must be left."""
MEMORY_RESERVE = 256 << 20
"""Of the machine: below this, a command that made much of the want is ended."""
NOTICEABLE_BYTES = 64 << 20
NICENESS = 10
CHUNK = 1 << 16
PR_SET_PDEATHSIG, PR_SET_DUMPABLE = 1, 4
EGRESS = "/run/egress"


def main() -> None:
    """Close up, say that all is ready, serve until the host is gone."""
    given = json.loads(sys.argv[1])
    limits = {
        resource.RLIMIT_CORE: 0,
        resource.RLIMIT_DATA: 2 * given["memory_bytes"],  # of one process; stacks count, used or not
        resource.RLIMIT_FSIZE: given["file_bytes"],
        resource.RLIMIT_NOFILE: given["open_files"],
        resource.RLIMIT_NPROC: given["processes"],
    }
    for which, most in limits.items():
        resource.setrlimit(which, (most, most))
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
        order = host.receive()
        if order is None:
            return
        if any(resource.getrlimit(which) != (most, most) for which, most in limits.items()):
            return
        (length,) = struct.unpack_from(">I", order, 1)
        Run(host, children, given, json.loads(order[5 : 5 + length]), order[5 + length :]).execute(
            egress_socket
        )


def open_egress() -> Callable[[], object] | None:
    """Listen for what wants to leave, where the host has put a proxy's socket; the function starts a process
    that forwards it. None where there is no network."""
    if not os.path.exists(EGRESS):
        return None
    sys.path.append(os.path.dirname(__file__))
    import forwarder  # type: ignore[import-not-found]

    listener = forwarder.listen()
    return lambda: forwarder.fork(listener, EGRESS)


class Host:
    """The two pipes to the host. ``waiting`` is what it has yet to read."""

    def __init__(self) -> None:
        self.outgoing = bytearray()
        os.set_blocking(1, False)

    def send(self, kind: bytes, content: bytes = b"") -> None:
        """Send a frame, as soon as the host takes it."""
        self.outgoing += struct.pack(">I", len(content) + 1) + kind + content
        self.write_available()

    def write_available(self) -> None:
        """Write what the pipe takes without waiting."""
        try:
            while self.outgoing:
                del self.outgoing[: os.write(1, self.outgoing[:CHUNK])]
        except BlockingIOError:
            pass
        except OSError:
            os._exit(1)

    def flush(self) -> None:
        """Wait until all is written."""
        while self.outgoing:
            select.select([], [1], [])
            self.write_available()

    def receive(self) -> bytes | None:
        """The next frame; None when the host is gone."""
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
    """One command, from its start until nothing is left of it."""

    def __init__(
        self, host: Host, children: int, limits: dict[str, int], command: dict[str, Any], stdin: bytes
    ) -> None:
        self.host, self.children, self.limits, self.command = host, children, limits, command
        self.stdin = memoryview(stdin)
        self.stopped = ""
        self.status: int | None = None
        self.pid = 0
        self.stdin_fd = -1
        self.reading: dict[int, int] = {}  # descriptor: 0 for stdout, 1 for stderr
        self.sent, self.received = [0, 0], [0, 0]
        self.tails = [bytearray(), bytearray()]

    def execute(self, start_egress: Callable[[], object] | None) -> None:
        """Start the command, see it to its end, tell the host. ``way_out`` starts what it needs to leave."""
        began = time.monotonic()
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
        except (OSError, ValueError) as problem:  # ValueError: a null byte
            self.end_all()
            return self.report_rejection("program", problem)
        finally:
            os.chdir("/")
        self.supervise(began + self.command["timeout_ms"] / 1000)
        self.end_all()
        self.drain()
        for stream in (0, 1):
            if self.tails[stream]:
                self.host.send(b"34"[stream : stream + 1], bytes(self.tails[stream]))
        status = self.status if self.status is not None else signal.SIGKILL
        code = os.waitstatus_to_exitcode(status)
        over = {
            "exit_code": code if code >= 0 else 128 - code,
            "stopped": self.stopped,
            "duration_ms": round((time.monotonic() - began) * 1000),
            "dropped": [
                seen - sent - len(tail)
                for seen, sent, tail in zip(self.received, self.sent, self.tails, strict=True)
            ],
        }
        self.host.send(b"X", json.dumps(over).encode())

    def report_rejection(self, what: str, problem: Exception) -> None:
        """Nothing has begun."""
        for descriptor in (*self.reading, self.stdin_fd):
            if descriptor >= 0:
                os.close(descriptor)
        message = getattr(problem, "strerror", None) or str(problem)
        self.host.send(b"E", json.dumps({"what": what, "message": message}).encode())

    def spawn(self) -> None:
        """Start the first process: a session of its own, its three descriptors, nothing else of ours."""
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
            with contextlib.suppress(OSError):  # somebody has made us nicer still
                os.setpriority(os.PRIO_PROCESS, self.pid, NICENESS)
        finally:
            for descriptor in ends:
                os.close(descriptor)

    def supervise(self, deadline: float) -> None:
        """Until the first process is over, or a limit is reached."""
        look = time.monotonic()
        while self.status is None and not self.stopped:
            now = time.monotonic()
            if now >= deadline:
                self.stopped = "timeout"
            elif now >= look:
                self.stopped = self.exceeded_limit()
                look = time.monotonic() + CHECK_INTERVAL_S
            if self.stopped:
                return
            self.wait(min(deadline, look) - time.monotonic())

    def wait(self, seconds: float) -> None:
        """Do what there is to do, or wait for it."""
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
                os._exit(0)  # the host is gone, or it does not keep to what was agreed: everything ends
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
        """Take more of an output; whether there may be yet more."""
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
        room = self.command["max_output"] - self.sent[stream]
        if room > 0:
            self.host.send(b"12"[stream : stream + 1], chunk[:room])
            self.sent[stream] += min(room, len(chunk))
            chunk = chunk[room:]
        tail, most = self.tails[stream], self.command["max_output"] // 4
        tail += chunk
        if len(tail) > most:
            del tail[: len(tail) - most]
        if sum(self.received) > MAX_TOTAL_OUTPUT:
            self.stopped = self.stopped or "output"
        return True

    def reap(self, options: int = os.WNOHANG) -> bool:
        """Take leave of processes that are over; whether any is left."""
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
        """Nothing of the command is left afterwards."""
        while True:
            try:
                os.kill(-1, signal.SIGKILL)
            except ProcessLookupError:
                pass
            if not self.reap(0):
                return

    def drain(self) -> None:
        """Take what lies in the pipes: nobody writes any more, so it comes to an end."""
        if self.stdin_fd >= 0:
            os.close(self.stdin_fd)
        for descriptor in list(self.reading):
            while self.read(descriptor):
                pass
            if descriptor in self.reading:
                os.close(descriptor)

    def exceeded_limit(self) -> str:
        """Which limit all processes together exceed; empty if none."""
        tasks = memory = 0
        ids = [name for name in os.listdir("/proc") if name.isdecimal() and name != "1"]
        if len(ids) > self.limits["processes"]:
            return "processes"  # there is no time to look at each
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
        short = memory > NOTICEABLE_BYTES and (machine["MemAvailable"] << 10) < MEMORY_RESERVE
        if memory > self.limits["memory_bytes"] or short:
            return "memory"
        (free, names), (at_first, names_at_first) = free_disk(), self.free_at_start
        if free < DISK_RESERVE and free < at_first - NOTICEABLE_BYTES:
            return "disk"
        if names < INODES_RESERVE and names < names_at_first - INODES_RESERVE // 10:
            return "disk"
        return ""


def read_fields(path: str) -> dict[str, int]:
    """The numbers of a file of ``/proc``, by name; empty if the process is over."""
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
    """``MemAvailable`` and ``Shmem`` of the machine, among others, in KiB."""
    return {"MemAvailable": MEMORY_RESERVE, "Shmem": 0, **read_fields("/proc/meminfo")}


def memfd_bytes(ids: list[str]) -> int:
    """Bytes of files in memory that have no name (``memfd_create``), which no limit counts."""
    sizes = {}
    for name in ids:
        try:
            for number in os.listdir(f"/proc/{name}/fd"):
                path = f"/proc/{name}/fd/{number}"
                if os.readlink(path).startswith("/memfd:"):
                    stat = os.stat(path)
                    sizes[stat.st_dev, stat.st_ino] = stat.st_blocks * 512
        except OSError:
            continue  # it is over
    return sum(sizes.values())


def used_bytes(path: str) -> int:
    """Bytes that a file system in memory holds."""
    stat = os.statvfs(path)
    return (stat.f_blocks - stat.f_bfree) * stat.f_frsize


def free_disk() -> tuple[int, int]:
    """Bytes, and files, that are left where the folder is; as many as one likes where nobody counts."""
    stat = os.statvfs("/work")
    return stat.f_bavail * stat.f_frsize, stat.f_favail if stat.f_files else 1 << 60


if __name__ == "__main__":
    main()
