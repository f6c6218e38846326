"""Shared parts of the conversation planner's tests: agents, results, and a conversation driven by hand."""

from __future__ import annotations

from collections.abc import Coroutine, Iterable
from typing import Any, TypeVar

from tests.replacing import replace
from wonder_server.core.actor.commands import Parent
from wonder_server.core.conversation.model import inputs
from wonder_server.core.conversation.model.decisions import Decision, MeasureWaits, Refuse
from wonder_server.core.conversation.model.state import ConversationState
from wonder_server.core.conversation.model.values import (
    TURN_RULES,
    Caller,
    Conversation,
    Operation,
    OperationKind,
    Participant,
    Turn,
)
from wonder_server.core.conversation.output.decision_table import apply
from wonder_server.core.conversation.planner import CONVERSATION
from wonder_server.core.definitions.specs import (
    Action,
    Constraints,
    ContextWindow,
    ModelProfile,
    Node,
    Persona,
    Pin,
    PinnedAgent,
    PinnedProfile,
    PinnedTask,
    PinnedTool,
    PinnedWorkflow,
    Retry,
    Step,
    Task,
    Tool,
    WindowStrategy,
    Workflow,
)
from wonder_server.core.errors import Fault, Reason
from wonder_server.core.json_types import JsonDict, JsonValue
from wonder_server.core.model import ModelResult, ToolCall, Usage

T = TypeVar("T")

NOW = 1_700_000_000_000
CONVERSATION_ID = "conv_01HF7YAT0000000000000000A0"
TEXT = {"type": "object", "properties": {"q": {"type": "string"}}, "required": ["q"]}


def pin(name: str) -> Pin:
    return Pin(definition_id=f"def_{name}", library="team", name=name, revision=1)


def task(name: str = "t", action: str = "context") -> PinnedTask:
    """Return a task of one step; with ``shell`` it is not repeatable."""
    return PinnedTask(pin=pin(name), spec=Task(steps=(Step(id="s", action=Action(kind=action)),)))


def workflow(name: str = "w", action: str = "context") -> PinnedWorkflow:
    """Return a workflow of one node."""
    spec = Workflow(nodes=(Node(id="n", task_id="t"),), initial_node_id="n")
    return PinnedWorkflow(pin=pin(name), spec=spec, tasks={"t": task(action=action)})


def tool(name: str, *, attempts: int = 1, action: str = "context", **spec: Any) -> PinnedTool:
    """Return a tool bound to a task."""
    spec.setdefault("input_schema", TEXT)
    declared = Tool(
        name=name,
        description=name,
        target_type="task",
        target_id="t",
        retry=Retry(max_attempts=attempts, backoff_ms=100, timeout_ms=10_000),
        **spec,
    )
    return PinnedTool(pin=pin(name), spec=declared, task=task(action=action))


def flow_tool(name: str, *, attempts: int = 1, is_async: bool = False) -> PinnedTool:
    """Return a tool bound to a workflow."""
    declared = Tool(
        name=name,
        description=name,
        target_type="workflow",
        target_id="w",
        input_schema={"type": "object"},
        is_async=is_async,
        retry=Retry(max_attempts=attempts, backoff_ms=100, timeout_ms=20_000),
    )
    return PinnedTool(pin=pin(name), spec=declared, workflow=workflow())


def agent_tool(name: str, *, agent_id: str = "agt_2", attempts: int = 1, **spec: Any) -> PinnedTool:
    """Return a tool bound to another agent."""
    spec.setdefault("input_schema", TEXT)
    declared = Tool(
        name=name,
        description=name,
        target_type="agent",
        target_id="expert",
        retry=Retry(max_attempts=attempts, backoff_ms=100, timeout_ms=30_000),
        **spec,
    )
    return PinnedTool(pin=pin(name), spec=declared, agent_id=agent_id)


TOOLS = (
    tool("find"),
    tool("retried", attempts=2),
    tool("once", action="shell"),
    tool("mapped", input_mapping={"query": "input.q"}),
    tool("broken", input_mapping={"query": "input.absent.deep"}),
    flow_tool("flow", attempts=2),
    agent_tool("peer", attempts=2),
    agent_tool("guest", invocation_mode="loop_in"),
    agent_tool("gone", agent_id=""),
    agent_tool("mirror", agent_id="agt_1"),
    tool("slow", attempts=2, is_async=True),
    flow_tool("slow_flow", is_async=True),
    agent_tool("slow_peer", is_async=True),
)


def agent(
    *,
    tools: tuple[PinnedTool, ...] = TOOLS,
    max_moves: int = 20,
    extraction: bool = True,
    dialect: str = "openai_chat",
    context: int = 0,
    summarize: bool = False,
    **constraints: Any,
) -> PinnedAgent:
    limits = Constraints(max_moves_per_turn=max_moves, **constraints)
    strategy = WindowStrategy.SUMMARIZE if summarize else WindowStrategy.SLIDING_WINDOW
    window = ContextWindow(strategy=strategy, keep_recent_messages=1)
    persona = Persona(system_prompt="Be brief.", constraints=limits, context_window=window)
    profile = ModelProfile(provider="offline", model="m", format=dialect, context_window_tokens=context)
    return PinnedAgent(
        agent_id="agt_1",
        name="helper",
        project_ids=("proj_1",),
        persona=persona,
        profile=PinnedProfile(pin=pin("profile"), spec=profile),
        tools=tools,
        assembly=workflow("assembly"),
        extraction=workflow("extraction") if extraction else None,
        summary=workflow("summary") if summarize else None,
    )


def new_conversation(conversation_id: str = CONVERSATION_ID) -> inputs.Create:
    helper = Participant(type="agent", id="agt_1", name="helper", joined_ms=NOW)
    conversation = Conversation(
        id=conversation_id, project_id="proj_1", participants=(helper,), created_ms=NOW, updated_ms=NOW
    )
    return inputs.Create(conversation=conversation)


def send(seed: str = "seed", content: str = "hello", **fields: Any) -> inputs.Send:
    chosen = fields.pop("agent", None) or agent(**fields)
    ann = Caller(user_id="ann")
    return inputs.Send(seed=seed, agent=chosen, caller=ann, content=content, rules=TURN_RULES)


RUN_ID = "run_01HF7YAT0000000000000000R0"


def called(operation_id: str = "op_parent", *, loop_in: bool = False, **fields: Any) -> inputs.Send:
    """Return the input of a turn that an operation of a run waits for."""
    return replace(
        send(f"seed of {operation_id}", **fields),
        caller=Caller(type="workflow", run_id=RUN_ID),
        parent=Parent(actor_id=RUN_ID, operation_id=operation_id),
        loop_in=loop_in,
    )


def call(name: str, call_id: str = "call_1", arguments: JsonDict | None = None) -> ToolCall:
    return ToolCall(id=call_id, name=name, arguments={"q": "x"} if arguments is None else arguments)


def text_answer(text: str, *calls: ToolCall) -> ModelResult:
    raw: JsonDict = {"role": "assistant", "content": text}
    if calls:
        raw["tool_calls"] = [{"id": call.id, "name": call.name} for call in calls]
    return ModelResult(text=text, tool_calls=calls, raw=raw, usage=Usage(input_tokens=3, output_tokens=2))


ASSEMBLED = {"request": {"messages": [{"role": "user", "content": "hello"}]}}

TRANSIENT = Fault(reason=Reason.MODEL_UNAVAILABLE, message="Busy.", transient=True)
BUSINESS = Fault(reason=Reason.TASK_FAILED, message="It cannot be done.")


class Driven:
    """A conversation driven by hand. Each step plans twice, compares the decisions and applies them."""

    def __init__(self, **agent_fields: Any) -> None:
        self.state = ConversationState()
        self.now = NOW
        self.decided: list[Decision] = []
        self.step(new_conversation())
        if agent_fields.pop("begin", True):
            self.step(send(**agent_fields))

    def step(self, event: inputs.Input, *, after_ms: int = 1) -> tuple[Decision, ...]:
        self.now += after_ms
        decisions = CONVERSATION.plan(self.state, event, self.now)
        assert CONVERSATION.plan(self.state, event, self.now) == decisions
        for decision in decisions:
            apply(self.state, decision)
        self.decided.extend(decisions)
        return decisions

    def pending(self, kind: OperationKind) -> Operation:
        """Return the only pending operation of this kind."""
        (found,) = (op for op in self.state.operations.values() if op.kind is kind)
        return found

    def succeed(self, kind: OperationKind, output: JsonValue = None) -> tuple[Decision, ...]:
        return self.step(inputs.Succeeded(operation_id=self.pending(kind).id, output=output))

    def fail(self, kind: OperationKind, fault: Fault) -> tuple[Decision, ...]:
        return self.step(inputs.Failed(operation_id=self.pending(kind).id, fault=fault))

    def answer(self, result: ModelResult) -> tuple[Decision, ...]:
        return self.step(
            inputs.ModelAnswered(operation_id=self.pending(OperationKind.MODEL).id, result=result)
        )

    def wait_for_timer(self, kind: OperationKind) -> tuple[Decision, ...]:
        """Advance the time to the operation's timer."""
        operation = self.pending(kind)
        self.now = max(self.now, operation.wake_ms)
        decisions = self.step(inputs.TimerFired(operation_id=operation.id), after_ms=0)
        if any(isinstance(each, MeasureWaits) for each in decisions):
            # The work has not waited for a person.
            return self.step(inputs.WaitsMeasured(operation_id=operation.id, waited_ms=0), after_ms=0)
        return decisions

    @property
    def turn(self) -> Turn:
        """Return the last turn."""
        return list(self.state.turns.values())[-1]

    def operation(self, tool_name: str) -> Operation:
        """Return the only pending operation of this tool."""
        (found,) = (op for op in self.state.operations.values() if op.tool_name == tool_name)
        return found

    def complete(
        self, tool_name: str, output: JsonValue = None, fault: Fault | None = None
    ) -> tuple[Decision, ...]:
        """Report the tool's output, or its fault."""
        operation_id = self.operation(tool_name).id
        if fault is not None:
            return self.step(inputs.Failed(operation_id=operation_id, fault=fault))
        return self.step(inputs.Succeeded(operation_id=operation_id, output=output))

    def complete_by_id(self, operation_id: str, output: JsonValue = None) -> tuple[Decision, ...]:
        """Report the operation's output."""
        return self.step(inputs.Succeeded(operation_id=operation_id, output=output))

    def request(self) -> JsonDict:
        return self.state.requests[self.turn.id].body


def assembled(**fields: Any) -> Driven:
    """Return a conversation whose turn has its context and a pending model call."""
    driven = Driven(**fields)
    driven.succeed(OperationKind.ASSEMBLY, ASSEMBLED)
    return driven


def commands(driven: Driven, decisions: Iterable[Decision]) -> list[Any]:
    """Return the commands of the decisions."""
    return [command for decision in decisions for command in CONVERSATION.commands(driven.state, decision)]


def rejection(driven: Driven, event: inputs.Input) -> Reason:
    """Return the reason for which the planner rejects the input."""
    (decision,) = driven.step(event)
    assert isinstance(decision, Refuse)
    return decision.fault.reason


def kinds(decisions: tuple[Decision, ...]) -> list[str]:
    return [type(decision).__name__ for decision in decisions]


def run_without_waiting(work: Coroutine[Any, Any, T]) -> T:
    """Return the result of a coroutine that never waits."""
    try:
        work.send(None)
    except StopIteration as end:
        result: T = end.value
        return result
    raise AssertionError("it waited")
