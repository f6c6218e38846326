"""Commands as Python functions behind the sandbox port, for tests and for tools that need no shell."""

from __future__ import annotations

import asyncio
import contextlib
import shlex
from collections.abc import Awaitable, Callable, Mapping
from typing import Final

from wonder_server.core.errors import Reason, error
from wonder_server.core.frozen import replace
from wonder_server.core.task.outcome_errors import NotStartedError
from wonder_server.ports.sandbox import Command, Finished, Output, OutputCallback, SandboxSpec

Program = Callable[[SandboxSpec, Command, Callable[[bytes], None]], Awaitable[int]]
"""Runs a command, writes output with the function in its last argument, and returns the exit code."""

MAX_TOTAL_OUTPUT: Final = 16 << 20
KILLED: Final = 137


class _OutputLimitError(Exception):
    """The program wrote more than `MAX_TOTAL_OUTPUT`."""


class MemorySandbox:
    """Implements the port ``Sandbox`` without isolation, since the programs are part of this process.

    It runs ``programs`` and the few system commands below. ``sh -c`` supports quotes, and ' ; ' between
    commands.
    """

    def __init__(self, programs: Mapping[str, Program] | None = None) -> None:
        self._programs = {**_SYSTEM, **(programs or {})}
        self._locks: dict[str, asyncio.Lock] = {}
        self._running: dict[str, asyncio.Task[int]] = {}
        self._closed = False

    async def run(
        self, key: str, spec: SandboxSpec, command: Command, on_output: OutputCallback | None = None
    ) -> Finished:
        """Run a command; see the port."""
        async with contextlib.AsyncExitStack() as turn:
            try:
                async with asyncio.timeout(command.timeout_ms / 1000):
                    await turn.enter_async_context(self._locks.setdefault(key, asyncio.Lock()))
            except TimeoutError:
                raise NotStartedError(
                    Reason.TIMEOUT, "Another command is still running in this sandbox. Try again later."
                ) from None
            if self._closed:
                raise NotStartedError(
                    Reason.SERVER_DRAINING, "The server is stopping and runs no more commands."
                )
            program = self._find_program(spec, command)
            return await self._run(key, spec, command, program, on_output)

    async def release(self, key: str) -> None:
        """Release a sandbox; see the port."""
        if key in self._running:
            self._running[key].cancel()

    async def close(self) -> None:
        """Stop all commands; see the port."""
        self._closed = True
        for task in self._running.values():
            task.cancel()

    def _find_program(self, spec: SandboxSpec, command: Command) -> Program:
        if not (spec.folder / command.working_dir).is_dir():
            raise error(
                Reason.INPUT_INVALID,
                f"The working directory '{command.working_dir}' does not exist.",
                field="start",
            )
        lines = [list(command.argv)]
        if command.argv[0].endswith("sh") and command.argv[1:2] == ("-c",):
            lines = _split(shlex.split(command.argv[2]))
        for argv in lines:
            if argv[0] not in self._programs:
                raise error(Reason.INPUT_INVALID, f"The program '{argv[0]}' does not exist.", field="argv")

        async def run_all(spec: SandboxSpec, command: Command, put: Callable[[bytes], None]) -> int:
            code = 0
            for argv in lines:
                code = await self._programs[argv[0]](spec, replace(command, argv=tuple(argv)), put)
            return code

        return run_all

    async def _run(
        self,
        key: str,
        spec: SandboxSpec,
        command: Command,
        program: Program,
        on_output: OutputCallback | None,
    ) -> Finished:
        loop, max_bytes = asyncio.get_running_loop(), command.max_output_bytes
        started, out, written, stopped = loop.time(), bytearray(), 0, ""

        def put(chunk: bytes) -> None:
            nonlocal written
            remaining = max(max_bytes - written, 0)
            if on_output is not None and chunk[:remaining]:
                on_output(chunk[:remaining])
            written += len(chunk)
            out.extend(chunk)
            del out[max_bytes : max(len(out) - max_bytes // 4, max_bytes)]
            if written > MAX_TOTAL_OUTPUT:
                raise _OutputLimitError

        self._running[key] = task = asyncio.ensure_future(program(spec, command, put))
        try:
            async with asyncio.timeout(command.timeout_ms / 1000):
                code = await task
        except (TimeoutError, _OutputLimitError) as problem:
            code, stopped = KILLED, "timeout" if isinstance(problem, TimeoutError) else "output"
        except asyncio.CancelledError:
            if not task.cancelled() or (asyncio.current_task() or task).cancelling():
                raise
            raise error(
                Reason.TASK_FAILED,
                "The sandbox was released while the command ran. Try again.",
                transient=True,
            ) from None
        finally:
            del self._running[key]
        dropped = written - len(out)
        if dropped:
            stdout = Output(head=bytes(out[:max_bytes]), tail=bytes(out[max_bytes:]), dropped_bytes=dropped)
        else:
            stdout = Output(head=bytes(out))
        duration_ms = round((loop.time() - started) * 1000)
        return Finished(exit_code=code, stdout=stdout, stopped=stopped, duration_ms=duration_ms)


def _split(words: list[str]) -> list[list[str]]:
    lines: list[list[str]] = [[]]
    for word in words:
        if word == ";":
            lines.append([])
        else:
            lines[-1].append(word)
    return [line for line in lines if line]


async def _echo(_: SandboxSpec, command: Command, put: Callable[[bytes], None]) -> int:
    put(" ".join(command.argv[1:]).encode() + b"\n")
    return 0


async def _cat(spec: SandboxSpec, command: Command, put: Callable[[bytes], None]) -> int:
    for name in command.argv[1:]:
        put((spec.folder / command.working_dir / name).read_bytes())
    put(command.stdin)
    return 0


async def _tee(spec: SandboxSpec, command: Command, put: Callable[[bytes], None]) -> int:
    for name in command.argv[1:]:
        (spec.folder / command.working_dir / name).write_bytes(command.stdin)
    put(command.stdin)
    return 0


async def _env(_: SandboxSpec, command: Command, put: Callable[[bytes], None]) -> int:
    put("".join(f"{name}={text}\n" for name, text in command.environment.items()).encode())
    return 0


async def _sleep(_: SandboxSpec, command: Command, put: Callable[[bytes], None]) -> int:
    await asyncio.sleep(float(command.argv[1]))
    return 0


async def _yes(_: SandboxSpec, command: Command, put: Callable[[bytes], None]) -> int:
    while True:
        put(b"y\n" * (1 << 15))
        await asyncio.sleep(0)


async def _exit(_: SandboxSpec, command: Command, put: Callable[[bytes], None]) -> int:
    return int(command.argv[1])


_SYSTEM: Final[Mapping[str, Program]] = {
    "cat": _cat, "echo": _echo, "env": _env, "exit": _exit, "sleep": _sleep, "tee": _tee, "yes": _yes,
}  # fmt: skip
