"""Commands of agents, run where they can harm nobody (feature F4; guide: docs/shell.md).

A sandbox sees one folder, writable, and the system's programs, read-only. It has none of the server's
environment, no network unless its place says so, and only its own processes. It is kept warm under a key, so
that what commands leave in ``/tmp`` and in the folder is there for the next; processes never are: a command
is over when its first process is, and whatever it has started ends with it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Protocol

from wonder_server.core.definitions.resources import NetworkPolicy
from wonder_server.core.frozen import Value

OutputCallback = Callable[[bytes], None]
"""Takes what a command puts out, as it comes; no more than its ``max_output_bytes``. May cut characters."""


class Mount(Value, frozen=True, kw_only=True):
    """A file or folder of the host that the sandbox sees too, as ``target``: an absolute path, outside of
    ``/work`` and of what the system has there (``/mnt/…`` is free)."""

    source: Path
    target: str
    writable: bool = False


class SandboxSpec(Value, frozen=True, kw_only=True):
    """What a sandbox sees. ``folder`` is absolute, exists, and is seen as ``/work``, writable. ``network``:
    which hosts commands reach by HTTP, HTTPS and CONNECT, through the server's egress proxy; None is no
    network."""

    folder: Path
    mounts: tuple[Mount, ...] = ()
    network: NetworkPolicy | None = None


class Command(Value, frozen=True, kw_only=True):
    """One program to run. ``argv[0]`` is looked for in the sandbox's ``PATH``. ``start`` is the folder where
    it begins, relative to ``/work``. ``max_output_bytes`` is for stdout and stderr each; ``merged``: stderr
    goes where stdout does, in the order in which it was written. ``timeout_ms`` begins with the program."""

    argv: tuple[str, ...]
    timeout_ms: int
    working_dir: str = ""
    stdin: bytes = b""
    environment: Mapping[str, str] = {}
    max_output_bytes: int = 1 << 20
    merge_stderr: bool = False


class Output(Value, frozen=True, kw_only=True):
    """What came out: all of it is ``head``, unless ``dropped_bytes`` are missing between it and ``tail``."""

    head: bytes = b""
    tail: bytes = b""
    dropped_bytes: int = 0


class Finished(Value, frozen=True, kw_only=True):
    """How a command ended. ``exit_code``: 128 and more is 128 and the signal that ended it. ``stopped`` says
    which limit ended it, or is empty: ``timeout``, ``output``, ``memory``, ``processes`` or ``disk``."""

    exit_code: int
    stdout: Output = Output()
    stderr: Output = Output()
    stopped: str = ""
    duration_ms: int = 0


class Sandbox(Protocol):
    """One way of running commands apart from everything else. Limits other than a `Command`'s are its own.

    ``run`` runs a command in the sandbox that is kept under ``key``, or in a new one if there is none or its
    place has changed; commands under one key run one after another. Cancelling ends the command and all that
    it started. It raises `WonderError`: SANDBOX_UNAVAILABLE where there can be no sandbox; INPUT_INVALID for
    a ``start`` that is no folder and a program that is not there; `NotBegunError` if no sandbox could be
    started just now, or others took so long that the command could not begin within its time; TASK_FAILED
    with ``transient=True`` if it was lost while the command ran.

    ``release`` ends what runs under ``key``, and forgets its sandbox; a new one may be had at once. To be
    called before the folder is removed. ``close`` ends all of them for good.
    """

    async def run(
        self, key: str, spec: SandboxSpec, command: Command, on_output: OutputCallback | None = None
    ) -> Finished: ...

    async def release(self, key: str) -> None: ...

    async def close(self) -> None: ...
