"""One warm sandbox: a ``bwrap`` process, and frames to and from its supervisor.

After any failure the whole sandbox is ended, and the next command gets a new one. When ``bwrap`` dies, the
kernel kills every process inside. When the server dies, its end of the pipe closes, with the same effect.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from wonder_server.adapters.egress.sockets import EgressSocket
from wonder_server.adapters.sandbox import mounts, syscalls
from wonder_server.adapters.sandbox.cgroups import ProcessGroup
from wonder_server.core.errors import Reason, WonderError, error
from wonder_server.core.task.outcome_errors import NotStartedError
from wonder_server.ports.sandbox import Command, Finished, Output, OutputCallback, SandboxSpec

START_TIMEOUT_S: Final = 10
END_TIMEOUT_S: Final = 5
GRACE_S: Final = 5
"""Seconds that a supervisor may take beyond a command's timeout. It needs milliseconds."""
PROBLEM_LENGTH: Final = 500


class SandboxProcess:
    """A running sandbox, created by `start`, for one command at a time. If ``ended``, it takes no more
    commands."""

    def __init__(
        self,
        process: asyncio.subprocess.Process,
        spec: SandboxSpec,
        folder: tuple[int, int],
        group: ProcessGroup | None,
        egress_socket: EgressSocket | None,
    ) -> None:
        """Internal; use `start`."""
        assert process.stdin is not None and process.stdout is not None, "start() opens both as pipes"
        self.spec = spec
        self._process = process
        self._write, self._read = process.stdin, process.stdout
        self._folder = folder
        self._group = group
        self._egress_socket = egress_socket
        self._is_ready = self._is_broken = False

    @classmethod
    async def start(
        cls,
        program: str,
        spec: SandboxSpec,
        limits: mounts.Limits,
        host: mounts.Host,
        egress_socket: EgressSocket | None = None,
    ) -> SandboxProcess:
        """Start a sandbox and wait until it is ready for commands.

        ``egress_socket`` is for a sandbox with a network; it closes with the sandbox. Raises
        `NotStartedError` with the message of ``bwrap``.
        """
        async with contextlib.AsyncExitStack() as stack:
            if egress_socket is not None:
                stack.push_async_callback(egress_socket.close)
            sandbox = await cls._start(program, spec, limits, host, egress_socket)
            stack.pop_all()
        return sandbox

    @classmethod
    async def _start(
        cls,
        program: str,
        spec: SandboxSpec,
        limits: mounts.Limits,
        host: mounts.Host,
        egress_socket: EgressSocket | None,
    ) -> SandboxProcess:
        try:
            folder = await asyncio.to_thread(_identity, spec.folder)
            files = await asyncio.to_thread(_open_files)
            group = await asyncio.to_thread(ProcessGroup.create, limits.processes)
        except OSError as problem:
            raise _start_failed(problem.strerror or str(problem)) from None
        given = json.dumps({name: getattr(limits, name) for name in limits.__struct_fields__})
        try:
            process = await asyncio.create_subprocess_exec(
                *mounts.LAUNCHER,
                group.procs_path if group else "",
                program,
                *mounts.bwrap_arguments(
                    spec, limits, host, files, egress_socket.path if egress_socket else None
                ),
                *mounts.supervisor_arguments(given),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                pass_fds=tuple(files.values()),
                env={},
                cwd="/",
                limit=1 << 18,
            )
        except BaseException as problem:
            if group is not None:
                asyncio.get_running_loop().run_in_executor(None, group.remove)
            if isinstance(problem, OSError):
                raise _start_failed(f"{program}: {problem.strerror or problem}") from None
            raise
        finally:
            for number in files.values():
                os.close(number)
        sandbox = cls(process, spec, folder, group, egress_socket)
        try:
            async with asyncio.timeout(START_TIMEOUT_S):
                kind, _ = await sandbox._read_frame()
                if kind != b"+":
                    raise ValueError(kind)
            sandbox._is_ready = True
        except BaseException as problem:
            message = await sandbox._read_stderr()
            if isinstance(problem, EOFError | OSError | ValueError):  # TimeoutError is an OSError.
                raise _start_failed(message) from None
            raise
        return sandbox

    @property
    def ended(self) -> bool:
        return self._is_broken or self._process.returncode is not None

    async def matches(self, spec: SandboxSpec) -> bool:
        """Return True if the sandbox shows this place in its current state: a recreated folder is another
        one."""
        if self.ended or spec != self.spec:
            return False
        try:
            return await asyncio.to_thread(_identity, spec.folder) == self._folder
        except OSError:
            return False

    async def run(self, command: Command, on_output: OutputCallback | None) -> Finished:
        """Run a command; see `ports.sandbox.Sandbox.run`. The sandbox ends if the command is cancelled or
        lost."""
        head = json.dumps(
            {
                "argv": command.argv,
                "start": command.working_dir,
                "env": {**mounts.ENVIRONMENT, **self._proxy_environment(), **command.environment},
                "timeout_ms": command.timeout_ms,
                "max_output": command.max_output_bytes,
                "merged": command.merge_stderr,
            }
        ).encode()
        content = b"R" + struct.pack(">I", len(head)) + head + command.stdin
        try:
            async with asyncio.timeout(command.timeout_ms / 1000 + GRACE_S):
                self._write.write(struct.pack(">I", len(content)) + content)
                return await self._read_result(on_output)
        except WonderError:
            raise
        except (EOFError, OSError, ValueError):
            await self.end()
            raise error(
                Reason.TASK_FAILED,
                "The sandbox was lost while the command ran. Try again.",
                transient=True,
            ) from None
        except BaseException:
            self.kill()
            raise

    def kill(self) -> None:
        """Kill the sandbox and everything in it, without waiting."""
        self._is_broken = True
        if not self._write.is_closing():
            self._write.transport.abort()
        if self._is_ready and self._process.returncode is None:
            # ``process.kill()`` would reap the process itself, and asyncio would warn of an unknown process.
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._process.pid, signal.SIGKILL)

    async def end(self) -> None:
        """End the sandbox and everything in it.

        A sandbox that is not ready is not killed: it ends by itself, because the other end of its pipe is
        closed. A ``bwrap`` killed while it creates namespaces leaves a process in them that waits forever.
        For the same reason it does not get ``--die-with-parent``.
        """
        if self._read.at_eof():  # The sandbox has ended by itself.
            self._is_ready = False
        self.kill()
        try:
            async with asyncio.timeout(END_TIMEOUT_S):
                await self._process.wait()
        except TimeoutError:
            self._is_ready = True
            self.kill()
            await self._process.wait()
        if self._group is not None:
            await asyncio.to_thread(self._group.remove)
        if self._egress_socket is not None:
            await self._egress_socket.close()

    def _proxy_environment(self) -> Mapping[str, str]:
        return mounts.NETWORK_ENVIRONMENT if self._egress_socket is not None else {}

    # --- frames ---------------------------------------------------------------------------------

    async def _read_frame(self) -> tuple[bytes, bytes]:
        (length,) = struct.unpack(">I", await self._read.readexactly(4))
        content = await self._read.readexactly(length)
        return content[:1], content[1:]

    async def _read_result(self, on_output: OutputCallback | None) -> Finished:
        heads: dict[bytes, list[bytes]] = {b"1": [], b"2": []}
        tails = {b"3": b"", b"4": b""}
        while True:
            kind, content = await self._read_frame()
            if kind in heads:
                heads[kind].append(content)
                if on_output is not None:
                    on_output(content)
            elif kind in tails:
                tails[kind] = content
            elif kind == b"X":
                result = json.loads(content)
                out, err = (
                    _output(b"".join(heads[head]), tails[tail], dropped)
                    for head, tail, dropped in zip(heads, tails, result["dropped"], strict=True)
                )
                return Finished(
                    exit_code=result["exit_code"],
                    stdout=out,
                    stderr=err,
                    stopped=result["stopped"],
                    duration_ms=result["duration_ms"],
                )
            elif kind == b"E":
                raise _rejection(**json.loads(content))
            else:
                raise ValueError(kind)

    async def _read_stderr(self) -> str:
        """End the sandbox. Return the last line of its error output."""
        await self.end()
        assert self._process.stderr is not None, "start() opens it as a pipe"
        text = (await self._process.stderr.read(1 << 16)).decode("utf-8", "replace").strip()
        return " ".join(text.splitlines()[-1:])[:PROBLEM_LENGTH] or "it gives no reason"


def _output(head: bytes, tail: bytes, dropped: int) -> Output:
    return Output(head=head, tail=tail, dropped_bytes=dropped) if dropped else Output(head=head + tail)


def _identity(folder: Path) -> tuple[int, int]:
    stat = os.stat(folder)
    return stat.st_dev, stat.st_ino


def _open_files() -> dict[str, int]:
    """Return descriptors to read `mounts.FILES` and the filter of system calls from."""
    contents = {path: text.encode() for path, text in mounts.FILES.items()}
    if calls := syscalls.program():
        contents[mounts.FILTER] = calls
    files = {}
    for path, content in contents.items():
        files[path] = number = os.memfd_create(path.rpartition("/")[2])
        os.write(number, content)
        os.lseek(number, 0, os.SEEK_SET)
    return files


def _start_failed(reason: str) -> NotStartedError:
    return NotStartedError(Reason.SANDBOX_UNAVAILABLE, f"The sandbox could not be started: {reason}.")


def _rejection(what: str, message: str) -> WonderError:
    if what == "start":
        return error(Reason.INPUT_INVALID, f"The working directory cannot be used: {message}.", field=what)
    return error(Reason.INPUT_INVALID, f"The program cannot be run: {message}.", field="argv")
