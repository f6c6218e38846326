"""A syntax tree to a program: nested closures, one per node, called with the `Frame`.

Closures cost a tenth of walking the tree again each time and, unlike generated code, need no eval.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from wonder_server.core.expressions import syntax
from wonder_server.core.expressions.faults import Exhausted, Mistake
from wonder_server.core.expressions.functions import FUNCTIONS
from wonder_server.core.expressions.syntax import MACROS, TYPE_NAMES, Node
from wonder_server.core.expressions.values import (
    MAX_ITEMS,
    Frame,
    add,
    calculate,
    compare,
    contains,
    equals,
    fitting,
    is_number,
    type_name,
    whole,
)

Run = Callable[[Frame], Any]
T = TypeVar("T")


def program(node: Node) -> Run:
    """What computes the node's value. The run raises `Mistake`."""
    match node:
        case syntax.Constant(value=value):
            return lambda frame: value
        case syntax.Name():
            return _name(node)
        case syntax.Path():
            return _path(node)
        case syntax.Index():
            return _index(node)
        case syntax.Call():
            return _call(node)
        case syntax.Macro():
            return _macro(node)
        case syntax.ListOf(items=items):
            parts = [program(item) for item in items]
            return lambda frame: [part(frame) for part in parts]
        case syntax.MapOf():
            return _map(node)
        case syntax.Sign():
            return _sign(node)
        case syntax.Logic():
            return _logic(node)
        case syntax.Chain():
            return _chain(node)
        case syntax.Choice():
            return _choice(node)
    raise AssertionError(node)


def _name(node: syntax.Name) -> Run:
    name, at = node.name, node.at

    def run(frame: Frame) -> Any:
        try:
            return frame.names[name]
        except KeyError:
            if name in TYPE_NAMES:
                return name
            raise Mistake(f"unknown variable '{name}'", at) from None

    return run


def _path(node: syntax.Path) -> Run:
    target, at = program(node.target), node.at
    leading, last = node.fields[:-1], node.fields[-1]
    label = node.target.name if isinstance(node.target, syntax.Name) else ""

    def select(value: Any, field: str) -> Any:
        if not isinstance(value, Mapping):
            raise Mistake(f"there is no '{field}' in {type_name(value)}: only maps have members", at)
        if field not in value:
            raise Mistake(f"there is no '{field}'" + (f" in '{label}'" if label else ""), at)
        return value[field]

    def run(frame: Frame) -> Any:
        value = target(frame)
        for field in leading:
            value = value[field] if type(value) is dict and field in value else select(value, field)
        # Nearly always it is there, which is seen sooner than that it is not.
        return value[last] if type(value) is dict and last in value else select(value, last)

    def probe(frame: Frame) -> bool:
        value = target(frame)
        for field in leading:
            value = select(value, field)
        if not isinstance(value, Mapping):
            raise Mistake(f"has() looks into a map, not into {type_name(value)}", at)
        return last in value

    return probe if node.probe else run


def _index(node: syntax.Index) -> Run:
    target, key, at = program(node.target), program(node.key), node.at

    def run(frame: Frame) -> Any:
        collection, wanted = target(frame), key(frame)
        if isinstance(collection, Mapping):
            if not isinstance(wanted, str) or wanted not in collection:
                raise Mistake(f"there is no member {wanted!r:.80}", at)
            return collection[wanted]
        if not isinstance(collection, (list, tuple)):
            raise Mistake(f"[…] looks into a list or a map, not into {type_name(collection)}", at)
        position = _at(at, whole, wanted)
        if not 0 <= position < len(collection):
            raise Mistake(f"there is no item {position}: the list has {len(collection)}", at)
        return collection[position]

    return run


def _call(node: syntax.Call) -> Run:
    name, at = node.function, node.at
    function = FUNCTIONS[name].run
    arguments = [program(argument) for argument in node.arguments]

    def run(frame: Frame) -> Any:
        values = [argument(frame) for argument in arguments]
        try:
            return function(frame, *values)
        except Mistake as mistake:
            raise type(mistake)(f"{name}(): {mistake.message}", at) from None

    return run


def _macro(node: syntax.Macro) -> Run:
    loop = _LOOPS[node.macro]
    target, variable, at = program(node.target), node.variable, node.at
    body = program(node.body)
    condition = program(node.condition) if node.condition is not None else None
    weight = node.body.weight + (node.condition.weight if node.condition is not None else 0)

    def run(frame: Frame) -> Any:
        items = target(frame)
        if not isinstance(items, (list, tuple, Mapping)):
            raise Mistake(f"{node.macro}() goes over a list or a map, not over {type_name(items)}", at)
        if len(items) > MAX_ITEMS:
            raise Mistake(f"{node.macro}() goes over at most {MAX_ITEMS} items, these are {len(items)}", at)
        outer = frame.names
        inner = dict(outer)
        frame.names = inner

        def each(part: Run, item: Any) -> Any:
            frame.left -= weight
            if frame.left < 0:
                frame.spend(0)
            inner[variable] = item
            return part(frame)

        try:
            return loop(items, body, condition, each, at)
        finally:
            frame.names = outer

    return run


Each = Callable[[Run, Any], Any]


def _quantified(decisive: bool) -> Callable[..., bool]:
    """``exists`` (one true item decides) and ``all`` (one false item does): as with ``||`` and ``&&``,
    a fault counts only if no other item decides."""

    def loop(items: Any, body: Run, condition: Run | None, each: Each, at: int) -> bool:
        fault: Mistake | None = None
        for item in items:
            try:
                if _truth(each(body, item), at) is decisive:
                    return decisive
            except Exhausted:
                raise
            except Mistake as mistake:
                fault = fault or mistake
        if fault is not None:
            raise fault
        return not decisive

    return loop


def _filter(items: Any, body: Run, condition: Run | None, each: Each, at: int) -> list[Any]:
    return [item for item in items if _truth(each(body, item), at)]


def _exists_one(items: Any, body: Run, condition: Run | None, each: Each, at: int) -> bool:
    return len(_filter(items, body, condition, each, at)) == 1


def _mapped(items: Any, body: Run, condition: Run | None, each: Each, at: int) -> list[Any]:
    if condition is None:
        return [each(body, item) for item in items]
    return [each(body, item) for item in items if _truth(each(condition, item), at)]


_LOOPS: dict[str, Callable[..., Any]] = {
    "all": _quantified(False),
    "exists": _quantified(True),
    "exists_one": _exists_one,
    "filter": _filter,
    "map": _mapped,
}
assert _LOOPS.keys() == MACROS.keys()


def _map(node: syntax.MapOf) -> Run:
    names = [key.value for key, _ in node.entries if isinstance(key, syntax.Constant)]
    if len({name for name in names if isinstance(name, str)}) == len(node.entries):
        members = [(str(name), program(value)) for name, (_, value) in zip(names, node.entries, strict=True)]
        return lambda frame: {name: member(frame) for name, member in members}
    entries = [(program(key), program(value), key.at) for key, value in node.entries]

    def run(frame: Frame) -> dict[str, Any]:
        result: dict[str, Any] = {}
        for key, value, at in entries:
            name = key(frame)
            if not isinstance(name, str):
                raise Mistake(f"a map's keys are texts, not {type_name(name)}", at)
            if name in result:
                raise Mistake(f"the key '{name}' is there twice", at)
            result[name] = value(frame)
        return result

    return run


def _sign(node: syntax.Sign) -> Run:
    operand, at = program(node.operand), node.at

    def negated(frame: Frame) -> Any:
        value = operand(frame)
        if not is_number(value):
            raise Mistake(f"'-' is not defined for {type_name(value)}", at)
        return _at(at, fitting, -value)

    def inverted(frame: Frame) -> bool:
        return not _truth(operand(frame), at)

    return negated if node.sign == "-" else inverted


def _logic(node: syntax.Logic) -> Run:
    operands = [program(operand) for operand in node.operands]
    decisive, at = node.operator == "||", node.at

    def run(frame: Frame) -> bool:
        fault: Mistake | None = None
        for operand in operands:
            try:
                if _truth(operand(frame), at) is decisive:
                    return decisive
            except Exhausted:
                raise
            except Mistake as mistake:
                fault = fault or mistake
        if fault is not None:
            raise fault
        return not decisive

    return run


def _chain(node: syntax.Chain) -> Run:
    first = program(node.first)
    rest = [(_OPERATORS[symbol], program(operand), at) for symbol, operand, at in node.rest]
    if len(rest) == 1:
        return _pair(first, *rest[0])

    def run(frame: Frame) -> Any:
        value = first(frame)
        for apply, operand, at in rest:
            other = operand(frame)
            try:
                value = apply(frame, value, other)
            except Mistake as mistake:
                mistake.at = at
                raise
        return value

    return run


def _pair(first: Run, apply: Callable[[Frame, Any, Any], Any], second: Run, at: int) -> Run:
    def run(frame: Frame) -> Any:
        left, right = first(frame), second(frame)
        try:
            return apply(frame, left, right)
        except Mistake as mistake:
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


def _choice(node: syntax.Choice) -> Run:
    condition, then, otherwise = program(node.condition), program(node.then), program(node.otherwise)
    at = node.at

    def run(frame: Frame) -> Any:
        return then(frame) if _truth(condition(frame), at) else otherwise(frame)

    return run


def _truth(value: Any, at: int) -> bool:
    if value is True or value is False:
        return bool(value)
    raise Mistake(f"a condition is true or false, not {type_name(value)}", at)


def _at(at: int, function: Callable[[Any], T], value: Any) -> T:
    """``function(value)``, whose faults lie at this place."""
    try:
        return function(value)
    except Mistake as mistake:
        mistake.at = at
        raise
