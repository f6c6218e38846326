"""The macros of expressions: ``all``, ``exists``, ``exists_one``, ``filter`` and ``map``."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from wonder_server.core.expressions import syntax
from wonder_server.core.expressions.faults import BudgetExceeded, SyntaxFault
from wonder_server.core.expressions.syntax import MACROS
from wonder_server.core.expressions.values import MAX_ITEMS, Frame, truth, type_name
from wonder_server.core.json_types import JsonValue

Run = Callable[[JsonValue], JsonValue]


def compile_macro(
    node: syntax.Macro, target: Run, body: Run, condition: Run | None, alone: Run | None
) -> Run:
    """Return the program of a macro from the programs of its parts.

    ``alone`` is the body compiled to take the item itself, if the body has no cost and uses no other
    variable.
    """
    loop, variable, at = _MACROS[node.macro], node.variable, node.at
    weight = node.body.weight + (node.condition.weight if node.condition is not None else 0)
    at_once = _at_once(node, alone) if alone is not None else None

    def run(frame: Frame) -> JsonValue:
        items = target(frame)
        _check_items(items, node.macro, at)
        if at_once is not None and weight * len(items) <= frame.left:
            try:
                value = at_once(items)
            except SyntaxFault:
                pass  # The loop below raises it again, after paying for the items before it.
            else:
                frame.left -= weight * len(items)
                return value

        if not items:  # No variable is needed.
            return loop((), body, condition, body, at)

        def each(part: Run, item: JsonValue) -> JsonValue:
            frame.left -= weight
            if frame.left < 0:
                frame.spend(0)
            frame[variable] = item
            return part(frame)

        outer = frame.get(variable, _NOTHING)
        try:
            return loop(items, body, condition, each, at)
        finally:
            if outer is _NOTHING:
                frame.pop(variable, None)
            else:
                frame[variable] = outer

    return run


_NOTHING: JsonValue = object()


def _check_items(items: JsonValue, macro: str, at: int) -> None:
    """Raise `SyntaxFault` if a macro cannot iterate over ``items``."""
    if not isinstance(items, (list, tuple, Mapping)):
        raise SyntaxFault(f"{macro}() goes over a list or a map, not over {type_name(items)}", at)
    if len(items) > MAX_ITEMS:
        raise SyntaxFault(f"{macro}() goes over at most {MAX_ITEMS} items, these are {len(items)}", at)


def _at_once(node: syntax.Macro, body: Run) -> Run | None:
    """Return a program that processes all items without a frame; None for a macro that may stop early."""
    at = node.at
    if node.macro == "map":
        return lambda items: list(map(body, items))
    if node.macro == "filter":
        return lambda items: [item for item in items if truth(body(item), at)]
    return None


Each = Callable[[Run, JsonValue], JsonValue]


def _quantified(decisive: bool) -> Callable[..., bool]:
    """Return the loop of ``exists`` (one true item decides) or ``all`` (one false item decides).

    As with ``||`` and ``&&``, a fault counts only if no other item decides.
    """

    def loop(items: JsonValue, body: Run, condition: Run | None, each: Each, at: int) -> bool:
        fault: SyntaxFault | None = None
        for item in items:
            try:
                if truth(each(body, item), at) is decisive:
                    return decisive
            except BudgetExceeded:
                raise
            except SyntaxFault as raised:
                fault = fault or raised
        if fault is not None:
            raise fault
        return not decisive

    return loop


def _filter(items: JsonValue, body: Run, condition: Run | None, each: Each, at: int) -> list[JsonValue]:
    return [item for item in items if truth(each(body, item), at)]


def _exists_one(items: JsonValue, body: Run, condition: Run | None, each: Each, at: int) -> bool:
    return len(_filter(items, body, condition, each, at)) == 1


def _mapped(items: JsonValue, body: Run, condition: Run | None, each: Each, at: int) -> list[JsonValue]:
    if condition is None:
        return [each(body, item) for item in items]
    return [each(body, item) for item in items if truth(each(condition, item), at)]


_MACROS: dict[str, Callable[..., JsonValue]] = {
    "all": _quantified(False),
    "exists": _quantified(True),
    "exists_one": _exists_one,
    "filter": _filter,
    "map": _mapped,
}
assert _MACROS.keys() == MACROS.keys()
