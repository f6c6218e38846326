"""The conversation planner's value for the loop."""

from __future__ import annotations

from collections.abc import Sequence
from typing import get_args

from wonder_server.core.actor import gates
from wonder_server.core.actor.commands import Command, RunWorkflow
from wonder_server.core.actor.decision_table import commanding
from wonder_server.core.actor.planner import BoundedChildren, Planner, Reload, Rows
from wonder_server.core.actor.queries import ReadConversation, ReadSpending, StateQuery
from wonder_server.core.conversation.context.transcript import exchanges_of
from wonder_server.core.conversation.model import decisions, event_payloads, inputs, values
from wonder_server.core.conversation.model.exchange import exchanges_bytes
from wonder_server.core.conversation.model.histories import staging
from wonder_server.core.conversation.model.state import EXCHANGES_BYTES, RECENT_TURNS, ConversationState
from wonder_server.core.conversation.output.decision_table import HANDLERS, apply, commands, record_changes
from wonder_server.core.conversation.plan import plan
from wonder_server.core.conversation.planning.agent_calls import called_turn
from wonder_server.core.conversation.planning.budget_levels import spending_of
from wonder_server.core.errors import Fault
from wonder_server.core.frozen import Value

HISTORY_ENTRY_BYTES = 1280
"""Approximate size of a cached history entry: some dictionaries for each message."""


def restore(rows: Rows) -> ConversationState:
    """Return the state of a conversation from its rows."""
    state = ConversationState()
    for conversation in rows["conversations"]:
        state.conversation = conversation
    for turn in rows["turns"]:
        state.turns[turn.id] = turn
    for message in rows["messages"]:
        state.add_message(message)
    for work in rows["works"]:
        state.turn_work[work.turn_id] = work
        state.moves[work.turn_id] = []
    for request in rows["requests"]:
        state.requests[request.turn_id] = request
    ended: dict[str, list[values.Move]] = {}
    for move in rows["moves"]:
        state.moves.get(move.turn_id, ended.setdefault(move.turn_id, [])).append(move)
    # The rows of two tables: the turns give the order.
    found = {turn_id: exchanges_of(ended[turn_id]) for turn_id in state.turns if ended.get(turn_id)}
    state.exchanges = {turn_id: exchanges for turn_id, exchanges in found.items() if exchanges}
    state.drop_old_exchanges()
    for operation in rows["operations"]:
        state.operations[operation.id] = operation
    for gate in rows["gates"]:
        state.gates[gate.id] = gate
    return state


def size_bytes(state: ConversationState) -> int:
    """Return the approximate size of the text in the state.

    Each character counts two bytes. Each message counts 512 bytes more, each turn 1 KiB for its input, and
    each cached entry `HISTORY_ENTRY_BYTES`.
    """
    return (
        2048
        + 2 * state.character_count
        + 512 * state.message_count
        + 1024 * len(state.turns)
        + HISTORY_ENTRY_BYTES * len(state.history_cache)
        + 2 * sum([exchanges_bytes(each) for each in state.exchanges.values()])
    )


def needs_moves(turn: values.Turn) -> bool:
    """Return True if an ended turn may have called tools: its last move is the answer."""
    if turn.moves > 1 or turn.status is not values.TurnStatus.COMPLETED:
        return True
    # A turn of a copied history may end with a move that called tools. Copies have no usage.
    return turn.moves == 1 and not turn.model_calls


def _moves_bytes(moves: Sequence[values.Move]) -> int:
    """Return the size of what the state keeps of the moves of an ended turn."""
    return exchanges_bytes(exchanges_of(moves))


def rejection(decided: Sequence[decisions.Decision]) -> Fault | None:
    """Return the fault of a rejected input. A rejection is the only decision of its input."""
    only = decided[0] if len(decided) == 1 else None
    return only.fault if isinstance(only, decisions.Refuse) else None


def answer(_: ConversationState, decided: Sequence[decisions.Decision]) -> dict[str, str]:
    """Return the ids that answer a send or create, and its repetition."""
    ids: dict[str, str] = {}
    for decision in decided:
        # Compare classes: a match would test each of them for every decision of a turn.
        if type(decision) is decisions.AppendMessage:
            # The partial message of a turn that the input interrupts comes before the input's own.
            if decision.message.role is values.Role.USER or "message_id" not in ids:
                ids["message_id"] = decision.message.id
        elif type(decision) is decisions.StartTurn or type(decision) is decisions.EndTurnByCancel:
            ids["turn_id"] = decision.turn.id
        elif type(decision) is decisions.SteerTurn or type(decision) is decisions.PostMessage:
            ids["turn_id"], ids["message_id"] = decision.message.turn_id, decision.message.id
        elif type(decision) is decisions.StartConversation or type(decision) is staging.PublishConversation:
            ids["conversation_id"] = decision.conversation.id
    return ids


def allows_early_dispatch(command: Command) -> bool:
    """Return True for the first dispatch of a hook. A hook has no effect outside before its commit."""
    return type(command) is RunWorkflow and command.volatile and command.fresh


def query(state: ConversationState, asked: StateQuery) -> Value | None:
    """Answer a query about the state."""
    if isinstance(asked, ReadConversation):
        return state.conversation
    if isinstance(asked, ReadSpending):
        return spending_of(state, asked.turn_id)
    return called_turn(state, asked.operation_id)


def waits(operation: values.Operation, has_unfinished_child: bool, now_ms: int) -> bool:
    """Return True if nothing must be dispatched again for the operation after a restart: it waits for its
    next attempt, for a person, or for a run that continues by itself.

    A restart gives an operation its whole time again. One with less than half of its time left is dispatched
    again for that.
    """
    if operation.status in (values.OperationStatus.BACKOFF, values.OperationStatus.APPROVAL):
        return True
    has_time = not operation.wake_ms or operation.wake_ms - now_ms >= operation.timeout_ms // 2
    return operation.kind is values.OperationKind.WORKFLOW and has_unfinished_child and has_time


def child_run(operation: values.Operation) -> str:
    """Return the id of the run that executes a tool's pending operation, or an empty string."""
    is_run = operation.kind is values.OperationKind.WORKFLOW
    return operation.run_id if is_run and operation.status is values.OperationStatus.DISPATCHED else ""


CONVERSATION = Planner(
    kind="conversation",
    prefix="conv",
    root=lambda actor_id, state: actor_id,
    reload=Reload(
        live=("conversations", "works", "requests", "operations", "gates"),
        recent=(("turns", RECENT_TURNS),),
        children=(("turns", "works"), ("messages", "turns"), ("moves", "works")),
        bounded=BoundedChildren(
            table="moves",
            parent="turns",
            needs=needs_moves,
            size_bytes=_moves_bytes,
            max_bytes=EXCHANGES_BYTES,
        ),
    ),
    new_state=ConversationState,
    restore=restore,
    plan=plan,
    apply=apply,
    record=record_changes,
    commands=commands,
    commanding=commanding(HANDLERS),
    rejection=rejection,
    must_commit=lambda state, decided: True,
    allows_early_dispatch=allows_early_dispatch,
    waits=waits,
    child_run=child_run,
    pending=lambda state: list(state.operations),
    query=query,
    size_bytes=size_bytes,
    answer=answer,
    succeeded=lambda operation_id, output, run_id: inputs.Succeeded(
        operation_id=operation_id, output=output, run_id=run_id
    ),
    failed=lambda operation_id, fault, run_id: inputs.Failed(
        operation_id=operation_id, fault=fault, run_id=run_id
    ),
    timer_fired=lambda operation_id: inputs.TimerFired(operation_id=operation_id),
    restarted=lambda operation_id: inputs.Restarted(operation_id=operation_id, metered=True),
    row_types={
        "conversations": values.Conversation,
        "turns": values.Turn,
        "messages": values.Message,
        "moves": values.Move,
        "works": values.TurnWork,
        "requests": values.Request,
        "operations": values.Operation,
        "gates": gates.Gate,
    },
    event_types={
        "conversation_started": values.Conversation,
        "conversation_updated": values.Conversation,
        "conversation_ended": values.Conversation,
        "conversation_reset": values.HistoryReset,
        "branch_merged": values.BranchMerge,
        "participant_joined": values.Participant,
        "participant_left": values.Participant,
        "conversation_turn": values.Turn,
        "turn_started": values.Turn,
        "turn_completed": values.Turn,
        "turn_failed": values.Turn,
        "turn_cancelled": values.Turn,
        "message_appended": values.Message,
        "message_moved": values.Message,
        "move_recorded": values.Move,
        "tool_dispatched": values.Operation,
        "tool_completed": values.Invocation,
        "tool_failed": values.Invocation,
        "gate_opened": gates.Gate,
        "gate_resolved": gates.Gate,
        "workflow_started": event_payloads.WorkflowRun,
        "workflow_completed": event_payloads.WorkflowRun,
        "workflow_failed": event_payloads.WorkflowRun,
        "agent_call_started": event_payloads.AgentCall,
        "agent_call_completed": event_payloads.AgentCall,
        "limit_reached": event_payloads.Limit,
        "output_rejected": event_payloads.OutputRejection,
        "model_switched": event_payloads.ModelSwitch,
        "context_reduced": event_payloads.ContextReduction,
        "context_assembly_completed": event_payloads.HookOutcome,
        "context_assembly_failed": event_payloads.HookOutcome,
        "memory_extraction_completed": event_payloads.HookOutcome,
        "memory_extraction_failed": event_payloads.HookOutcome,
        "memory_operations_refused": event_payloads.MemoryRefusal,
    },
    inputs=get_args(inputs.Input),
    decisions=get_args(decisions.Decision),
)
