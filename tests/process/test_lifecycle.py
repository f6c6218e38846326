"""A server's life from taking its folder to giving it back, with an app that only takes notes."""

from __future__ import annotations

import argparse
import asyncio
import errno
import json
import os
import signal
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
from wonder_server.settings import Settings, SettingsError


class Notes:
    """An application that records its calls, and can fail at one of them."""

    def __init__(self, *, fails: str = "", problem: Exception | None = None) -> None:
        self.servicers: dict[str, object] = {}
        self.calls: list[str] = []
        self._fails = fails
        self._problem = problem

    def disk_full_error(self) -> None:
        return None

    @asynccontextmanager
    async def open(self, _settings: Settings) -> AsyncIterator[Notes]:
        """Start and close, as `wonder_server.compose.open_application` does."""
        try:
            self._note("start")
            yield self
        finally:
            self._note("close")

    async def drain(self, grace_seconds: float) -> None:
        self._note("drain")

    def _note(self, frame: str) -> None:
        self.calls.append(frame)
        if frame == self._fails:
            raise self._problem or RuntimeError(f"{frame} failed")


def settings(data: Path, **more: Any) -> Settings:
    return Settings(listen="127.0.0.1:0", data_dir=data, **more)


async def address_of(data: Path, life: asyncio.Task[None]) -> str:
    """The address that a starting server publishes."""
    file = data / "ADDRESS"
    while not file.exists():
        assert not life.done(), life.result()
        await asyncio.sleep(0)
    return file.read_text().strip()


@pytest.fixture(autouse=True)
def no_force(monkeypatch: pytest.MonkeyPatch) -> None:
    """Within a test's process nothing may end the process."""
    monkeypatch.setattr("wonder_server.lifecycle._force_exit_after", lambda _seconds: None)


async def test_a_server_starts_serves_drains_closes_and_gives_its_folder_back(tmp_path: Path) -> None:
    app, stop = Notes(), asyncio.Event()
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


async def test_an_app_that_cannot_start_is_closed_and_the_folder_is_free_again(tmp_path: Path) -> None:
    app = Notes(fails="start")
    with pytest.raises(RuntimeError, match="start failed"):
        await run_server(settings(tmp_path), app.open, started_at=0)
    assert app.calls == ["start", "close"]
    DataFolder.acquire(tmp_path, "again").release()


async def test_a_store_that_the_system_refuses_is_a_sentence_with_its_name(tmp_path: Path) -> None:
    refused = FileExistsError(errno.EEXIST, "File exists", str(tmp_path / "shards"))
    app = Notes(fails="start", problem=refused)
    with pytest.raises(DataFolderError, match=r"shards cannot be used: File exists\.$"):
        await run_server(settings(tmp_path), app.open, started_at=0)
    assert app.calls == ["start", "close"]


async def test_a_full_disk_does_not_keep_it_from_serving(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any, **__: Any) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    (tmp_path / "ADDRESS").write_text("127.0.0.1:1")
    app, stop = Notes(), asyncio.Event()
    stop.set()
    monkeypatch.setattr(Path, "write_text", full)
    monkeypatch.setattr(os, "pwrite", full)
    await run_server(settings(tmp_path), app.open, started_at=0, stop=stop)
    assert app.calls == ["start", "drain", "close"]
    assert not (tmp_path / "ADDRESS").exists()


async def test_a_file_of_the_folder_that_cannot_be_written_is_a_sentence_and_nothing_goes_on_running(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: Any, **__: Any) -> int:
        raise OSError(errno.EIO, "Input/output error")

    app = Notes()
    monkeypatch.setattr(Path, "write_text", broken)
    with pytest.raises(DataFolderError, match=r"ADDRESS cannot be written: Input/output error\.$"):
        await run_server(settings(tmp_path), app.open, started_at=0)
    assert app.calls == ["start", "close"]
    monkeypatch.setattr(os, "pwrite", broken)
    with pytest.raises(DataFolderError, match="LOCK cannot be written"):
        DataFolder.acquire(tmp_path, "here")
    monkeypatch.undo()
    DataFolder.acquire(tmp_path, "again").release()


async def test_a_drain_that_fails_does_not_keep_the_stores_from_closing(tmp_path: Path) -> None:
    app, stop = Notes(fails="drain"), asyncio.Event()
    stop.set()
    await run_server(settings(tmp_path), app.open, started_at=0, stop=stop)
    assert app.calls == ["start", "drain", "close"]


def test_a_folder_that_others_could_enter_is_closed_to_them(tmp_path: Path) -> None:
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


async def test_a_repository_root_that_is_not_there_is_warned_of(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    stop = asyncio.Event()
    stop.set()
    roots = (tmp_path / "there", tmp_path / "not")
    with capture_logs() as lines:
        await run_server(
            settings(tmp_path / "data", repository_roots=roots), Notes().open, started_at=0, stop=stop
        )
    warned = [line["path"] for line in lines if line["event"] == "repository_root_missing"]
    assert warned == [str(tmp_path / "not")]


async def test_two_servers_on_one_folder_are_refused_by_name_of_the_first(tmp_path: Path) -> None:
    stop = asyncio.Event()
    life = asyncio.create_task(run_server(settings(tmp_path), Notes().open, started_at=0, stop=stop))
    address = await address_of(tmp_path, life)
    with pytest.raises(DataFolderError, match=rf"in use by process {os.getpid()} \(listening on {address}\)"):
        await run_server(settings(tmp_path), Notes().open, started_at=0)
    # Only a server has another folder to be given.
    with pytest.raises(DataFolderError) as problem:
        DataFolder.lock(tmp_path)
    assert str(problem.value).endswith("Stop that server first.")
    stop.set()
    await life


async def test_a_port_in_use_is_refused_before_anything_is_recovered(tmp_path: Path) -> None:
    stop, late = asyncio.Event(), Notes()
    life = asyncio.create_task(run_server(settings(tmp_path / "a"), Notes().open, started_at=0, stop=stop))
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
def test_listening_beyond_this_machine_is_refused_without_tls_and_tokens(
    more: dict[str, Any], lacking: str
) -> None:
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
def test_the_command_refuses_in_one_line_with_exit_code_2(
    arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    parser = argparse.ArgumentParser()
    register(parser.add_subparsers())
    parsed = parser.parse_args(["serve", *arguments])
    assert parsed.run(parsed) == 2
    out = capsys.readouterr().err
    assert said in out and out.startswith("wonder serve: ") and out.count("\n") == 1


# From here on real processes, with the same app, to see signals, exit codes and what gets imported.

PROGRAM = """
import argparse, asyncio, contextlib, pathlib, sys, time
from wonder_server import serve
from wonder_server.settings import load
began = time.monotonic()
class App:
    servicers = {}
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
    """A server process and its ready line."""
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
def test_a_process_says_ready_and_ends_with_0_on_a_signal(tmp_path: Path, number: signal.Signals) -> None:
    process, ready = start(tmp_path)
    assert ready["address"] == (tmp_path / "ADDRESS").read_text().strip()
    assert ready["data"] == str(tmp_path) and ready["model"] == "offline"
    assert {"version", "sqlite", "seconds"} <= set(ready)
    process.send_signal(number)
    out, _ = process.communicate(timeout=60)
    assert process.returncode == 0
    assert out == "[]\n", "heavy libraries stay out of the server's process"


def test_the_health_command_tells_a_serving_server_from_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WONDER_DATA_DIR", str(tmp_path))
    process, _ = start(tmp_path)
    assert health.main() == 0
    process.terminate()
    process.communicate(timeout=60)
    monkeypatch.setenv("WONDER_LISTEN", "127.0.0.1:1")
    assert health.main() == 1


def test_a_folder_is_free_again_after_kill_9(tmp_path: Path) -> None:
    process, _ = start(tmp_path)
    process.kill()
    process.communicate(timeout=60)
    DataFolder.acquire(tmp_path, "again").release()


@pytest.mark.parametrize(("word", "code"), [("dawdle", 0), ("hang", 1)])
def test_a_stop_ends_within_its_time_whatever_the_app_does(tmp_path: Path, word: str, code: int) -> None:
    process, _ = start(tmp_path, "1", word)
    process.terminate()
    process.communicate(timeout=60)  # ten minutes is what the app would take
    assert process.returncode == code


@pytest.mark.parametrize(("seconds", "signals"), [("1", 1), ("3000", 2)])
def test_a_stop_needs_no_event_loop(tmp_path: Path, seconds: str, signals: int) -> None:
    process, _ = start(tmp_path, seconds, "hold")
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    process.terminate()
    while signals == 2 and process.poll() is None:
        time.sleep(0.05)  # two at once may be one
        process.terminate()
    process.communicate(timeout=60)
    assert process.returncode == 1


def test_a_second_signal_ends_the_process_at_once(tmp_path: Path) -> None:
    process, _ = start(tmp_path, "3000", "dawdle")
    assert process.stderr is not None
    process.terminate()
    for line in process.stderr:
        if json.loads(line)["event"] == "draining":
            break
    process.terminate()
    process.communicate(timeout=60)
    assert process.returncode == 1
