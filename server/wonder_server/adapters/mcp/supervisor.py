"""The parent process of an MCP server. It ends the server with all its descendants.

Run as ``python -I -S supervisor.py LIFE COMMAND ARGUMENTS``; it imports only the standard library. ``LIFE``
is the number of a pipe's read end. The server gets this process's standard streams.

====================  ====================================================================================
event                 effect
====================  ====================================================================================
a byte from LIFE      SIGKILL for the server and all its descendants
LIFE closes           SIGTERM for the server's process group, `GRACE_S` later SIGKILL for all
the server ends       SIGKILL for its descendants; this process exits with the same code
this process dies     the kernel kills the server
====================  ====================================================================================

The kernel closes LIFE when the platform's process ends in any way, kill -9 included. Processes that left the
server's group, or were orphaned on purpose, become children of this process (PR_SET_CHILD_SUBREAPER). So no
descendant survives it.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import select
import signal
import sys
import time
from typing import Final

GRACE_S: Final = 2.0
NOT_STARTED: Final = 127

PR_SET_PDEATHSIG: Final = 1
PR_SET_CHILD_SUBREAPER: Final = 36


def main() -> int:
    """Start the server, wait for an event, end all processes. Return the server's exit code."""
    life, command = int(sys.argv[1]), sys.argv[2:]
    os.set_inheritable(life, False)
    _prctl(PR_SET_CHILD_SUBREAPER, 1)
    wake, wake_writer = os.pipe()
    os.set_blocking(wake_writer, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(wake_writer, warn_on_full_buffer=False)
    server = os.fork()
    if server == 0:
        _exec_server(command)
    null = os.open(os.devnull, os.O_RDWR)
    for stream in range(3):
        os.dup2(null, stream)
    status: int | None = None
    while status is None:
        ready, _, _ = select.select([life, wake], [], [])
        if life in ready:
            if not os.read(life, 1):
                status = _terminate(server, wake)
            break
        os.read(wake, 1024)
        status = _reap(server)
    _kill_descendants(server, gone=status is not None)
    return NOT_STARTED if status is None else os.waitstatus_to_exitcode(status) & 0xFF


def _exec_server(command: list[str]) -> None:
    """Replace this process by the server. Never returns."""
    try:
        os.setpgid(0, 0)
        _prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)
        os.execvp(command[0], command)
    finally:
        os._exit(NOT_STARTED)


def _terminate(server: int, wake: int) -> int | None:
    """Send SIGTERM and wait up to `GRACE_S`. Return the server's status; None if it still runs."""
    with contextlib.suppress(OSError):
        os.killpg(server, signal.SIGTERM)
    until = time.monotonic() + GRACE_S
    while (status := _reap(server)) is None and (remaining := until - time.monotonic()) > 0:
        if select.select([wake], [], [], remaining)[0]:
            os.read(wake, 1024)
    return status


def _reap(server: int) -> int | None:
    """Reap all ended children. Return the server's status if it is among them."""
    status = None
    with contextlib.suppress(ChildProcessError):
        while (ended := os.waitpid(-1, os.WNOHANG))[0]:
            status = ended[1] if ended[0] == server else status
    return status


def _kill_descendants(server: int, *, gone: bool) -> None:
    """Kill and reap every descendant. When a parent ends, its children become children of this process."""
    if not gone:
        with contextlib.suppress(OSError):
            os.killpg(server, signal.SIGKILL)
    while True:
        for child in _children():
            with contextlib.suppress(OSError):
                os.kill(child, signal.SIGKILL)
        try:
            os.waitpid(-1, 0)
        except ChildProcessError:
            return


def _children() -> list[int]:
    try:
        with open(f"/proc/self/task/{os.getpid()}/children") as listed:
            return [int(each) for each in listed.read().split()]
    except OSError:  # This kernel lacks the file; the server's process group was killed.
        return []


def _prctl(option: int, value: int) -> None:
    """Call prctl. On systems without it (not Linux), only process groups are killed."""
    with contextlib.suppress(AttributeError, OSError):
        ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


if __name__ == "__main__":
    sys.exit(main())
