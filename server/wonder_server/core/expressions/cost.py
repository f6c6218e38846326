"""Which parts of expressions are free: they spend nothing of the budget, whatever the values are."""

from __future__ import annotations

from wonder_server.core.expressions import syntax
from wonder_server.core.expressions.functions import FUNCTIONS
from wonder_server.core.expressions.syntax import Node


def has_no_cost(node: Node) -> bool:
    """Whether evaluating it spends nothing."""
    match node:
        case syntax.Macro():
            return False
        case syntax.Call(function=function) if not FUNCTIONS[function].has_no_cost:
            return False
        case syntax.Chain(first=first, rest=rest):
            constant = any(isinstance(operand, syntax.Constant) for operand in (first, rest[0][1]))
            for symbol, _, _ in rest:
                # Only lists and maps cost something when they are compared.
                if symbol in ("+", "in") or (symbol in ("==", "!=") and not (constant and len(rest) == 1)):
                    return False
    return all(map(has_no_cost, _parts(node)))


def names(node: Node) -> set[str]:
    """The variables that a part of an expression speaks of."""
    if isinstance(node, syntax.Name):
        return {node.name}
    return set().union(*map(names, _parts(node)))


def _parts(node: Node) -> tuple[Node, ...]:
    """What a node is made of."""
    match node:
        case syntax.Path(target=target):
            return (target,)
        case syntax.Index(target=target, key=key):
            return (target, key)
        case syntax.Call(arguments=arguments):
            return arguments
        case syntax.Macro(target=target, body=body, condition=condition):
            return (target, body) if condition is None else (target, condition, body)
        case syntax.ListOf(items=items):
            return items
        case syntax.MapOf(entries=entries):
            return tuple(part for entry in entries for part in entry)
        case syntax.Sign(operand=operand):
            return (operand,)
        case syntax.Logic(operands=operands):
            return operands
        case syntax.Chain(first=first, rest=rest):
            return (first, *(operand for _, operand, _ in rest))
        case syntax.Choice(condition=condition, then=then, otherwise=otherwise):
            return (condition, then, otherwise)
    return ()
