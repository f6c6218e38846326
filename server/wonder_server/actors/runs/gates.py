"""Entry points for gates of runs and tool calls: list and resolve them (features G5, M9)."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

from wonder_server.actors.access import EntryAccess
from wonder_server.core import ids
from wonder_server.core.actor.gates import Gate, GateStatus, ResolveGate
from wonder_server.core.conversation.model.decisions import CloseApproval
from wonder_server.core.coordinator.model.decisions import CloseGate
from wonder_server.core.errors import Reason, WonderError, not_found
from wonder_server.core.frozen import replace as changed
from wonder_server.core.idempotency import Origin, content_key
from wonder_server.ports.records import Query


class Gates:
    """Finds and resolves gates. A gate's id names the shard of its run or conversation."""

    def __init__(self, access: EntryAccess) -> None:
        self._directory = access.directory
        self._journals = access.journals
        self._records = access.records

    async def find(self, query: Query) -> list[Gate]:
        """Return the gates that match ``query``."""
        return await self._records.find(query)

    async def get(self, gate_id: str) -> Gate:
        """Return a gate. Errors: GATE_NOT_FOUND."""
        found: list[Gate] = []
        if ids.is_id("gate", gate_id) and self._journals.holds(gate_id):
            found = await self._records.find(
                Query(table="gates", id=gate_id, colocated_with=gate_id, limit=1)
            )
        if not found:
            raise gate_not_found(gate_id)
        return found[0]

    async def resolve(self, decision: ResolveGate, origin: Origin) -> Gate:
        """Resolve a gate and return it.

        Errors: GATE_NOT_FOUND, GATE_RESOLVED, INPUT_INVALID, PERMISSION_DENIED.
        """
        gate = await self.get(decision.gate_id)
        identity = content_key(
            gate.actor_id,
            origin,
            gate=gate.id,
            approve=decision.approve,
            shown=decision.shown_hash,
            answer=decision.answer,
            comment=decision.comment,
            user=decision.user_id,
        )
        decision = changed(decision, principal=origin.principal.text)
        try:
            outcome = await self._directory.ask(
                gate.actor_id, decision, identity, caller=origin.principal.caller
            )
        except WonderError as refusal:
            if refusal.fault.reason is Reason.GATE_RESOLVED and refusal.fault.field == "gate_id":
                raise _with_resolver(await self.get(gate.id), refusal) from None
            raise
        for made in outcome.decisions:
            if isinstance(made, CloseGate | CloseApproval) and made.gate.id == gate.id:
                return made.gate
        return await self.get(gate.id)


def _with_resolver(gate: Gate, refusal: WonderError) -> WonderError:
    """Add the user and time of the earlier resolution to the error. The planner knows open gates only."""
    if gate.status is GateStatus.PENDING:
        return refusal
    who = f" by {gate.user_id[:64]}" if gate.user_id else ""
    at = datetime.fromtimestamp(gate.resolved_ms / 1000, UTC)
    when = f" at {at:%Y-%m-%d %H:%M:%S} UTC" if gate.resolved_ms else ""
    message = f"The gate is already resolved: it was {gate.status}{who}{when}."
    return WonderError(replace(refusal.fault, message=message))


def gate_not_found(gate_id: str) -> WonderError:
    return not_found(Reason.GATE_NOT_FOUND, gate_id, field="gate_id")
