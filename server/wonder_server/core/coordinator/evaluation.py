"""Expressions of a workflow, evaluated where a token is; what is wrong with them says where (document 5)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from wonder_server.core import expressions
from wonder_server.core.coordinator.plan_builder import PlanBuilder
from wonder_server.core.coordinator.values import Token
from wonder_server.core.errors import Fault, Reason
from wonder_server.core.schema import payloads, schemas


class Problem(Exception):
    """Inside the planner: why something cannot go on."""

    def __init__(self, fault: Fault) -> None:
        super().__init__(fault.message)
        self.fault = fault


def value_of(
    builder: PlanBuilder, source: str, scope: Mapping[str, Any], field: str, node_id: str = ""
) -> Any:
    """The value of one expression. ``field`` is its place in the node, or in the workflow."""
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


def truth(builder: PlanBuilder, source: str, scope: Mapping[str, Any], field: str, node_id: str) -> bool:
    """The value of a condition."""
    holds = value_of(builder, source, scope, field, node_id)
    if not isinstance(holds, bool):
        raise Problem(
            Fault(
                reason=Reason.EXPRESSION_FAILED,
                message=f"{builder.workflow.pin}, node `{node_id}`, {field}: "
                f"a condition must be true or false, not {_shape(holds)}",
                field=field,
                metadata={"workflow": str(builder.workflow.pin), "node": node_id},
            )
        )
    return holds


def mapped(
    builder: PlanBuilder, mapping: Mapping[str, str], scope: Mapping[str, Any], field: str, node_id: str = ""
) -> dict[str, Any]:
    """Every target of a mapping with its value; dotted targets make objects."""
    result: dict[str, Any] = {}
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


def store(builder: PlanBuilder, token: Token, target: str, value: Any, field: str, node_id: str) -> None:
    """Write a value into the context, if it is one that can be kept and shown."""
    entry = builder.context.entry(token, target, value)
    check(entry.value, field, node_id)
    builder.context.set(entry)


def check(value: Any, field: str, node_id: str) -> None:
    """Values of nodes grow by mappings; what cannot be sent must not be kept."""
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
    """Hold ``state`` against the workflow's schema for it."""
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


def _shape(value: Any) -> str:
    shapes: dict[type, str] = {dict: "an object", list: "a list", str: "text"}
    return "null" if value is None else shapes.get(type(value), "a number")
