"""``shell``: a command in the sandbox of the conversation, on its branch (features F4, F5; docs/shell.md).

What a command has done when it ends early, nobody knows, so it is repeated only if the action says that it is
idempotent. How it ends:

====================================  =============================================================
the command                           means
====================================  =============================================================
ends by itself                        the result, whatever its exit code; with ``fail_on_exit`` true
                                      any but 0 fails the step
takes too long                        TIMEOUT
reaches a limit of the sandbox        the result, with ``stopped`` saying which
is lost with its sandbox              OUTCOME_UNKNOWN
cannot begin, others being at work    tried again
====================================  =============================================================
"""

from __future__ import annotations

import asyncio
import codecs
from typing import Any, Final

from wonder_server.core.errors import Reason, error
from wonder_server.core.task.effects import NotStartedError
from wonder_server.ports.sandbox import Command, Finished, Output, SandboxSpec
from wonder_server.ports.worktrees import Worktree, Worktrees
from wonder_server.services.actions.contract.kind import ActionCall, ActionKind, ProgressCallback

DEFAULT_OUTPUT_BYTES: Final = 32 << 10
MAX_OUTPUT_BYTES: Final = 256 << 10
MAX_COMMAND_BYTES: Final = 128_000
"""A little less than what the kernel takes as one argument."""
OUTPUT_INTERVAL_S: Final = 0.05
MAX_TAIL_CHARACTERS: Final = 1_000
"""How many characters of the output a fault shows."""

_EXITS: Final = {
    "output": "it put out too much",
    "memory": "it took too much memory",
    "processes": "it had too many processes",
    "disk": "the disk is nearly full",
}


async def _run(call: ActionCall) -> dict[str, Any]:
    given, sandbox, worktrees = call.input, call.services.execution.sandbox, call.services.execution.worktrees
    if sandbox is None or worktrees is None:
        raise error(Reason.SANDBOX_UNAVAILABLE, "This server has no sandbox to run commands in.")
    line = given["command"]
    if len(line.encode("utf-8", "surrogatepass")) > MAX_COMMAND_BYTES or not _is_text(line):
        raise error(
            Reason.INPUT_INVALID,
            f"A command is text without null bytes, of at most {MAX_COMMAND_BYTES} bytes; put what is longer"
            " into a file, or into stdin.",
            field="command",
        )
    policy = await call.services.network.policies.network_policy(call.context.project_id)
    worktree = await _worktree(call, worktrees)
    limit_ms = min(int(given.get("timeout_ms", call.timeout_ms)), call.timeout_ms)
    command = Command(
        argv=("/bin/sh", "-c", line),
        timeout_ms=limit_ms,
        working_dir=given.get("folder", worktree.working_dir),
        stdin=given.get("stdin", "").encode("utf-8", "replace"),
        environment=given.get("environment", {}),
        max_output_bytes=int(given.get("max_output_bytes", DEFAULT_OUTPUT_BYTES)),
        merge_stderr=True,
    )
    progress = _OutputProgress(call.progress)
    try:
        finished = await sandbox.run(
            worktree.key,
            SandboxSpec(folder=worktree.folder, network=policy if policy.shell_network else None),
            command,
            progress,
        )
    finally:
        progress.close()
        worktrees.command_finished(worktree.key)
    return _result(finished, limit_ms, fails=given.get("fail_on_exit", False))


async def _worktree(call: ActionCall, worktrees: Worktrees) -> Worktree:
    """The folder of the branch; making it may mean cloning, of which nothing is lost by asking again."""
    try:
        async with asyncio.timeout(call.timeout_ms / 1000):
            return await worktrees.open(call.context)
    except TimeoutError:
        raise NotStartedError(
            Reason.TIMEOUT, "The folder of this conversation's branch is still being made."
        ) from None


def _result(finished: Finished, limit_ms: int, *, fails: bool) -> dict[str, Any]:
    text = _text(finished.stdout)
    ended = text.strip()[-MAX_TAIL_CHARACTERS:] or "nothing"
    if finished.stopped == "timeout":
        raise error(
            Reason.TIMEOUT,
            f"The command was stopped after {limit_ms} ms. The end of what it put out: {ended}",
        )
    if fails and finished.exit_code != 0:
        how = _EXITS.get(finished.stopped) or f"its exit code is {finished.exit_code}"
        raise error(
            Reason.TASK_FAILED,
            f"The command failed: {how}. The end of what it put out: {ended}",
            exit_code=str(finished.exit_code),
        )
    return {
        "exit_code": finished.exit_code,
        "output": text,
        "dropped_bytes": finished.stdout.dropped_bytes,
        "stopped": finished.stopped,
        "duration_ms": finished.duration_ms,
    }


def _text(output: Output) -> str:
    head, tail = (part.decode("utf-8", "replace") for part in (output.head, output.tail))
    return f"{head}\n[{output.dropped_bytes} bytes left out]\n{tail}" if output.dropped_bytes else head


def _is_text(line: str) -> bool:
    return "\0" not in line and not any("\ud800" <= each <= "\udfff" for each in line)


class _OutputProgress:
    """Passes output on as text, a few times a second at most."""

    def __init__(self, report: ProgressCallback) -> None:
        self._report = report
        self._decode = codecs.getincrementaldecoder("utf-8")("replace").decode
        self._pending: list[str] = []
        self._timer: asyncio.TimerHandle | None = None

    def __call__(self, chunk: bytes) -> None:
        self._pending.append(self._decode(chunk))
        if self._timer is None:
            self._flush()
            self._timer = asyncio.get_running_loop().call_later(OUTPUT_INTERVAL_S, self._on_timer)

    def close(self) -> None:
        """Nothing comes any more."""
        if self._timer is not None:
            self._timer.cancel()
        self._flush()

    def _on_timer(self) -> None:
        self._timer = None
        self._flush()

    def _flush(self) -> None:
        text = "".join(self._pending)
        self._pending.clear()
        if text:
            self._report(output=text)


SHELL = ActionKind(
    name="shell",
    description=(
        "Runs a command with sh in the sandbox of the conversation, in the folder of its branch, and answers"
        " with its exit code and what it put out. Sees the system's programs and that folder; no network"
        " unless the project allows it. Whatever the command started ends with it. Is repeated after an error"
        " only if the action says that it is idempotent."
    ),
    input_schema={
        "type": "object",
        "properties": {
            "command": {
                "type": "string",
                "minLength": 1,
                "maxLength": MAX_COMMAND_BYTES,
                "description": "As a line of sh; may have several lines.",
            },
            "folder": {
                "type": "string",
                "maxLength": 4096,
                "pattern": "^[^/\\x00][^\\x00]*$",
                "description": "Where it begins, relative to the branch's folder. Left out: the repository,"
                " if there is one only.",
            },
            "stdin": {"type": "string", "description": "What it reads. Left out: nothing."},
            "environment": {
                "type": "object",
                "maxProperties": 100,
                "propertyNames": {"pattern": "^[A-Za-z_][A-Za-z0-9_]{0,199}$"},
                "additionalProperties": {"type": "string", "maxLength": 32768, "pattern": "^[^\\x00]*$"},
                "description": "Added to PATH, HOME, TMPDIR, LANG, TERM and USER, which is all there is.",
            },
            "timeout_ms": {
                "type": "integer",
                "minimum": 1,
                "description": "When it is stopped. The action's own timeout_ms, if that is less or this is"
                " left out.",
            },
            "max_output_bytes": {
                "type": "integer",
                "minimum": 1,
                "maximum": MAX_OUTPUT_BYTES,
                "description": "So many bytes of its output are kept, and a quarter as many of the end of"
                f" what is beyond. Left out: {DEFAULT_OUTPUT_BYTES}.",
            },
            "fail_on_exit": {
                "type": "boolean",
                "description": "True: an exit code other than 0 fails the step. Left out: false.",
            },
        },
        "required": ["command"],
        "additionalProperties": False,
    },
    output_schema={
        "type": "object",
        "properties": {
            "exit_code": {
                "type": "integer",
                "description": "128 and more: 128 and the signal that ended it.",
            },
            "output": {"type": "string", "description": "stdout and stderr, as they came."},
            "dropped_bytes": {
                "type": "integer",
                "description": "How many are left out of its middle.",
            },
            "stopped": {
                "type": "string",
                "description": "Which limit ended it: output, memory, processes or disk; empty if none.",
            },
            "duration_ms": {"type": "integer"},
        },
    },
    run=_run,
    enforces_timeout=True,
)
