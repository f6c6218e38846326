"""Settings of every test: no configuration of this machine, and no key of a provider."""

from __future__ import annotations

import gc
import logging
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import structlog
from hypothesis import HealthCheck, settings

from tests.depth import DEEP

# Before any module of ours is imported, so that no test can depend on the environment it runs in or
# reach a real model by accident.
for _name in list(os.environ):
    if _name.startswith("WONDER_") or _name in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "GEMINI_API_KEY"):
        del os.environ[_name]
os.environ["WONDER_ALLOW_REMOTE_MODELS"] = "false"

# The fast profile decides the same in every run; the deep one searches anew each time, and prints how to
# repeat a failure. By default Hypothesis fails slow examples, which depends on the machine.
_EVERYWHERE: dict[str, Any] = {
    "deadline": None,
    "suppress_health_check": [HealthCheck.too_slow],
    "database": None,
}
settings.register_profile("fast", max_examples=25, derandomize=True, **_EVERYWHERE)
settings.register_profile("deep", max_examples=1_000, derandomize=False, print_blob=True, **_EVERYWHERE)
settings.load_profile("deep" if DEEP else "fast")

# A cached logger keeps the configuration of its first use, so one test would decide what later tests log.
_configure = structlog.configure


def _configure_uncached(**options: Any) -> None:
    _configure(**{**options, "cache_logger_on_first_use": False})


structlog.configure = _configure_uncached


@pytest.fixture(autouse=True)
def _log_settings() -> Iterator[None]:
    """Restore the log settings after each test.

    A handler that one test leaves on the root logger prints what libraries log later, such as gRPC's
    poller of a closed loop, between the lines that another test reads from stdout.
    """
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)
    structlog.reset_defaults()


_FIRST = (
    "e2e/test_kill",
    "e2e/test_runs_kill",
    "e2e/test_memory_kills",
    "e2e/",
    "simulation/",
    "conformance/",
)
"""Files that run first, by the beginning of their path below this folder. Each takes up to a minute: one that
starts late keeps one process busy while the others have nothing to do."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    tests = Path(__file__).parent

    def place(item: pytest.Item) -> int:
        path = item.path.relative_to(tests).as_posix()
        return next((place for place, start in enumerate(_FIRST) if path.startswith(start)), len(_FIRST))

    items.sort(key=place)


# Modules, tests and fixtures live as long as the run. The collector would look at them over and over.
gc.disable()


def pytest_collection_finish() -> None:
    gc.freeze()
    gc.enable()
