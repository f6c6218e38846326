"""`Patience`: how long a model call is waited for, as its profile says (feature I1)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from wonder_server.adapters.models import faults
from wonder_server.core.definitions.specs import ModelProfile
from wonder_server.core.errors import Fault

LAST_WORDS_S = 2


class Patience:
    """One call's watchdogs: for the first token, between chunks, and in all.

    ``give_up`` is told at most once, with a transient TIMEOUT. With every chunk only a deadline moves; the
    one timer looks at it when it rings. While ``held`` (whoever reads the answer is busy with what came) no
    silence is the provider's; the whole call's time goes on.
    """

    __slots__ = ("_begun", "_deadline", "_end", "_give_up", "_loop", "_profile", "_timer", "held")

    def __init__(self, profile: ModelProfile, give_up: Callable[[Fault], None]) -> None:
        self.held = False
        self._profile = profile
        self._give_up = give_up
        self._loop = asyncio.get_running_loop()
        self._begun = False
        now = self._loop.time()
        self._end = now + profile.timeout_ms / 1000
        self._deadline = now + profile.first_token_timeout_ms / 1000
        self._timer = self._loop.call_at(min(self._deadline, self._end), self._ring)

    def heard(self) -> None:
        """Something of the answer has arrived."""
        self._deadline = self._loop.time() + self._profile.chunk_timeout_ms / 1000
        if not self._begun:
            # The only time that a deadline can come nearer: between chunks patience may be shorter.
            self._begun = True
            self._timer.cancel()
            self._ring()

    def nearly_over(self) -> None:
        """The answer is whole; what may yet follow, such as counts of tokens, is not waited for long."""
        self._end = min(self._end, self._loop.time() + LAST_WORDS_S)
        self._timer.cancel()
        self._ring()

    def stop(self) -> None:
        """The call is over."""
        self._timer.cancel()

    def _ring(self) -> None:
        now = self._loop.time()
        if now >= self._end:
            self._give_up(faults.stalled("did not finish", self._profile.timeout_ms))
            return
        if now >= self._deadline:
            if not self.held:
                self._give_up(self._silence())
                return
            self._deadline = now + self._profile.chunk_timeout_ms / 1000
        self._timer = self._loop.call_at(min(self._deadline, self._end), self._ring)

    def _silence(self) -> Fault:
        if self._begun:
            return faults.stalled("sent nothing more", self._profile.chunk_timeout_ms)
        return faults.stalled("did not begin to answer", self._profile.first_token_timeout_ms)
