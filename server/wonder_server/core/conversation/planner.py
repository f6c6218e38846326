"""The conversation planner's value for the loop."""

from __future__ import annotations

from collections.abc import Sequence
from typing import get_args

from wonder_server.core.actor.commands import Command, RunWorkflow
from wonder_server.core.actor.planner import Planner, Reload, Rows
from wonder_server.core.conversation.model import decisions, inputs, values
from wonder_server.core.conversation.model.state import RECENT_TURNS, ConversationState
from wonder_server.core.conversation.output.decision_table import apply, commands, record_changes
from wonder_server.core.conversation.plan import plan
from wonder_server.core.errors import Fault

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
    for move in rows["moves"]:
        state.moves[move.turn_id].append(move)
    for operation in rows["operations"]:
        state.operations[operation.id] = operation
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
    )


def rejection(decided: Sequence[decisions.Decision]) -> Fault | None:
    """Return the fault of a rejected input. A rejection is the only decision of its input."""
    only = decided[0] if len(decided) == 1 else None
    return only.fault if isinstance(only, decisions.Refuse) else None


def answer(decided: Sequence[decisions.Decision]) -> dict[str, str]:
    """Return the ids that answer a send or create, and its repetition."""
    ids: dict[str, str] = {}
    for decision in decided:
        # Compare classes: a match would test each of them for every decision of a turn.
        if type(decision) is decisions.AppendMessage:
            ids.setdefault("message_id", decision.message.id)
        elif type(decision) is decisions.StartTurn or type(decision) is decisions.EndTurnByCancel:
            ids["turn_id"] = decision.turn.id
        elif type(decision) is decisions.StartConversation:
            ids["conversation_id"] = decision.conversation.id
    return ids


def allows_early_dispatch(command: Command) -> bool:
    """Return True for the first dispatch of a hook. A hook has no effect outside before its commit."""
    return type(command) is RunWorkflow and command.volatile and command.fresh


CONVERSATION = Planner(
    kind="conversation",
    prefix="conv",
    root=lambda actor_id, state: actor_id,
    reload=Reload(
        live=("conversations", "works", "requests", "operations"),
        recent=(("turns", RECENT_TURNS),),
        children=(("turns", "works"), ("messages", "turns"), ("moves", "works")),
    ),
    new_state=ConversationState,
    restore=restore,
    plan=plan,
    apply=apply,
    record=record_changes,
    commands=commands,
    rejection=rejection,
    must_commit=lambda state, decided: True,
    allows_early_dispatch=allows_early_dispatch,
    pending=lambda state: list(state.operations),
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
        "turn_completed": values.Turn,
        "turn_failed": values.Turn,
        "turn_cancelled": values.Turn,
        "message_appended": values.Message,
        "move_recorded": values.Move,
        "tool_dispatched": values.Operation,
        "tool_completed": values.Invocation,
        "tool_failed": values.Invocation,
        "workflow_started": values.WorkflowRun,
        "workflow_completed": values.WorkflowRun,
        "workflow_failed": values.WorkflowRun,
        "agent_call_started": values.AgentCall,
        "agent_call_completed": values.AgentCall,
        "limit_reached": values.Limit,
        "context_reduced": values.ContextReduction,
        "context_assembly_completed": values.HookOutcome,
        "context_assembly_failed": values.HookOutcome,
        "memory_extraction_completed": values.HookOutcome,
        "memory_extraction_failed": values.HookOutcome,
    },
    inputs=get_args(inputs.Input),
    decisions=get_args(decisions.Decision),
)
