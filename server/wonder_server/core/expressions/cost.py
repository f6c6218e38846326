"""Parts of expressions without cost: they use nothing of the budget, whatever the values are."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from wonder_server.core.expressions import syntax
from wonder_server.core.expressions.functions import FUNCTIONS
from wonder_server.core.expressions.syntax import Node


def has_no_cost(node: Node) -> bool:
    """Return True if the evaluation of a node uses nothing of the budget."""
    match node:
        case syntax.Macro():
            return False
        case syntax.Call(function=function) if not FUNCTIONS[function].has_no_cost:
            return False
        case syntax.Chain(first=first, rest=rest):
            constant = any(isinstance(operand, syntax.Constant) for operand in (first, rest[0][1]))
            for symbol, _, _ in rest:
                # A comparison has a cost only for lists and maps.
                if symbol in ("+", "in") or (symbol in ("==", "!=") and not (constant and len(rest) == 1)):
                    return False
    return all(map(has_no_cost, _parts(node)))


def names(node: Node) -> set[str]:
    """Return the variables that a part of an expression uses."""
    if isinstance(node, syntax.Name):
        return {node.name}
    return set().union(*map(names, _parts(node)))


def _parts(node: Node) -> tuple[Node, ...]:
    """Return the direct parts of a node."""
    parts = _PARTS.get(type(node))
    return () if parts is None else parts(node)


def _macro_parts(node: syntax.Macro) -> tuple[Node, ...]:
    return (node.target, node.body) if node.condition is None else (node.target, node.condition, node.body)


_PARTS: Mapping[type[Node], Callable[..., tuple[Node, ...]]] = {
    syntax.Path: lambda node: (node.target,),
    syntax.Index: lambda node: (node.target, node.key),
    syntax.Call: lambda node: node.arguments,
    syntax.Macro: _macro_parts,
    syntax.ListOf: lambda node: node.items,
    syntax.MapOf: lambda node: tuple(part for entry in node.entries for part in entry),
    syntax.Sign: lambda node: (node.operand,),
    syntax.Logic: lambda node: node.operands,
    syntax.Chain: lambda node: (node.first, *(operand for _, operand, _ in node.rest)),
    syntax.Choice: lambda node: (node.condition, node.then, node.otherwise),
}
"""The parts of each class of node; a class that is not listed has none."""
