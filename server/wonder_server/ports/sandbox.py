"""Isolated execution of agents' commands (feature F4; guide: docs/shell.md).

A sandbox sees one folder, writable, and the system's programs, read-only. It has no access to the server's
environment, no network unless its `SandboxSpec` allows it, and sees only its own processes. It is kept under
a key between commands, so that files in ``/tmp`` and in the folder remain. Processes do not remain: a command
ends with its first process, and everything that it started ends too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Protocol

from wonder_server.core.definitions.resources import NetworkPolicy
from wonder_server.core.frozen import Value

OutputCallback = Callable[[bytes], None]
"""Receives output of a command as it arrives, at most ``max_output_bytes``. A part may end within a
character."""


class Mount(Value, frozen=True, kw_only=True):
    """A file or folder of the host that the sandbox sees as ``target``: an absolute path outside of ``/work``
    and of the system's folders (``/mnt/…`` is free)."""

    source: Path
    target: str
    writable: bool = False


class SandboxSpec(Value, frozen=True, kw_only=True):
    """The view of a sandbox. ``folder`` is absolute, exists, and is seen as ``/work``, writable. ``network``:
    the hosts that commands reach by HTTP, HTTPS and CONNECT through the server's egress proxy; None is no
    network."""

    folder: Path
    mounts: tuple[Mount, ...] = ()
    network: NetworkPolicy | None = None


class Command(Value, frozen=True, kw_only=True):
    """One program to run. ``argv[0]`` is searched in the sandbox's ``PATH``. ``working_dir`` is relative to
    ``/work``. ``max_output_bytes`` limits stdout and stderr each. ``merge_stderr``: stderr is written to
    stdout, in order. ``timeout_ms`` starts with the program."""

    argv: tuple[str, ...]
    timeout_ms: int
    working_dir: str = ""
    stdin: bytes = b""
    environment: Mapping[str, str] = {}
    max_output_bytes: int = 1 << 20
    merge_stderr: bool = False


class Output(Value, frozen=True, kw_only=True):
    """The output of a command: ``head``, then ``dropped_bytes`` that were left out, then ``tail``."""

    head: bytes = b""
    tail: bytes = b""
    dropped_bytes: int = 0


class Finished(Value, frozen=True, kw_only=True):
    """The result of a command. An ``exit_code`` of 128 and more is 128 plus the signal. ``stopped`` is the
    limit that ended it, or empty: ``timeout``, ``output``, ``memory``, ``processes`` or ``disk``."""

    exit_code: int
    stdout: Output = Output()
    stderr: Output = Output()
    stopped: str = ""
    duration_ms: int = 0


class Sandbox(Protocol):
    """A way to run isolated commands. Limits other than a `Command`'s belong to the adapter.

    ``run`` runs a command in the sandbox kept under ``key``, or in a new one if there is none or its spec has
    changed. Commands of one key run one after another. Cancelling ends the command and everything that it
    started. It raises `WonderError`:

    - SANDBOX_UNAVAILABLE if sandboxes are not available
    - INPUT_INVALID for a missing ``working_dir`` or program
    - `NotStartedError` if no sandbox could be started, or if the command could not start within its timeout
    - TASK_FAILED with ``transient=True`` if the sandbox was lost while the command ran

    ``release`` ends everything that runs under ``key`` and its sandbox; a new one may be created immediately.
    Call it before removing the folder. ``close`` ends all sandboxes.
    """

    async def run(
        self, key: str, spec: SandboxSpec, command: Command, on_output: OutputCallback | None = None
    ) -> Finished: ...

    async def release(self, key: str) -> None: ...

    async def close(self) -> None: ...
