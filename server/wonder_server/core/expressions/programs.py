"""A syntax tree to a program: nested closures, one per node, called with the `Frame`.

Closures cost a tenth of walking the tree again each time and, unlike generated code, need no eval. What
is most common is made of as few of them as can be: paths, comparisons with a constant, maps.

Many parts of expressions are free: they spend nothing, so they look at nothing but names. Those may be called
with a plain mapping in the frame's place; and what is free and speaks only of a loop's variable, with the
item itself (``item`` is then the variable's name), which saves a loop all that is not its own work.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from wonder_server.core.expressions import syntax
from wonder_server.core.expressions.cost import has_no_cost, names
from wonder_server.core.expressions.faults import BudgetExceeded, SyntaxFault
from wonder_server.core.expressions.functions import FUNCTIONS
from wonder_server.core.expressions.macros import compile_macro
from wonder_server.core.expressions.syntax import TYPE_NAMES, Node
from wonder_server.core.expressions.values import (
    Frame,
    add,
    calculate,
    compare,
    contains,
    equals,
    fitting,
    is_number,
    truth,
    type_name,
    whole,
)

Run = Callable[[Any], Any]
T = TypeVar("T")


def program(node: Node, item: str = "") -> Run:
    """What computes the node's value. The run raises `Mistake`."""
    match node:
        case syntax.Constant(value=value):
            return lambda frame: value
        case syntax.Name():
            return _name(node, item)
        case syntax.Path():
            return _probe(node, item) if node.probe else _path(node, item)
        case syntax.Index():
            return _index(node, item)
        case syntax.Call():
            return _call(node, item)
        case syntax.Macro():
            return _macro(node)
        case syntax.ListOf(items=items):
            return _list(items, item)
        case syntax.MapOf():
            return _map(node, item)
        case syntax.Sign():
            return _sign(node, item)
        case syntax.Logic():
            return _logic(node, item)
        case syntax.Chain():
            return _chain(node, item)
        case syntax.Choice():
            return _choice(node, item)
    raise AssertionError(node)


def _name(node: syntax.Name, item: str) -> Run:
    name, at = node.name, node.at

    def run(frame: Frame) -> Any:
        try:
            return frame[name]
        except KeyError:
            if name in TYPE_NAMES:
                return name
            raise SyntaxFault(f"unknown variable '{name}'", at) from None

    return _itself if name == item else run


def _itself(item: Any) -> Any:
    return item


def _path(node: syntax.Path, item: str) -> Run:
    target, at, fields = program(node.target, item), node.at, node.fields
    name = label = node.target.name if isinstance(node.target, syntax.Name) else ""
    first, second = fields[0], fields[-1]

    def select(value: Any, field: str) -> Any:
        if not isinstance(value, Mapping):
            raise SyntaxFault(f"there is no '{field}' in {type_name(value)}: only maps have members", at)
        if field not in value:
            raise SyntaxFault(f"there is no '{field}'" + (f" in '{label}'" if label else ""), at)
        return value[field]

    def run(frame: Frame) -> Any:
        value = target(frame)
        for field in fields:
            value = value[field] if type(value) is dict and field in value else select(value, field)
        return value

    # Nearly always it is all there: only if not, it matters what is missing.

    def of_item(value: Any) -> Any:
        try:
            return value[first]
        except (KeyError, TypeError):
            return select(value, first)

    def short(frame: Frame) -> Any:
        try:
            return frame[name][first]
        except (KeyError, TypeError):
            return run(frame)

    def long(frame: Frame) -> Any:
        try:
            return frame[name][first][second]
        except (KeyError, TypeError):
            return run(frame)

    if not name or len(fields) > 2:
        return run
    if name == item:
        return of_item if len(fields) == 1 else run
    return short if len(fields) == 1 else long


def _probe(node: syntax.Path, item: str) -> Run:
    leading, last, at = node.fields[:-1], node.fields[-1], node.at
    owner = program(replace(node, fields=leading, probe=False) if leading else node.target, item)

    def run(frame: Frame) -> bool:
        value = owner(frame)
        if type(value) is not dict and not isinstance(value, Mapping):
            raise SyntaxFault(f"has() looks into a map, not into {type_name(value)}", at)
        return last in value

    return run


def _index(node: syntax.Index, item: str) -> Run:
    target, key, at = program(node.target, item), program(node.key, item), node.at

    def run(frame: Frame) -> Any:
        collection, wanted = target(frame), key(frame)
        if isinstance(collection, Mapping):
            if not isinstance(wanted, str) or wanted not in collection:
                raise SyntaxFault(f"there is no member {wanted!r:.80}", at)
            return collection[wanted]
        if not isinstance(collection, (list, tuple)):
            raise SyntaxFault(f"[…] looks into a list or a map, not into {type_name(collection)}", at)
        position = _at(at, whole, wanted)
        if not 0 <= position < len(collection):
            raise SyntaxFault(f"there is no item {position}: the list has {len(collection)}", at)
        return collection[position]

    return run


def _call(node: syntax.Call, item: str) -> Run:
    name, at = node.function, node.at
    function = FUNCTIONS[name].run
    arguments = [program(argument, item) for argument in node.arguments]
    first = arguments[0]

    def fault(mistake: SyntaxFault) -> SyntaxFault:
        return type(mistake)(f"{name}(): {mistake.message}", at)

    def of_one(frame: Frame) -> Any:
        value = first(frame)
        try:
            return function(frame, value)
        except SyntaxFault as mistake:
            raise fault(mistake) from None

    def run(frame: Frame) -> Any:
        values = [argument(frame) for argument in arguments]
        try:
            return function(frame, *values)
        except SyntaxFault as mistake:
            raise fault(mistake) from None

    return of_one if len(arguments) == 1 else run


def _macro(node: syntax.Macro) -> Run:
    target, body = program(node.target), program(node.body)
    condition = program(node.condition) if node.condition is not None else None
    alone = None
    if condition is None and has_no_cost(node.body) and names(node.body) <= {node.variable}:
        alone = program(node.body, node.variable)
    return compile_macro(node, target, body, condition, alone)


def _list(items: Sequence[Node], item: str) -> Run:
    constants = [each.value for each in items if isinstance(each, syntax.Constant)]
    if len(constants) == len(items):
        return lambda frame: constants.copy()
    parts = [program(each, item) for each in items]
    return lambda frame: [part(frame) for part in parts]


def _map(node: syntax.MapOf, item: str) -> Run:
    names = [key.value for key, _ in node.entries if isinstance(key, syntax.Constant)]
    if len({name for name in names if isinstance(name, str)}) == len(node.entries):
        return _record({str(name): value for name, (_, value) in zip(names, node.entries, strict=True)}, item)
    entries = [(program(key, item), program(value, item), key.at) for key, value in node.entries]

    def run(frame: Frame) -> dict[str, Any]:
        result: dict[str, Any] = {}
        for key, value, at in entries:
            name = key(frame)
            if not isinstance(name, str):
                raise SyntaxFault(f"a map's keys are texts, not {type_name(name)}", at)
            if name in result:
                raise SyntaxFault(f"the key '{name}' is there twice", at)
            result[name] = value(frame)
        return result

    return run


def _record(members: Mapping[str, Node], item: str) -> Run:
    """A map of known keys: a copy of what is the same each time, filled in."""
    form = {name: node.value if isinstance(node, syntax.Constant) else None for name, node in members.items()}
    filled = [
        (name, program(node, item)) for name, node in members.items() if not isinstance(node, syntax.Constant)
    ]

    def run(frame: Frame) -> dict[str, Any]:
        result = form.copy()
        for name, member in filled:
            result[name] = member(frame)
        return result

    return run


def _sign(node: syntax.Sign, item: str) -> Run:
    operand, at = program(node.operand, item), node.at

    def negated(frame: Frame) -> Any:
        value = operand(frame)
        if not is_number(value):
            raise SyntaxFault(f"'-' is not defined for {type_name(value)}", at)
        return _at(at, fitting, -value)

    def inverted(frame: Frame) -> bool:
        return not truth(operand(frame), at)

    return negated if node.sign == "-" else inverted


def _logic(node: syntax.Logic, item: str) -> Run:
    operands = [program(operand, item) for operand in node.operands]
    decisive, other, at = node.operator == "||", node.operator != "||", node.at

    def run(frame: Frame) -> Any:
        fault: SyntaxFault | None = None
        for operand in operands:
            try:
                holds = operand(frame)
                if holds is decisive:
                    return decisive
                if holds is not other:
                    truth(holds, at)
            except BudgetExceeded:
                raise
            except SyntaxFault as mistake:
                fault = fault or mistake
        if fault is not None:
            raise fault
        return other

    return run


def _chain(node: syntax.Chain, item: str) -> Run:
    first = program(node.first, item)
    if len(node.rest) == 1:
        symbol, operand, at = node.rest[0]
        if symbol in ("==", "!=") and isinstance(operand, syntax.Constant):
            return _comparison_with(operand.value, first, symbol == "==")
        return _pair(first, _OPERATORS[symbol], program(operand, item), at)
    rest = [(_OPERATORS[symbol], program(operand, item), at) for symbol, operand, at in node.rest]

    def run(frame: Frame) -> Any:
        value = first(frame)
        for apply, operand, at in rest:
            other = operand(frame)
            try:
                value = apply(frame, value, other)
            except SyntaxFault as mistake:
                mistake.at = at
                raise
        return value

    return run


def _comparison_with(constant: Any, operand: Run, wanted: bool) -> Run:
    """Whether a value is a constant one, or is not. Nearly always they are of one kind."""
    kind = type(constant)

    def run(frame: Frame) -> bool:
        value = operand(frame)
        if type(value) is kind:
            return (value == constant) is wanted
        return equals(frame, value, constant) is wanted

    return run


def _pair(first: Run, apply: Callable[[Frame, Any, Any], Any], second: Run, at: int) -> Run:
    def run(frame: Frame) -> Any:
        left, right = first(frame), second(frame)
        try:
            return apply(frame, left, right)
        except SyntaxFault as mistake:
            mistake.at = at
            raise

    return run


def _comparison(symbol: str) -> Callable[[Frame, Any, Any], Any]:
    return lambda frame, left, right: compare(symbol, left, right)


def _calculation(symbol: str) -> Callable[[Frame, Any, Any], Any]:
    return lambda frame, left, right: calculate(symbol, left, right)


_OPERATORS: dict[str, Callable[[Frame, Any, Any], Any]] = {
    "==": equals,
    "!=": lambda frame, left, right: not equals(frame, left, right),
    "in": contains,
    "+": add,
    **{symbol: _comparison(symbol) for symbol in ("<", "<=", ">", ">=")},
    **{symbol: _calculation(symbol) for symbol in ("-", "*", "/", "%")},
}


def _choice(node: syntax.Choice, item: str) -> Run:
    condition, then, otherwise = (program(part, item) for part in (node.condition, node.then, node.otherwise))
    at = node.at

    def run(frame: Frame) -> Any:
        holds = condition(frame)
        if holds is True or (holds is not False and truth(holds, at)):
            return then(frame)
        return otherwise(frame)

    return run


def _at(at: int, function: Callable[[Any], T], value: Any) -> T:
    """``function(value)``, whose faults lie at this place."""
    try:
        return function(value)
    except SyntaxFault as mistake:
        mistake.at = at
        raise
