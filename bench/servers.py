"""The measured servers. Each runs in a separate process, so that CPU and memory are its own."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

from measure import cpu_seconds, rss_bytes

from wonder_server.core.json_types import JsonDict

_HERE = Path(__file__).parent
_START_LIMIT_S = 30.0


class Server:
    """A server process with a new data folder, or with ``folder``. A context manager that ends the process.

    The process writes its address into the file ``ADDRESS`` of its folder when it is ready.
    """

    def __init__(self, script: str, *arguments: str, folder: Path | None = None) -> None:
        self._command = [sys.executable, str(_HERE / script), *arguments]
        self._given = folder
        self.ready_seconds = 0.0
        """Seconds from the start of the process until it is ready."""
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
            self._process.terminate()  # The caller uses the folder again.
        else:
            self._process.kill()
        self._process.communicate()
        self._folder.cleanup()

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def cpu(self) -> float:
        """CPU of the process so far, in seconds."""
        return cpu_seconds(self.pid)

    @property
    def children(self) -> list[int]:
        """Ids of its child processes."""
        found = Path(f"/proc/{self.pid}/task/{self.pid}/children").read_text().split()
        return [int(child) for child in found]

    @property
    def rss(self) -> int:
        """Resident memory now, in bytes."""
        return rss_bytes(self.pid)

    def probe(self) -> JsonDict:
        """Return the server's report on itself; see `probed.py`. Only for `wonder`."""
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(b"\n")
        self._process.stdin.flush()
        answer: JsonDict = json.loads(self._process.stdout.readline())
        return answer

    def commits(self) -> int:
        """Return the number of commits to the shards so far."""
        return sum(count for file, count in self.probe()["commits"].items() if file[0].isdigit())


def wonder(
    shards: int | None = None, *, folder: Path | None = None, environ: Mapping[str, str] | None = None
) -> Server:
    """Return a Wonder server with default settings, except the shard count and ``environ``."""
    given = [f"--environ={name}={value}" for name, value in (environ or {}).items()]
    if shards:
        given.append(f"--shard-count={shards}")
    return Server("probed.py", *given, folder=folder)


def bare() -> Server:
    """Return the floor: a grpc.aio server that only sends bytes."""
    return Server("bare.py")


def provider() -> Server:
    """Return a model provider on loopback. Its address is a URL."""
    return Server("provider.py")
