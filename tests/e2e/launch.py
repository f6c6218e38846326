"""Launcher of servers: a process that has imported everything and forks, so that a server starts quickly.

Each is a server as ``wonder serve`` starts it, in a process of its own, that can be made to die at chosen
points: given several failpoints (see `tests.e2e.failpoints`), the first server dies at the first of them,
another follows on the same data folder and dies at the second, and so on; after the last comes one that
lives. With one failpoint none follows. The log says ``killed`` when one of them was and another follows.
With ``CLOCK_AHEAD_S`` in its environment a server's clock is so many seconds ahead; with ``WALL_CLOCK`` the
file of that name says, at any time, by how many seconds its machine's wall clock was set.

``python -m tests.e2e.launch`` takes orders on its standard input, a socket, until that is closed. An order is
``{"arguments": [flags of wonder serve], "environment": {…}, "failpoints": ["POINT:COUNT", …]}`` with two
files: what the servers log to, each first its ``pid``, and where the last one's exit code is written to,
negative for a signal.
"""

from __future__ import annotations

import argparse
import atexit
import ctypes
import functools
import gc
import importlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
import traceback
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any, NoReturn

from tests.paths import ROOT

PATH = os.pathsep.join(str(ROOT / part) for part in (".", "server", "gen/python", "sdk/python"))
_MOST = 1 << 20
_PR_SET_PDEATHSIG = 1


def order(
    arguments: Sequence[str], environment: Mapping[str, str], failpoints: Sequence[str]
) -> tuple[IO[bytes], IO[bytes]]:
    """Have a server started. Returns what to read: its log, and its exit code."""
    (log, their_log), (code, their_code) = os.pipe(), os.pipe()
    launch = {"arguments": [*arguments], "environment": {**environment}, "failpoints": [*failpoints]}
    try:
        socket.send_fds(_nursery(), [json.dumps(launch).encode()], [their_log, their_code])
    finally:
        os.close(their_log)
        os.close(their_code)
    return open(log, "rb", buffering=0), open(code, "rb", buffering=0)


@functools.cache
def _nursery() -> socket.socket:
    """The process that forks, of which there is one; it ends with this one."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _MOST)
    environment = {**os.environ, "PYTHONPATH": PATH}
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.e2e.launch"], stdin=theirs.fileno(), cwd=ROOT, env=environment
    )
    theirs.close()

    def end() -> None:
        ours.close()
        process.wait()

    atexit.register(end)
    return ours


# --- the process that forks ---------------------------------------------------------------------------


def main() -> None:
    """Fork a process for each order until the socket closes."""
    from tests.e2e import failpoints
    from wonder_server import compose, lifecycle
    from wonder_server.compose import clients
    from wonder_server.rpc.server import server

    _imported = (compose, failpoints, lifecycle, server)
    for name in clients.PRELOADED:
        importlib.import_module(name)
    gc.collect()
    gc.freeze()
    orders = socket.socket(fileno=os.dup(0))
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    while True:
        text, (*files,), *_ = socket.recv_fds(orders, _MOST, 2)
        if not text:
            return
        if not _forked():
            orders.close()
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            log, end = files
            os.dup2(log, 2)
            os.close(log)
            _see_through(json.loads(text), end)
        for file in files:
            os.close(file)


def _see_through(launch: dict[str, Any], end: int) -> NoReturn:
    """Start one server after another until one ends without a successor."""
    failpoints = launch["failpoints"]
    lives = failpoints if len(failpoints) == 1 else [*failpoints, ""]
    for number, failpoint in enumerate(lives, 1):
        child = _forked()
        if not child:
            os.close(end)
            _log("born", pid=os.getpid())
            _serve(launch, failpoint)
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        if code != -signal.SIGKILL or number == len(lives):
            os.write(end, str(code).encode())
            break
        _log("killed", at=failpoint)
    os._exit(0)


def _serve(launch: dict[str, Any], failpoint: str) -> NoReturn:
    """Run a server to its end in this process."""
    from tests.e2e.failpoints import Failpoint
    from wonder_server.compose import open_application
    from wonder_server.compose.platform import Platform
    from wonder_server.ports.failpoints import NO_FAILPOINTS
    from wonder_server.serve import register

    code = 1
    try:
        os.environ.clear()
        os.environ.update(launch["environment"])
        failpoints = Failpoint(failpoint)
        if failpoint:
            failpoints.lay()
        _set_clock(int(os.environ.pop("CLOCK_AHEAD_S", "0")))
        _set_wall_clock(os.environ.pop("WALL_CLOCK", ""))
        parser = argparse.ArgumentParser(prog="wonder")
        register(parser.add_subparsers())
        arguments = parser.parse_args(["serve", *launch["arguments"]])
        platform = Platform(failpoints=failpoints if failpoint else NO_FAILPOINTS)
        code = arguments.run(arguments, lambda settings: open_application(settings, platform))
        if failpoint.endswith(":0"):
            _log("passages", count=failpoints.passages)
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 1
    except BaseException:
        traceback.print_exc()
    sys.stderr.flush()
    os._exit(code)


def _set_clock(ahead_s: int) -> None:
    from wonder_server.compose import SystemClock

    now_ms = SystemClock.now_ms
    SystemClock.now_ms = lambda clock: now_ms(clock) + 1000 * ahead_s  # type: ignore[method-assign]


def _set_wall_clock(file: str) -> None:
    if not file:
        return

    def set_ns() -> int:
        return true_ns() + int(Path(file).read_text()) * 1_000_000_000

    true_ns, time.time_ns = time.time_ns, set_ns
    time.time = lambda: set_ns() / 1e9


def _log(event: str, **fields: object) -> None:
    print(json.dumps({"event": event, "level": "info", **fields}), file=sys.stderr, flush=True)


def _forked() -> int:
    """Fork; 0 in the child, which dies with its parent."""
    parent = os.getpid()
    child = os.fork()
    if not child:
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(1)
    return child


if __name__ == "__main__":
    main()
