"""Detection of a server that stops answering on an open connection, such as a frozen process.

gRPC's own keepalive needs a minute or more. `Watchdog` sends a health check over the same connection as soon
as a call has been silent for some seconds. If the health check times out too, it fails the silent calls. A
call has no time limit: a server that works on it still answers the health check.
"""

from __future__ import annotations

import asyncio
import time
import weakref

import grpc
import grpc.aio

from wonder_sdk.errors import UnavailableError

HEALTH_CHECK_PATH = "/grpc.health.v1.Health/Check"
UNARY_SILENCE_SECONDS = 2.0
"""Silence of a unary call before a health check, in seconds."""
STREAM_SILENCE_SECONDS = 10.0
"""Silence of a stream before a health check, and the interval of health checks, in seconds.

A stream can be silent for hours.
"""


class WatchedCall:
    """An active call. The watchdog sets ``problem`` when it fails the call."""

    __slots__ = ("__weakref__", "_call", "_dog", "problem", "quiet_until")

    def __init__(self, call: grpc.aio.Call, watchdog: Watchdog, seconds: float) -> None:
        self.problem: UnavailableError | None = None
        self.quiet_until = time.monotonic() + seconds
        self._call, self._dog = call, watchdog

    def record_activity(self) -> None:
        """Postpone the next health check for this call: a part of its response has arrived."""
        self.quiet_until = time.monotonic() + STREAM_SILENCE_SECONDS

    def fail(self, problem: UnavailableError) -> None:
        self.problem = problem
        self._call.cancel()

    def on_done(self, _: object = None) -> None:
        self._dog.unwatch(self)


class Watchdog:
    """Health checks for the silent calls of one channel. A health check times out after ``seconds``."""

    def __init__(self, channel: grpc.aio.Channel, target: str, seconds: float) -> None:
        self._channel, self._target, self._seconds = channel, target, seconds
        self._check: grpc.aio.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary(HEALTH_CHECK_PATH)
        self._calls: weakref.WeakSet[WatchedCall] = weakref.WeakSet()
        self._timer: asyncio.TimerHandle | None = None
        self._health_check: asyncio.Task[None] | None = None

    def watch(self, call: grpc.aio.Call, seconds: float) -> WatchedCall:
        """Watch a grpc.aio call. Its first health check comes after ``seconds`` of silence."""
        watched = WatchedCall(call, self, seconds)
        self._calls.add(watched)
        call.add_done_callback(watched.on_done)
        self._schedule(watched.quiet_until)
        return watched

    def unwatch(self, watched: WatchedCall) -> None:
        self._calls.discard(watched)
        if not self._calls and self._timer is not None:
            self._timer.cancel()
            self._timer = None

    async def close(self) -> None:
        """Stop the health checks."""
        self._calls.clear()
        if self._timer is not None:
            self._timer.cancel()
        if self._health_check is not None:
            self._health_check.cancel()
            await asyncio.wait({self._health_check})

    def _schedule(self, at: float) -> None:
        if self._health_check is not None:
            return  # the health check in progress schedules the next
        loop = asyncio.get_running_loop()
        when = loop.time() + max(0.0, at - time.monotonic())
        if self._timer is not None:
            if self._timer.when() <= when:
                return
            self._timer.cancel()
        self._timer = loop.call_at(when, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        now = time.monotonic()
        if any(watched.quiet_until <= now for watched in self._calls):
            self._health_check = asyncio.get_running_loop().create_task(self._check_health(now))
            self._health_check.add_done_callback(self._on_checked)
        else:
            self._on_checked()

    def _on_checked(self, _: object = None) -> None:
        self._health_check = None
        if self._calls:
            self._schedule(min(watched.quiet_until for watched in self._calls))

    async def _check_health(self, now: float) -> None:
        silent = [watched for watched in self._calls if watched.quiet_until <= now]
        is_answered = True
        try:
            await self._check(b"", timeout=self._seconds)
        except grpc.aio.AioRpcError as problem:
            # Any other status is a response, or gRPC ends the calls itself.
            is_answered = problem.code() is not grpc.StatusCode.DEADLINE_EXCEEDED
        # Without a connection, gRPC fails the calls itself.
        if self._channel.get_state() is not grpc.ChannelConnectivity.READY:
            is_answered = True
        for watched in silent:
            if is_answered:
                watched.record_activity()
            elif watched.quiet_until <= now:  # no response arrived during the health check
                gone = UnavailableError(
                    f"{self._target} does not answer: the connection is open, but a health check got no "
                    f"response within {self._seconds:g} s. Check if the server is stopped or overloaded."
                )
                gone.timed_out = True
                watched.fail(gone)
