"""Points at which a server kills itself with SIGKILL, as a power failure would.

A failpoint is ``POINT:COUNT``: the process dies when it comes to POINT for the COUNT-th time (left out: the
first). The points lie on methods of the server, which knows nothing of them::

    before-commit       a commit of a conversation or run is submitted, nothing of it written
    in-commit           in the writer's thread: all statements were carried out, COMMIT comes next. The disk
                        is slow this time, so that what was handed out too early comes to something
    committed           in the writer's thread: it is on disk, and no waiter has been notified
    after-commit        on disk, and no client has been notified
    before-publish      events on disk are about to be shown to watchers
    before-dispatch     what was decided is about to be handed out
    before-answer       a child run's or agent's result is about to reach who waits for it
    before-timer        a timer's time has come
    before-call=NAME, after-call=NAME
                        an RPC that changes something (start, signal, resolve, cancel, fork) begins; all it
                        does is done, and its client not answered
    before-send, after-send
                        an `http` action sends its request; the other side has answered
    before-task, after-task
                        a task begins; it is done, and its result is not on disk. With =NAME: of this name
    token               a piece of text was shown
    model-done          the model said its last token; its answer is not on disk
    before-memory, after-memory
                        a memory that an extraction put out is written
    memory-in-commit, memory-committed
                        as in-commit and committed, of memory.db
    before-object, after-object, before-object-goes, after-object-goes
                        an object is kept, or removed
    before-vectors, after-vectors, before-vectors-go, after-vectors-go
                        rows of memories are on disk, and the index of vectors follows
"""

from __future__ import annotations

import functools
import os
import signal
import time
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import Any

from wonder_server.actors.dispatch.handlers import Handlers
from wonder_server.actors.runs.forks import Forks
from wonder_server.actors.runs.gates import Gates
from wonder_server.actors.runs.runs import Runs
from wonder_server.actors.streaming.hub import StreamHub
from wonder_server.adapters.faiss.vectors import FaissVectors
from wonder_server.adapters.files.blobs import FileBlobs
from wonder_server.adapters.models.offline.model import OfflineModel
from wonder_server.adapters.sqlite.shard.shard import SqliteShard
from wonder_server.adapters.web.guarded import GuardedWeb
from wonder_server.core.definitions.specs import PinnedTask
from wonder_server.ports.model import Finished
from wonder_server.services.memory.operations import MemoryOperations
from wonder_server.services.tasks.executor import Executor

CALLS = {"start": Runs, "signal": Runs, "cancel": Runs, "fork": Forks, "resolve": Gates}
SLOW_DISK_S = 0.03


class Failpoint:
    """Counts the passages of one point."""

    def __init__(self, sentence: str) -> None:
        self._point, _, count = sentence.partition(":")
        self._left = int(count or 1)

    def passed(self, *names: str, after_s: float = 0) -> None:
        """This is the point of all these names. Where it is deadly, it is so in ``after_s`` seconds."""
        if self._point in names:
            self._left -= 1
            if not self._left:
                time.sleep(after_s)
                os.kill(os.getpid(), signal.SIGKILL)

    def reach(self, point: str, subject: str = "") -> None:
        """Implement `wonder_server.ports.failpoints.Failpoints`."""
        store = Path(subject)
        prefix = "" if store.parent.name == "shards" else "memory-" if store.name == "memory.db" else None
        match point:
            case "before-commit" if prefix is not None:
                self.passed(f"{prefix}in-commit", after_s=SLOW_DISK_S)
            case "after-commit" if prefix is not None:
                self.passed(f"{prefix}committed")
            case "before-answer" | "before-timer":
                self.passed(point)

    def lay(self) -> None:
        """Install all points."""
        self._before(StreamHub, "publish", "publish")
        self._before(Handlers, "dispatch", "dispatch")
        self._around(GuardedWeb, "send", lambda *_: ("send",))
        self._around(MemoryOperations, "apply", lambda *_: ("memory",))
        self._around(Executor, "execute", lambda _self, task, *_: ("task", f"task={task.pin.name}"))
        for method, owner in CALLS.items():
            self._around(owner, method, lambda *_, name=f"call={method}": (name,))
        self._around(FileBlobs, "put", lambda *_: ("object",))
        self._around(FileBlobs, "delete", lambda *_: ("object-goes",))
        self._around(FaissVectors, "add", lambda *_: ("vectors",))
        self._around(FaissVectors, "remove", lambda *_: ("vectors-go",))
        self._at_commits()
        self._at_words()

    def _before(self, owner: type, method: str, name: str) -> None:
        """Install a point before a method that is not async."""
        original = getattr(owner, method)

        @functools.wraps(original)
        def passing(*given: Any, **more: Any) -> Any:
            self.passed(f"before-{name}")
            return original(*given, **more)

        setattr(owner, method, passing)

    def _around(self, owner: type, method: str, named: Callable[..., Sequence[str]]) -> None:
        """Points before and after an async method; ``named`` makes their names of its arguments."""
        original = getattr(owner, method)

        @functools.wraps(original)
        async def passing(*given: Any, **more: Any) -> Any:
            names = named(*given)
            self.passed(*(f"before-{name}" for name in names))
            result = await original(*given, **more)
            self.passed(*(f"after-{name}" for name in names))
            return result

        setattr(owner, method, passing)

    def _at_commits(self) -> None:
        submit = SqliteShard.submit

        def passing_submit(*given: Any) -> Any:
            self.passed("before-commit")
            future = submit(*given)
            future.add_done_callback(lambda written: written.exception() or self.passed("after-commit"))
            return future

        SqliteShard.submit = passing_submit  # type: ignore[method-assign]

    def _at_words(self) -> None:
        say, stream, at_once = StreamHub.append_text, OfflineModel.stream, Executor.execute_inline

        def passing_say(*given: Any) -> None:
            say(*given)
            self.passed("token")

        async def passing_stream(*given: Any) -> AsyncIterator[Any]:
            async for chunk in stream(*given):
                if isinstance(chunk, Finished):  # who has it asks for no more
                    self.passed("model-done")
                yield chunk

        def passing_at_once(executor: Executor, task: PinnedTask, *given: Any) -> Any:
            outcome = at_once(executor, task, *given)
            if outcome is not None:
                # It has no effects, so it is all the same that it is over already.
                self.passed("before-task", f"before-task={task.pin.name}")
                self.passed("after-task", f"after-task={task.pin.name}")
            return outcome

        StreamHub.append_text = passing_say  # type: ignore[method-assign]
        OfflineModel.stream = passing_stream  # type: ignore[method-assign]
        Executor.execute_inline = passing_at_once  # type: ignore[method-assign]
