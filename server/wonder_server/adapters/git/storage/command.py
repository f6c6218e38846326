"""The program git, run so that only its arguments and its input determine its effect.

git reads no configuration of the machine or the user, runs no hook, asks for no password, and uses only the
named protocols. Everything here blocks. `ThreadPool` runs it in a limited number of threads; a started
operation completes even if its caller is cancelled.
"""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import tempfile
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Final, TypeVar

from wonder_server.adapters.egress.environments import git_environment
from wonder_server.adapters.egress.proxy import Lease
from wonder_server.core.errors import Reason, WonderError, error
from wonder_server.core.paths import hide_passwords
from wonder_server.logs import logger

_log = logger("git")

T = TypeVar("T")

COMMAND_TIMEOUT_S: Final = 60.0
"""Default timeout of one command, in seconds."""

MAX_OUTPUT: Final = 64 << 20
FILE_BLOCK_BYTES: Final = 512
"""Unit of ``ulimit -f``."""
_CHUNK_BYTES: Final = 1 << 20

MIN_VERSION: Final = (2, 38)
"""The first version of git that merges without a working tree."""

GIT_ENVIRONMENT: Final = (
    "HOME", "PATH", "TMPDIR", "USER", "XDG_CONFIG_HOME",
    "GIT_SSH_COMMAND", "SSH_AUTH_SOCK", "GIT_SSL_CAINFO", "SSL_CERT_FILE", "SSL_CERT_DIR",
)  # fmt: skip
"""Environment variables that compose may pass on, for repositories on other machines."""

_SAFE_OPTIONS: Final = (
    "-c", "core.hooksPath=/dev/null",
    "-c", "core.fsmonitor=false",
    "-c", "core.attributesFile=/dev/null",
    "-c", "core.excludesFile=/dev/null",
    "-c", "core.fsync=committed,loose-object,reference",
    "-c", "core.fsyncMethod=fsync",
    "-c", "gc.auto=0",
    "-c", "maintenance.auto=false",
    "-c", "protocol.ext.allow=never",
    "-c", "core.quotePath=false",
)  # fmt: skip

_PLAIN_ENVIRONMENT: Final = {
    "LC_ALL": "C.UTF-8",
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_CONFIG_GLOBAL": "/dev/null",
    "GIT_ATTR_NOSYSTEM": "1",
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_NO_REPLACE_OBJECTS": "1",
    "GIT_OPTIONAL_LOCKS": "0",
    "GIT_LITERAL_PATHSPECS": "1",
}


_ERROR: Final = re.compile(r"^(?:error|fatal): ", re.MULTILINE)


class GitError(Exception):
    """git failed. ``complaint`` is its error output, ``output`` its standard output."""

    def __init__(self, code: int, complaint: str, output: str = "") -> None:
        super().__init__(f"git ended with {code}: {complaint}")
        self.code = code
        self.complaint = complaint
        self.output = output


class RepositoryDamagedError(Exception):
    """A required object or reference is missing or unreadable. The message is a clause."""


@dataclass(frozen=True, slots=True)
class CommandOutput:
    """The output of a command. ``is_truncated`` if it was longer than the limit."""

    code: int
    out: bytes
    is_truncated: bool = False

    @property
    def text(self) -> str:
        return self.out.decode("utf-8", "replace").strip()


@dataclass(frozen=True, slots=True)
class RunOptions:
    """Input, environment and limits of one git command.

    A command that exits with none of ``ok_codes`` raises `GitError`. git stops after ``max_bytes`` of output:
    with ``may_truncate`` the output is returned, otherwise PAYLOAD_TOO_LARGE is raised. Some errors do not
    end git, such as an unreadable object; without ``allow_errors`` they raise `RepositoryDamagedError`. git
    inherits the open folders ``handles``. With ``output``, the standard output goes there, in pieces. With
    ``max_file_bytes``, the system ends a process of the command that would write a larger file.
    """

    input: bytes | IO[bytes] = b""
    environment: Mapping[str, str] = field(default_factory=dict)
    ok_codes: Sequence[int] = (0,)
    max_bytes: int = MAX_OUTPUT
    may_truncate: bool = False
    seconds: float = COMMAND_TIMEOUT_S
    handles: Sequence[int] = ()
    allow_errors: bool = False
    output: IO[bytes] | None = None
    max_file_bytes: int = 0


DEFAULT_OPTIONS: Final = RunOptions()


class Git:
    """One git program. ``environment`` contains at least ``PATH``."""

    def __init__(self, environment: Mapping[str, str], program: str = "git") -> None:
        self._program = program
        self._path = {"PATH": environment.get("PATH", os.defpath)}
        self._environment = dict(environment)
        self._remote_processes: set[subprocess.Popen[bytes]] = set()
        self._stopped = False

    def stop(self) -> None:
        """Kill running commands on other repositories, and reject new ones."""
        self._stopped = True
        for process in list(self._remote_processes):
            _kill(process)

    def probe(self) -> str:
        """Return the reason why this git cannot be used, or ""."""
        try:
            text = self._run(["version"], self._path | _PLAIN_ENVIRONMENT, RunOptions(allow_errors=True)).text
            version = tuple(int(part) for part in text.split()[2].split(".")[:2])
        except (WonderError, GitError, ValueError, IndexError):
            return "git is not installed"
        if version < MIN_VERSION:
            return f"git {'.'.join(map(str, MIN_VERSION))} or newer is required, this is {text}"
        return ""

    def run(self, folder: Path, *arguments: str, options: RunOptions = DEFAULT_OPTIONS) -> CommandOutput:
        """Run a command on the bare repository ``folder``.

        Errors: those of `RunOptions`; TIMEOUT and STORAGE_UNAVAILABLE (transient).
        """
        return self._run(
            [*_SAFE_OPTIONS, f"--git-dir={folder}", *arguments],
            self._path | _PLAIN_ENVIRONMENT | dict(options.environment),
            options,
        )

    def fetch(
        self, folder: Path, other: Path, *refspecs: str, seconds: float, handles: Sequence[int]
    ) -> None:
        """Fetch from ``other``, a bare repository of the server's own, with the environment of `run`."""
        self._check_not_stopped()
        arguments = [
            *_SAFE_OPTIONS, f"--git-dir={folder}", "fetch", "--quiet", "--prune", "--no-tags",
            "--no-write-fetch-head", "--no-auto-gc", "--no-recurse-submodules", "--", str(other), *refspecs,
        ]  # fmt: skip
        environment = self._path | _PLAIN_ENVIRONMENT | {"GIT_ALLOW_PROTOCOL": "file"}
        options = RunOptions(seconds=seconds, handles=handles, allow_errors=True)
        self._run(arguments, environment, options, is_remote=True)

    def run_remote(
        self,
        folder: Path,
        *arguments: str,
        seconds: float,
        lease: Lease | None = None,
        max_file_bytes: int = 0,
    ) -> CommandOutput:
        """Run a command that accesses another repository, with the operator's own git configuration.

        That configuration has the operator's keys and addresses. All connections go through ``lease``.
        Without one, git accesses a repository of this machine and makes no connection. ``max_file_bytes`` as
        in `RunOptions`.
        """
        environment = self._environment | {
            "LC_ALL": "C.UTF-8",
            "GIT_TERMINAL_PROMPT": "0",
            "GIT_ASKPASS": "true",
            "SSH_ASKPASS": "true",
            "GIT_ALLOW_PROTOCOL": "file",
        }
        if lease is not None:
            environment = git_environment(lease, environment)
        self._check_not_stopped()
        options = RunOptions(seconds=seconds, allow_errors=True, max_file_bytes=max_file_bytes)
        return self._run(
            [*_SAFE_OPTIONS, f"--git-dir={folder}", *arguments], environment, options, is_remote=True
        )

    def _check_not_stopped(self) -> None:
        if self._stopped:
            raise error(Reason.SERVER_DRAINING, "The server is stopping.", transient=True)

    def _run(
        self,
        arguments: Sequence[str],
        environment: Mapping[str, str],
        options: RunOptions,
        *,
        is_remote: bool = False,
    ) -> CommandOutput:
        with tempfile.TemporaryFile() as stdin, tempfile.TemporaryFile() as complaints:
            if isinstance(options.input, bytes):
                stdin.write(options.input)
                stdin.seek(0)
            try:
                process = subprocess.Popen(
                    [*_limited(options.max_file_bytes), self._program, *arguments],
                    stdin=stdin if isinstance(options.input, bytes) else options.input,
                    stdout=subprocess.PIPE,
                    stderr=complaints,
                    env=dict(environment),
                    start_new_session=True,
                    cwd="/",
                    pass_fds=options.handles,
                )
            except OSError as problem:
                raise error(
                    Reason.STORAGE_UNAVAILABLE,
                    f"git cannot be run: {problem.strerror or problem}. Install git on the server's machine.",
                ) from None
            if is_remote:
                self._remote_processes.add(process)
            out, is_more, is_late = _read(process, options.max_bytes, options.seconds, options.output)
            self._remote_processes.discard(process)
            complaints.seek(0)
            text = hide_passwords(complaints.read(4_000).decode("utf-8", "replace").strip())
        if is_late:
            raise error(
                Reason.STORAGE_UNAVAILABLE,
                f"git did not end within {options.seconds:g} seconds. Try again.",
                transient=True,
            )
        if is_more:
            if not options.may_truncate:
                raise error(
                    Reason.PAYLOAD_TOO_LARGE,
                    f"The content has more than {options.max_bytes} bytes.",
                    limit=str(options.max_bytes),
                )
            return CommandOutput(0, out[: options.max_bytes], is_truncated=True)
        if process.returncode not in options.ok_codes:
            raise GitError(process.returncode, text, hide_passwords(out[:4_000].decode("utf-8", "replace")))
        if not options.allow_errors and _ERROR.search(text):
            raise RepositoryDamagedError(f"git reports: {text[:500]}")
        return CommandOutput(process.returncode, out)


def _limited(max_file_bytes: int) -> Sequence[str]:
    """Return the command that sets the limit of a file's size and then becomes the command after it."""
    if not max_file_bytes:
        return ()
    # POSIX counts blocks of 512 bytes.
    return ("/bin/sh", "-c", 'ulimit -f "$0" && exec "$@"', str(max_file_bytes // FILE_BLOCK_BYTES))


def _read(
    process: subprocess.Popen[bytes], max_bytes: int, seconds: float, output: IO[bytes] | None
) -> tuple[bytes, bool, bool]:
    """Read the output of a process until it ends, or kill it at a limit.

    Return the output (b"" if it goes to ``output``), True if it exceeds ``max_bytes``, and True after a
    timeout.
    """
    late = threading.Event()

    def stop() -> None:
        late.set()
        _kill(process)

    timer = threading.Timer(seconds, stop)
    timer.start()
    try:
        assert process.stdout is not None
        if output is None:
            out = process.stdout.read(max_bytes + 1)
            count = len(out)
        else:
            out, count = b"", 0
            while count <= max_bytes and (
                part := process.stdout.read(min(_CHUNK_BYTES, max_bytes + 1 - count))
            ):
                output.write(part)
                count += len(part)
        if count > max_bytes:
            _kill(process)
        process.stdout.close()
        process.wait()
    finally:
        timer.cancel()
    return out, count > max_bytes, late.is_set()


def _kill(process: subprocess.Popen[bytes]) -> None:
    """Kill the process and its children: it leads a session of its own."""
    try:
        os.killpg(process.pid, 9)
    except ProcessLookupError:
        pass


def new_threads(threads: int, name: str) -> ThreadPoolExecutor:
    """Return an executor with ``threads`` threads."""
    return ThreadPoolExecutor(threads, thread_name_prefix=name)


class ThreadPool:
    """Threads for blocking calls."""

    def __init__(
        self, threads: int, name: str, new_executor: Callable[[int, str], Executor] = new_threads
    ) -> None:
        self._threads = new_executor(threads, name)

    async def run(self, work: Callable[[], T]) -> T:
        """Return the result of ``work``. Errors of git and of the repository become STORAGE_UNAVAILABLE."""
        try:
            return await asyncio.get_running_loop().run_in_executor(self._threads, work)
        except GitError as problem:
            _log.error("git_failed", code=problem.code, output=problem.complaint[-1_000:])
            raise _unavailable("git failed") from problem
        except RepositoryDamagedError as problem:
            _log.error("repository_damaged", reason=str(problem)[:1_000])
            raise _unavailable(str(problem).partition("\n")[0][:300]) from problem
        except OSError as problem:
            raise error(
                Reason.STORAGE_UNAVAILABLE,
                f"The repository could not be read or changed: {problem.strerror or problem}.",
                transient=True,
            ) from problem

    async def close(self) -> None:
        """Wait for running work, and start no more."""
        await asyncio.to_thread(self._threads.shutdown, cancel_futures=True)


def _unavailable(cause: str) -> WonderError:
    return error(
        Reason.STORAGE_UNAVAILABLE,
        f"The repository cannot be read or changed: {cause}. See git's message in the server's log. "
        "`git fsck` in the repository's folder, below `artifacts/` or `repositories/` of the data folder, "
        "lists the damage. Restore that folder from a backup.",
    )
