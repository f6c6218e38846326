"""`CallDeadlines`: the timeouts of a model call, from its profile (feature I1)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from wonder_server.adapters.models.common import provider_errors
from wonder_server.core.definitions.specs import ModelProfile
from wonder_server.core.errors import Fault

END_WAIT_S = 2
"""Seconds between a complete answer and the end of its stream, for counts of tokens."""


class CallDeadlines:
    """The timeouts of one call: for the first token, between chunks, and for the whole call.

    ``on_timeout`` is called at most once, with a transient TIMEOUT. A chunk only changes the deadline. The
    one timer checks the deadline when it fires, so a chunk costs no new timer. While ``is_paused`` is set,
    the reader processes what has arrived and the pause between chunks is not the provider's. The timeout of
    the whole call continues.
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
        """Restart the timeout between chunks."""
        self._deadline = self._loop.time() + self._profile.chunk_timeout_ms / 1000
        if not self._has_started:
            # The timeout between chunks may be shorter than that for the first token, so the timer may be
            # late.
            self._has_started = True
            self._timer.cancel()
            self._on_timer()

    def expecting_end(self) -> None:
        """Limit the wait for the end of the stream to `END_WAIT_S`: the answer is complete."""
        self._end = min(self._end, self._loop.time() + END_WAIT_S)
        self._timer.cancel()
        self._on_timer()

    def stop(self) -> None:
        """Cancel all timeouts."""
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
