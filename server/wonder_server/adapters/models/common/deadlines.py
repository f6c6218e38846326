"""`Patience`: how long a model call is waited for, as its profile says (feature I1)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from wonder_server.adapters.models.common import provider_errors
from wonder_server.core.definitions.specs import ModelProfile
from wonder_server.core.errors import Fault

END_WAIT_S = 2


class CallDeadlines:
    """One call's watchdogs: for the first token, between chunks, and in all.

    ``give_up`` is told at most once, with a transient TIMEOUT. With every chunk only a deadline moves; the
    one timer looks at it when it rings. While ``held`` (whoever reads the answer is busy with what came) no
    silence is the provider's; the whole call's time goes on.
    """

    __slots__ = (
        "_deadline",
        "_end",
        "_has_started",
        "_loop",
        "_on_timeout",
        "_profile",
        "_timer",
        "is_paused",
    )

    def __init__(self, profile: ModelProfile, on_timeout: Callable[[Fault], None]) -> None:
        self.is_paused = False
        self._profile = profile
        self._on_timeout = on_timeout
        self._loop = asyncio.get_running_loop()
        self._has_started = False
        now = self._loop.time()
        self._end = now + profile.timeout_ms / 1000
        self._deadline = now + profile.first_token_timeout_ms / 1000
        self._timer = self._loop.call_at(min(self._deadline, self._end), self._on_timer)

    def on_chunk(self) -> None:
        """Something of the answer has arrived."""
        self._deadline = self._loop.time() + self._profile.chunk_timeout_ms / 1000
        if not self._has_started:
            # The only time that a deadline can come nearer: between chunks patience may be shorter.
            self._has_started = True
            self._timer.cancel()
            self._on_timer()

    def expecting_end(self) -> None:
        """The answer is whole; what may yet follow, such as counts of tokens, is not waited for long."""
        self._end = min(self._end, self._loop.time() + END_WAIT_S)
        self._timer.cancel()
        self._on_timer()

    def stop(self) -> None:
        """The call is over."""
        self._timer.cancel()

    def _on_timer(self) -> None:
        now = self._loop.time()
        if now >= self._end:
            self._on_timeout(provider_errors.stream_timeout("did not finish", self._profile.timeout_ms))
            return
        if now >= self._deadline:
            if not self.is_paused:
                self._on_timeout(self._silence_fault())
                return
            self._deadline = now + self._profile.chunk_timeout_ms / 1000
        self._timer = self._loop.call_at(min(self._deadline, self._end), self._on_timer)

    def _silence_fault(self) -> Fault:
        if self._has_started:
            return provider_errors.stream_timeout("sent nothing more", self._profile.chunk_timeout_ms)
        return provider_errors.stream_timeout("did not begin to answer", self._profile.first_token_timeout_ms)
