"""Compiler from a syntax tree to a program: nested closures, one per node, called with the `Frame`.

Closures cost a tenth of walking the tree for each evaluation and, unlike generated code, need no eval. The
most common nodes (paths, comparisons with a constant, maps) compile to as few closures as possible.

Many nodes have no cost: they use no budget and read only variables. Their programs can be called with a plain
mapping in place of the frame. A node without cost that only uses a macro's variable can be called with the
item itself (``item`` is then the variable's name), which removes all overhead of the loop.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

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
from wonder_server.core.json_types import JsonDict, JsonValue

Run = Callable[[JsonValue], JsonValue]
T = TypeVar("T")


def program(node: Node, item: str = "") -> Run:
    """Return the program that computes the value of a node. The program raises `SyntaxFault`."""
    return _PROGRAMS[type(node)](node, item)


def _name(node: syntax.Name, item: str) -> Run:
    name, at = node.name, node.at

    def run(frame: Frame) -> JsonValue:
        try:
            return frame[name]
        except KeyError:
            if name in TYPE_NAMES:
                return name
            raise SyntaxFault(f"unknown variable '{name}'", at) from None

    return _itself if name == item else run


def _itself(item: JsonValue) -> JsonValue:
    return item


def _path(node: syntax.Path, item: str) -> Run:
    if node.probe:
        return _probe(node, item)
    target, fields = program(node.target, item), node.fields
    name = node.target.name if isinstance(node.target, syntax.Name) else ""
    select = _member(node.at, name)

    def run(frame: Frame) -> JsonValue:
        value = target(frame)
        for field in fields:
            value = value[field] if type(value) is dict and field in value else select(value, field)
        return value

    if not name or len(fields) > 2:
        return run
    if name == item:
        return _item_member(fields[0], select) if len(fields) == 1 else run
    return _short_path(name, fields, run)


def _member(at: int, owner: str) -> Callable[[JsonValue, str], JsonValue]:
    """Return the function that selects a member of a map, or raises the fault if it is missing."""

    def select(value: JsonValue, field: str) -> JsonValue:
        if not isinstance(value, Mapping):
            raise SyntaxFault(f"there is no '{field}' in {type_name(value)}: only maps have members", at)
        if field not in value:
            raise SyntaxFault(f"there is no '{field}'" + (f" in '{owner}'" if owner else ""), at)
        return value[field]

    return select


# Nearly always every member exists. Only otherwise the missing one is searched.


def _item_member(field: str, select: Callable[[JsonValue, str], JsonValue]) -> Run:
    def of_item(value: JsonValue) -> JsonValue:
        try:
            return value[field]
        except (KeyError, TypeError):
            return select(value, field)

    return of_item


def _short_path(name: str, fields: tuple[str, ...], run: Run) -> Run:
    """Return the program of a path of one or two fields that starts at a variable."""
    first, second = fields[0], fields[-1]

    def short(frame: Frame) -> JsonValue:
        try:
            return frame[name][first]
        except (KeyError, TypeError):
            return run(frame)

    def long(frame: Frame) -> JsonValue:
        try:
            return frame[name][first][second]
        except (KeyError, TypeError):
            return run(frame)

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

    def run(frame: Frame) -> JsonValue:
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
    first = arguments[0] if arguments else _itself

    def fault(raised: SyntaxFault) -> SyntaxFault:
        return type(raised)(f"{name}(): {raised.message}", at)

    def of_one(frame: Frame) -> JsonValue:
        value = first(frame)
        try:
            return function(frame, value)
        except SyntaxFault as raised:
            raise fault(raised) from None

    def run(frame: Frame) -> JsonValue:
        values = [argument(frame) for argument in arguments]
        try:
            return function(frame, *values)
        except SyntaxFault as raised:
            raise fault(raised) from None

    return of_one if len(arguments) == 1 else run


def _macro(node: syntax.Macro, item: str) -> Run:
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

    def run(frame: Frame) -> JsonDict:
        result: JsonDict = {}
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
    """Return the program of a map with known keys: a copy of its constant part, completed with the rest."""
    form = {name: node.value if isinstance(node, syntax.Constant) else None for name, node in members.items()}
    filled = [
        (name, program(node, item)) for name, node in members.items() if not isinstance(node, syntax.Constant)
    ]

    def run(frame: Frame) -> JsonDict:
        result = form.copy()
        for name, member in filled:
            result[name] = member(frame)
        return result

    return run


def _sign(node: syntax.Sign, item: str) -> Run:
    operand, at = program(node.operand, item), node.at

    def negated(frame: Frame) -> JsonValue:
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

    def run(frame: Frame) -> JsonValue:
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
            except SyntaxFault as raised:
                fault = fault or raised
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

    def run(frame: Frame) -> JsonValue:
        value = first(frame)
        for apply, operand, at in rest:
            other = operand(frame)
            try:
                value = apply(frame, value, other)
            except SyntaxFault as raised:
                raised.at = at
                raise
        return value

    return run


def _comparison_with(constant: JsonValue, operand: Run, wanted: bool) -> Run:
    """Return the program that compares a value with a constant. Both nearly always have the same type."""
    kind = type(constant)

    def run(frame: Frame) -> bool:
        value = operand(frame)
        if type(value) is kind:
            return (value == constant) is wanted
        return equals(frame, value, constant) is wanted

    return run


def _pair(first: Run, apply: Callable[[Frame, JsonValue, JsonValue], JsonValue], second: Run, at: int) -> Run:
    def run(frame: Frame) -> JsonValue:
        left, right = first(frame), second(frame)
        try:
            return apply(frame, left, right)
        except SyntaxFault as raised:
            raised.at = at
            raise

    return run


def _comparison(symbol: str) -> Callable[[Frame, JsonValue, JsonValue], JsonValue]:
    return lambda frame, left, right: compare(symbol, left, right)


def _calculation(symbol: str) -> Callable[[Frame, JsonValue, JsonValue], JsonValue]:
    return lambda frame, left, right: calculate(symbol, left, right)


_OPERATORS: dict[str, Callable[[Frame, JsonValue, JsonValue], JsonValue]] = {
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

    def run(frame: Frame) -> JsonValue:
        holds = condition(frame)
        if holds is True or (holds is not False and truth(holds, at)):
            return then(frame)
        return otherwise(frame)

    return run


def _at(at: int, function: Callable[[JsonValue], T], value: JsonValue) -> T:
    """Call the function with the value and locate its fault at offset ``at``."""
    try:
        return function(value)
    except SyntaxFault as raised:
        raised.at = at
        raise


def _constant(node: syntax.Constant, item: str) -> Run:
    value = node.value
    return lambda frame: value


_PROGRAMS: Mapping[type[Node], Callable[..., Run]] = {
    syntax.Constant: _constant,
    syntax.Name: _name,
    syntax.Path: _path,
    syntax.Index: _index,
    syntax.Call: _call,
    syntax.Macro: _macro,
    syntax.ListOf: lambda node, item: _list(node.items, item),
    syntax.MapOf: _map,
    syntax.Sign: _sign,
    syntax.Logic: _logic,
    syntax.Chain: _chain,
    syntax.Choice: _choice,
}
"""The compiler of each class of node."""
