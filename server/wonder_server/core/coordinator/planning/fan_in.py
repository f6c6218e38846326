"""Fan-in: the number of branches that must arrive, and the merge of their values.

``token_flow.py`` describes when branches are joined.
"""

from __future__ import annotations

from wonder_server.core.coordinator.model.values import FanOut, Token
from wonder_server.core.coordinator.planning import evaluation
from wonder_server.core.coordinator.planning.evaluation import Problem
from wonder_server.core.coordinator.planning.plan_builder import PlanBuilder
from wonder_server.core.definitions.specs import FanIn, FanInMode, MergeStrategy
from wonder_server.core.errors import Fault, Reason
from wonder_server.core.json_types import JsonValue


def fan_in_of(builder: PlanBuilder, fan_out: FanOut | None) -> FanIn | None:
    """Return the fan-in where the branches of a fan-out meet, or None."""
    return (
        builder.compiled[fan_out.join_node_id].node.fan_in
        if fan_out is not None and fan_out.join_node_id
        else None
    )


def min_arrivals(fan_in: FanIn) -> int:
    """Return the number of branches that must arrive; 0 for all that can."""
    return _MIN_ARRIVALS.get(fan_in.mode, fan_in.count)


_MIN_ARRIVALS = {FanInMode.ALL: 0, FanInMode.ANY: 1}


def unmet_fault(fan_out: FanOut, arrived: int, minimum: int) -> Fault:
    """Return the fault of a fan-out of which too few branches can still arrive."""
    message = (
        f"The fan-in at node `{fan_out.join_node_id}` needs {minimum} of {len(fan_out.branches)} branches, "
        f"and {arrived} arrived before the others ended or failed."
    )
    return Fault(reason=Reason.RUN_FAILED, message=message, metadata={"node": fan_out.join_node_id})


def merged_value(
    builder: PlanBuilder, fan_out: FanOut, arrived: list[Token], index: int, fan_in: FanIn
) -> JsonValue:
    """Return the value of one merge of the fan-in, from the branches in their order. Raises `Problem`."""
    merge, node_id = fan_in.merges[index], fan_out.join_node_id
    field = f"fan_in.merges[{index}].source"
    found = [
        (
            token,
            evaluation.value_of(builder, merge.source, builder.context.branch_scope(token), field, node_id),
        )
        for token in arrived
    ]
    match merge.strategy:
        case MergeStrategy.COLLECT:
            return [value for _, value in found]
        case MergeStrategy.KEYED_BY_BRANCH:
            return {token.branch: value for token, value in found}
        case MergeStrategy.LAST_WINS:
            return max(found, key=lambda each: each[0].arrival)[1] if found else None
        case MergeStrategy.APPEND:
            _check_types(found, list, "a list", field, node_id)
            return [item for _, value in found for item in value]
        case MergeStrategy.MERGE_OBJECT:
            _check_types(found, dict, "an object", field, node_id)
            return {key: item for _, value in found for key, item in value.items()}


def _check_types(
    found: list[tuple[Token, JsonValue]], kind: type, expected: str, field: str, node_id: str
) -> None:
    for token, value in found:
        if not isinstance(value, kind):
            message = f"Node `{node_id}`, {field}: in branch `{token.branch}` this is not {expected}."
            raise Problem(
                Fault(
                    reason=Reason.EXPRESSION_FAILED, message=message, field=field, metadata={"node": node_id}
                )
            )
