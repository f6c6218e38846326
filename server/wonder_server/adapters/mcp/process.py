"""MCP servers as processes: start, end, and bounded reading of their output.

The package's own transport for processes collects a line without a limit and searches it again with every
chunk, waits forever for a server that does not read, and lets a server write to this process's standard
error. This one provides the same streams to the package's session.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import shutil
import sys
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final, cast

import anyio
from mcp.client.stdio import get_default_environment
from mcp.shared.message import SessionMessage
from mcp_types import (
    PARSE_ERROR,
    ErrorData,
    JSONRPCError,
    JSONRPCMessage,
    JSONRPCRequest,
    jsonrpc_message_adapter,
)

from wonder_server.adapters.mcp.config import ServerConfig
from wonder_server.adapters.mcp.limits import (
    BURST_BYTES,
    BYTES_PER_S,
    MAX_MESSAGE_BYTES,
    STDERR_BYTES_PER_S,
    ServerLog,
    TokenBucket,
)
from wonder_server.adapters.mcp.message_filter import MessageFilter, Verdict, flooded, rejection, unreadable
from wonder_server.core.errors import Reason, WonderError, error
from wonder_server.core.printable import MAX_TEXT

WRITE_TIMEOUT_S: Final = 10
"""Seconds that a server may leave a sent message unread."""

END_TIMEOUT_S: Final = 2
"""Seconds that a server may take to end after its input closes. Then its supervisor kills it."""

_SUPERVISOR: Final = str(Path(__file__).with_name("supervisor.py"))
_SUPERVISOR_TIMEOUT_S: Final = 5
_STDERR_DRAIN_S: Final = 0.5
_CHUNK_BYTES: Final = 64 << 10
_MAX_REPLIES_BYTES: Final = 64 << 10


class StdioConnection:
    """The two streams of a session.

    ``on_end`` is called once when no more messages can come. ``problem`` is set if the server caused the end.
    """

    def __init__(
        self,
        server: str,
        process: asyncio.subprocess.Process,
        message_filter: MessageFilter,
        on_end: Callable[[], None],
    ) -> None:
        assert process.stdin is not None and process.stdout is not None
        self.incoming = Incoming(self, process.stdout)
        self.outgoing = Outgoing(self, process.stdin)
        self.problem: WonderError | None = None
        self.server = server
        self.message_filter = message_filter
        self.ended = False
        self._on_end = on_end

    def close(self, problem: WonderError | None = None) -> None:
        """Accept no more messages."""
        if not self.ended:
            self.ended, self.problem = True, problem
            self._on_end()


class Incoming:
    """Messages from the server, as the package's `ReadStream`. Reads only while the session asks for
    messages."""

    def __init__(self, link: StdioConnection, out: asyncio.StreamReader) -> None:
        self._link = link
        self._reader = out
        self._bytes = TokenBucket(BURST_BYTES, BYTES_PER_S)
        self._lines: list[bytes] = []
        self._partial_line = bytearray()

    async def receive(self) -> SessionMessage:
        """Return the next message. Raises `anyio.EndOfStream`."""
        link = self._link
        while not link.ended:
            line = await self._read_line()
            if line is None:
                link.close()
                break
            if (message := self._filter_line(line)) is not None:
                return SessionMessage(message)
        raise anyio.EndOfStream

    def _filter_line(self, line: bytes) -> JSONRPCMessage | None:
        """Parse a line. Return its message if the session gets it."""
        link = self._link
        try:
            message = jsonrpc_message_adapter.validate_json(line, by_name=False)
        except ValueError:
            return self._skip_line(line)
        verdict = link.message_filter.verdict_for(message)
        if verdict is Verdict.FLOOD:
            link.close(flooded(link.server))
        elif verdict is Verdict.REFUSE:
            link.outgoing.reply(rejection(cast("JSONRPCRequest", message)))
        return message if verdict is Verdict.PASS else None

    def _skip_line(self, line: bytes) -> JSONRPCError | None:
        """Skip a line that is not a message. If it answers a call, return an error instead."""
        link = self._link
        if not link.message_filter.accept_unreadable():
            link.close(flooded(link.server))
        elif (found := link.message_filter.call_answered_by(line, whole=True)) is not None:
            request, call = found
            call.problem = unreadable(link.server)
            return JSONRPCError(jsonrpc="2.0", id=request, error=ErrorData(code=PARSE_ERROR, message=""))
        return None

    async def _read_line(self) -> bytes | None:
        """Return the next line without its end; None if there is none, or if it is too long."""
        while not self._lines:
            chunk = await self._reader.read(_CHUNK_BYTES)
            if not chunk:
                return None
            if (pause := self._bytes.spend(len(chunk))) > 0:
                await asyncio.sleep(pause)
            first, *others = chunk.split(b"\n")
            self._partial_line += first
            if len(self._partial_line) > MAX_MESSAGE_BYTES:
                self._too_long()
                return None
            if others:
                self._lines = [bytes(self._partial_line), *others[:-1]]
                self._lines.reverse()
                self._partial_line = bytearray(others[-1])
        return self._lines.pop()

    def _too_long(self) -> None:
        """End the session, since finding the next line would mean reading the rest of this one."""
        link = self._link
        found = link.message_filter.call_answered_by(self._partial_line, whole=False)
        cause = f"The MCP server '{link.server}' sent more than {MAX_MESSAGE_BYTES} bytes in one message"
        if found is not None:
            message = f"{cause}. Its session was ended. Request less from the tool."
            found[1].problem = error(Reason.PAYLOAD_TOO_LARGE, message)
        message = f"{cause}, for another call or without a request. Its session and all its calls were ended."
        link.close(error(Reason.TASK_FAILED, message, transient=True))

    async def aclose(self) -> None:
        self._link.close()

    def __aiter__(self) -> Incoming:
        return self

    async def __anext__(self) -> SessionMessage:
        try:
            return await self.receive()
        except anyio.EndOfStream:
            raise StopAsyncIteration from None

    async def __aenter__(self) -> Incoming:
        return self

    async def __aexit__(self, *problem: object) -> None:
        await self.aclose()


class Outgoing:
    """Messages to the server, as the package's `WriteStream`."""

    def __init__(self, link: StdioConnection, into: asyncio.StreamWriter) -> None:
        self._link = link
        self._writer = into

    async def send(self, item: SessionMessage, /) -> None:
        """Write a message. Raises `anyio.BrokenResourceError` if the session has ended."""
        self._check()
        self._link.message_filter.record_request(item.message)
        self._writer.write(_line_of(item.message))
        try:
            async with asyncio.timeout(WRITE_TIMEOUT_S):
                await self._writer.drain()
        except TimeoutError:
            message = f"The MCP server '{self._link.server}' does not read its input. Its session was ended."
            self._link.close(error(Reason.TASK_FAILED, message, transient=True))
        except OSError:
            self._link.close()
        self._check()

    def reply(self, message: JSONRPCMessage) -> None:
        """Answer a request of the server, unless it leaves its answers unread."""
        if (
            not self._writer.is_closing()
            and self._writer.transport.get_write_buffer_size() < _MAX_REPLIES_BYTES
        ):
            self._writer.write(_line_of(message))

    def _check(self) -> None:
        if self._link.ended or self._writer.is_closing():
            raise anyio.BrokenResourceError

    async def aclose(self) -> None:
        """Do nothing: `run_server` closes the input when it ends the process."""

    async def __aenter__(self) -> Outgoing:
        return self

    async def __aexit__(self, *problem: object) -> None:
        await self.aclose()


def _line_of(message: JSONRPCMessage) -> bytes:
    text: str = message.model_dump_json(by_alias=True, exclude_unset=True)
    return text.encode() + b"\n"


# --- the process --------------------------------------------------------------------------------


@asynccontextmanager
async def run_server(
    server: ServerConfig, message_filter: MessageFilter, log: ServerLog, on_end: Callable[[], None]
) -> AsyncIterator[StdioConnection]:
    """Start a server, and end it with all its descendants on exit. Raises `OSError`."""
    env = {**get_default_environment(), **server.env}
    if shutil.which(server.command, path=env.get("PATH")) is None:
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
    life, own_end = os.pipe()
    try:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            *("-I", "-S", _SUPERVISOR, str(life), server.command, *server.args),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env=env,
            pass_fds=(life,),
            start_new_session=True,
        )
    except BaseException:
        os.close(own_end)
        raise
    finally:
        os.close(life)
    logging_task = asyncio.create_task(_log_stderr(process, log))
    link, is_at_fault = StdioConnection(server.name, process, message_filter, on_end), True
    try:
        yield link
        is_at_fault = link.problem is not None
    finally:
        link.close()
        await _shielded(_end(process, own_end, logging_task, at_once=is_at_fault))
        log.close()


async def _shielded(ending: Coroutine[None, None, None]) -> None:
    """Await ``ending`` completely, even if cancelled: it takes limited time and ends processes."""
    task = asyncio.ensure_future(ending)
    cancelled = False
    while not task.done():
        try:
            await asyncio.shield(task)
        except asyncio.CancelledError:
            if task.cancelled():
                raise
            cancelled = True
    if cancelled:
        raise asyncio.CancelledError
    task.result()


async def _end(
    process: asyncio.subprocess.Process, life: int, logging_task: asyncio.Task[None], *, at_once: bool
) -> None:
    """Close the process's input and ``life``. After `END_TIMEOUT_S` its supervisor kills it."""
    assert process.stdin is not None and process.stdout is not None
    try:
        if at_once:
            with contextlib.suppress(OSError):
                os.write(life, b"k")
        else:
            process.stdin.close()
            await _wait_for_exit(process, END_TIMEOUT_S)
    finally:
        os.close(life)
    if not await _wait_for_exit(process, _SUPERVISOR_TIMEOUT_S):
        with contextlib.suppress(ProcessLookupError):
            process.kill()
    await asyncio.wait([logging_task], timeout=_STDERR_DRAIN_S)
    logging_task.cancel()
    # A surviving descendant would keep the pipes open.
    process._transport.close()  # type: ignore[attr-defined]


async def _wait_for_exit(process: asyncio.subprocess.Process, seconds: float) -> bool:
    """Read and drop output, so that a full pipe does not block the process. Return True if it ended in
    time."""
    assert process.stdout is not None
    try:
        async with asyncio.timeout(seconds):
            await _drain(process.stdout)
            await process.wait()
    except TimeoutError:
        return process.returncode is not None
    return True


async def _drain(out: asyncio.StreamReader) -> None:
    budget = TokenBucket(BURST_BYTES, BYTES_PER_S)
    while chunk := await out.read(_CHUNK_BYTES):
        if (pause := budget.spend(len(chunk))) > 0:
            await asyncio.sleep(pause)


async def _log_stderr(process: asyncio.subprocess.Process, log: ServerLog) -> None:
    """Log the process's standard error line by line, with the beginning of each line."""
    assert process.stderr is not None
    partial, budget = b"", TokenBucket(STDERR_BYTES_PER_S, STDERR_BYTES_PER_S)
    while chunk := await process.stderr.read(_CHUNK_BYTES):
        if (pause := budget.spend(len(chunk))) > 0:
            await asyncio.sleep(pause)
        first, *others = chunk.split(b"\n")
        partial += first[: _LINE_BYTES - len(partial)]
        if others:
            log.log_stderr([partial, *others[:-1]])
            partial = others[-1][:_LINE_BYTES]
    log.log_stderr([partial])


_LINE_BYTES: Final = 4 * MAX_TEXT + 4
"""Maximum bytes of `MAX_TEXT` characters and one more."""
