"""A real sandbox for tests, or a skip that says why there is none."""

from __future__ import annotations

from typing import Any

import pytest

from wonder_server.adapters.sandbox.bubblewrap import BubblewrapSandbox


async def bubblewrap(**settings: Any) -> BubblewrapSandbox:
    """A sandbox that works here. Close it."""
    sandbox = BubblewrapSandbox(**settings)
    problem = await sandbox.probe()
    if problem is not None:
        await sandbox.close()
        pytest.skip(problem.fault.message)
    return sandbox
