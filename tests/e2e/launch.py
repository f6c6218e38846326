"""Starts a server as ``wonder serve`` does, in a process that can be made to die at a chosen point.

``python -m tests.e2e.launch [--doom POINT:COUNT] serve …``: when it comes to POINT for the COUNT-th time, the
process kills itself with SIGKILL, as a power failure would. The points lie on the ports, so that
nothing in the server knows of them::

    before-commit, after-commit    a conversation's or run's commit: not yet on disk; on disk, and nobody told
    token                          a piece of text was shown
    model-done                     the model said its last token; its answer is not on disk
    before-task=NAME, after-task=NAME
                                   a task begins; a task is done, and its result is not on disk
    before-memory, after-memory    a memory that an extraction put out is written
"""

from __future__ import annotations

import argparse
import functools
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable
from typing import Any

from wonder_server.actors.streams import Streams
from wonder_server.adapters.models.offline import OfflineModel
from wonder_server.adapters.sqlite.shard import SqliteShard
from wonder_server.core.definitions.specs import PinnedTask
from wonder_server.serve import register
from wonder_server.services.executor import Executor
from wonder_server.services.memory_operations import MemoryOperations


class Doom:
    """Counts the passages of one point."""

    def __init__(self, sentence: str) -> None:
        self._point, _, count = sentence.partition(":")
        self._left = int(count or 1)

    def passed(self, point: str) -> None:
        if point == self._point:
            self._left -= 1
            if not self._left:
                os.kill(os.getpid(), signal.SIGKILL)

    def awaited(self, owner: type, method: str, named: Callable[..., str]) -> None:
        """Points before and after an async method; ``named`` makes their name of its arguments."""
        original = getattr(owner, method)

        @functools.wraps(original)
        async def doomed(*given: Any, **more: Any) -> Any:
            self.passed(f"before-{named(*given)}")
            result = await original(*given, **more)
            self.passed(f"after-{named(*given)}")
            return result

        setattr(owner, method, doomed)

    def lay(self) -> None:
        """Put all points in their places."""
        submit = SqliteShard.submit

        def doomed_submit(*given: Any) -> Any:
            self.passed("before-commit")
            future = submit(*given)
            future.add_done_callback(lambda written: written.exception() or self.passed("after-commit"))
            return future

        SqliteShard.submit = doomed_submit  # type: ignore[method-assign]
        self.awaited(Executor, "execute", lambda _self, task, *_: f"task={task.pin.name}")
        self.awaited(MemoryOperations, "apply", lambda *_: "memory")
        say, stream, at_once = Streams.say, OfflineModel.stream, Executor.at_once

        def doomed_say(*given: Any) -> None:
            say(*given)
            self.passed("token")

        async def doomed_stream(*given: Any) -> AsyncIterator[Any]:
            async for chunk in stream(*given):
                yield chunk
            self.passed("model-done")

        def doomed_at_once(executor: Executor, task: PinnedTask, *given: Any) -> Any:
            outcome = at_once(executor, task, *given)
            if outcome is not None:
                # It has no effects, so it is all the same that it is over already.
                self.passed(f"before-task={task.pin.name}")
                self.passed(f"after-task={task.pin.name}")
            return outcome

        setattr(Executor, "at_once", doomed_at_once)  # noqa: B010 - a method is not to be assigned to otherwise
        setattr(Streams, "say", doomed_say)  # noqa: B010
        setattr(OfflineModel, "stream", doomed_stream)  # noqa: B010


def main() -> int:
    if sys.argv[1:2] == ["--doom"]:
        Doom(sys.argv[2]).lay()
        del sys.argv[1:3]
    parser = argparse.ArgumentParser()
    register(parser.add_subparsers())
    arguments = parser.parse_args(sys.argv[1:])
    code: int = arguments.run(arguments)
    return code


if __name__ == "__main__":
    sys.exit(main())
