"""From an operation in the outbox to the command that carries it out.

Derived from the working set, so that a restart hands out exactly what the first dispatch did.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, assert_never

from wonder_server.core.actor.commands import (
    NO_BRANCH,
    Answer,
    ApplyMemory,
    CallAgent,
    CallModel,
    Command,
    Parent,
    RunTask,
    RunWorkflow,
    Scope,
    Stop,
)
from wonder_server.core.conversation.context.hook_inputs import assembly_input, extraction_input
from wonder_server.core.conversation.model.agent_tools import LOOP_IN, attempt_id
from wonder_server.core.conversation.model.class_dispatch import typed_handler
from wonder_server.core.conversation.model.decisions import (
    CancelOperation,
    CompleteTurn,
    Decision,
    DispatchAgent,
    DispatchModel,
    DispatchTask,
    DispatchWorkflow,
    EndTurnByCancel,
    FailTurn,
    Redispatch,
    RefuseCall,
    RepeatAnswer,
    RetryOperation,
    WriteMemory,
)
from wonder_server.core.conversation.model.state import ConversationState
from wonder_server.core.conversation.model.values import Operation, OperationKind, Turn
from wonder_server.core.conversation.planning.agent_calls import answer
from wonder_server.core.conversation.planning.limits import delegate_budget, is_last_call
from wonder_server.core.conversation.planning.summarization import history_truncation, summary_input
from wonder_server.core.definitions.specs import PinnedAgent, PinnedTool, PinnedWorkflow

Handler = Callable[[ConversationState, Any], Sequence[Command]]


def commands(state: ConversationState, decision: Decision) -> Sequence[Command]:
    """What is to be carried out once ``decision`` is on disk."""
    handler = _handlers.get(type(decision))
    if handler is None:
        handler = _handlers[type(decision)] = _handler(decision)
    return handler(state, decision)


_handlers: dict[type, Handler] = {}
"""What decisions of a class lead to; see `suited`."""


def _handler(decision: Decision) -> Handler:
    match decision:
        case (
            DispatchWorkflow()
            | DispatchTask()
            | DispatchAgent()
            | DispatchModel()
            | WriteMemory()
            | Redispatch()
        ):
            return typed_handler(decision, lambda state, it: _started(state, it.operation))
        case CancelOperation():
            return typed_handler(decision, lambda _, it: _stopped(it.operation, it.operation.run_id))
        case RetryOperation():
            return typed_handler(decision, lambda _, it: _stopped(it.operation, it.run_id))
        case CompleteTurn() | FailTurn() | EndTurnByCancel() | RepeatAnswer():
            return typed_handler(decision, lambda _, it: _answered(it.turn))
        case RefuseCall():
            return typed_handler(decision, _refused)
        case _:
            return _nothing


def _started(state: ConversationState, operation: Operation) -> Sequence[Command]:
    # A decision of the same input may have closed it again.
    return (_command(state, operation),) if operation.id in state.operations else ()


def _stopped(operation: Operation, run_id: str) -> Sequence[Command]:
    return (Stop(operation_id=operation.id, child_id=run_id),)


def _answered(turn: Turn) -> Sequence[Command]:
    # Memory extraction, which may still be to come, is not the caller's to wait for.
    return () if turn.parent is None else (answer(turn, turn.parent),)


def _refused(state: ConversationState, decision: RefuseCall) -> Sequence[Command]:
    parent = decision.parent
    return (Answer(parent=parent, run_id=parent.child_id, output={}, fault=decision.fault),)


def _nothing(state: ConversationState, decision: Decision) -> Sequence[Command]:
    return ()


def _command(state: ConversationState, operation: Operation) -> Command:
    turn, work = state.turns[operation.turn_id], state.turn_work[operation.turn_id]
    agent = work.agent
    match operation.kind:
        case OperationKind.ASSEMBLY:
            return _hook(
                state,
                operation,
                agent.assembly,
                assembly_input(state, turn, agent, history_truncation(operation)),
            )
        case OperationKind.SUMMARY:
            assert agent.summary is not None, "it is dispatched only where the persona sums up"
            return _hook(state, operation, agent.summary, summary_input(state, turn, agent, operation))
        case OperationKind.EXTRACTION:
            assert agent.extraction is not None, "extraction is dispatched only where the persona has one"
            return _hook(state, operation, agent.extraction, extraction_input(state, turn, agent))
        case OperationKind.MODEL:
            return CallModel(
                operation_id=operation.id,
                turn_id=turn.id,
                message_id=operation.message_id,
                dispatches=operation.dispatches,
                profile=agent.profile.spec,
                request=state.requests[turn.id].body,
                agent_id=agent.agent_id,
                budget=agent.budget,
                is_last=agent.budget is not None and is_last_call(state, turn, agent),
                trace_id=turn.trace_id,
            )
        case OperationKind.TASK:
            task = _tool(agent, operation).task
            assert task is not None, "a task operation comes from a task tool"
            return RunTask(
                operation_id=operation.id,
                task=task,
                input=operation.input,
                scope=_scope(state, operation, turn, agent),
            )
        case OperationKind.WORKFLOW:
            workflow = _tool(agent, operation).workflow
            assert workflow is not None, "a workflow operation comes from a workflow tool"
            return RunWorkflow(
                operation_id=operation.id,
                run_id=operation.run_id,
                workflow=workflow,
                input=operation.input,
                scope=_scope(state, operation, turn, agent),
                parent=Parent(actor_id=turn.conversation_id, operation_id=operation.id),
                volatile=False,
                fresh=operation.dispatches == 1,
            )
        case OperationKind.AGENT:
            return CallAgent(
                operation_id=operation.id,
                agent_id=operation.target,
                mode=operation.mode,
                conversation_id=operation.run_id,
                input=operation.input,
                scope=_scope(state, operation, turn, agent),
                parent=Parent(
                    actor_id=turn.conversation_id,
                    operation_id=operation.id,
                    child_id=attempt_id(operation) if operation.mode == LOOP_IN else "",
                ),
                dispatches=operation.dispatches,
            )
        case OperationKind.MEMORY:
            return ApplyMemory(
                operation_id=operation.id,
                operation=operation.input,
                scope=_scope(state, operation, turn, agent),
            )
        case _:
            assert_never(operation.kind)


def _hook(
    state: ConversationState, operation: Operation, workflow: PinnedWorkflow, run_input: dict[str, Any]
) -> RunWorkflow:
    turn = state.turns[operation.turn_id]
    return RunWorkflow(
        operation_id=operation.id,
        run_id=operation.run_id,
        workflow=workflow,
        input=run_input,
        scope=_scope(state, operation, turn, state.turn_work[turn.id].agent),
        parent=Parent(actor_id=turn.conversation_id, operation_id=operation.id),
        volatile=True,
        fresh=operation.dispatches == 1,
    )


def _tool(agent: PinnedAgent, operation: Operation) -> PinnedTool:
    return next(tool for tool in agent.tools if tool.spec.name == operation.tool_name)


def _scope(state: ConversationState, operation: Operation, turn: Turn, agent: PinnedAgent) -> Scope:
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
    )


def work_place(state: ConversationState, agent: PinnedAgent) -> tuple[str, str]:
    """The project and the branch that the agent works on in this conversation."""
    conversation = state.conversation
    if conversation is not None and conversation.called_by:
        # A delegated turn works in its caller's project and on its branch.
        return conversation.project_id, conversation.branch or NO_BRANCH
    # Any other in the conversation's, where the agent belongs to it; else in the agent's own.
    return agent.home(conversation.project_id if conversation is not None else ""), ""


def _move_id(state: ConversationState, operation: Operation) -> str:
    """The move that called the tool, the newest first; "" for what is no tool."""
    if not operation.tool_call_id:
        return ""
    for move in reversed(state.moves.get(operation.turn_id, [])):
        if any(called.operation_id == operation.id for called in move.invocations):
            return move.id
    return ""
