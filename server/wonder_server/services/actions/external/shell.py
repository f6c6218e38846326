"""``shell``: runs a command in the sandbox of the conversation, on its branch (F4, F5; docs/shell.md).

The effect of an interrupted command is unknown, so it is repeated only if the action is declared idempotent.
The end of a command determines the outcome:

====================================  =============================================================
the command                           outcome
====================================  =============================================================
exits                                 the result, with any exit code; with ``fail_on_exit`` true
                                      any but 0 fails the step
exceeds its timeout                   TIMEOUT
reaches a limit of the sandbox        the result, with the limit in ``stopped``
is lost with its sandbox              OUTCOME_UNKNOWN
cannot start, the sandbox is busy     retried
====================================  ============================================================="""

from __future__ import annotations

import asyncio
import codecs
import re
from typing import Final

from wonder_server.core.definitions.resources import DEFAULT_PROJECT
from wonder_server.core.errors import Reason, error
from wonder_server.core.json_types import JsonDict
from wonder_server.core.task.outcome_errors import NotStartedError
from wonder_server.ports.sandbox import Command, Finished, Output, SandboxSpec
from wonder_server.ports.worktrees import Worktree, Worktrees
from wonder_server.services.actions.contract.kind import ActionCall, ActionKind, ProgressCallback

DEFAULT_OUTPUT_BYTES: Final = 32 << 10
MAX_OUTPUT_BYTES: Final = 256 << 10
MAX_COMMAND_BYTES: Final = 128_000
"""Slightly below the kernel's maximum for one argument."""
OUTPUT_INTERVAL_S: Final = 0.05
MAX_TAIL_CHARACTERS: Final = 1_000
"""Maximum number of characters of the output in a fault."""

_EXITS: Final = {
    "output": "its output exceeded the limit",
    "memory": "it exceeded the memory limit",
    "processes": "it exceeded the process limit",
    "disk": "the disk is nearly full",
}


_NO_NETWORK: Final = re.compile(
    r"could not resolve|name resolution|name or service not known|network is unreachable|no such host"
    r"|EAI_AGAIN|ENOTFOUND|failed to lookup address",
    re.IGNORECASE,
)
"""Texts of curl, git, pip, npm, cargo, Go and libc for a connection that fails without a network."""


async def _run(call: ActionCall) -> JsonDict:
    given, sandbox, worktrees = call.input, call.services.execution.sandbox, call.services.execution.worktrees
    if sandbox is None or worktrees is None:
        raise error(Reason.SANDBOX_UNAVAILABLE, "This server has no sandbox, so it cannot run commands.")
    line = given["command"]
    if len(line.encode("utf-8", "surrogatepass")) > MAX_COMMAND_BYTES or not _is_text(line):
        raise error(
            Reason.INPUT_INVALID,
            f"command is not text without null bytes, or has more than {MAX_COMMAND_BYTES} bytes. Move long"
            " content into a file or stdin.",
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
    hint = "" if policy.shell_network else _network_hint(finished, call.context.project_id)
    return _result(finished, limit_ms, hint, fails=given.get("fail_on_exit", False))


async def _worktree(call: ActionCall, worktrees: Worktrees) -> Worktree:
    """Open the worktree of the branch. Its creation may need a clone and can be repeated safely, so a timeout
    is retried."""
    try:
        async with asyncio.timeout(call.timeout_ms / 1000):
            return await worktrees.open(call.context)
    except TimeoutError:
        raise NotStartedError(Reason.TIMEOUT, "The worktree of the branch is still being created.") from None


def _network_hint(finished: Finished, project: str) -> str:
    """Return the cause and the remedy if a command without a network has failed to connect, or ""."""
    if finished.exit_code == 0 or _NO_NETWORK.search(_text(finished.stdout)) is None:
        return ""
    return (
        "Commands of this project have no network. Allow it with "
        f"`wonder project shell {project or DEFAULT_PROJECT} on` (network.shell_network)."
    )


def _result(finished: Finished, limit_ms: int, hint: str, *, fails: bool) -> JsonDict:
    text = _text(finished.stdout)
    ended = text.strip()[-MAX_TAIL_CHARACTERS:] or "empty"
    if finished.stopped == "timeout":
        raise error(
            Reason.TIMEOUT,
            f"The command was stopped after {limit_ms} ms. {_before(hint)}The end of its output: {ended}",
        )
    if fails and finished.exit_code != 0:
        how = _EXITS.get(finished.stopped) or f"its exit code is {finished.exit_code}"
        raise error(
            Reason.TASK_FAILED,
            f"The command failed: {how}. {_before(hint)}The end of its output: {ended}",
            exit_code=str(finished.exit_code),
        )
    return {
        "exit_code": finished.exit_code,
        "output": text,
        "dropped_bytes": finished.stdout.dropped_bytes,
        "stopped": finished.stopped,
        "duration_ms": finished.duration_ms,
        **({"hint": hint} if hint else {}),
    }


def _before(hint: str) -> str:
    return f"{hint} " if hint else ""


def _text(output: Output) -> str:
    head, tail = (part.decode("utf-8", "replace") for part in (output.head, output.tail))
    return f"{head}\n[{output.dropped_bytes} bytes left out]\n{tail}" if output.dropped_bytes else head


def _is_text(line: str) -> bool:
    return "\0" not in line and not any("\ud800" <= each <= "\udfff" for each in line)


class _OutputProgress:
    """Reports output as text at most every `OUTPUT_INTERVAL_S` seconds."""

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
        """Report the remaining output."""
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
        "Runs a command with sh in the sandbox of the conversation, in the folder of its branch, and returns"
        " its exit code and output. The command sees the system's programs and that folder, and has no"
        " network unless the project allows it. Its child processes end with it. Repeated after an error only"
        " if the action is declared idempotent."
    ),
    input_schema={
        "type": "object",
        "properties": {
            "command": {
                "type": "string",
                "minLength": 1,
                "maxLength": MAX_COMMAND_BYTES,
                "description": "Command for sh, of one or more lines.",
            },
            "folder": {
                "type": "string",
                "maxLength": 4096,
                "pattern": "^[^/\\x00][^\\x00]*$",
                "description": "Working directory, relative to the branch's folder. Default: the only"
                " repository, or the branch's folder.",
            },
            "stdin": {"type": "string", "description": "Standard input. Default: empty."},
            "environment": {
                "type": "object",
                "maxProperties": 100,
                "propertyNames": {"pattern": "^[A-Za-z_][A-Za-z0-9_]{0,199}$"},
                "additionalProperties": {"type": "string", "maxLength": 32768, "pattern": "^[^\\x00]*$"},
                "description": "Variables in addition to PATH, HOME, TMPDIR, LANG, TERM and USER.",
            },
            "timeout_ms": {
                "type": "integer",
                "minimum": 1,
                "description": "Timeout of the command. The action's own timeout_ms applies if it is less, or"
                " by default.",
            },
            "max_output_bytes": {
                "type": "integer",
                "minimum": 1,
                "maximum": MAX_OUTPUT_BYTES,
                "description": "Maximum size of the output to keep. Of longer output, the end is kept too: a"
                f" quarter as many bytes. Default: {DEFAULT_OUTPUT_BYTES}.",
            },
            "fail_on_exit": {
                "type": "boolean",
                "description": "True to fail the step if the exit code is not 0. Default: false.",
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
                "description": "Exit code; 128 plus the signal if a signal ended it.",
            },
            "output": {"type": "string", "description": "stdout and stderr, interleaved."},
            "dropped_bytes": {
                "type": "integer",
                "description": "Bytes that are omitted from the middle of the output.",
            },
            "stopped": {
                "type": "string",
                "description": "Limit that ended it: output, memory, processes or disk; empty if none.",
            },
            "duration_ms": {"type": "integer"},
            "hint": {
                "type": "string",
                "description": "Cause and remedy, if the command failed because it has no network.",
            },
        },
    },
    run=_run,
    enforces_timeout=True,
)
