"""The action ``mcp``: servers and results of tools (feature H3)."""

from __future__ import annotations

from typing import NoReturn

import pytest

from tests.views import ForAll
from wonder_server.core.definitions.resources import NetworkPolicy
from wonder_server.core.definitions.specs import Action, ModelProfile, Pin, PinnedTask, Step, Task
from wonder_server.core.errors import Fault, Reason, WonderError, error
from wonder_server.core.json_types import JsonDict, JsonValue
from wonder_server.core.schema.schemas import validate
from wonder_server.core.task.outcome_errors import NotStartedError
from wonder_server.ports.mcp import McpCall, McpProgressCallback, McpResult
from wonder_server.services.actions import (
    ACTIONS,
    ActionCall,
    ExecutionContext,
    ModelAccess,
    NetworkAccess,
    Services,
)
from wonder_server.services.tasks.executor import Executor, StepProgress, TaskOutcome

CONTEXT = ExecutionContext(project_id="proj_1", key="op_1/node")
POLICY = NetworkPolicy(http_allow=("mcp.internal",))


class Nothing:
    """A service that ``mcp`` does not use: it fails on every use."""

    def __getattr__(self, name: str) -> NoReturn:
        raise AssertionError(name)


class Clock:
    def now_ms(self) -> int:
        return 1_000


class Policies:
    async def network_policy(self, project_id: str) -> NetworkPolicy:
        assert project_id == "proj_1"
        return POLICY


class ScriptedMcp:
    """An MCP client that returns given answers in order, and repeats the last."""

    def __init__(self, *answers: McpResult | WonderError) -> None:
        self._answers = list(answers)
        self.asked: list[tuple[McpCall, NetworkPolicy]] = []

    async def call(
        self, call: McpCall, policy: NetworkPolicy, progress: McpProgressCallback | None = None
    ) -> McpResult:
        self.asked.append((call, policy))
        if progress is not None:
            progress("begun", 0.5)
        answer = self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
        if isinstance(answer, WonderError):
            raise answer
        return answer

    async def close(self) -> None: ...


def said(*texts: str, structured: JsonValue = None, is_error: bool = False) -> McpResult:
    content = [{"type": "text", "text": text} for text in texts]
    return McpResult(content=content, structured=structured, is_error=is_error)


def services(mcp: ScriptedMcp) -> Services:
    return Services(
        models=ModelAccess(model=Nothing(), default_profile=ModelProfile(provider="offline")),
        memory=Nothing(),
        history=Nothing(),
        network=NetworkAccess(web=Nothing(), mcp=mcp, policies=Policies()),
        clock=Clock(),
    )


async def run(mcp: ScriptedMcp, **input: JsonValue) -> JsonValue:
    assert validate(ACTIONS["mcp"].input_schema, input) == []
    result = await ACTIONS["mcp"].run(ActionCall(input=input, context=CONTEXT, services=services(mcp)))
    assert validate(ACTIONS["mcp"].output_schema, result) == []
    return result


async def fault(mcp: ScriptedMcp, **input: JsonValue) -> Fault:
    with pytest.raises(WonderError) as caught:
        await run(mcp, **input)
    return caught.value.fault


async def test_a_named_server_is_called_with_the_steps_key_and_needs_no_policy() -> None:
    mcp = ScriptedMcp(said("one", "two", structured={"n": 1}))
    result = await run(mcp, server="files", tool="read", arguments={"path": "a"})
    assert result == {
        "content": [{"type": "text", "text": "one"}, {"type": "text", "text": "two"}],
        "text": "one\ntwo",
        "structured": {"n": 1},
        "is_error": False,
    }
    wanted = McpCall(server="files", tool="read", arguments={"path": "a"}, key="op_1/node")
    assert mcp.asked == [(wanted, NetworkPolicy())]


async def test_a_url_is_called_as_the_project_allows() -> None:
    mcp = ScriptedMcp(said())
    await run(mcp, url="https://mcp.internal/mcp", headers={"Authorization": "Bearer x"}, tool="read")
    [(call, policy)] = mcp.asked
    assert (call.url, call.headers, policy) == (
        "https://mcp.internal/mcp",
        {"Authorization": "Bearer x"},
        POLICY,
    )


@pytest.mark.parametrize(
    ("wrong", "field"),
    [
        ({}, "server"),
        ({"server": "", "url": ""}, "server"),
        ({"server": "files", "url": "https://a.b/"}, "url"),
        ({"server": "files", "headers": {"Authorization": "x"}}, "headers"),
    ],
)
async def test_a_call_says_which_server_in_one_way(wrong: JsonDict, field: str) -> None:
    refused = await fault(ScriptedMcp(said()), tool="read", **wrong)
    assert (refused.reason, refused.field) == (Reason.INPUT_INVALID, field)


@pytest.mark.parametrize(
    "wrong",
    [
        {"server": "files"},
        {"server": "files", "tool": ""},
        {"server": "files", "tool": "read", "arguments": []},
        {"url": "https://a.b/", "tool": "read", "headers": {"a": "b\r\nc: d"}},
        {"command": "rm", "args": ["-rf", "/"], "tool": "read"},
    ],
)
def test_an_input_that_is_no_call_does_not_fit_the_schema(wrong: JsonDict) -> None:
    assert validate(ACTIONS["mcp"].input_schema, wrong)


async def test_an_error_of_the_tool_fails_the_step_with_its_words() -> None:
    refused = await fault(ScriptedMcp(said("x" * 5_000, is_error=True)), server="files", tool="read")
    assert (refused.reason, refused.transient) == (Reason.TASK_FAILED, False)
    assert refused.message.startswith("The tool 'read' failed: xxx") and len(refused.message) < 1_100
    refused = await fault(ScriptedMcp(said(is_error=True)), server="files", tool="read")
    assert refused.message == "The tool 'read' failed: no reason was given"


async def test_an_error_of_the_tool_can_be_a_result() -> None:
    result = await run(
        ScriptedMcp(said("no", is_error=True)), server="files", tool="read", fail_on_error=False
    )
    assert (result["text"], result["is_error"]) == ("no", True)


BROKEN = error(Reason.TASK_FAILED, "The MCP server went away.", transient=True)
LATE = error(Reason.TIMEOUT, "The MCP server has not answered.", transient=True)
SILENT = error(Reason.TIMEOUT, "The MCP server has not begun a session.")
UNREACHED = NotStartedError(Reason.TASK_FAILED, "It does not start.")


@pytest.mark.parametrize(
    ("idempotent", "answer", "tries", "reason"),
    [
        (None, BROKEN, 1, Reason.OUTCOME_UNKNOWN),
        (False, BROKEN, 1, Reason.OUTCOME_UNKNOWN),
        (True, BROKEN, 2, None),
        (None, UNREACHED, 2, None),
        (True, said("no", is_error=True), 1, Reason.TASK_FAILED),
        (True, LATE, 1, Reason.TIMEOUT),
        (None, LATE, 1, Reason.OUTCOME_UNKNOWN),
        (None, SILENT, 1, Reason.TIMEOUT),
    ],
)
async def test_a_failed_call_is_retried_if_it_is_repeatable_or_was_not_started(
    idempotent: bool | None, answer: McpResult | WonderError, tries: int, reason: Reason | None
) -> None:
    mcp = ScriptedMcp(answer, said("done"))
    outcome, progress = await executed(mcp, idempotent)
    assert len(mcp.asked) == tries
    assert (outcome.fault.reason if outcome.fault else None) is reason
    assert progress == [StepProgress(step_id="call", message="begun", fraction=0.5)] * tries


async def executed(mcp: ScriptedMcp, idempotent: bool | None) -> tuple[TaskOutcome, list[StepProgress]]:
    """Execute the action as a step of a task. Return the outcome and the reported progress."""

    async def sleep(seconds: float) -> None: ...

    action = Action(kind="mcp", config={"server": "files", "tool": "read"}, idempotent=idempotent)
    pin = Pin(definition_id="def_1", library="demo", name="t", revision=1)
    task = PinnedTask(pin=pin, spec=Task(steps=(Step(id="call", action=action),)))
    progress: list[object] = []
    outcome = await Executor(ForAll(services(mcp)), services(mcp).clock, sleep=sleep).execute(
        task, {}, CONTEXT, progress.append
    )
    return outcome, [each for each in progress if isinstance(each, StepProgress)]
