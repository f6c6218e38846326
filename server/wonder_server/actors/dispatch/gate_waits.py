"""The time in which the work of a tool call has waited for people, from the gates of its runs and
conversations.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Final

from wonder_server.core.actor.gates import Gate, GateStatus
from wonder_server.core.conversation.model.values import Conversation
from wonder_server.core.coordinator.model.values import Run
from wonder_server.ports.records import Query
from wonder_server.ports.scoped import ScopedRecords

MAX_ACTORS: Final = 500
"""Runs and conversations that one measurement reads. Waits of further ones do not count."""

_ROWS: Final = 1_000


@dataclass(frozen=True, slots=True)
class Waited:
    """The time with at least one open gate, and whether one is open now."""

    total_ms: int
    waits: bool


async def measure_waits(records: ScopedRecords, child_id: str, since_ms: int, now_ms: int) -> Waited:
    """Return the time in which ``child_id``, or work that it has started since ``since_ms``, waited for
    people.
    """
    spans: list[tuple[int, int]] = []
    waits = False
    queue, seen = deque([child_id]), {child_id}
    while queue:
        actor_id = queue.popleft()
        gates: list[Gate] = await records.find(
            Query(table="gates", actor=actor_id, start_ms=since_ms, limit=_ROWS)
        )
        for gate in gates:
            is_open = gate.status is GateStatus.PENDING
            waits |= is_open
            spans.append((gate.created_ms, now_ms if is_open else gate.resolved_ms))
        for each in await _children(records, actor_id, since_ms):
            if each not in seen and len(seen) < MAX_ACTORS:
                seen.add(each)
                queue.append(each)
    return Waited(_covered_ms(spans), waits)


async def _children(records: ScopedRecords, actor_id: str, since_ms: int) -> list[str]:
    """Return the runs and the called conversations that the actor has started."""
    runs: list[Run] = await records.find(
        Query(
            table="runs",
            fields=(("parent.actor_id", actor_id),),
            colocated_with=actor_id,
            start_ms=since_ms,
            limit=_ROWS,
        )
    )
    called: list[Conversation] = await records.find(
        Query(
            table="conversations",
            fields=(("called_by", actor_id),),
            colocated_with=actor_id,
            start_ms=since_ms,
            limit=_ROWS,
        )
    )
    return [*(run.id for run in runs), *(each.id for each in called)]


def _covered_ms(spans: list[tuple[int, int]]) -> int:
    """Return the length of the union of these spans of time."""
    total = end = 0
    for start, stop in sorted(spans):
        total += max(0, stop - max(start, end))
        end = max(end, stop)
    return total
