"""Settings of the Python interpreter that suit a server process."""

from __future__ import annotations

import gc
import sys
from typing import Final

SWITCH_INTERVAL_S: Final = 0.003
"""Seconds after which a busy thread releases the interpreter lock.

Each SQLite call releases the lock, and a busy event loop returns it after this time. At Python's default of
5 ms, text of other streams waits longer without need. At 1 ms a turn needs a sixth more processor time, since
a write consists of few statements.
"""

GC_THRESHOLDS: Final = (20_000, 5, 200)
"""Thresholds of the garbage collector.

Planners create many values and almost no cycles: at Python's default of 700 the collector takes a tenth of
the event loop's time. The second number limits the pause: at 20, one collection with 5,000 runs in memory
took up to 370 ms on a busy machine, and no text was sent meanwhile.
"""


def tune_interpreter() -> None:
    """Set the thread switch interval and the collector's thresholds of this process."""
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    gc.set_threshold(*GC_THRESHOLDS)
