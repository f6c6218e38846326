"""Failpoints: named points in the server's work at which a test can stop the process."""

from __future__ import annotations

from typing import Final, Protocol


class Failpoints(Protocol):
    """Receives the name of each point that the work reaches. The server ignores what it does there.

    =================  ================================================================================
    ``before-answer``  the result of a child run is about to reach its parent
    ``before-timer``   the timer of an operation has fired
    ``before-commit``  all statements of a transaction ran; COMMIT is next. The subject is the file's path
    ``after-commit``   the transaction is on disk, and no caller has its result. The subject is the same
    =================  ================================================================================
    """

    def reach(self, point: str, subject: str = "") -> None:
        """Mark that the work has reached ``point`` of ``subject``. Called in any thread."""


class NoFailpoints:
    """The failpoints of a server in production: nothing happens there."""

    def reach(self, point: str, subject: str = "") -> None:
        """Do nothing."""


NO_FAILPOINTS: Final[Failpoints] = NoFailpoints()
