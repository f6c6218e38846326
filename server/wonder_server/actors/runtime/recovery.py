"""What is left of an actor whose working set is thrown away, because it could not be written or planned on.

It is loaded again from what is on disk, and told again what it had taken since: results of operations are
not lost. What was begun before it was written counts as never begun: it is stopped and its results are
forgotten, for what led to it is planned again and begins it again.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from wonder_server.actors.runtime.actor import Actor, Batch, Envelope
from wonder_server.core.actor.commands import Answer, Command
from wonder_server.core.errors import Fault


@dataclass(slots=True)
class PendingRecovery:
    """What an actor is to be told first when it is loaded: inputs, and with ``restart`` that each operation
    of its outbox is to be handed out again. ``careful``: its last commit failed. ``singly``: how many inputs
    are to be written each alone. ``failures``: how often in a row it could not be loaded, for good."""

    retry: list[Envelope] = field(default_factory=list)
    restart: bool = False
    write_through: bool = False
    isolate: int = 0
    failures: int = 0


@dataclass(frozen=True, slots=True)
class RecoveryPlan:
    """What becomes of the inputs: ``left`` are told again, of which the first ``singly`` are written each
    alone; ``told`` hear of the problem; ``failing`` cannot be taken at all. ``begun`` is to be stopped."""

    retry: list[Envelope]
    reject: list[Envelope]
    fail: list[Envelope]
    isolate: int
    abort: list[Command]


def plan_recovery(actor: Actor, failed: Batch | None, fault: Fault, culprit: Envelope | None) -> RecoveryPlan:
    """``failed`` is the batch that could not be written, if there was one; ``culprit`` the input that is
    known to be what cannot be planned or written.

    If the problem will pass, those who asked are told of it. If it will not and nobody knows which input it
    comes from, each is tried alone; if there was nothing to write, the actor cannot be loaded and all fail.
    """
    batches = [batch for batch in (failed, actor.batch) if batch is not None]
    early_commands = [command for batch in batches for command in batch.early_commands]
    aborted_operations = {
        command.operation_id for command in early_commands if not isinstance(command, Answer)
    }
    inputs = [envelope for batch in batches for envelope in batch.inputs]
    retry: list[Envelope] = []
    reject: list[Envelope] = []
    fail: list[Envelope] = []
    for envelope in [*inputs, *actor.mailbox]:
        envelope.deduplicated = False
        if envelope is culprit:
            fail.append(envelope)
        elif envelope.reply is None and getattr(envelope.input, "operation_id", "") in aborted_operations:
            continue
        elif fault.transient and envelope.reply is not None:
            reject.append(envelope)
        elif fault.transient or failed is not None or culprit is not None:
            retry.append(envelope)
        else:
            fail.append(envelope)
    isolate = len(retry) if failed is not None and not fault.transient and culprit is None else 0
    return RecoveryPlan(retry, reject, fail, isolate, early_commands)
