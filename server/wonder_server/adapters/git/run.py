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
from concurrent.futures import ThreadPoolExecutor
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

DEADLINE_S: Final = 60.0
"""For one command of plumbing."""

MAX_OUTPUT: Final = 64 << 20
_PIECE: Final = 1 << 20

OLDEST: Final = (2, 38)
"""The first git that can merge without a working tree."""

GIT_ENVIRONMENT: Final = (
    "HOME", "PATH", "TMPDIR", "USER", "XDG_CONFIG_HOME",
    "GIT_SSH_COMMAND", "SSH_AUTH_SOCK", "GIT_SSL_CAINFO", "SSL_CERT_FILE", "SSL_CERT_DIR",
)  # fmt: skip
"""The variables that compose may hand on, for repositories that are elsewhere."""

_SAFE: Final = (
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

_PLAIN: Final = {
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

    def __init__(self, code: int, text: str, said: str = "") -> None:
        super().__init__(f"git ended with {code}: {text}")
        self.code = code
        self.text = text
        self.said = said


class Damaged(Exception):
    """What has to be in a repository is missing or cannot be read. The message is a clause."""


@dataclass(frozen=True, slots=True)
class Said:
    """What a command put out. ``cut``: there was more than was asked for."""

    code: int
    out: bytes
    cut: bool = False

    @property
    def text(self) -> str:
        return self.out.decode("utf-8", "replace").strip()


class Git:
    """One git program. ``environment`` has at least ``PATH``."""

    def __init__(self, environment: Mapping[str, str], program: str = "git") -> None:
        self._program = program
        self._path = {"PATH": environment.get("PATH", os.defpath)}
        self._environment = dict(environment)
        self._far: set[subprocess.Popen[bytes]] = set()
        self._stopped = False

    def stop(self) -> None:
        """End what is under way to other repositories; nothing more goes there."""
        self._stopped = True
        for process in list(self._far):
            _kill(process)

    def probe(self) -> str:
        """Why this git cannot be used, or empty."""
        try:
            text = self._run(["version"], self._path | _PLAIN).text
            version = tuple(int(part) for part in text.split()[2].split(".")[:2])
        except (WonderError, GitError, ValueError, IndexError):
            return "git is not installed"
        if version < OLDEST:
            return f"git {'.'.join(map(str, OLDEST))} or newer is needed, this is {text}"
        return ""

    def run(
        self,
        folder: Path,
        *arguments: str,
        input: bytes | IO[bytes] = b"",
        also: Mapping[str, str] | None = None,
        fine: Sequence[int] = (0,),
        most: int = MAX_OUTPUT,
        may_cut: bool = False,
        seconds: float = DEADLINE_S,
        handles: Sequence[int] = (),
        may_complain: bool = False,
        output: IO[bytes] | None = None,
    ) -> Said:
        """Run a command on the bare repository ``folder``. GitError unless it ends with one of ``fine``.

        Beyond ``most`` bytes it is stopped: with ``may_cut`` that is an answer, else PAYLOAD_TOO_LARGE.
        TIMEOUT and STORAGE_UNAVAILABLE are transient. git inherits the open folders ``handles``. An error
        that git passes over, such as an object that cannot be read, raises Damaged unless ``may_complain``.
        What it puts out goes to ``output``, piece by piece, if there is one.
        """
        return self._run(
            [*_SAFE, f"--git-dir={folder}", *arguments],
            self._path | _PLAIN | dict(also or {}),
            input,
            fine,
            most,
            may_cut=may_cut,
            seconds=seconds,
            handles=handles,
            may_complain=may_complain,
            output=output,
        )

    def fetch(
        self, folder: Path, other: Path, *refspecs: str, seconds: float, handles: Sequence[int]
    ) -> None:
        """Fetch from ``other``, a bare repository of the server's own, in the same plain surroundings."""
        if self._stopped:
            raise error(Reason.SERVER_DRAINING, "The server is stopping.", transient=True)
        given = [
            *_SAFE, f"--git-dir={folder}", "fetch", "--quiet", "--prune", "--no-tags",
            "--no-write-fetch-head", "--no-auto-gc", "--no-recurse-submodules", "--", str(other), *refspecs,
        ]  # fmt: skip
        environment = self._path | _PLAIN | {"GIT_ALLOW_PROTOCOL": "file"}
        self._run(given, environment, seconds=seconds, is_far=True, handles=handles)

    def reach(
        self,
        folder: Path,
        *arguments: str,
        seconds: float,
        also: Sequence[str] = (),
        lease: Lease | None = None,
    ) -> Said:
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
        given = [*_SAFE, *also, f"--git-dir={folder}", *arguments]
        if self._stopped:
            raise error(Reason.SERVER_DRAINING, "The server is stopping.", transient=True)
        return self._run(given, environment, seconds=seconds, is_far=True)

    def _run(
        self,
        arguments: Sequence[str],
        environment: Mapping[str, str],
        input: bytes | IO[bytes] = b"",
        fine: Sequence[int] = (0,),
        most: int = MAX_OUTPUT,
        *,
        seconds: float = DEADLINE_S,
        may_cut: bool = False,
        is_far: bool = False,
        handles: Sequence[int] = (),
        may_complain: bool = True,
        output: IO[bytes] | None = None,
    ) -> Said:
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
            if is_far:
                self._far.add(process)
            out, is_more, late = _read(process, most, seconds, output)
            self._far.discard(process)
            complaints.seek(0)
            text = hide_passwords(complaints.read(4_000).decode("utf-8", "replace").strip())
        if late:
            raise error(
                Reason.STORAGE_UNAVAILABLE,
                f"git did not end within {seconds:g} seconds.",
                transient=True,
            )
        if is_more:
            if not may_cut:
                raise error(
                    Reason.PAYLOAD_TOO_LARGE, f"There is more of it than {most} bytes.", limit=str(most)
                )
            return Said(0, out[:most], cut=True)
        if process.returncode not in fine:
            raise GitError(process.returncode, text, hide_passwords(out[:4_000].decode("utf-8", "replace")))
        if not may_complain and _ERROR.search(text):
            raise Damaged(f"git says: {text[:500]}")
        return Said(process.returncode, out)


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
            while count <= most and (part := process.stdout.read(min(_PIECE, most + 1 - count))):
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


class Pool:
    """Threads for what blocks."""

    def __init__(self, threads: int, name: str) -> None:
        self._threads = ThreadPoolExecutor(threads, thread_name_prefix=name)

    async def do(self, work: Callable[[], T]) -> T:
        """``work``'s result. What git refuses without our having a word for it is STORAGE_UNAVAILABLE."""
        try:
            return await asyncio.get_running_loop().run_in_executor(self._threads, work)
        except GitError as problem:
            _log.error("git_failed", code=problem.code, said=problem.text[-1_000:])
            raise _unavailable("git failed") from problem
        except Damaged as problem:
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
