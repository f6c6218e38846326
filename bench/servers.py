"""The servers under measurement, each in a process of its own so that its CPU and memory are its alone."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from measure import cpu_seconds, rss_bytes

_HERE = Path(__file__).parent
_START_LIMIT_S = 30.0


class Server:
    """A server process with a fresh data folder, or the one given; a context manager, and gone with it.

    It writes its address into the file ``ADDRESS`` of its folder when it is ready.
    """

    def __init__(self, script: str, *arguments: str, folder: Path | None = None) -> None:
        self._command = [sys.executable, str(_HERE / script), *arguments]
        self._given = folder
        self.ready_seconds = 0.0
        """From the start of the process until it served."""
        self.address = ""

    def __enter__(self) -> Self:
        self._folder = tempfile.TemporaryDirectory(prefix="wonder-bench-")
        folder = self._given or Path(self._folder.name)
        announced = folder / "ADDRESS"
        announced.unlink(missing_ok=True)
        began = time.perf_counter()
        self._process = subprocess.Popen(
            [*self._command, str(folder)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        while not announced.exists():
            if self._process.poll() is not None or time.perf_counter() - began > _START_LIMIT_S:
                raise RuntimeError(f"The server did not start: {' '.join(self._command)}")
            time.sleep(0.002)
        self.ready_seconds = time.perf_counter() - began
        self.address = announced.read_text().strip()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._given is not None:
            self._process.terminate()  # What is in the folder is wanted again.
        else:
            self._process.kill()
        self._process.communicate()
        self._folder.cleanup()

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def cpu(self) -> float:
        """Seconds of CPU so far."""
        return cpu_seconds(self.pid)

    @property
    def children(self) -> list[int]:
        """The process ids of what it has started itself."""
        found = Path(f"/proc/{self.pid}/task/{self.pid}/children").read_text().split()
        return [int(child) for child in found]

    @property
    def rss(self) -> int:
        """Bytes of memory now."""
        return rss_bytes(self.pid)

    def probe(self) -> dict[str, Any]:
        """Return the server's report on itself: see `probed.py`. Wonder only."""
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(b"\n")
        self._process.stdin.flush()
        answer: dict[str, Any] = json.loads(self._process.stdout.readline())
        return answer

    def commits(self) -> int:
        """Commits to the shards so far."""
        return sum(count for file, count in self.probe()["commits"].items() if file[0].isdigit())


def wonder(
    shards: int | None = None, *, folder: Path | None = None, environ: Mapping[str, str] | None = None
) -> Server:
    """A Wonder server with its defaults, apart from the number of shards and what its environment says."""
    given = [f"--environ={name}={value}" for name, value in (environ or {}).items()]
    if shards:
        given.append(f"--shard-count={shards}")
    return Server("probed.py", *given, folder=folder)


def bare() -> Server:
    """The floor: a grpc.aio server that only sends bytes."""
    return Server("bare.py")


def provider() -> Server:
    """A model provider on loopback; its address is a URL."""
    return Server("provider.py")
