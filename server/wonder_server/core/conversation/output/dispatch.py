"""Commands of decisions and of operations in the outbox.

A command follows from the state alone, so a restart dispatches the same command as the first time.
`wonder_server.core.conversation.output.decision_table` names the function of each decision class.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import assert_never

from wonder_server.core.actor.commands import (
    NO_BRANCH,
    Answer,
    ApplyMemory,
    CallAgent,
    CallModel,
    Command,
    Parent,
    ReportGate,
    RunTask,
    RunWorkflow,
    Scope,
    Stop,
)
from wonder_server.core.actor.commands import (
    MeasureWaits as MeasureWaitsCommand,
)
from wonder_server.core.actor.gates import Gate
from wonder_server.core.conversation.context.cache_breakpoints import with_breakpoints
from wonder_server.core.conversation.context.hook_inputs import assembly_input, extraction_input
from wonder_server.core.conversation.model.agent_tools import LOOP_IN, attempt_id
from wonder_server.core.conversation.model.decisions import (
    CancelOperation,
    CloseApproval,
    MeasureWaits,
    RefuseCall,
    RequestApproval,
    RetryOperation,
    ShowGate,
)
from wonder_server.core.conversation.model.speakers import user_of
from wonder_server.core.conversation.model.state import ConversationState
from wonder_server.core.conversation.model.values import Operation, OperationKind, OperationStatus, Turn
from wonder_server.core.conversation.output.state_changes import WithOperation, WithProgress
from wonder_server.core.conversation.planning.agent_calls import answer
from wonder_server.core.conversation.planning.budget_levels import budget_levels
from wonder_server.core.conversation.planning.limits import (
    RULES_OF_LIMITED_TOOLS,
    delegate_budget,
    is_last_call,
    limits_cost,
)
from wonder_server.core.conversation.planning.summarization import history_truncation, summary_input
from wonder_server.core.definitions.specs import PinnedAgent, PinnedTool, PinnedWorkflow


def start_operation(state: ConversationState, decision: WithOperation) -> Sequence[Command]:
    operation = decision.operation
    # A later decision of the same input may have ended the operation.
    return (_command(state, operation),) if operation.id in state.operations else ()


def stop_operation(_: ConversationState, decision: CancelOperation) -> Sequence[Command]:
    if decision.operation.status is OperationStatus.APPROVAL:
        return ()  # Nothing has started.
    return (Stop(operation_id=decision.operation.id, child_id=decision.operation.run_id),)


def report_gate(state: ConversationState, decision: RequestApproval | CloseApproval) -> Sequence[Command]:
    """Report the gate of a called turn to its caller."""
    return _report(state, decision.gate.turn_id, decision.gate)


def report_shown_gate(state: ConversationState, decision: ShowGate) -> Sequence[Command]:
    return _report(state, decision.turn_id, decision.gate)


def _report(state: ConversationState, turn_id: str, gate: Gate) -> Sequence[Command]:
    turn = state.turns.get(turn_id)
    if turn is None or turn.parent is None:
        return ()
    return (ReportGate(gate=gate, parent=turn.parent),)


def measure_waits(_: ConversationState, decision: MeasureWaits) -> Sequence[Command]:
    operation = decision.operation
    return (
        MeasureWaitsCommand(
            operation_id=operation.id, child_id=operation.run_id, since_ms=operation.created_ms
        ),
    )


def stop_failed_attempt(_: ConversationState, decision: RetryOperation) -> Sequence[Command]:
    return (Stop(operation_id=decision.operation.id, child_id=decision.run_id),)


def answer_parent(state: ConversationState, decision: WithProgress) -> Sequence[Command]:
    # The answer does not wait for memory extraction.
    turn, conversation = decision.turn, state.conversation
    if turn.parent is None or conversation is None:
        return ()
    return (answer(turn, conversation.id, turn.parent),)


def refuse_call(_: ConversationState, decision: RefuseCall) -> Sequence[Command]:
    parent = decision.parent
    return (Answer(parent=parent, run_id=parent.child_id, output={}, fault=decision.fault),)


def _command(state: ConversationState, operation: Operation) -> Command:
    """Return the command of a pending operation, derived from the state alone."""
    turn = state.turns[operation.turn_id]
    match operation.kind:
        case OperationKind.ASSEMBLY | OperationKind.SUMMARY | OperationKind.EXTRACTION:
            return _hook_command(state, operation, turn)
        case OperationKind.MODEL:
            return _model_command(state, operation, turn)
        case OperationKind.TASK:
            return _task_command(state, operation, turn)
        case OperationKind.WORKFLOW:
            return _workflow_command(state, operation, turn)
        case OperationKind.AGENT:
            return _agent_command(state, operation, turn)
        case OperationKind.MEMORY:
            return ApplyMemory(
                operation_id=operation.id,
                operation=operation.input,
                scope=_scope(state, operation, turn),
            )
        case _:
            assert_never(operation.kind)


def _hook_command(state: ConversationState, operation: Operation, turn: Turn) -> RunWorkflow:
    agent = state.turn_work[turn.id].agent
    if operation.kind is OperationKind.ASSEMBLY:
        workflow: PinnedWorkflow | None = agent.assembly
        truncation = history_truncation(operation)
        run_input = assembly_input(state, turn, agent, operation.created_ms, truncation, operation.through)
    elif operation.kind is OperationKind.SUMMARY:
        workflow, run_input = agent.summary, summary_input(state, turn, agent, operation)
    else:
        workflow, run_input = agent.extraction, extraction_input(state, turn, agent)
    assert workflow is not None, "a hook is dispatched only if the persona has its workflow"
    return RunWorkflow(
        operation_id=operation.id,
        run_id=operation.run_id,
        workflow=workflow,
        input=run_input,
        scope=_scope(state, operation, turn),
        parent=Parent(actor_id=turn.conversation_id, operation_id=operation.id),
        volatile=True,
        fresh=operation.dispatches == 1,
    )


def _model_command(state: ConversationState, operation: Operation, turn: Turn) -> CallModel:
    work = state.turn_work[turn.id]
    agent, request = work.agent, state.requests[turn.id].body
    if work.rules:
        request = with_breakpoints(request, agent.profile.spec.format)
    levels = budget_levels(state, turn, agent, operation.id)
    return CallModel(
        operation_id=operation.id,
        turn_id=turn.id,
        message_id=operation.message_id,
        dispatches=operation.dispatches,
        profile=agent.profile.spec,
        request=request,
        agent_id=agent.agent_id,
        levels=levels,
        is_last=bool(levels) and is_last_call(state, turn, agent),
        trace_id=turn.trace_id,
        shows_reasoning=agent.persona.show_reasoning,
        project_id="" if state.conversation is None else state.conversation.project_id,
        principal=turn.principal,
        cost_limited=limits_cost(state, turn, agent),
    )


def _task_command(state: ConversationState, operation: Operation, turn: Turn) -> RunTask:
    task = _tool(state, operation).task
    assert task is not None, "a task operation comes from a task tool"
    return RunTask(
        operation_id=operation.id,
        task=task,
        input=operation.input,
        scope=_scope(state, operation, turn),
    )


def _workflow_command(state: ConversationState, operation: Operation, turn: Turn) -> RunWorkflow:
    workflow = _tool(state, operation).workflow
    assert workflow is not None, "a workflow operation comes from a workflow tool"
    return RunWorkflow(
        operation_id=operation.id,
        run_id=operation.run_id,
        workflow=workflow,
        input=operation.input,
        scope=_scope(state, operation, turn),
        parent=Parent(actor_id=turn.conversation_id, operation_id=operation.id),
        volatile=False,
        fresh=operation.dispatches == 1,
    )


def _agent_command(state: ConversationState, operation: Operation, turn: Turn) -> CallAgent:
    return CallAgent(
        operation_id=operation.id,
        agent_id=operation.target,
        mode=operation.mode,
        conversation_id=operation.run_id,
        input=operation.input,
        scope=_scope(state, operation, turn),
        parent=Parent(
            actor_id=turn.conversation_id,
            operation_id=operation.id,
            child_id=attempt_id(operation) if operation.mode == LOOP_IN else "",
        ),
        dispatches=operation.dispatches,
        output_schema=_tool(state, operation).spec.output_schema,
    )


def _tool(state: ConversationState, operation: Operation) -> PinnedTool:
    tools = state.turn_work[operation.turn_id].agent.tools
    return next(tool for tool in tools if tool.spec.name == operation.tool_name)


def _scope(state: ConversationState, operation: Operation, turn: Turn) -> Scope:
    work = state.turn_work[turn.id]
    agent = work.agent
    project_id, branch = work_place(state, agent)
    return Scope(
        project_id=project_id,
        agent_id=agent.agent_id,
        conversation_id=turn.conversation_id,
        turn_id=turn.id,
        move_id=_move_id(state, operation),
        run_id=operation.run_id,
        key=operation.id,
        depth=turn.depth,
        budget=delegate_budget(state, turn, agent, operation.created_ms),
        max_depth=turn.max_depth,
        call_chain=(*turn.call_chain, agent.agent_id),
        branch=branch,
        trace_id=turn.trace_id,
        principal=turn.principal,
        user_id=user_of(turn.caller),
        cost_limited=work.rules >= RULES_OF_LIMITED_TOOLS and limits_cost(state, turn, agent),
        # Hooks are not refused: without them no answer is possible, or nothing is remembered.
        levels=budget_levels(state, turn, agent, operation.id) if operation.tool_call_id else (),
    )


def work_place(state: ConversationState, agent: PinnedAgent) -> tuple[str, str]:
    """Return the project and the branch on which the agent works in this conversation."""
    conversation = state.conversation
    if conversation is not None and conversation.called_by:
        # A delegated turn works in its caller's project and on its caller's branch.
        return conversation.project_id, conversation.branch or NO_BRANCH
    # Any other turn works in the conversation's project if the agent belongs to it, else in the agent's own.
    return agent.home(conversation.project_id if conversation is not None else ""), ""


def _move_id(state: ConversationState, operation: Operation) -> str:
    """Return the id of the newest move that called the tool; "" if the operation is no tool call."""
    if not operation.tool_call_id:
        return ""
    for move in reversed(state.moves.get(operation.turn_id, [])):
        if any(call.operation_id == operation.id for call in move.invocations):
            return move.id
    return ""
