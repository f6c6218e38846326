"""The ways to the human gates of runs: listing them, and deciding at one (feature G5)."""

from __future__ import annotations

from dataclasses import dataclass

from wonder_server.actors.conversations import Shards
from wonder_server.actors.loop import Loop
from wonder_server.actors.requests import request
from wonder_server.core import ids
from wonder_server.core.coordinator.decisions import CloseGate
from wonder_server.core.coordinator.inputs import ResolveGate
from wonder_server.core.coordinator.values import Gate
from wonder_server.core.errors import Reason, WonderError, error
from wonder_server.ports.records import Query, Records


@dataclass(frozen=True, slots=True)
class Gates:
    """Find and resolve. A gate's id ends with the character of its run's shard."""

    loop: Loop
    shards: Shards
    records: Records

    async def find(self, query: Query) -> list[Gate]:
        """The gates that ``query`` asks for."""
        return await self.records.find(query)

    async def get(self, gate_id: str) -> Gate:
        """Errors: GATE_NOT_FOUND."""
        found: list[Gate] = []
        if ids.is_id("gate", gate_id) and self.shards.holds(gate_id):
            found = await self.records.find(Query(table="gates", id=gate_id, beside=gate_id, limit=1))
        if not found:
            raise not_found(gate_id)
        return found[0]

    async def resolve(self, decision: ResolveGate, request_id: str) -> Gate:
        """Decide at a gate: the gate, resolved.

        Errors: GATE_NOT_FOUND, GATE_RESOLVED, INPUT_INVALID, PERMISSION_DENIED.
        """
        gate = await self.get(decision.gate_id)
        asked = request(
            gate.run_id,
            request_id,
            gate=gate.id,
            approve=decision.approve,
            shown=decision.shown_hash,
            answer=decision.answer,
            comment=decision.comment,
            user=decision.user_id,
        )
        outcome = await self.loop.ask(gate.run_id, decision, asked)
        for decided in outcome.decisions:
            if isinstance(decided, CloseGate) and decided.gate.id == gate.id:
                return decided.gate
        return await self.get(gate.id)


def not_found(gate_id: str) -> WonderError:
    return error(Reason.GATE_NOT_FOUND, "No gate has this id.", field="gate_id", id=gate_id[:64])
