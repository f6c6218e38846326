"""Starts a server as ``wonder serve`` does, in a process that can be made to die at chosen points.

``WONDER_FAILPOINT="POINT:COUNT …" python -m tests.e2e.launch serve …``: the first server dies at the first
of these failpoints (see `tests.e2e.failpoints`). Is there a second, another server follows on the same data
folder and dies at that, and so on; after the last comes one that lives. These are forked from a process that
has imported everything, so that a start takes a moment. When one of them was killed, the log says ``killed``.

Without the variable, and with one failpoint alone, this process is the server itself.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import signal
import sys
from typing import Any

import aiohttp

from tests.e2e.failpoints import Failpoint
from wonder_server import compose, lifecycle
from wonder_server.rpc import server
from wonder_server.serve import register

_IMPORTED = (aiohttp, compose, lifecycle, server)
_PR_SET_PDEATHSIG = 1


def main() -> int:
    failpoints = os.environ.pop("WONDER_FAILPOINT", "").split()
    if len(failpoints) < 2:
        return serve(*failpoints)
    for failpoint in [*failpoints, ""]:
        code = os.waitstatus_to_exitcode(_forked(failpoint))
        if code != -signal.SIGKILL:
            return code
        print(json.dumps({"event": "killed", "level": "info", "at": failpoint}), file=sys.stderr, flush=True)
    return -signal.SIGKILL


def serve(failpoint: str = "") -> int:
    """Be a server, to its end."""
    if failpoint:
        Failpoint(failpoint).lay()
    parser = argparse.ArgumentParser()
    register(parser.add_subparsers())
    arguments = parser.parse_args(sys.argv[1:])
    code: int = arguments.run(arguments)
    return code


def _forked(failpoint: str) -> int:
    """A server in a process of its own: its wait status. It is told to stop when we are, and dies with us."""
    parent = os.getpid()
    child = os.fork()
    if not child:
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() == parent:
            code = serve(failpoint)
            sys.stderr.flush()
            os._exit(code)
        os._exit(1)

    def stop(number: int, _: Any) -> None:
        os.kill(child, number)

    before = signal.signal(signal.SIGTERM, stop)
    _, status = os.waitpid(child, 0)
    signal.signal(signal.SIGTERM, before)
    return status


if __name__ == "__main__":
    sys.exit(main())
