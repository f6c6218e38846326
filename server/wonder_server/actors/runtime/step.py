"""One step of an actor: plan an input, apply its decisions and add them to the batch.

Nothing here waits or has an external effect. `step` returns the commands that may be dispatched at once;
the others wait in the batch until its commit.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from wonder_server.actors.runtime.actor import Actor, Batch, Envelope, Outcome
from wonder_server.core.actor.commands import Answer, Command, MeasureWaits, Stop
from wonder_server.core.actor.planner import Planner
from wonder_server.core.errors import WonderError, with_id
from wonder_server.core.idempotency import CompletedRequest, check_replay, with_sent
from wonder_server.ports.journal import Entry

Decisions = tuple[object, ...]
"""The decisions of a planner for one input."""

_WITHOUT_EFFECT = (Answer, MeasureWaits, Stop)
"""Commands that no handler starts to execute. A tuple, since Python builds a union anew for each test."""

PlannedCallback = Callable[[str, Any, object, Sequence[object]], None]
"""Called with the actor's id, its state, an input and the decisions that the planner made for it. The state
is that of the actor's planner, after these decisions."""


def step(actor: Actor, envelope: Envelope, now_ms: int, on_planned: PlannedCallback) -> list[Command]:
    """Plan one input and return the commands to dispatch now.

    Raises what the planner raises. The actor's state is then invalid.
    """
    batch = actor.batch
    if batch is None:
        batch = actor.open_batch()
    batch.inputs.append(envelope)
    if envelope.reply is not None:
        batch.due = True
        if _answer_repeated(actor, envelope, batch):
            return []
    if envelope.entry_head is not None and envelope.entry_head != actor.entry_head:
        batch.replies.append((envelope, Outcome((), {})))
        return []
    batch.child_commits.extend(envelope.child_commits)
    planner, state, commit = actor.planner, actor.state, batch.commit
    before = batch.event_head if envelope.reply is not None else 0
    decisions = planner.plan(state, envelope.input, now_ms)
    fault = planner.rejection(decisions) if decisions else None
    if fault is not None:
        batch.due |= not commit.entries
        batch.replies.append((envelope, WonderError(with_id(fault, actor.id))))
        return []
    if batch.may_be_compact and not planner.may_be_compact(decisions):
        batch.may_be_compact = False
        batch.record()
    _apply(actor, batch, decisions, now_ms)
    if decisions:
        actor.entry_head += 1
        commit.entries.append(Entry(actor.entry_head, now_ms, envelope.input, decisions))
        on_planned(actor.id, state, envelope.input, decisions)
    if not batch.may_be_compact:
        batch.recorded_entries = len(commit.entries)
    if envelope.reply is not None:
        _answer(actor, envelope, batch, decisions, before)
    batch.due = (
        batch.due
        or actor.submitted
        or actor.write_through
        or not commit.entries
        or (bool(decisions) and planner.must_commit(state, decisions))
    )
    return _ready_commands(actor, batch, decisions)


def _apply(actor: Actor, batch: Batch, decisions: Decisions, now_ms: int) -> None:
    """Apply the decisions to the state, and add their rows and events to the commit unless it may become
    compact."""
    apply, record, state, commit = actor.planner.apply, actor.planner.record, actor.state, batch.commit
    if batch.may_be_compact:
        for decision in decisions:
            apply(state, decision)
        return
    since = len(commit.changes)
    for decision in decisions:
        apply(state, decision)
        commit.add(record(state, decision), now_ms)
    batch.collect_timers(since)


def _ready_commands(actor: Actor, batch: Batch, decisions: Decisions) -> list[Command]:
    """Return the commands of the decisions to dispatch now. The others are added to the batch."""
    planner, state = actor.planner, actor.state
    commanding = planner.commanding
    commands = [
        command
        for decision in decisions
        if type(decision) in commanding
        for command in planner.commands(state, decision)
    ]
    if not commands:
        return commands
    batch.due |= actor.parent_uncommitted and any(_has_side_effect(planner, command) for command in commands)
    return [command for command in commands if _may_dispatch_now(actor, batch, command)]


def _answer_repeated(actor: Actor, envelope: Envelope, batch: Batch) -> bool:
    """Answer a request that was executed before. Return False if it was not."""
    request = envelope.request
    if request is None:
        return False
    try:
        answer = check_replay(actor.recent_requests.get((request.scope, request.id)), request)
    except WonderError as reused:
        batch.replies.append((envelope, reused))
        return True
    if answer is None:
        return False
    batch.replies.append((envelope, Outcome((), answer)))
    return True


def _answer(actor: Actor, envelope: Envelope, batch: Batch, decisions: Decisions, before: int) -> None:
    answer = {
        **actor.planner.answer(actor.state, decisions),
        "first_sequence": str(before + 1),
        "last_sequence": str(batch.event_head),
    }
    request = envelope.request
    if request is not None:
        answer = with_sent(answer, request)
        batch.commit.requests.append((request, answer))
        actor.record_request(request, CompletedRequest(request.fingerprint, answer))
    batch.replies.append((envelope, Outcome(decisions, answer)))


def _has_side_effect(planner: Planner, command: Command) -> bool:
    return not isinstance(command, _WITHOUT_EFFECT) and not planner.allows_early_dispatch(command)


def _may_dispatch_now(actor: Actor, batch: Batch, command: Command) -> bool:
    """Return True if ``command`` may be dispatched now. Otherwise it waits in the batch."""
    if batch.due and (type(command) is Answer or not _may_overtake(actor, batch, command)):
        batch.commands.append(command)
        if type(command) is Stop:
            batch.cancelled_operations.add(command.operation_id)
        return False
    if not isinstance(command, _WITHOUT_EFFECT):
        batch.early_commands.append(command)
    return True


def _may_overtake(actor: Actor, batch: Batch, command: Command) -> bool:
    """Return True if the command may be dispatched before the batch is committed. The cancellation of an
    operation still precedes its restart."""
    if actor.write_through or not actor.planner.allows_early_dispatch(command):
        return False
    operation_id = getattr(command, "operation_id", "")
    inflight = actor.inflight
    return operation_id not in batch.cancelled_operations and (
        inflight is None or operation_id not in inflight.cancelled_operations
    )
