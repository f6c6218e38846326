"""``context``: values computed from the task's context, and nothing else.

Setting, merging and transforming are what the expressions of the step's mappings do (``merge``,
``flatten``, ``map``, …): the action hands back what they made, as its result.
"""

from __future__ import annotations

from typing import Any

from wonder_server.services.actions.contract.kind import ActionCall, ActionKind


def _computed(call: ActionCall) -> dict[str, Any]:
    return dict(call.input)


async def _run(call: ActionCall) -> dict[str, Any]:
    return _computed(call)


CONTEXT = ActionKind(
    name="context",
    description="Computes values: its result is its input. The expressions of the step do the work.",
    input_schema={"type": "object"},
    output_schema={"type": "object"},
    run=_run,
    run_inline=_computed,
)
