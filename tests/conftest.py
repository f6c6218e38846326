"""Settings of every test: no configuration of this machine, and no key of a provider."""

from __future__ import annotations

import gc
import os
from typing import Any

import structlog
from hypothesis import HealthCheck, settings

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
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "fast"))

# A cached logger keeps the configuration of its first use, so one test would decide what later tests log.
_configure = structlog.configure


def _configure_uncached(**options: Any) -> None:
    _configure(**{**options, "cache_logger_on_first_use": False})


structlog.configure = _configure_uncached

# Modules, tests and fixtures live as long as the run. The collector would look at them over and over.
gc.disable()


def pytest_collection_finish() -> None:
    gc.freeze()
    gc.enable()
