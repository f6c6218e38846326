"""A workflow for a look at what it puts out: the real loop, and nothing of it stays."""

from __future__ import annotations

import asyncio

import pytest

from tests.core.conversation.conversation_kit import pin, task, workflow
from wonder_server.actors.dispatch.dry_run import DryRuns
from wonder_server.adapters.in_memory.journal import MemoryJournal
from wonder_server.core.actor.commands import Scope
from wonder_server.core.definitions.specs import (
    Action,
    Node,
    PinnedTask,
    PinnedWorkflow,
    Step,
    Task,
    Wait,
    Workflow,
)
from wonder_server.core.errors import Fault, Reason, WonderError
from wonder_server.core.json_types import JsonDict, JsonObject


class Clock:
    def now_ms(self) -> int:
        return 1_700_000_000_000 + int(asyncio.get_running_loop().time() * 1000)


class Ended:
    def __init__(self, output: JsonDict | None, fault: Fault | None) -> None:
        self.output, self.fault = output, fault


class Tasks:
    """A task that returns its input, after the given number of failures."""

    def __init__(self, fault: Fault | None = None) -> None:
        self.fault = fault
        self.done: list[str] = []
        self.scopes: list[Scope] = []

    async def execute(self, task: PinnedTask, input: JsonObject, context: Scope, *_: object) -> Ended:
        self.done.append(task.pin.name)
        self.scopes.append(context)
        await asyncio.sleep(0)
        return Ended(None, self.fault) if self.fault else Ended({"seen": dict(input)}, None)

    def execute_inline(self, *_: object) -> None:
        return None


def flow(*nodes: Node, tasks: dict[str, PinnedTask] | None = None, **inner: object) -> PinnedWorkflow:
    spec = Workflow(nodes=nodes, initial_node_id=nodes[0].id)
    return PinnedWorkflow(pin=pin("w"), spec=spec, tasks=tasks or {}, **inner)


LOOK = Node(
    id="look",
    task_id="t",
    input_mapping={"message": "input.message"},
    output_mapping={"output.seen": "result.seen.message"},
)


async def run(pinned: PinnedWorkflow, tasks: Tasks, timeout_ms: int = 5_000) -> JsonDict:
    dry_runs = DryRuns(tasks, Clock(), MemoryJournal)  # type: ignore[arg-type]
    return await dry_runs.run(pinned, {"message": "hello"}, Scope(agent_id="agt_1"), timeout_ms)


async def reason(pinned: PinnedWorkflow, tasks: Tasks, timeout_ms: int = 5_000) -> Fault:
    with pytest.raises(WonderError) as refused:
        await run(pinned, tasks, timeout_ms)
    return refused.value.fault


async def test_a_dry_run_returns_the_workflows_output() -> None:
    tasks = Tasks()
    assert await run(flow(LOOK, tasks={"t": task()}), tasks) == {"seen": "hello"}
    assert [scope.agent_id for scope in tasks.scopes] == ["agt_1"]


async def test_a_dry_run_executes_sub_workflows() -> None:
    outer = Node(
        id="inner",
        workflow_id="i",
        input_mapping={"message": "input.message"},
        output_mapping={"output.seen": "result.seen"},
    )
    inner = flow(LOOK, tasks={"t": task()})
    assert await run(flow(outer, workflows={"i": inner}), Tasks()) == {"seen": "hello"}


async def test_a_dry_run_fails_with_the_runs_fault() -> None:
    fault = Fault(reason=Reason.TASK_FAILED, message="It cannot be done.")
    result = await reason(flow(LOOK, tasks={"t": task()}), Tasks(fault))
    assert "It cannot be done." in result.message


@pytest.mark.parametrize("kind", ["memory.write", "mcp", "worker", "shell"])
async def test_an_action_with_side_effects_is_not_executed(kind: str) -> None:
    tasks = Tasks()
    result = await reason(flow(LOOK, tasks={"t": task(action=kind)}), tasks)
    assert "may change something" in result.message and not tasks.done


@pytest.mark.parametrize(
    ("method", "mapped", "done"),
    [("GET", False, True), ("head", False, True), ("POST", False, False), ("GET", True, False)],
)
async def test_only_reading_requests_are_executed(method: str, mapped: bool, done: bool) -> None:
    mapping = {"method": "'POST'"} if mapped else {}
    step = Step(id="s", action=Action(kind="http", config={"method": method}), input_mapping=mapping)
    tasks = Tasks()
    fetched = PinnedTask(pin=pin("t"), spec=Task(steps=(step,)))
    if done:
        await run(flow(LOOK, tasks={"t": fetched}), tasks)
    else:
        await reason(flow(LOOK, tasks={"t": fetched}), tasks)
    assert bool(tasks.done) is done


async def test_no_agent_is_called() -> None:
    result = await reason(flow(Node(id="ask", agent_id="a"), agents={"a": "agt_2"}), Tasks())
    assert "calls an agent" in result.message


async def test_a_workflow_that_does_not_end_times_out() -> None:
    result = await reason(flow(Node(id="wait", wait=Wait(signal="never"))), Tasks(), 50)
    assert result.reason is Reason.TIMEOUT
    assert workflow().pin.name == "w"
