"""Runs that consolidate memories, for retention rules (feature E7)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from wonder_server.actors.runs.runs import Runs, StartRunRequest
from wonder_server.core.actor.commands import Scope
from wonder_server.core.definitions.specs import PinnedAgent
from wonder_server.core.idempotency import Origin
from wonder_server.core.identity import Principal
from wonder_server.core.json_types import JsonObject

WAIT_MS: Final = 60_000


class ConsolidationRuns:
    """Starts consolidation runs, each with the scope of its agent."""

    def __init__(self, runs: Callable[[Principal], Runs]) -> None:
        self._runs = runs

    async def run(self, workflow: str, agent: PinnedAgent, input: JsonObject, origin: Origin) -> str:
        """Run the workflow. Return the run's status at its end, or after one minute.

        Errors: DEFINITION_NOT_FOUND, INPUT_INVALID.
        """
        start_request = StartRunRequest(
            workflow=workflow,
            input=dict(input),
            scope=Scope(project_id=agent.project_ids[0], agent_id=agent.agent_id),
            metadata={"retention_of": agent.name},
        )
        view = await self._runs(origin.principal).start(start_request, origin, wait_ms=WAIT_MS)
        return str(view.run.status)
