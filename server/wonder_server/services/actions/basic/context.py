"""``context``: values computed from the task's context.

The expressions of the step's mappings compute them (``merge``, ``flatten``, ``map``, …). The action returns
its input as its result."""

from __future__ import annotations

from wonder_server.core.json_types import JsonDict
from wonder_server.services.actions.contract.kind import ActionCall, ActionKind


def _computed(call: ActionCall) -> JsonDict:
    return dict(call.input)


async def _run(call: ActionCall) -> JsonDict:
    return _computed(call)


CONTEXT = ActionKind(
    name="context",
    description="Returns its input as its result. The expressions of the step compute the values.",
    input_schema={"type": "object"},
    output_schema={"type": "object"},
    run=_run,
    run_inline=_computed,
)
