"""One step of an actor: an input is planned, its decisions change the working set and gather in the batch.

Nothing here waits or does anything outside. `step` says which commands may go out at once; the others wait
in the batch until it is on disk.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from wonder_server.actors.runtime.actor import Actor, Batch, Envelope, Outcome
from wonder_server.core.actor.commands import Answer, Command, Stop
from wonder_server.core.actor.planner import Planner
from wonder_server.core.errors import WonderError
from wonder_server.core.idempotency import CompletedRequest, check_replay
from wonder_server.ports.journal import Entry

PlannedCallback = Callable[[str, Any, Sequence[Any]], None]
"""Called with the actor's id, an input and the decisions that the planner made for it."""


def step(actor: Actor, envelope: Envelope, now_ms: int, on_planned: PlannedCallback) -> list[Command]:
    """Plan one input. Returns the commands to hand out now.

    What the planner raises is its own fault; the working set is no good then.
    """
    batch = actor.batch
    if batch is None:
        batch = actor.open_batch()
    batch.inputs.append(envelope)
    if envelope.reply is not None:
        batch.due = True
        if _answer_repeated(actor, envelope, batch):
            return []
    batch.child_commits.extend(envelope.child_commits)
    planner, state, commit = actor.planner, actor.state, batch.commit
    # What a batch writes that may not be written whole is only found out when it is asked for.
    defer_record = planner.compact_row is not None and not batch.due
    if not defer_record and batch.recorded_entries < len(commit.entries):
        batch.record()
    before = commit.event_head
    decisions = planner.plan(state, envelope.input, now_ms)
    fault = planner.rejection(decisions) if decisions else None
    if fault is not None:
        batch.due |= not commit.entries
        batch.replies.append((envelope, WonderError(fault)))
        return []
    apply, record, since = planner.apply, planner.record, len(commit.changes)
    for decision in decisions:
        apply(state, decision)
        if not defer_record:
            commit.add(record(state, decision), now_ms)
    if decisions:
        actor.entry_head += 1
        commit.entries.append(Entry(actor.entry_head, now_ms, envelope.input, decisions))
        on_planned(actor.id, envelope.input, decisions)
    if not defer_record:
        batch.recorded_entries = len(commit.entries)
        batch.collect_timers(since)
    if envelope.reply is not None:
        _answer(actor, envelope, batch, decisions, before)
    batch.due = (
        batch.due
        or actor.submitted
        or actor.write_through
        or not commit.entries
        or (bool(decisions) and planner.must_commit(state, decisions))
    )
    commands_of = planner.commands
    commands = [command for decision in decisions for command in commands_of(state, decision)]
    if not commands:
        return commands
    batch.due |= actor.parent_uncommitted and any(_has_side_effect(planner, command) for command in commands)
    return [command for command in commands if _may_dispatch_now(actor, batch, command)]


def _answer_repeated(actor: Actor, envelope: Envelope, batch: Batch) -> bool:
    """Answer a request that was carried out before."""
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


def _answer(actor: Actor, envelope: Envelope, batch: Batch, decisions: tuple[Any, ...], before: int) -> None:
    answer = {
        **actor.planner.answer(decisions),
        "first_sequence": str(before + 1),
        "last_sequence": str(batch.commit.event_head),
    }
    request = envelope.request
    if request is not None:
        batch.commit.requests.append((request, answer))
        actor.record_request(request, CompletedRequest(request.fingerprint, answer))
    batch.replies.append((envelope, Outcome(decisions, answer)))


def _has_side_effect(planner: Planner, command: Command) -> bool:
    return not isinstance(command, Answer | Stop) and not planner.allows_early_dispatch(command)


def _may_dispatch_now(actor: Actor, batch: Batch, command: Command) -> bool:
    """Whether ``command`` goes out now; if not, it waits in the batch."""
    if batch.due and (isinstance(command, Answer) or not _may_overtake(actor, batch, command)):
        batch.commands.append(command)
        if isinstance(command, Stop):
            batch.cancelled_operations.add(command.operation_id)
        return False
    if not isinstance(command, Answer | Stop):
        batch.early_commands.append(command)
    return True


def _may_overtake(actor: Actor, batch: Batch, command: Command) -> bool:
    """Whether it may overtake what waits; but what stops an operation comes before it begins again."""
    if actor.write_through or not actor.planner.allows_early_dispatch(command):
        return False
    operation_id = getattr(command, "operation_id", "")
    inflight = actor.inflight
    return operation_id not in batch.cancelled_operations and (
        inflight is None or operation_id not in inflight.cancelled_operations
    )
