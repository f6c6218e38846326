"""One step of an actor: an input is planned, its decisions change the working set and gather in the batch.

Nothing here waits or does anything outside. `step` says which commands may go out at once; the others wait
in the batch until it is on disk.
"""

from __future__ import annotations

from typing import Any

from wonder_server.actors.actor import Actor, Batch, Envelope, Outcome
from wonder_server.actors.notices import note
from wonder_server.core.commands import Answer, Command, Stop
from wonder_server.core.errors import WonderError
from wonder_server.core.idempotency import Answered, first_answer
from wonder_server.core.planner import Planner
from wonder_server.ports.journal import Entry


def step(actor: Actor, envelope: Envelope, now_ms: int) -> list[Command]:
    """Plan one input. Returns the commands to hand out now.

    What the planner raises is its own fault; the working set is no good then.
    """
    batch = actor.batch
    if batch is None:
        batch = actor.begin_batch()
    batch.taken.append(envelope)
    if envelope.reply is not None:
        batch.due = True
        if _repeated(actor, envelope, batch):
            return []
    batch.carried.extend(envelope.carried)
    planner, state, commit = actor.planner, actor.state, batch.commit
    # What a batch writes that may not be written whole is only found out when it is asked for.
    late = planner.summary is not None and not batch.due
    if not late and batch.recorded < len(commit.entries):
        batch.record()
    before = commit.event_head
    decisions = planner.plan(state, envelope.input, now_ms)
    fault = planner.refusal(decisions) if decisions else None
    if fault is not None:
        batch.due |= not commit.entries
        batch.replies.append((envelope, WonderError(fault)))
        return []
    apply, record, since = planner.apply, planner.record, len(commit.changes)
    for decision in decisions:
        apply(state, decision)
        if not late:
            commit.add(record(state, decision), now_ms)
    if decisions:
        actor.entry_head += 1
        commit.entries.append(Entry(actor.entry_head, now_ms, envelope.input, decisions))
        if planner.kind == "conversation":
            note(actor.id, envelope.input, decisions)
    if not late:
        batch.recorded = len(commit.entries)
        batch.note_wakes(since)
    if envelope.reply is not None:
        _answer(actor, envelope, batch, decisions, before)
    batch.due = (
        batch.due
        or actor.submitted
        or actor.careful
        or not commit.entries
        or (bool(decisions) and planner.must_commit(state, decisions))
    )
    led_to = planner.commands
    commands = [command for decision in decisions for command in led_to(state, decision)]
    if not commands:
        return commands
    batch.due |= actor.ahead and any(_leaves_trace(planner, command) for command in commands)
    return [command for command in commands if _goes_now(actor, batch, command)]


def _repeated(actor: Actor, envelope: Envelope, batch: Batch) -> bool:
    """Answer a request that was carried out before."""
    request = envelope.request
    if request is None:
        return False
    try:
        told = first_answer(actor.answered.get((request.scope, request.id)), request)
    except WonderError as reused:
        batch.replies.append((envelope, reused))
        return True
    if told is None:
        return False
    batch.replies.append((envelope, Outcome((), told)))
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
        actor.remember(request, Answered(request.fingerprint, answer))
    batch.replies.append((envelope, Outcome(decisions, answer)))


def _leaves_trace(planner: Planner, command: Command) -> bool:
    return not isinstance(command, Answer | Stop) and not planner.early(command)


def _goes_now(actor: Actor, batch: Batch, command: Command) -> bool:
    """Whether ``command`` goes out now; if not, it waits in the batch."""
    if batch.due and (isinstance(command, Answer) or not _is_early(actor, batch, command)):
        batch.commands.append(command)
        if isinstance(command, Stop):
            batch.stopped.add(command.operation_id)
        return False
    if not isinstance(command, Answer | Stop):
        batch.begun.append(command)
    return True


def _is_early(actor: Actor, batch: Batch, command: Command) -> bool:
    """Whether it may overtake what waits; but what stops an operation comes before it begins again."""
    if actor.careful or not actor.planner.early(command):
        return False
    operation_id = getattr(command, "operation_id", "")
    underway = actor.underway
    return operation_id not in batch.stopped and (underway is None or operation_id not in underway.stopped)
