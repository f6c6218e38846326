"""The loops of expressions: ``all``, ``exists``, ``exists_one``, ``filter`` and ``map``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from wonder_server.core.expressions import syntax
from wonder_server.core.expressions.faults import BudgetExceeded, SyntaxFault
from wonder_server.core.expressions.syntax import MACROS
from wonder_server.core.expressions.values import MAX_ITEMS, Frame, truth, type_name

Run = Callable[[Any], Any]


def compile_macro(
    node: syntax.Macro, target: Run, body: Run, condition: Run | None, alone: Run | None
) -> Run:
    """The program of a loop, made of those of its parts. ``alone`` is its body once more, if that is free and
    speaks of nothing but the item: then it takes the item itself."""
    loop, variable, at = _MACROS[node.macro], node.variable, node.at
    weight = node.body.weight + (node.condition.weight if node.condition is not None else 0)
    at_once = _at_once(node, alone) if alone is not None else None

    def run(frame: Frame) -> Any:
        items = target(frame)
        if not isinstance(items, (list, tuple, Mapping)):
            raise SyntaxFault(f"{node.macro}() goes over a list or a map, not over {type_name(items)}", at)
        if len(items) > MAX_ITEMS:
            raise SyntaxFault(
                f"{node.macro}() goes over at most {MAX_ITEMS} items, these are {len(items)}", at
            )
        if at_once is not None and weight * len(items) <= frame.left:
            try:
                value = at_once(items)
            except SyntaxFault:
                pass  # It comes again below, where what was done before it is paid for.
            else:
                frame.left -= weight * len(items)
                return value

        if not items:  # Then nothing has to be made ready.
            return loop((), body, condition, body, at)

        def each(part: Run, item: Any) -> Any:
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


_NOTHING: Any = object()


def _at_once(node: syntax.Macro, body: Run) -> Run | None:
    """What goes over all items without a frame: only for loops that do go over all."""
    at = node.at
    if node.macro == "map":
        return lambda items: list(map(body, items))
    if node.macro == "filter":
        return lambda items: [item for item in items if truth(body(item), at)]
    return None


Each = Callable[[Run, Any], Any]


def _quantified(decisive: bool) -> Callable[..., bool]:
    """``exists`` (one true item decides) and ``all`` (one false item does): as with ``||`` and ``&&``,
    a fault counts only if no other item decides."""

    def loop(items: Any, body: Run, condition: Run | None, each: Each, at: int) -> bool:
        fault: SyntaxFault | None = None
        for item in items:
            try:
                if truth(each(body, item), at) is decisive:
                    return decisive
            except BudgetExceeded:
                raise
            except SyntaxFault as mistake:
                fault = fault or mistake
        if fault is not None:
            raise fault
        return not decisive

    return loop


def _filter(items: Any, body: Run, condition: Run | None, each: Each, at: int) -> list[Any]:
    return [item for item in items if truth(each(body, item), at)]


def _exists_one(items: Any, body: Run, condition: Run | None, each: Each, at: int) -> bool:
    return len(_filter(items, body, condition, each, at)) == 1


def _mapped(items: Any, body: Run, condition: Run | None, each: Each, at: int) -> list[Any]:
    if condition is None:
        return [each(body, item) for item in items]
    return [each(body, item) for item in items if truth(each(condition, item), at)]


_MACROS: dict[str, Callable[..., Any]] = {
    "all": _quantified(False),
    "exists": _quantified(True),
    "exists_one": _exists_one,
    "filter": _filter,
    "map": _mapped,
}
assert _MACROS.keys() == MACROS.keys()
