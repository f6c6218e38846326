"""kill -9 between row, vector and file: what is found afterwards is what the rows say."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.paths import ROOT


def test_a_process_killed_again_and_again_finds_what_the_rows_say(tmp_path: Path) -> None:
    """VECTOR_KILLS=200 kills it as often; five seconds for 20."""
    kills = os.environ.get("VECTOR_KILLS", "20")
    path = [str(ROOT / name) for name in ("server", "gen/python")]
    done = subprocess.run(
        [sys.executable, str(Path(__file__).with_name("killed_memory.py")), str(tmp_path), kills, "7"],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(path)},
        capture_output=True,
        text=True,
        timeout=20 + 4 * int(kills),
    )
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 0, "files were there to be read"
