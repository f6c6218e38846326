"""Evaluation of a workflow's expressions. Faults name the workflow, the node and the field."""

from __future__ import annotations

from collections.abc import Mapping

from wonder_server.core import expressions
from wonder_server.core.coordinator.model.values import Token
from wonder_server.core.coordinator.planning.plan_builder import PlanBuilder
from wonder_server.core.errors import Fault, Reason
from wonder_server.core.json_types import JsonDict, JsonObject, JsonValue
from wonder_server.core.schema import payloads, schemas


class Problem(Exception):
    """Raised inside the planner with the fault that stops a branch."""

    def __init__(self, fault: Fault) -> None:
        super().__init__(fault.message)
        self.fault = fault


def value_of(
    builder: PlanBuilder, source: str, scope: JsonObject, field: str, node_id: str = ""
) -> JsonValue:
    """Evaluate one expression. ``field`` is its path in the node or the workflow. Raises `Problem`."""
    try:
        return expressions.evaluate(source, scope)
    except expressions.ExpressionError as problem:
        raise _failed(builder, problem.fault, field, node_id) from None


def _failed(builder: PlanBuilder, located: expressions.ExpressionFault, field: str, node_id: str) -> Problem:
    place = f"{builder.workflow.pin}, node `{node_id}`" if node_id else str(builder.workflow.pin)
    return Problem(
        Fault(
            reason=Reason.EXPRESSION_FAILED,
            message=f"{place}, {field}: {located}",
            field=field,
            metadata={
                "workflow": str(builder.workflow.pin),
                **({"node": node_id} if node_id else {}),
                "line": str(located.line),
                "column": str(located.column),
            },
        )
    )


def truth(builder: PlanBuilder, source: str, scope: JsonObject, field: str, node_id: str) -> bool:
    """Evaluate a condition. Raises `Problem` if the value is not a boolean."""
    holds = value_of(builder, source, scope, field, node_id)
    if not isinstance(holds, bool):
        raise Problem(
            Fault(
                reason=Reason.EXPRESSION_FAILED,
                message=f"{builder.workflow.pin}, node `{node_id}`, {field}: "
                f"a condition must be true or false, not {_type_name(holds)}",
                field=field,
                metadata={"workflow": str(builder.workflow.pin), "node": node_id},
            )
        )
    return holds


def mapped(
    builder: PlanBuilder, mapping: Mapping[str, str], scope: JsonObject, field: str, node_id: str = ""
) -> JsonDict:
    """Evaluate every entry of a mapping. Dotted targets create nested objects. Raises `Problem`."""
    result: JsonDict = {}
    target = ""
    try:
        for target, source in mapping.items():
            value = expressions.evaluate(source, scope)
            if "." in target:
                result = expressions.assign(result, target, value)
            else:
                result[target] = value
    except expressions.ExpressionError as problem:
        raise _failed(builder, problem.fault, f"{field}.{target}", node_id) from None
    check(result, field, node_id)
    return result


def store(
    builder: PlanBuilder, token: Token, target: str, value: JsonValue, field: str, node_id: str
) -> None:
    """Write a value into the context. Raises `Problem` if the value is not valid as a payload."""
    entry = builder.context.entry(token, target, value)
    check(entry.value, field, node_id)
    builder.context.set(entry)


def check(value: JsonValue, field: str, node_id: str) -> None:
    """Raise `Problem` if the value exceeds the limits of payloads. Mappings can grow values without limit
    otherwise."""
    wrong = payloads.check(value, field=field)
    if wrong is not None:
        place = f"node `{node_id}`" if node_id else "the workflow"
        raise Problem(
            Fault(
                reason=wrong.reason,
                message=f"{place}, {wrong.field}: {wrong.message}",
                field=wrong.field,
                metadata={"node": node_id} if node_id else {},
            )
        )


def check_state(builder: PlanBuilder, node_id: str) -> None:
    """Raise `Problem` if ``state`` does not match the workflow's schema."""
    schema = builder.workflow.spec.state_schema
    problems = schemas.validate(schema, builder.context.state) if schema else []
    if problems:
        raise Problem(
            Fault(
                reason=Reason.RUN_FAILED,
                message=f"After node `{node_id}` the state does not match its schema: "
                + "; ".join(problems[:5]),
                field="state_schema",
                metadata={"node": node_id},
            )
        )


def _type_name(value: JsonValue) -> str:
    names: dict[type, str] = {dict: "an object", list: "a list", str: "text"}
    return "null" if value is None else names.get(type(value), "a number")
