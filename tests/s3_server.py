"""A real S3 server on this machine for tests, or a skip that says why there is none.

``.ci/run`` puts versitygw into ``.tools/bin``; one on the PATH, or MinIO, does as well.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import time
from pathlib import Path

import pytest

from tests.paths import ROOT
from wonder_server.adapters.s3.blobs import S3Config

ACCESS, SECRET = "access-of-tests", "secret-of-tests"
START_S = 20


class S3Server:
    """Started by `start`, and again after `kill`, at the same address with the same objects."""

    def __init__(self, program: str, folder: Path) -> None:
        self._program, self._folder = program, folder
        with socket.create_server(("127.0.0.1", 0)) as probe:
            self._port = probe.getsockname()[1]
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        address = f"127.0.0.1:{self._port}"
        self._folder.mkdir(exist_ok=True)
        if Path(self._program).name == "minio":
            command = [self._program, "server", str(self._folder), "--address", address]
        else:
            command = [self._program, "--quiet", "--port", address, "posix", str(self._folder)]
        keys = {"ROOT_ACCESS_KEY": ACCESS, "ROOT_SECRET_KEY": SECRET}
        keys |= {"MINIO_ROOT_USER": ACCESS, "MINIO_ROOT_PASSWORD": SECRET, "HOME": str(self._folder.parent)}
        self._process = subprocess.Popen(
            command, env=keys, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd=self._folder.parent
        )
        latest = time.monotonic() + START_S
        while True:
            try:
                socket.create_connection(("127.0.0.1", self._port), 1).close()
                return
            except OSError:
                assert self._process.poll() is None, f"{self._program} does not start"
                assert time.monotonic() < latest, f"{self._program} does not listen"
                time.sleep(0.01)

    def kill(self) -> None:
        """As a power cut would."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def hold(self, *, still: bool) -> None:
        """Let it stand still, or go on: it takes connections and does not answer."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP if still else signal.SIGCONT)

    def store(self, bucket: str, **changes: str) -> S3Config:
        """Return the configuration of a bucket of this server."""
        given = {"access_key": ACCESS, "secret_key": SECRET, **changes}
        return S3Config(endpoint=f"http://127.0.0.1:{self._port}", bucket=bucket, **given)


def s3_server(folder: Path) -> S3Server:
    """A server that has not been started, or a skip."""
    path = f"{ROOT / '.tools' / 'bin'}{os.pathsep}{os.environ.get('PATH', '')}"
    for name in ("versitygw", "minio"):
        program = shutil.which(name, path=path)
        if program is not None:
            return S3Server(program, folder)
    pytest.skip("no S3 server is to be had: neither versitygw nor minio is in .tools/bin or on the PATH")
