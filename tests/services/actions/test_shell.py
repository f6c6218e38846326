"""The action ``shell``: its commands to the sandbox and their outcomes (feature F4)."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

import pytest
import yaml

from tests.paths import ROOT
from tests.services.catalog.library_kit import make
from tests.views import ForAll
from wonder_server.adapters.in_memory.catalog import MemoryCatalog
from wonder_server.adapters.in_memory.sandbox import MemorySandbox
from wonder_server.core.actor.commands import Scope
from wonder_server.core.definitions.document import parse_draft
from wonder_server.core.definitions.resources import NetworkPolicy
from wonder_server.core.definitions.specs import Action, ModelProfile, Pin, PinnedTask, Step, Task
from wonder_server.core.errors import Fault, Reason, WonderError, error
from wonder_server.core.json_types import JsonDict, JsonValue
from wonder_server.core.schema.schemas import validate
from wonder_server.core.task.outcome_errors import NotStartedError
from wonder_server.ports.sandbox import Command, Finished, Output, OutputCallback, SandboxSpec
from wonder_server.ports.worktrees import Worktree
from wonder_server.services.actions import (
    ACTIONS,
    ActionCall,
    ExecutionAccess,
    ExecutionContext,
    ModelAccess,
    NetworkAccess,
    Services,
)
from wonder_server.services.actions.external import shell as action
from wonder_server.services.tasks.executor import Executor, StepProgress, TaskOutcome

CONTEXT = ExecutionContext(project_id="proj_1", conversation_id="conv_1", key="op_1/node")


class Nothing:
    """A service that ``shell`` does not use: it fails on every use."""

    def __getattr__(self, name: str) -> NoReturn:
        raise AssertionError(name)


class Clock:
    def now_ms(self) -> int:
        return 1_000


class Policies:
    def __init__(self, network: bool) -> None:
        self._policy = NetworkPolicy(shell_network=network)

    async def network_policy(self, project_id: str) -> NetworkPolicy:
        assert project_id == "proj_1"
        return self._policy


class Folders:
    """Worktrees in one folder. With ``never``, `open` does not return."""

    def __init__(self, folder: Path, *, never: bool = False) -> None:
        self._folder, self._never = folder, never
        (folder / "repo").mkdir(exist_ok=True)

    async def open(self, scope: Scope) -> Worktree:
        assert scope.conversation_id == "conv_1"
        if self._never:
            await asyncio.Event().wait()
        return Worktree(key="conv_1", folder=self._folder, working_dir="repo")

    def command_finished(self, key: str) -> None: ...


class ScriptedSandbox:
    """A sandbox that returns a given answer and records commands."""

    def __init__(self, answer: Finished | WonderError, *said: bytes) -> None:
        self._answer, self._said = answer, said
        self.asked: list[tuple[str, SandboxSpec, Command]] = []

    async def run(
        self, key: str, spec: SandboxSpec, command: Command, on_output: OutputCallback | None = None
    ) -> Finished:
        self.asked.append((key, spec, command))
        for chunk in self._said:
            if on_output is not None:
                on_output(chunk)
        if isinstance(self._answer, WonderError):
            raise self._answer
        return self._answer

    async def release(self, key: str) -> None: ...

    async def close(self) -> None: ...


Sandboxes = MemorySandbox | ScriptedSandbox


@pytest.fixture
def make_services(tmp_path: Path) -> Callable[..., Services]:
    def made(sandbox: Sandboxes | None, *, network: bool = False, never: bool = False) -> Services:
        nothing: Any = Nothing()
        return Services(
            models=ModelAccess(model=nothing, default_profile=ModelProfile(provider="offline")),
            memory=nothing,
            history=nothing,
            network=NetworkAccess(web=nothing, mcp=nothing, policies=Policies(network)),
            clock=Clock(),
            execution=ExecutionAccess(sandbox=sandbox, worktrees=Folders(tmp_path, never=never)),
        )

    return made


MakeServices = Callable[..., Services]


async def run(services: Services, *, timeout_ms: int = 20_000, **input: JsonValue) -> JsonValue:
    assert validate(ACTIONS["shell"].input_schema, input) == []
    call = ActionCall(input=input, context=CONTEXT, services=services, timeout_ms=timeout_ms)
    result = await ACTIONS["shell"].run(call)
    assert validate(ACTIONS["shell"].output_schema, result) == []
    return result


async def fault(services: Services, **input: JsonValue) -> Fault:
    with pytest.raises(WonderError) as caught:
        await run(services, **input)
    return caught.value.fault


def ended(code: int = 0, text: str = "", *, stopped: str = "") -> Finished:
    return Finished(exit_code=code, stdout=Output(head=text.encode()), stopped=stopped, duration_ms=5)


async def test_a_command_runs_in_the_folder_of_its_branch(
    make_services: MakeServices, tmp_path: Path
) -> None:
    services = make_services(MemorySandbox())
    (tmp_path / "repo" / "note").write_text("hello")
    result = await run(services, command="cat note")
    assert result.pop("duration_ms") >= 0
    assert result == {"exit_code": 0, "output": "hello", "dropped_bytes": 0, "stopped": ""}


async def test_the_sandbox_receives_the_command_with_its_options(
    make_services: MakeServices, tmp_path: Path
) -> None:
    sandbox = ScriptedSandbox(ended())
    await run(
        make_services(sandbox, network=True),
        command="make é", folder="other/place", stdin="y\n", timeout_ms=500,
        environment={"A": "b"}, max_output_bytes=10,
    )  # fmt: skip
    wanted = Command(
        argv=("/bin/sh", "-c", "make é"), timeout_ms=500, working_dir="other/place", stdin=b"y\n",
        environment={"A": "b"}, max_output_bytes=10, merge_stderr=True,
    )  # fmt: skip
    place = SandboxSpec(folder=tmp_path, network=NetworkPolicy(shell_network=True))
    assert sandbox.asked == [("conv_1", place, wanted)]


async def test_the_network_is_the_project_s_to_allow_and_time_is_the_action_s(
    make_services: MakeServices,
) -> None:
    sandbox = ScriptedSandbox(ended())
    await run(make_services(sandbox), command="x", timeout_ms=800)
    [(_, place, command)] = sandbox.asked
    assert not place.network and command.timeout_ms == 800 and command.working_dir == "repo"
    call = ActionCall(
        input={"command": "x", "timeout_ms": 10**9},
        context=CONTEXT,
        services=make_services(sandbox),
        timeout_ms=700,
    )
    await ACTIONS["shell"].run(call)
    assert sandbox.asked[1][2].timeout_ms == 700


async def test_an_exit_code_is_a_result_unless_the_step_says_otherwise(make_services: MakeServices) -> None:
    services = make_services(ScriptedSandbox(ended(3, "boom\n")))
    assert (await run(services, command="x"))["exit_code"] == 3
    failed = await fault(services, command="x", fail_on_exit=True)
    assert (failed.reason, failed.transient) == (Reason.TASK_FAILED, False)
    assert "exit code is 3" in failed.message and "boom" in failed.message


@pytest.mark.parametrize(
    "said",
    [
        "curl: (6) Could not resolve host: pypi.org",
        "fatal: unable to access 'https://x/': Could not resolve proxy: y",
        "ping: x: Temporary failure in name resolution",
        "connect: Network is unreachable",
        "dial tcp: lookup x: no such host",
        "npm ERR! getaddrinfo EAI_AGAIN registry",
    ],
)
async def test_a_command_that_fails_without_a_network_names_the_cause_and_the_remedy(
    make_services: MakeServices, said: str
) -> None:
    remedy = "`wonder project shell proj_1 on`"
    services = make_services(ScriptedSandbox(ended(6, said)))
    assert remedy in (await run(services, command="x"))["hint"]
    assert remedy in (await fault(services, command="x", fail_on_exit=True)).message
    timed_out = make_services(ScriptedSandbox(ended(137, said, stopped="timeout")))
    assert remedy in (await fault(timed_out, command="x")).message
    allowed = make_services(ScriptedSandbox(ended(6, said)), network=True)
    assert "hint" not in await run(allowed, command="x")
    assert "hint" not in await run(make_services(ScriptedSandbox(ended(0, said))), command="x")


@pytest.mark.parametrize("stopped", ["output", "memory", "processes", "disk"])
async def test_a_limit_of_the_sandbox_is_a_result_that_says_so(
    make_services: MakeServices, stopped: str
) -> None:
    services = make_services(ScriptedSandbox(ended(137, "so far", stopped=stopped)))
    result = await run(services, command="x")
    assert (result["stopped"], result["exit_code"], result["output"]) == (stopped, 137, "so far")
    assert action._EXITS[stopped] in (await fault(services, command="x", fail_on_exit=True)).message


async def test_a_timeout_is_a_fault_with_the_end_of_the_output(make_services: MakeServices) -> None:
    failed = await fault(
        make_services(ScriptedSandbox(ended(137, "x" * 5000 + "the end", stopped="timeout"))), command="x"
    )
    assert (failed.reason, failed.transient) == (Reason.TIMEOUT, False)
    assert failed.message.endswith("the end") and len(failed.message) < 1200


async def test_output_is_always_valid_text(make_services: MakeServices) -> None:
    output = Output(head="é\0".encode() + b"\xff", tail=b"end", dropped_bytes=12)
    result = await run(make_services(ScriptedSandbox(Finished(exit_code=0, stdout=output))), command="x")
    assert result["output"] == "é\0\ufffd\n[12 bytes left out]\nend" and result["dropped_bytes"] == 12


@pytest.mark.parametrize(
    "wrong",
    [
        {},
        {"command": ""},
        {"command": 7},
        {"command": "x", "folder": "/etc"},
        {"command": "x", "environment": {"A=B": "x"}},
        {"command": "x", "environment": {"A": "\0"}},
        {"command": "x", "max_output_bytes": 1 << 30},
        {"command": "x", "timeout_ms": 0},
        {"command": "x", "network": True},
    ],
)
def test_an_invalid_command_does_not_fit_the_schema(wrong: JsonDict) -> None:
    assert validate(ACTIONS["shell"].input_schema, wrong)


@pytest.mark.parametrize("line", ["a\0b", "é" * 100_000, "\ud800"])
async def test_a_command_that_is_too_long_or_not_text_is_rejected(
    make_services: MakeServices, line: str
) -> None:
    failed = await fault(make_services(ScriptedSandbox(ended())), command=line)
    assert (failed.reason, failed.field) == (Reason.INPUT_INVALID, "command")


async def test_without_a_sandbox_it_is_refused(make_services: MakeServices) -> None:
    assert (await fault(make_services(None), command="x")).reason is Reason.SANDBOX_UNAVAILABLE


async def test_the_examples_of_the_guide_can_be_saved() -> None:
    guide = (ROOT / "docs" / "shell.md").read_text()
    drafts = [
        parse_draft(each)
        for text in re.findall(r"```yaml\n(.*?)```", guide, re.DOTALL)
        for each in yaml.safe_load_all(text)
    ]
    library = make(MemoryCatalog())
    await library.definitions.apply("guide", drafts)
    assert [draft.name for draft in drafts] == ["run_tests", "shell_command", "shell"]


# --- as a step of a task ------------------------------------------------------------------------


async def carried_out(
    services: Services, *, timeout_ms: int = 20_000, **settings: JsonValue
) -> tuple[TaskOutcome, list[StepProgress]]:
    made = Action(kind="shell", config={"command": "echo a"}, timeout_ms=timeout_ms, backoff_ms=1, **settings)
    pin = Pin(definition_id="def_1", library="l", name="t", revision=1)
    task = PinnedTask(pin=pin, spec=Task(steps=(Step(id="run", action=made),)))
    progress: list[object] = []
    outcome = await Executor(ForAll(services), services.clock).execute(task, {}, CONTEXT, progress.append)
    return outcome, [each for each in progress if isinstance(each, StepProgress)]


async def test_output_is_reported_as_text_and_no_character_is_cut(make_services: MakeServices) -> None:
    whole = "añb€c🎈d" * 3
    sandbox = ScriptedSandbox(ended(), *(bytes([byte]) for byte in whole.encode()))
    outcome, progress = await carried_out(make_services(sandbox))
    assert outcome.fault is None
    assert "".join(each.output for each in progress) == whole
    assert len(progress) < 4, "a few times a second is enough"


@pytest.mark.parametrize(
    ("problem", "idempotent", "reason", "tries"),
    [
        (error(Reason.TASK_FAILED, "lost", transient=True), None, Reason.OUTCOME_UNKNOWN, 1),
        (error(Reason.TASK_FAILED, "lost", transient=True), True, Reason.TASK_FAILED, 2),
        (NotStartedError(Reason.SANDBOX_UNAVAILABLE, "busy"), None, Reason.SANDBOX_UNAVAILABLE, 2),
        (error(Reason.SANDBOX_UNAVAILABLE, "none here"), None, Reason.SANDBOX_UNAVAILABLE, 1),
    ],
)
async def test_only_a_repeatable_command_is_repeated(
    make_services: MakeServices, problem: WonderError, idempotent: bool | None, reason: Reason, tries: int
) -> None:
    sandbox = ScriptedSandbox(problem)
    outcome, _ = await carried_out(make_services(sandbox), idempotent=idempotent, max_attempts=2)
    assert outcome.fault is not None and outcome.fault.reason is reason
    assert len(sandbox.asked) == tries


async def test_a_worktree_that_is_not_ready_in_time_starts_no_command(make_services: MakeServices) -> None:
    sandbox = ScriptedSandbox(ended())
    outcome, _ = await carried_out(make_services(sandbox, never=True), timeout_ms=10, max_attempts=1)
    assert outcome.fault is not None and outcome.fault.reason is Reason.TIMEOUT and not sandbox.asked


async def test_a_cancelled_task_ends_its_command(make_services: MakeServices) -> None:
    sandbox = MemorySandbox()
    services = make_services(sandbox)
    running = asyncio.create_task(run(services, command="sleep 60"))
    while not sandbox._running:  # noqa: ASYNC110 - it says nothing when it has begun
        await asyncio.sleep(0)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert not sandbox._running
    assert (await run(services, command="echo on"))["output"] == "on\n"
