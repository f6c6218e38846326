"""The program git, run so that nothing but its arguments and its input decides what it does.

Neither the machine's nor the user's configuration is read, no hook is run, nothing asks for a password, and
no protocol is spoken but those that are named. Everything here blocks: `Pool` runs it in threads, a bounded
number at once, and an operation that has begun comes to its end whether or not somebody still waits.
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
from dataclasses import dataclass
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
"""For one command of plumbing."""

MAX_OUTPUT: Final = 64 << 20
_CHUNK_BYTES: Final = 1 << 20

MIN_VERSION: Final = (2, 38)
"""The first git that can merge without a working tree."""

GIT_ENVIRONMENT: Final = (
    "HOME", "PATH", "TMPDIR", "USER", "XDG_CONFIG_HOME",
    "GIT_SSH_COMMAND", "SSH_AUTH_SOCK", "GIT_SSL_CAINFO", "SSL_CERT_FILE", "SSL_CERT_DIR",
)  # fmt: skip
"""The variables that compose may hand on, for repositories that are elsewhere."""

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
    """git said no. ``text`` is what it complained of, ``said`` what it put out: for the log, and for whoever
    knows what to make of it."""

    def __init__(self, code: int, complaint: str, output: str = "") -> None:
        super().__init__(f"git ended with {code}: {complaint}")
        self.code = code
        self.complaint = complaint
        self.output = output


class RepositoryDamagedError(Exception):
    """What has to be in a repository is missing or cannot be read. The message is a clause."""


@dataclass(frozen=True, slots=True)
class CommandOutput:
    """What a command put out. ``cut``: there was more than was asked for."""

    code: int
    out: bytes
    is_truncated: bool = False

    @property
    def text(self) -> str:
        return self.out.decode("utf-8", "replace").strip()


class Git:
    """One git program. ``environment`` has at least ``PATH``."""

    def __init__(self, environment: Mapping[str, str], program: str = "git") -> None:
        self._program = program
        self._path = {"PATH": environment.get("PATH", os.defpath)}
        self._environment = dict(environment)
        self._remote_processes: set[subprocess.Popen[bytes]] = set()
        self._stopped = False

    def stop(self) -> None:
        """End what is under way to other repositories; nothing more goes there."""
        self._stopped = True
        for process in list(self._remote_processes):
            _kill(process)

    def probe(self) -> str:
        """Why this git cannot be used, or empty."""
        try:
            text = self._run(["version"], self._path | _PLAIN_ENVIRONMENT).text
            version = tuple(int(part) for part in text.split()[2].split(".")[:2])
        except (WonderError, GitError, ValueError, IndexError):
            return "git is not installed"
        if version < MIN_VERSION:
            return f"git {'.'.join(map(str, MIN_VERSION))} or newer is needed, this is {text}"
        return ""

    def run(
        self,
        folder: Path,
        *arguments: str,
        input: bytes | IO[bytes] = b"",
        environment: Mapping[str, str] | None = None,
        ok_codes: Sequence[int] = (0,),
        max_bytes: int = MAX_OUTPUT,
        may_truncate: bool = False,
        seconds: float = COMMAND_TIMEOUT_S,
        handles: Sequence[int] = (),
        allow_errors: bool = False,
        output: IO[bytes] | None = None,
    ) -> CommandOutput:
        """Run a command on the bare repository ``folder``. GitError unless it ends with one of ``fine``.

        Beyond ``most`` bytes it is stopped: with ``may_cut`` that is an answer, else PAYLOAD_TOO_LARGE.
        TIMEOUT and STORAGE_UNAVAILABLE are transient. git inherits the open folders ``handles``. An error
        that git passes over, such as an object that cannot be read, raises Damaged unless ``may_complain``.
        What it puts out goes to ``output``, piece by piece, if there is one.
        """
        return self._run(
            [*_SAFE_OPTIONS, f"--git-dir={folder}", *arguments],
            self._path | _PLAIN_ENVIRONMENT | dict(environment or {}),
            input,
            ok_codes,
            max_bytes,
            may_truncate=may_truncate,
            seconds=seconds,
            handles=handles,
            allow_errors=allow_errors,
            output=output,
        )

    def fetch(
        self, folder: Path, other: Path, *refspecs: str, seconds: float, handles: Sequence[int]
    ) -> None:
        """Fetch from ``other``, a bare repository of the server's own, in the same plain surroundings."""
        if self._stopped:
            raise error(Reason.SERVER_DRAINING, "The server is stopping.", transient=True)
        given = [
            *_SAFE_OPTIONS, f"--git-dir={folder}", "fetch", "--quiet", "--prune", "--no-tags",
            "--no-write-fetch-head", "--no-auto-gc", "--no-recurse-submodules", "--", str(other), *refspecs,
        ]  # fmt: skip
        environment = self._path | _PLAIN_ENVIRONMENT | {"GIT_ALLOW_PROTOCOL": "file"}
        self._run(given, environment, seconds=seconds, is_remote=True, handles=handles)

    def run_remote(
        self,
        folder: Path,
        *arguments: str,
        seconds: float,
        options: Sequence[str] = (),
        lease: Lease | None = None,
    ) -> CommandOutput:
        """The same for what goes to another repository, with the configuration of whoever runs the server,
        where the ways to reach it and the keys are. Without a ``lease`` it is one of this machine, and git
        makes no connection; with one all connections go through it."""
        environment = self._environment | {
            "LC_ALL": "C.UTF-8",
            "GIT_TERMINAL_PROMPT": "0",
            "GIT_ASKPASS": "true",
            "SSH_ASKPASS": "true",
            "GIT_ALLOW_PROTOCOL": "file",
        }
        if lease is not None:
            environment = git_environment(lease, environment)
        given = [*_SAFE_OPTIONS, *options, f"--git-dir={folder}", *arguments]
        if self._stopped:
            raise error(Reason.SERVER_DRAINING, "The server is stopping.", transient=True)
        return self._run(given, environment, seconds=seconds, is_remote=True)

    def _run(
        self,
        arguments: Sequence[str],
        environment: Mapping[str, str],
        input: bytes | IO[bytes] = b"",
        ok_codes: Sequence[int] = (0,),
        max_bytes: int = MAX_OUTPUT,
        *,
        seconds: float = COMMAND_TIMEOUT_S,
        may_truncate: bool = False,
        is_remote: bool = False,
        handles: Sequence[int] = (),
        allow_errors: bool = True,
        output: IO[bytes] | None = None,
    ) -> CommandOutput:
        with tempfile.TemporaryFile() as given, tempfile.TemporaryFile() as complaints:
            if isinstance(input, bytes):
                given.write(input)
                given.seek(0)
            try:
                process = subprocess.Popen(
                    [self._program, *arguments],
                    stdin=given if isinstance(input, bytes) else input,
                    stdout=subprocess.PIPE,
                    stderr=complaints,
                    env=dict(environment),
                    start_new_session=True,
                    cwd="/",
                    pass_fds=handles,
                )
            except OSError as problem:
                raise error(
                    Reason.STORAGE_UNAVAILABLE,
                    f"git cannot be run: {problem.strerror or problem}. Install git where the server runs.",
                ) from None
            if is_remote:
                self._remote_processes.add(process)
            out, is_more, late = _read(process, max_bytes, seconds, output)
            self._remote_processes.discard(process)
            complaints.seek(0)
            text = hide_passwords(complaints.read(4_000).decode("utf-8", "replace").strip())
        if late:
            raise error(
                Reason.STORAGE_UNAVAILABLE,
                f"git did not end within {seconds:g} seconds.",
                transient=True,
            )
        if is_more:
            if not may_truncate:
                raise error(
                    Reason.PAYLOAD_TOO_LARGE,
                    f"There is more of it than {max_bytes} bytes.",
                    limit=str(max_bytes),
                )
            return CommandOutput(0, out[:max_bytes], is_truncated=True)
        if process.returncode not in ok_codes:
            raise GitError(process.returncode, text, hide_passwords(out[:4_000].decode("utf-8", "replace")))
        if not allow_errors and _ERROR.search(text):
            raise RepositoryDamagedError(f"git says: {text[:500]}")
        return CommandOutput(process.returncode, out)


def _read(
    process: subprocess.Popen[bytes], most: int, seconds: float, output: IO[bytes] | None
) -> tuple[bytes, bool, bool]:
    """What the process puts out (b"" if it goes to ``output``), whether it is more than ``most`` bytes, and
    whether the process was too slow."""
    late = threading.Event()

    def stop() -> None:
        late.set()
        _kill(process)

    timer = threading.Timer(seconds, stop)
    timer.start()
    try:
        assert process.stdout is not None
        if output is None:
            out = process.stdout.read(most + 1)
            count = len(out)
        else:
            out, count = b"", 0
            while count <= most and (part := process.stdout.read(min(_CHUNK_BYTES, most + 1 - count))):
                output.write(part)
                count += len(part)
        if count > most:
            _kill(process)
        process.stdout.close()
        process.wait()
    finally:
        timer.cancel()
    return out, count > most, late.is_set()


def _kill(process: subprocess.Popen[bytes]) -> None:
    """End it with all that it has started: it leads a session of its own."""
    try:
        os.killpg(process.pid, 9)
    except ProcessLookupError:
        pass


def new_threads(threads: int, name: str) -> ThreadPoolExecutor:
    """Return an executor of so many threads with this name."""
    return ThreadPoolExecutor(threads, thread_name_prefix=name)


class ThreadPool:
    """Threads for blocking calls."""

    def __init__(
        self, threads: int, name: str, new_executor: Callable[[int, str], Executor] = new_threads
    ) -> None:
        self._threads = new_executor(threads, name)

    async def run(self, work: Callable[[], T]) -> T:
        """``work``'s result. What git refuses without our having a word for it is STORAGE_UNAVAILABLE."""
        try:
            return await asyncio.get_running_loop().run_in_executor(self._threads, work)
        except GitError as problem:
            _log.error("git_failed", code=problem.code, said=problem.complaint[-1_000:])
            raise _unavailable("git failed") from problem
        except RepositoryDamagedError as problem:
            _log.error("repository_damaged", why=str(problem)[:1_000])
            raise _unavailable(str(problem).partition("\n")[0][:300]) from problem
        except OSError as problem:
            raise error(
                Reason.STORAGE_UNAVAILABLE,
                f"The repository could not be read or changed: {problem.strerror or problem}.",
                transient=True,
            ) from problem

    async def close(self) -> None:
        """Wait for what is under way; nothing more is begun."""
        await asyncio.to_thread(self._threads.shutdown, cancel_futures=True)


def _unavailable(why: str) -> WonderError:
    return error(
        Reason.STORAGE_UNAVAILABLE,
        f"The repository cannot be read or changed: {why}. The server's log has git's message; "
        "`git fsck` in its folder, below `artifacts/` or `repositories/` of the data folder, lists the "
        "damage. Restore that folder from a backup.",
    )
