"""Every decision of a run with its effects: state, rows and events, commands.

A new decision class is added to `Decision` and to `HANDLERS`; `decision_table` fails if one is missing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from wonder_server.core.actor.changes import Change
from wonder_server.core.actor.commands import Command
from wonder_server.core.actor.decision_table import DecisionHandlers, decision_table
from wonder_server.core.coordinator.model import decisions
from wonder_server.core.coordinator.model.state import RunState
from wonder_server.core.coordinator.output import dispatch, record, state_changes

HANDLERS: Final[Mapping[type, DecisionHandlers[RunState, Any]]] = decision_table(
    decisions.Decision,
    DecisionHandlers(decisions.StartRun, apply=state_changes.start_run, record=record.start_run),
    DecisionHandlers(decisions.SetRunStatus, apply=state_changes.set_run, record=record.set_run),
    DecisionHandlers(decisions.MoveToken, apply=state_changes.put_token, record=record.move_token),
    DecisionHandlers(decisions.CountBranches, apply=state_changes.put_token, record=record.count_branches),
    DecisionHandlers(decisions.OpenFanOut, apply=state_changes.open_fan_out, record=record.open_fan_out),
    DecisionHandlers(decisions.CloseFanOut, apply=state_changes.close_fan_out, record=record.close_fan_out),
    DecisionHandlers(decisions.JoinBranches, apply=state_changes.join_branches, record=record.join_branches),
    DecisionHandlers(
        decisions.DispatchNode,
        apply=state_changes.dispatch_node,
        record=record.dispatch_node,
        commands=dispatch.dispatch_node,
    ),
    DecisionHandlers(
        decisions.RecordExecution, apply=state_changes.record_execution, record=record.record_execution
    ),
    DecisionHandlers(
        decisions.KeepExecution, apply=state_changes.keep_execution, record=record.keep_execution
    ),
    DecisionHandlers(decisions.SetContext, apply=state_changes.set_context, record=record.set_context),
    DecisionHandlers(decisions.RetryNode, apply=state_changes.retry_node, record=record.retry_node),
    DecisionHandlers(
        decisions.RedispatchNode,
        apply=state_changes.put_operation,
        record=record.put_operation,
        commands=dispatch.dispatch_node,
    ),
    DecisionHandlers(
        decisions.StopNode,
        apply=state_changes.stop_node,
        record=record.stop_node,
        commands=dispatch.stop_node,
    ),
    DecisionHandlers(decisions.SetTimer, apply=state_changes.put_operation, record=record.put_operation),
    DecisionHandlers(decisions.ClearTimer, apply=state_changes.clear_timer, record=record.clear_timer),
    DecisionHandlers(
        decisions.OpenGate,
        apply=state_changes.open_gate,
        record=record.open_gate,
        commands=dispatch.report_gate,
    ),
    DecisionHandlers(
        decisions.CloseGate,
        apply=state_changes.close_gate,
        record=record.close_gate,
        commands=dispatch.report_gate,
    ),
    DecisionHandlers(decisions.RecordSignal, apply=state_changes.record_signal, record=record.record_signal),
    DecisionHandlers(decisions.KeepSignal, apply=state_changes.keep_signal, record=record.keep_signal),
    DecisionHandlers(decisions.TakeSignal, apply=state_changes.take_signal, record=record.take_signal),
    DecisionHandlers(decisions.RecordEvent, apply=state_changes.put_operation, record=record.record_event),
    DecisionHandlers(
        decisions.EndRun, apply=state_changes.end_run, record=record.end_run, commands=dispatch.end_run
    ),
    DecisionHandlers(decisions.ChargeRun, record=record.charge_run),
    DecisionHandlers(decisions.AnswerAgain, commands=dispatch.answer_again),
    DecisionHandlers(decisions.RefuseRun),
)


def apply(state: RunState, decision: decisions.Decision) -> None:
    """Change the state by ``decision``."""
    HANDLERS[type(decision)].apply(state, decision)


def record_changes(state: RunState, decision: decisions.Decision) -> Sequence[Change]:
    """Return the rows and events of ``decision``. ``state`` is the state right after `apply`."""
    return HANDLERS[type(decision)].record(state, decision)


def commands(state: RunState, decision: decisions.Decision) -> Sequence[Command]:
    """Return the commands to execute after ``decision`` is committed."""
    return HANDLERS[type(decision)].commands(state, decision)
