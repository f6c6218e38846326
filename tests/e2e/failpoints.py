"""Points at which a server kills itself with SIGKILL, as a power failure would.

A failpoint is ``POINT:COUNT``: the process dies when it comes to POINT for the COUNT-th time (left out: the
first). With the count 0 it lives, and logs at its end how often it came to POINT. The points lie on methods
of the server, which knows nothing of them::

    in-commit           in the writer's thread: all statements were carried out, COMMIT comes next. The disk
                        is slow this time, so that what was handed out too early comes to something
    committed           in the writer's thread: it is on disk, and no waiter has been notified
    before-answer       a child run's or agent's result is about to reach who waits for it
    before-timer        a timer's time has come
    token               a piece of text was shown
    memory-in-commit, memory-committed
                        as in-commit and committed, of memory.db
    catalog-in-commit, catalog-committed
                        as in-commit and committed, of catalog.db
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
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from wonder_server.actors.streaming.hub import StreamHub
from wonder_server.adapters.faiss.vectors import FaissVectors
from wonder_server.adapters.files.blobs import FileBlobs

SLOW_DISK_S = 0.03
_PREFIXES = {"memory.db": "memory-", "catalog.db": "catalog-"}


class Failpoint:
    """Counts the passages of one point."""

    def __init__(self, sentence: str) -> None:
        self._point, _, count = sentence.partition(":")
        self._fatal = int(count or 1)
        self.passages = 0
        """Number of times that the process came to the point."""

    def passed(self, *names: str, after_s: float = 0) -> None:
        """This is the point of all these names. Where it is deadly, it is so in ``after_s`` seconds."""
        if self._point in names:
            self.passages += 1
            if self.passages == self._fatal:
                time.sleep(after_s)
                os.kill(os.getpid(), signal.SIGKILL)

    def reach(self, point: str, subject: str = "") -> None:
        """Implement `wonder_server.ports.failpoints.Failpoints`."""
        store = Path(subject)
        prefix = "" if store.parent.name == "shards" else _PREFIXES.get(store.name)
        match point:
            case "before-commit" if prefix is not None:
                self.passed(f"{prefix}in-commit", after_s=SLOW_DISK_S)
            case "after-commit" if prefix is not None:
                self.passed(f"{prefix}committed")
            case "before-answer" | "before-timer":
                self.passed(point)

    def lay(self) -> None:
        """Install all points."""
        self._around(FileBlobs, "put", lambda *_: ("object",))
        self._around(FileBlobs, "delete", lambda *_: ("object-goes",))
        self._around(FaissVectors, "add", lambda *_: ("vectors",))
        self._around(FaissVectors, "remove", lambda *_: ("vectors-go",))
        self._at_words()

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

    def _at_words(self) -> None:
        say = StreamHub.append_text

        def passing_say(*given: Any) -> None:
            say(*given)
            self.passed("token")

        StreamHub.append_text = passing_say  # type: ignore[method-assign]
