"""Every decision of a conversation with its effects: state, rows and events, commands.

A new decision class is added to `Decision` and to `HANDLERS`; `decision_table` fails if one is missing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from wonder_server.core.actor.changes import Change, Put
from wonder_server.core.actor.commands import Command
from wonder_server.core.actor.decision_table import DecisionHandlers, decision_table
from wonder_server.core.budget import CHARGES
from wonder_server.core.conversation.model import decisions, lifecycle_decisions
from wonder_server.core.conversation.model.decisions import Decision
from wonder_server.core.conversation.model.histories import staging
from wonder_server.core.conversation.model.state import ConversationState
from wonder_server.core.conversation.model.usage import AccountCharge
from wonder_server.core.conversation.output import (
    dispatch,
    history_changes,
    lifecycle_record,
    record,
    state_changes,
)
from wonder_server.core.frozen import replace

HANDLERS: Final[Mapping[type, DecisionHandlers[ConversationState, Any]]] = decision_table(
    Decision,
    # The conversation as a whole.
    DecisionHandlers(
        decisions.StartConversation,
        apply=state_changes.put_conversation,
        record=record.conversation_started,
    ),
    DecisionHandlers(
        staging.KeepHistory, apply=history_changes.keep_history, record=history_changes.history_kept
    ),
    DecisionHandlers(
        staging.PublishConversation,
        apply=state_changes.put_conversation,
        record=lifecycle_record.conversation_updated,
    ),
    DecisionHandlers(
        lifecycle_decisions.AddParticipant,
        apply=state_changes.put_conversation,
        record=lifecycle_record.participant_added,
    ),
    DecisionHandlers(
        lifecycle_decisions.RemoveParticipant,
        apply=state_changes.put_conversation,
        record=lifecycle_record.participant_removed,
    ),
    DecisionHandlers(
        lifecycle_decisions.UpdateConversation,
        apply=state_changes.put_conversation,
        record=lifecycle_record.conversation_updated,
    ),
    DecisionHandlers(
        lifecycle_decisions.RecordMerge,
        apply=state_changes.put_conversation,
        record=lifecycle_record.branch_merged,
    ),
    DecisionHandlers(
        lifecycle_decisions.EndConversation,
        apply=state_changes.put_conversation,
        record=lifecycle_record.conversation_ended,
    ),
    DecisionHandlers(
        lifecycle_decisions.ResetConversation,
        apply=state_changes.put_conversation,
        record=lifecycle_record.conversation_reset,
    ),
    DecisionHandlers(
        lifecycle_decisions.MarkDeleted,
        apply=state_changes.put_conversation,
        record=lifecycle_record.conversation_row,
    ),
    DecisionHandlers(
        lifecycle_decisions.SetStaleArchive,
        apply=state_changes.put_conversation,
        record=lifecycle_record.conversation_row,
    ),
    DecisionHandlers(
        lifecycle_decisions.EraseRecord,
        apply=state_changes.erase_record,
        record=lifecycle_record.record_erased,
    ),
    # Turns.
    DecisionHandlers(decisions.StartTurn, apply=state_changes.start_turn, record=record.turn_started),
    DecisionHandlers(decisions.BeginTurn, apply=state_changes.begin_turn, record=record.turn_begun),
    DecisionHandlers(decisions.SteerTurn, apply=state_changes.steer_turn, record=record.turn_steered),
    DecisionHandlers(decisions.MoveMessage, apply=state_changes.move_message, record=record.message_moved),
    DecisionHandlers(decisions.PostMessage, apply=state_changes.post_message, record=record.message_posted),
    DecisionHandlers(
        decisions.AppendMessage, apply=state_changes.append_message, record=record.message_appended
    ),
    DecisionHandlers(decisions.ChargeTurn, apply=state_changes.charge_turn, record=record.turn_charged),
    DecisionHandlers(decisions.AdoptTurn, apply=state_changes.put_turn, record=record.turn_adopted),
    DecisionHandlers(
        decisions.CompleteTurn,
        apply=state_changes.end_turn,
        record=record.turn_ended,
        commands=dispatch.answer_parent,
    ),
    DecisionHandlers(
        decisions.FailTurn,
        apply=state_changes.end_turn,
        record=record.turn_ended,
        commands=dispatch.answer_parent,
    ),
    DecisionHandlers(
        decisions.EndTurnByCancel,
        apply=state_changes.end_turn,
        record=record.turn_ended,
        commands=dispatch.answer_parent,
    ),
    DecisionHandlers(decisions.ReleaseTurn, apply=state_changes.release_turn, record=record.turn_released),
    DecisionHandlers(decisions.RepeatAnswer, commands=dispatch.answer_parent),
    DecisionHandlers(decisions.RefuseCall, commands=dispatch.refuse_call),
    DecisionHandlers(decisions.Refuse),
    # Operations.
    DecisionHandlers(
        decisions.DispatchWorkflow,
        apply=state_changes.put_operation,
        record=record.operation_dispatched,
        commands=dispatch.start_operation,
    ),
    DecisionHandlers(
        decisions.DispatchTask,
        apply=state_changes.put_operation,
        record=record.operation_dispatched,
        commands=dispatch.start_operation,
    ),
    DecisionHandlers(
        decisions.DispatchAgent,
        apply=state_changes.put_operation,
        record=record.operation_dispatched,
        commands=dispatch.start_operation,
    ),
    DecisionHandlers(
        decisions.WriteMemory,
        apply=state_changes.put_operation,
        record=record.operation_dispatched,
        commands=dispatch.start_operation,
    ),
    DecisionHandlers(
        decisions.DispatchModel,
        apply=state_changes.dispatch_model,
        record=record.model_dispatched,
        commands=dispatch.start_operation,
    ),
    DecisionHandlers(
        decisions.Redispatch,
        apply=state_changes.put_operation,
        record=record.operation_row,
        commands=dispatch.start_operation,
    ),
    DecisionHandlers(
        decisions.RetryOperation,
        apply=state_changes.put_operation,
        record=record.operation_row,
        commands=dispatch.stop_failed_attempt,
    ),
    DecisionHandlers(
        decisions.CancelOperation,
        apply=state_changes.cancel_operation,
        record=record.operation_cancelled,
        commands=dispatch.stop_operation,
    ),
    DecisionHandlers(
        decisions.RequestApproval,
        apply=state_changes.request_approval,
        record=record.approval_requested,
        commands=dispatch.report_gate,
    ),
    DecisionHandlers(
        decisions.CloseApproval,
        apply=state_changes.close_approval,
        record=record.approval_closed,
        commands=dispatch.report_gate,
    ),
    DecisionHandlers(
        decisions.ShowGate,
        apply=state_changes.show_gate,
        record=record.gate_shown,
        commands=dispatch.report_shown_gate,
    ),
    DecisionHandlers(
        decisions.MeasureWaits,
        apply=state_changes.put_operation,
        record=record.operation_row,
        commands=dispatch.measure_waits,
    ),
    DecisionHandlers(
        decisions.ExtendDeadline,
        apply=state_changes.extend_deadline,
        record=record.deadline_extended,
    ),
    # Model and tools.
    DecisionHandlers(decisions.RecordMove, apply=state_changes.record_move, record=record.move_recorded),
    DecisionHandlers(decisions.MarkWaiting),
    DecisionHandlers(decisions.TrackAsyncOperation),
    DecisionHandlers(
        decisions.ResumeFromTool,
        apply=state_changes.complete_tool_call,
        record=record.tool_call_completed,
    ),
    DecisionHandlers(
        decisions.AsyncOperationCompleted,
        apply=state_changes.complete_tool_call,
        record=record.tool_call_completed,
    ),
    DecisionHandlers(decisions.AgentCallEnded, record=record.agent_call_ended),
    DecisionHandlers(decisions.WorkflowStarted, record=record.workflow_started),
    DecisionHandlers(decisions.WorkflowEnded, record=record.workflow_ended),
    DecisionHandlers(decisions.LimitReached, record=record.limit_reached),
    DecisionHandlers(decisions.RejectOutput, record=record.output_rejected),
    DecisionHandlers(decisions.SwitchModel, apply=state_changes.switch_model, record=record.model_switched),
    DecisionHandlers(decisions.ReduceContext, record=record.context_reduced),
    # Hooks.
    DecisionHandlers(
        decisions.ContextAssembled, apply=state_changes.end_hook, record=record.context_assembled
    ),
    DecisionHandlers(
        decisions.AssemblyFailed,
        apply=state_changes.remove_operation,
        record=record.assembly_failed,
    ),
    DecisionHandlers(
        decisions.HistorySummarized,
        apply=state_changes.summarize_history,
        record=record.history_summarized,
    ),
    DecisionHandlers(decisions.RefuseMemoryOperations, record=record.memory_operations_refused),
    DecisionHandlers(
        decisions.MemoryWritten,
        apply=state_changes.remove_operation,
        record=record.operation_removed,
    ),
    DecisionHandlers(decisions.ExtractionEnded, apply=state_changes.end_hook, record=record.extraction_ended),
)


def apply(state: ConversationState, decision: Decision) -> None:
    """Change the state by ``decision`` and set the status that follows from it."""
    state.charge, state.status_changed = None, False
    HANDLERS[type(decision)].apply(state, decision)
    state_changes.update_status(state)


def record_changes(state: ConversationState, decision: Decision) -> Sequence[Change]:
    """Return the rows and events of ``decision``. ``state`` is the state right after `apply`."""
    changed, charge = HANDLERS[type(decision)].record(state, decision), state.charge
    if charge is not None:
        changed = (*_charges(charge), *changed)
    return (*record.conversation_rows(state), *changed) if state.status_changed else changed


def _charges(charge: AccountCharge) -> Iterator[Put]:
    """Yield the rows of a charge. Active time counts for agents only, whose budgets limit it."""
    yield Put(CHARGES, charge.id, charge.amount, parent=charge.agent_id)
    amount = replace(charge.amount, busy_ms=0) if charge.amount.busy_ms else charge.amount
    for account in charge.others:
        yield Put(CHARGES, f"{charge.id}/{account}", amount, parent=account)


def commands(state: ConversationState, decision: Decision) -> Sequence[Command]:
    """Return the commands to execute after ``decision`` is committed."""
    return HANDLERS[type(decision)].commands(state, decision)
