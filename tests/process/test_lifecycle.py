"""The life of a server process, from the lock of its folder to the exit, with a recording application."""

from __future__ import annotations

import argparse
import asyncio
import errno
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from grpc import aio
from grpc_health.v1 import health_pb2, health_pb2_grpc
from structlog.testing import capture_logs

from tests.paths import ROOT
from wonder_server import health
from wonder_server.data_folder import DataFolder, DataFolderError
from wonder_server.lifecycle import run_server
from wonder_server.rpc.server.server import ListenError
from wonder_server.serve import check_exposure, register
from wonder_server.services.tenancy.directory import PrincipalDirectory
from wonder_server.settings import Settings, SettingsError


class RecordingApp:
    """An application that records its calls, and can fail at one of them."""

    def __init__(self, *, fails: str = "", problem: Exception | None = None) -> None:
        self.servicers: dict[str, object] = {}
        self.principals = PrincipalDirectory()
        self.logins = None
        self.visibility = None
        self.calls: list[str] = []
        self._fails = fails
        self._problem = problem

    def disk_full_error(self) -> None:
        return None

    @asynccontextmanager
    async def open(self, _settings: Settings) -> AsyncIterator[RecordingApp]:
        """Start and close, as `wonder_server.compose.open_application` does."""
        try:
            self._record("start")
            yield self
        finally:
            self._record("close")

    async def drain(self, grace_seconds: float) -> None:
        self._record("drain")

    def _record(self, step: str) -> None:
        self.calls.append(step)
        if step == self._fails:
            raise self._problem or RuntimeError(f"{step} failed")


def settings(data: Path, **more: Any) -> Settings:
    return Settings(listen="127.0.0.1:0", data_dir=data, **more)


async def address_of(data: Path, life: asyncio.Task[None]) -> str:
    """Wait for the address that a starting server publishes."""
    file = data / "ADDRESS"
    while not file.exists():
        assert not life.done(), life.result()
        await asyncio.sleep(0)
    return file.read_text().strip()


@pytest.fixture(autouse=True)
def no_force(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep a test from ending its own process."""
    monkeypatch.setattr("wonder_server.lifecycle._force_exit_after", lambda _seconds: None)


async def test_a_server_starts_serves_drains_closes_and_releases_its_folder(tmp_path: Path) -> None:
    app, stop = RecordingApp(), asyncio.Event()
    life = asyncio.create_task(run_server(settings(tmp_path), app.open, started_at=0, stop=stop))
    address = await address_of(tmp_path, life)
    async with aio.insecure_channel(address) as channel:
        answer = await health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest())
    assert answer.status == health_pb2.HealthCheckResponse.SERVING
    stop.set()
    await life
    assert app.calls == ["start", "drain", "close"]
    assert not (tmp_path / "ADDRESS").exists()
    DataFolder.acquire(tmp_path, "again").release()


async def test_an_application_that_fails_to_start_releases_the_folder(tmp_path: Path) -> None:
    app = RecordingApp(fails="start")
    with pytest.raises(RuntimeError, match="start failed"):
        await run_server(settings(tmp_path), app.open, started_at=0)
    assert app.calls == ["start", "close"]
    DataFolder.acquire(tmp_path, "again").release()


async def test_an_error_names_the_store_that_the_system_refuses(tmp_path: Path) -> None:
    refused = FileExistsError(errno.EEXIST, "File exists", str(tmp_path / "shards"))
    app = RecordingApp(fails="start", problem=refused)
    with pytest.raises(DataFolderError, match=r"shards cannot be used: File exists\.$"):
        await run_server(settings(tmp_path), app.open, started_at=0)
    assert app.calls == ["start", "close"]


async def test_a_server_on_a_full_disk_serves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **__: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    (tmp_path / "ADDRESS").write_text("127.0.0.1:1")
    app, stop = RecordingApp(), asyncio.Event()
    stop.set()
    monkeypatch.setattr(Path, "write_text", full)
    monkeypatch.setattr(os, "pwrite", full)
    await run_server(settings(tmp_path), app.open, started_at=0, stop=stop)
    assert app.calls == ["start", "drain", "close"]
    assert not (tmp_path / "ADDRESS").exists()


async def test_an_error_names_the_file_that_cannot_be_written_and_the_server_stops(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object, **__: object) -> int:
        raise OSError(errno.EIO, "Input/output error")

    app = RecordingApp()
    monkeypatch.setattr(Path, "write_text", broken)
    with pytest.raises(DataFolderError, match=r"ADDRESS cannot be written: Input/output error\.$"):
        await run_server(settings(tmp_path), app.open, started_at=0)
    assert app.calls == ["start", "close"]
    monkeypatch.setattr(os, "pwrite", broken)
    with pytest.raises(DataFolderError, match="LOCK cannot be written"):
        DataFolder.acquire(tmp_path, "here")
    monkeypatch.undo()
    DataFolder.acquire(tmp_path, "again").release()


async def test_stores_close_after_a_failed_drain(tmp_path: Path) -> None:
    app, stop = RecordingApp(fails="drain"), asyncio.Event()
    stop.set()
    await run_server(settings(tmp_path), app.open, started_at=0, stop=stop)
    assert app.calls == ["start", "drain", "close"]


def test_a_folder_that_others_could_enter_becomes_private(tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    for mode in (0o755, 0o777, 0o2770, 0o700):
        data.chmod(mode)
        DataFolder.acquire(data, "here").release()
        assert data.stat().st_mode & 0o777 == 0o700


def test_in_a_folder_of_another_user_new_files_are_private(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = os.umask(0o022)
    try:
        tmp_path.chmod(0o755)
        monkeypatch.setattr(os, "geteuid", lambda: tmp_path.stat().st_uid + 1)
        DataFolder.acquire(tmp_path, "here").release()
        (tmp_path / "new").touch()
        assert tmp_path.stat().st_mode & 0o777 == 0o755
        assert (tmp_path / "new").stat().st_mode & 0o777 == 0o600
    finally:
        os.umask(before)


async def test_a_missing_repository_root_is_logged(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    stop = asyncio.Event()
    stop.set()
    roots = (tmp_path / "there", tmp_path / "not")
    with capture_logs() as lines:
        await run_server(
            settings(tmp_path / "data", repository_roots=roots), RecordingApp().open, started_at=0, stop=stop
        )
    warned = [line["path"] for line in lines if line["event"] == "repository_root_missing"]
    assert warned == [str(tmp_path / "not")]


async def test_a_second_server_on_a_folder_is_refused_with_the_address_of_the_first(tmp_path: Path) -> None:
    stop = asyncio.Event()
    life = asyncio.create_task(run_server(settings(tmp_path), RecordingApp().open, started_at=0, stop=stop))
    address = await address_of(tmp_path, life)
    with pytest.raises(DataFolderError, match=rf"in use by process {os.getpid()} \(listening on {address}\)"):
        await run_server(settings(tmp_path), RecordingApp().open, started_at=0)
    # The advice to choose another folder is for servers only.
    with pytest.raises(DataFolderError) as problem:
        DataFolder.lock(tmp_path)
    assert str(problem.value).endswith("Stop that server first.")
    stop.set()
    await life


async def test_a_port_in_use_is_refused_before_recovery(tmp_path: Path) -> None:
    stop, late = asyncio.Event(), RecordingApp()
    life = asyncio.create_task(
        run_server(settings(tmp_path / "a"), RecordingApp().open, started_at=0, stop=stop)
    )
    address = await address_of(tmp_path / "a", life)
    with pytest.raises(ListenError, match="is in use by another program"):
        await run_server(Settings(listen=address, data_dir=tmp_path / "b"), late.open, started_at=0)
    assert late.calls == []
    stop.set()
    await life


def test_a_folder_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for path in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(DataFolderError, match="cannot be written"):
            DataFolder.acquire(path, "here")


@pytest.mark.parametrize(
    ("more", "lacking"),
    [
        ({}, r"encryption \(--tls-cert and --tls-key\) and authentication .* are not set up"),
        ({"auth_tokens_file": Path("t")}, "encryption .* is not set up"),
        ({"tls_cert": Path("c"), "tls_key": Path("k")}, "authentication .* is not set up"),
    ],
)
def test_a_server_for_other_machines_needs_tls_and_tokens(more: dict[str, Any], lacking: str) -> None:
    with pytest.raises(SettingsError, match=lacking):
        check_exposure(Settings(listen="0.0.0.0:1", **more))
    check_exposure(Settings(listen="0.0.0.0:1", insecure=True, **more))
    check_exposure(Settings(listen="127.0.0.1:1", **more))


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--listen", "0.0.0.0:0"], "can be reached from other machines"),
        (["--shard-count", "none"], "shard_count: expected a whole number"),
        (["--config", "/nowhere.toml"], "cannot be read"),
    ],
)
def test_a_refused_start_prints_one_line_and_exits_with_2(
    arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    parser = argparse.ArgumentParser()
    register(parser.add_subparsers())
    parsed = parser.parse_args(["serve", *arguments])
    assert parsed.run(parsed) == 2
    out = capsys.readouterr().err
    assert said in out and out.startswith("wonder serve: ") and out.count("\n") == 1


# Real processes, with a similar application: signals, exit codes and imports.

PROGRAM = """
import argparse, asyncio, contextlib, pathlib, sys, time
from wonder_server import serve
from wonder_server.settings import load
began = time.monotonic()
class App:
    servicers = {}
    principals = None
    logins = None
    visibility = None

    def disk_full_error(self):
        return None
    def hold(self):
        if not (pathlib.Path(sys.argv[1]) / "ADDRESS").exists():  # written when it is ready
            asyncio.get_running_loop().call_later(0.01, self.hold)
            return
        print("held", flush=True)
        while True: pass
    async def drain(self, grace_seconds):
        if "dawdle" in sys.argv: await asyncio.sleep(600)
@contextlib.asynccontextmanager
async def open_app(settings):
    app = App()
    if "hold" in sys.argv: app.hold()
    yield app
    if "hang" in sys.argv: time.sleep(600)
parser = argparse.ArgumentParser()
serve.register(parser.add_subparsers())
arguments = parser.parse_args(["serve", "--listen", "127.0.0.1:0", "--log-format", "json",
                               "--data-dir", sys.argv[1], "--shutdown-grace-seconds", sys.argv[2]])
code = serve.run(arguments, open_app)
print(sorted({name.split(".")[0] for name in sys.modules} & {"litellm", "faiss", "openai", "numpy"}))
sys.exit(code)
"""


def start(data: Path, *words: str) -> tuple[subprocess.Popen[str], dict[str, Any]]:
    """Start a server process and return it with its `ready` event."""
    path = os.pathsep.join(str(ROOT / part) for part in ("server", "gen/python", "sdk/python"))
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, str(data), *(words or ("10",))],
        env={**os.environ, "PYTHONPATH": path},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None
    for line in process.stderr:
        if (event := json.loads(line))["event"] == "ready":
            return process, event
    raise AssertionError(f"ended with {process.wait()}")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_process_logs_ready_and_exits_with_0_on_a_signal(tmp_path: Path, number: signal.Signals) -> None:
    process, ready = start(tmp_path)
    assert ready["address"] == (tmp_path / "ADDRESS").read_text().strip()
    assert ready["data"] == str(tmp_path) and ready["model"] == "offline"
    assert {"version", "sqlite", "seconds"} <= set(ready)
    process.send_signal(number)
    out, _ = process.communicate(timeout=60)
    assert process.returncode == 0
    assert out == "[]\n", "the server's process must not import heavy libraries"


def test_the_health_command_fails_without_a_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WONDER_DATA_DIR", str(tmp_path))
    process, _ = start(tmp_path)
    assert health.main() == 0
    process.terminate()
    process.communicate(timeout=60)
    monkeypatch.setenv("WONDER_LISTEN", "127.0.0.1:1")
    assert health.main() == 1


def test_kill_9_releases_the_folder(tmp_path: Path) -> None:
    process, _ = start(tmp_path)
    process.kill()
    process.communicate(timeout=60)
    DataFolder.acquire(tmp_path, "again").release()


@pytest.mark.parametrize(("word", "code"), [("dawdle", 0), ("hang", 1)])
def test_a_stop_ends_within_the_grace_although_the_application_hangs(
    tmp_path: Path, word: str, code: int
) -> None:
    process, _ = start(tmp_path, "1", word)
    process.terminate()
    process.communicate(timeout=60)  # the application would take ten minutes
    assert process.returncode == code


@pytest.mark.parametrize(("seconds", "signals"), [("1", 1), ("3000", 2)])
def test_a_stop_works_while_the_event_loop_is_blocked(tmp_path: Path, seconds: str, signals: int) -> None:
    process, _ = start(tmp_path, seconds, "hold")
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    process.terminate()
    while signals == 2 and process.poll() is None:
        time.sleep(0.05)  # the system may merge two signals sent at once
        process.terminate()
    process.communicate(timeout=60)
    assert process.returncode == 1


def test_a_second_signal_ends_the_process_immediately(tmp_path: Path) -> None:
    process, _ = start(tmp_path, "3000", "dawdle")
    assert process.stderr is not None
    process.terminate()
    for line in process.stderr:
        if json.loads(line)["event"] == "draining":
            break
    process.terminate()
    process.communicate(timeout=60)
    assert process.returncode == 1


def test_metrics_beyond_loopback_need_tls_and_a_token(tmp_path: Path) -> None:
    file = tmp_path / "file"
    tls = {"tls_cert": file, "tls_key": file}
    check_exposure(Settings(metrics_address="127.0.0.1:1"))
    check_exposure(Settings(metrics_address="0.0.0.0:1", metrics_token_file=file, **tls))
    check_exposure(Settings(metrics_address="0.0.0.0:1", insecure=True))
    for more in ({}, tls, {"metrics_token_file": file}):
        with pytest.raises(SettingsError, match=r"metrics_address: 0\.0\.0\.0:1 can be reached"):
            check_exposure(Settings(metrics_address="0.0.0.0:1", **more))


async def test_an_address_for_metrics_in_use_is_refused_before_the_start(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        app, address = RecordingApp(), f"127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(ListenError, match=r"is in use.*--metrics-address"):
            await run_server(settings(tmp_path, metrics_address=address), app.open, started_at=0)
        assert app.calls == []
