"""Cost of a sandbox: a command in a running sandbox, beside the same command without one; and its start."""

from __future__ import annotations

import asyncio
import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

from measure import Effort, Number

from wonder_server.adapters.sandbox.bubblewrap import BubblewrapSandbox
from wonder_server.ports.sandbox import Command, SandboxSpec

MOST_WARM_MS = 15.0
COMMAND = Command(argv=("/bin/sh", "-c", "true"), timeout_ms=10_000, merge_stderr=True)
WARM, COLD = 100, 10


async def measure(_effort: Effort) -> list[Number]:
    sandbox = BubblewrapSandbox(max_instances=2)
    if await sandbox.probe() is not None:
        print("  shell: this machine cannot run sandboxes")
        return []
    with tempfile.TemporaryDirectory() as name:
        place = SandboxSpec(folder=Path(name))

        async def warm() -> None:
            await sandbox.run("bench", place, COMMAND)

        async def cold() -> None:
            await sandbox.release("bench")
            await warm()

        await warm()
        bare = await _median_ms(_without, WARM)
        inside = await _median_ms(warm, WARM)
        started = await _median_ms(cold, COLD)
        await sandbox.close()
    return [
        Number(name="warm command, p50", value=inside, unit="ms", floor=bare, floor_is="no sandbox"),
        Number(name="added by the sandbox, p50", value=max(inside - bare, 0.0), unit="ms", aim=MOST_WARM_MS),
        Number(name="first command, with the start of a sandbox", value=started, unit="ms"),
    ]


async def _median_ms(work: Callable[[], Awaitable[None]], times: int) -> float:
    took = []
    for _ in range(times):
        began = time.perf_counter()
        await work()
        took.append((time.perf_counter() - began) * 1e3)
    return statistics.median(took)


async def _without() -> None:
    """Run the command as a plain process and read its output."""
    process = await asyncio.create_subprocess_exec(*COMMAND.argv, stdout=asyncio.subprocess.PIPE)
    await process.communicate()
