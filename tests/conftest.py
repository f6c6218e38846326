"""What every test shares: nothing of this machine's configuration, and no provider's key."""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

# Before any module of ours is imported, so that no test can depend on the environment it runs in or
# reach a real model by accident.
for _name in list(os.environ):
    if _name.startswith("WONDER_") or _name in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "GEMINI_API_KEY"):
        del os.environ[_name]
os.environ["WONDER_ALLOW_REMOTE_MODELS"] = "false"

# By default Hypothesis fails a test whose examples are slow, which depends on the machine.
settings.register_profile("any machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("any machine")
