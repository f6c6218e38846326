"""A worker process that can be watched and held up: ``python -m tests.e2e.worker_process NAME ADDRESS``.

It prints one JSON line for each thing that happens, and carries out two kinds, ``once`` and ``again`` (which
is idempotent). ``{"hold": n}`` as input holds the first n attempts until a line comes on standard input.
"""

from __future__ import annotations

import asyncio
import json
import sys
import threading
from typing import Any

from wonder_sdk import ActionError, ReconnectPolicy, Worker, WorkerContext


def tell(event: str, **facts: Any) -> None:
    print(json.dumps({"event": event, **facts}), flush=True)


class Held:
    """Lines on standard input, as a thread reads them, let go of what is held."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._go = asyncio.Event()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        for _ in sys.stdin:
            self._loop.call_soon_threadsafe(self._go.set)

    async def wait(self) -> None:
        await self._go.wait()
        self._go.clear()


async def main(name: str, address: str) -> None:
    worker = Worker(
        name, address=address, reconnect=ReconnectPolicy(initial_ms=20, max_ms=100, timeout_ms=60_000)
    )
    held = Held()

    async def act(given: dict[str, Any], context: WorkerContext) -> dict[str, Any]:
        tell("begun", operation=context.operation_id, attempt=context.attempt)
        if given.get("fail"):
            raise ActionError(given["fail"], retriable=context.attempt < given.get("fail_until", 1))
        context.progress("at it", 0.25)
        try:
            if context.attempt <= given.get("hold", 0):
                await held.wait()
        except asyncio.CancelledError:
            tell("cancelled", operation=context.operation_id)
            raise
        tell("done", operation=context.operation_id)
        return {"by": name, "attempt": context.attempt, "operation": context.operation_id}

    worker.action("once")(act)
    worker.action("again", idempotent=True)(act)
    await worker.run()
    tell("left")


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
