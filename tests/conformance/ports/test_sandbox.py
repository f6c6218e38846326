"""Sandboxes: one suite for the port `wonder_server.ports.sandbox.Sandbox`.

`tests/conformance/sandbox` tests the isolation of the real one.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.sandboxes import bubblewrap
from wonder_server.adapters.in_memory.sandbox import MemorySandbox
from wonder_server.core.errors import Reason, WonderError
from wonder_server.core.task.outcome_errors import NotStartedError
from wonder_server.ports.sandbox import Command, Finished, Sandbox, SandboxSpec


@pytest.fixture(params=["memory", "bubblewrap"])
async def sandbox(request: pytest.FixtureRequest) -> AsyncIterator[Sandbox]:
    made: Sandbox = MemorySandbox() if request.param == "memory" else await bubblewrap()
    yield made
    await made.close()


@pytest.fixture
def place(tmp_path: Path) -> SandboxSpec:
    (tmp_path / "work" / "below").mkdir(parents=True)
    return SandboxSpec(folder=tmp_path / "work")


def sh(line: str, *, timeout_ms: int = 20_000, max_output_bytes: int = 1 << 20) -> Command:
    return Command(
        argv=("sh", "-c", line), timeout_ms=timeout_ms, max_output_bytes=max_output_bytes, merge_stderr=True
    )


async def begun(sandbox: Sandbox, place: SandboxSpec) -> asyncio.Task[Finished]:
    """Start a command that runs for long, and wait for its first output."""
    reported = asyncio.Event()
    line = sh("echo begun ; sleep 60", timeout_ms=60_000)
    task = asyncio.create_task(sandbox.run("k", place, line, lambda _: reported.set()))
    first_output = asyncio.create_task(reported.wait())
    await asyncio.wait({task, first_output}, return_when=asyncio.FIRST_COMPLETED)
    first_output.cancel()
    assert not task.done(), task.result()
    return task


async def test_a_command_ends_with_its_code_and_its_output(sandbox: Sandbox, place: SandboxSpec) -> None:
    finished = await sandbox.run("k", place, sh("echo hello"))
    assert (finished.exit_code, finished.stdout.head, finished.stopped) == (0, b"hello\n", "")
    assert (await sandbox.run("k", place, sh("exit 7"))).exit_code == 7


async def test_a_program_is_run_without_a_shell(sandbox: Sandbox, place: SandboxSpec) -> None:
    finished = await sandbox.run("k", place, Command(argv=("echo", "$HOME;", "a  b"), timeout_ms=20_000))
    assert finished.stdout.head == b"$HOME; a  b\n" and finished.stderr.head == b""


async def test_standard_input_reaches_the_command(sandbox: Sandbox, place: SandboxSpec) -> None:
    content = bytes(range(256)) * 2000
    finished = await sandbox.run("k", place, Command(argv=("cat",), stdin=content, timeout_ms=20_000))
    assert finished.stdout.head == content and finished.stdout.dropped_bytes == 0


async def test_files_stay_in_the_folder_and_commands_start_in_their_working_directory(
    sandbox: Sandbox, place: SandboxSpec
) -> None:
    command = Command(argv=("tee", "note"), stdin=b"kept", working_dir="below", timeout_ms=20_000)
    await sandbox.run("k", place, command)
    assert (place.folder / "below" / "note").read_bytes() == b"kept"
    assert (await sandbox.run("k", place, sh("cat below/note"))).stdout.head == b"kept"


async def test_a_command_is_given_its_environment(sandbox: Sandbox, place: SandboxSpec) -> None:
    command = Command(argv=("env",), environment={"COLOUR": "blue"}, timeout_ms=20_000)
    assert b"COLOUR=blue\n" in (await sandbox.run("k", place, command)).stdout.head


async def test_a_missing_program_or_folder_is_rejected_and_the_next_command_runs(
    sandbox: Sandbox, place: SandboxSpec
) -> None:
    for command in (
        Command(argv=("no-such-program",), timeout_ms=20_000),
        Command(argv=("cat",), working_dir="nowhere", timeout_ms=20_000),
    ):
        with pytest.raises(WonderError) as problem:
            await sandbox.run("k", place, command)
        assert problem.value.fault.reason is Reason.INPUT_INVALID and not problem.value.fault.transient
    assert (await sandbox.run("k", place, sh("echo on"))).stdout.head == b"on\n"


async def test_output_is_reported_as_it_arrives(sandbox: Sandbox, place: SandboxSpec) -> None:
    reported: list[bytes] = []
    await sandbox.run("k", place, sh("echo soon"), reported.append)
    assert b"".join(reported) == b"soon\n"


async def test_the_middle_of_too_much_output_is_dropped(sandbox: Sandbox, place: SandboxSpec) -> None:
    reported: list[bytes] = []
    content = b"".join(b"%07d\n" % number for number in range(10_000))
    command = Command(argv=("cat",), stdin=content, timeout_ms=20_000, max_output_bytes=1000)
    output = (await sandbox.run("k", place, command, reported.append)).stdout
    assert output.head == content[:1000] == b"".join(reported)
    assert output.tail and len(output.tail) <= 250 and content.endswith(output.tail)
    assert output.dropped_bytes == len(content) - 1000 - len(output.tail)


async def test_a_command_with_endless_output_is_killed(sandbox: Sandbox, place: SandboxSpec) -> None:
    finished = await sandbox.run("k", place, sh("yes", max_output_bytes=5000))
    assert (finished.stopped, finished.exit_code) == ("output", 137)
    assert len(finished.stdout.head) == 5000


async def test_a_command_is_killed_at_its_timeout(sandbox: Sandbox, place: SandboxSpec) -> None:
    finished = await sandbox.run("k", place, sh("sleep 60", timeout_ms=50))
    assert (finished.stopped, finished.exit_code) == ("timeout", 137)
    assert (await sandbox.run("k", place, sh("echo on"))).stdout.head == b"on\n"


async def test_commands_of_one_key_run_in_turn_and_of_two_keys_concurrently(
    sandbox: Sandbox, place: SandboxSpec
) -> None:
    running = await begun(sandbox, place)
    after = asyncio.create_task(sandbox.run("k", place, sh("echo after")))
    assert (await sandbox.run("other", place, sh("echo beside"))).stdout.head == b"beside\n"
    assert not after.done() and not running.done()
    running.cancel()
    assert (await after).stdout.head == b"after\n"


async def test_a_cancelled_command_is_killed_and_the_next_runs(sandbox: Sandbox, place: SandboxSpec) -> None:
    running = await begun(sandbox, place)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert (await sandbox.run("k", place, sh("echo on"))).stdout.head == b"on\n"


async def test_releasing_a_sandbox_fails_its_running_command(sandbox: Sandbox, place: SandboxSpec) -> None:
    running = await begun(sandbox, place)
    await sandbox.release("k")
    with pytest.raises(WonderError) as problem:
        await running
    assert problem.value.fault.transient
    await sandbox.release("never seen")
    assert (await sandbox.run("k", place, sh("echo on"))).stdout.head == b"on\n"


async def test_a_closed_sandbox_rejects_commands(sandbox: Sandbox, place: SandboxSpec) -> None:
    await sandbox.close()
    with pytest.raises(NotStartedError) as problem:
        await sandbox.run("k", place, sh("echo no"))
    assert problem.value.fault.reason is Reason.SERVER_DRAINING


async def test_a_command_that_cannot_start_in_time_is_not_started(
    sandbox: Sandbox, place: SandboxSpec
) -> None:
    running = await begun(sandbox, place)
    with pytest.raises(NotStartedError):
        await sandbox.run("k", place, sh("echo late", timeout_ms=20))
    running.cancel()
    await asyncio.wait({running})


@pytest.mark.parametrize("wrong", [Command(argv=("echo", "\0"), timeout_ms=9_000)])
async def test_invalid_arguments_are_rejected(sandbox: Sandbox, place: SandboxSpec, wrong: Command) -> None:
    if isinstance(sandbox, MemorySandbox):
        return
    with pytest.raises(WonderError) as problem:
        await sandbox.run("k", place, wrong)
    assert problem.value.fault.reason is Reason.INPUT_INVALID
