"""kill -9 between row, vector and index file: later searches agree with the rows."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.depth import by_depth
from tests.paths import ROOT


def test_indexes_of_a_killed_process_agree_with_the_rows(tmp_path: Path) -> None:
    kills = by_depth(8, 50)
    path = [str(ROOT / name) for name in ("server", "gen/python")]
    done = subprocess.run(
        [sys.executable, str(Path(__file__).with_name("killed_memory.py")), str(tmp_path), str(kills), "7"],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(path)},
        capture_output=True,
        text=True,
        timeout=20 + 4 * kills,
    )
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 0, "no index file was read"
