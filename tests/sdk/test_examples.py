"""The examples, run as a newcomer would run them: against a real server, from a shell."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """A machine of its own, as far as a process can tell."""
    paths = os.pathsep.join(str(ROOT / part) for part in ("server", "gen/python", "sdk/python"))
    (tmp_path / "tmp").mkdir()
    return {
        **os.environ,
        "PYTHONPATH": paths,
        "PYTHONUNBUFFERED": "1",
        "TMPDIR": str(tmp_path / "tmp"),
        "HOME": str(tmp_path),
    }


@pytest.fixture
def address(environment: dict[str, str], tmp_path: Path) -> Iterator[str]:
    """A server of our own."""
    data = tmp_path / "data"
    command = [
        sys.executable,
        "-m",
        "wonder_sdk.cli",
        "serve",
        "--listen",
        "127.0.0.1:0",
        "--data",
        str(data),
    ]
    with subprocess.Popen(command, env=environment, stderr=subprocess.PIPE) as process:
        while not (data / "ADDRESS").exists():
            assert process.poll() is None, process.communicate()[1].decode()
            time.sleep(0.02)
        yield (data / "ADDRESS").read_text().strip()
        process.terminate()
        process.communicate(timeout=20)


def test_the_quickstart_remembers(address: str, environment: dict[str, str]) -> None:
    done = subprocess.run(
        [sys.executable, EXAMPLES / "quickstart.py"],
        env={**environment, "WONDER_SERVER": address},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.stderr == ""
    assert done.returncode == 0
    assert "[remember] " in done.stdout
    assert "Mia" in done.stdout.splitlines()[-1]


def test_the_quickstart_without_a_server_says_so_in_one_line(environment: dict[str, str]) -> None:
    done = subprocess.run(
        [sys.executable, EXAMPLES / "quickstart.py"],
        env={**environment, "WONDER_SERVER": "127.0.0.1:1", "GRPC_VERBOSITY": "NONE"},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.stderr == "no server answers at 127.0.0.1:1; start one with: wonder serve\n"
    assert done.returncode == 1


def test_the_quickstart_is_what_the_readme_shows() -> None:
    assert (EXAMPLES / "quickstart.py").read_text() in (ROOT / "sdk" / "python" / "README.md").read_text()


def test_the_demo_recalls_in_a_second_conversation_and_leaves_nothing(environment: dict[str, str]) -> None:
    done = subprocess.run(
        [sys.executable, EXAMPLES / "demo.py"],
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=90,
    )
    assert done.stderr == ""
    assert done.returncode == 0
    assert "model: offline" in done.stdout
    assert "library wonder/std applied" in done.stdout
    assert "→ remember" in done.stdout
    assert "Mia" in done.stdout.partition("What is my cat called?")[2]
    assert not list(Path(environment["TMPDIR"]).iterdir())


def test_a_demo_that_is_interrupted_leaves_nothing_either(environment: dict[str, str]) -> None:
    with subprocess.Popen(
        [sys.executable, EXAMPLES / "demo.py"],
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if found := re.search(r"ready at (\S+)", line):
                break
        process.send_signal(signal.SIGINT)
        process.stdout.read()
        assert process.wait(30) == 130
    health = [sys.executable, "-m", "wonder_sdk.cli", "health", "--server", found[1] if found else ""]
    assert subprocess.run(health, env=environment, capture_output=True, timeout=30).returncode == 1
    assert not list(Path(environment["TMPDIR"]).iterdir())
